"""The life of a server process: from its settings to its exit code."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from streamd import REDIS_VERSION, __version__
from streamd.errors import AclError, StartError
from streamd.persistence.start_loading import LoadError
from streamd.process.supervisor import Supervisor
from streamd.replication.replication import Replication
from streamd.serve.app import ListenError, Server
from streamd.serve.loop_choice import run_in_new_loop
from streamd.serve.shutdown import Shutdown
from streamd.serve.tls import TlsError
from streamd.serve.warnings import warn_about_system, warn_about_users
from streamd.users.acl import Acl

if TYPE_CHECKING:
    from streamd.settings.config import Config

__all__ = ["run"]

log = logging.getLogger("streamd")


def run(config: Config) -> int:
    """Serve until asked to stop; returns the exit code of the process. Logging is already set up."""
    warn_about_system()
    supervisor = Supervisor()
    supervisor.take_up(config)
    log.info("oO0OoO0OoO0Oo streamd is starting oO0OoO0OoO0Oo")
    log.info("streamd version=%s, speaks Redis %s, pid=%d, just started", __version__, REDIS_VERSION, os.getpid())
    if config.is_given:
        log.info("Configuration loaded")
    else:
        log.warning("Warning: no config file specified, using the default config.")
    if config.dir:
        try:
            os.chdir(config.dir)
        except OSError as error:
            log.critical("Can't chdir to '%s': %s", config.dir, error.strerror)
            return 1
    if is_in_background(config, supervisor) and not daemonize():
        return 0
    return run_in_new_loop(_serve(config, supervisor), config)


async def _serve(config: Config, supervisor: Supervisor) -> int:
    server = Server(config, is_embedded=False)
    server.supervisor = supervisor
    # Not the loop's own handlers: those run only after the current work, which may be a long snapshot, or the very
    # work to cancel.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _frame: server.get(Shutdown).take_signal(number))
    for number in (signal.SIGHUP, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    try:
        await server.start()
    except (AclError, TlsError, StartError) as error:
        log.critical("%s", error)
        return 1
    except ListenError as error:
        log.warning("Failed listening on %s, aborting.", error.place)
        return 1
    except LoadError:
        return 1
    if server.is_stopped:
        return server.exit_code
    # Not earlier: the file may belong to the server that occupies the port.
    remove_pid_file = write_pid_file(config, is_in_background=is_in_background(config, supervisor))
    if server.port:
        log.info("Ready to accept connections tcp")
    if server.tls_port:
        log.info("Ready to accept connections tls")
    if config.unixsocket:
        log.info("Ready to accept connections unix")
    is_replica = server.get(Replication).is_replica
    mode = " in read-only mode. Waiting for MASTER <-> REPLICA sync" if is_replica else ""
    supervisor.tell(f"STATUS=Ready to accept connections{mode}")
    supervisor.tell("READY=1")
    warn_about_users(config, is_open=server.get(Acl).default.is_nopass)
    try:
        await server.wait_closed()
    finally:
        remove_pid_file()
    # One more turn, for the transports to close.
    await asyncio.sleep(0)
    log.warning("streamd is now ready to exit, bye bye...")
    return server.exit_code


def is_in_background(config: Config, supervisor: Supervisor) -> bool:
    """Whether the process leaves the foreground; not under a supervisor, who would take that for its end."""
    return config.daemonize and supervisor.kind == "no"


def daemonize() -> bool:
    """Continue in the background; False in the process that must exit."""
    if os.fork():
        return False
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    sys.stdout.flush()
    sys.stderr.flush()
    for number in (0, 1, 2):
        os.dup2(null, number)
    return True


def write_pid_file(config: Config, *, is_in_background: bool) -> Any:
    """Write the pid file if configured, or in the background; returns a function that removes it."""
    path = config.pidfile or ("/var/run/redis.pid" if is_in_background else "")
    if not path:
        return lambda: None
    try:
        with open(path, "w", encoding="ascii") as file:
            file.write(f"{os.getpid()}\n")
    except OSError as error:
        log.warning("Failed to write PID file: %s", error.strerror)
        return lambda: None

    def remove() -> None:
        log.info("Removing the pid file.")
        with suppress(OSError):
            os.unlink(path)

    return remove
