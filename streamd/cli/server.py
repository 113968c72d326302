"""`streamd server`, and the program `streamd-server`: the command line of redis-server.

Exit codes are redis-server's: 0 after a requested shutdown, 1 when the server could not start.
"""

from __future__ import annotations

import logging
import os
import struct
import sys
from collections.abc import Sequence

from streamd import REDIS_VERSION, __version__
from streamd.errors import ConfigError
from streamd.process import log as server_log
from streamd.serve import launch  # before any configuration is read: capabilities declare what it may say
from streamd.serve.limits import RESERVED_FILES, allow_clients
from streamd.settings.config import Config, ConfigFileError, UnresolvedError, fatal_text

__all__ = ["main", "serve"]

log = logging.getLogger("streamd")

USAGE = """\
Usage: {program} [/path/to/streamd.conf] [options] [-]
       {program} -                  read the configuration from standard input
       {program} -v | --version
       {program} -h | --help

Every setting is an option: --port 7000 --save "" --loglevel verbose. Options override the file.
`streamd conf` prints all settings with their defaults.

Examples:
       {program}
       {program} --port 7777
       {program} /etc/streamd/6379.conf --loglevel verbose
       echo 'port 7777' | {program} -
"""


def main() -> None:
    """The program `streamd-server`; does not return."""
    sys.exit(serve(sys.argv[1:], program=os.path.basename(sys.argv[0]) or "streamd-server"))


def serve(arguments: Sequence[str], *, program: str) -> int:
    """Run a server with the arguments of redis-server; return the exit code."""
    first = arguments[0] if arguments else ""
    if first in ("-v", "--version"):
        # The line that tools parse when they run redis-server to find out its version.
        print(
            f"Redis server v={REDIS_VERSION} sha=00000000:0 malloc=libc bits={8 * struct.calcsize('P')} build=streamd-{__version__}"
        )
        return 0
    if first in ("-h", "--help"):
        sys.stderr.write(USAGE.format(program=program))
        return 1
    if first == "--test-memory":
        sys.stderr.write(f"{program} does not test memory.\n")
        return 1
    if "--sentinel" in arguments:
        sys.stderr.write(f"{program} has no Sentinel mode: use redis-sentinel to monitor servers.\n")
        return 1
    try:
        config = Config.from_arguments(arguments, sys.stdin.buffer)
    except ConfigError as error:
        sys.stderr.write(fatal_text(error))
        return 1
    except (ConfigFileError, UnresolvedError) as error:
        server_log.setup(Config())
        for line in str(error).splitlines():
            log.warning("%s", line)
        return 1
    return run(config)


def run(config: Config) -> int:
    """Set up what belongs to the process rather than to the server, and serve."""
    try:
        server_log.setup(config)
    except ConfigError as error:
        sys.stderr.write(fatal_text(error))
        return 1
    if config.is_deaf:
        log.warning("Configured to not listen anywhere, exiting.")
        return 1
    open_files(config)
    config.callbacks |= {
        "log": lambda: server_log.set_level(config),
        "open-files": lambda: check_open_files(config),
    }
    for name in config.without_effect():
        log.warning("The setting %s has no effect yet", name)
    return launch.run(config)


def open_files(config: Config) -> None:
    """Raise the limit of open files for maxclients, or lower maxclients to what it allows."""
    allowed = allow_clients(config.maxclients)
    if allowed < config.maxclients:
        log.warning(
            "You requested maxclients of %d requiring at least %d max file descriptors.",
            config.maxclients, config.maxclients + RESERVED_FILES,
        )  # fmt: skip
        log.warning(
            "Current maximum open files is %d. maxclients has been reduced to %d to compensate for low ulimit. If you need"
            " higher maxclients increase 'ulimit -n'.", allowed + RESERVED_FILES, allowed,
        )  # fmt: skip
        config.maxclients = allowed


def check_open_files(config: Config) -> None:
    """As open_files, after CONFIG SET; raises ConfigError."""
    allowed = allow_clients(config.maxclients)
    if allowed < config.maxclients:
        reason = f"The operating system is not able to handle the specified number of clients, try with {allowed}"
        raise ConfigError("maxclients", reason)
