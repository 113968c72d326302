"""The entry point of the container image, `python -m streamd.cli.container [words]`.

The first word may be what the image of Redis takes: `redis-server`, `streamd server`, an option, or a configuration file, all of
which run a server; anything else is a program that is run instead. What a server of the image adds to that:

- Settings come from the environment too: STREAMD_APPENDONLY=yes, STREAMD_SAVE="60 1"; STREAMD_REQUIREPASS_FILE names a file that holds
  the value. They override the file, and options override them.
- Protected mode is off unless something asks for it: clients of a container always come from other hosts.
- root becomes the user `streamd`, to whom the data folder is given. Another user stays.
- A data folder that cannot be written is told of in one line: without saving where nothing asks for it, else the server does not
  start. It would refuse to stop later, for want of a place for its last snapshot.

`--health` asks the server of this container whether it serves, for HEALTHCHECK and probes: exit status 0 when it does.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from streamd.errors import StreamdError
from streamd.settings.config import CODEC, Config, unknown_text
from streamd.settings.declarations import by_name

__all__ = ["main", "server_arguments", "settings_of"]

PREFIX = "STREAMD_"
USER = "streamd"
SERVER_PROGRAMS = ("redis-server", "streamd-server")
SERVICE_LINK = re.compile(r"STREAMD(_\w+)?_(SERVICE_(HOST|PORT(_\w+)?)|PORT(_\d+_(TCP|UDP)(_\w+)?)?)")
"""What an orchestrator sets in every container beside a service that is called streamd."""
HEALTH_TIMEOUT_S = 5.0


def main() -> None:
    """Run what the words ask for; does not return."""
    words = sys.argv[1:]
    try:
        if words[:1] == ["--health"]:
            sys.exit(health(words_of_server(), os.environ))
        arguments = server_arguments(words, os.environ)
        if arguments is None:
            run_other(words)
        config = peek(arguments)
        folder = config.dir if config is not None and config.dir else "."
        if os.getuid() == 0:
            become_user(folder)
        if config is not None:
            arguments += arguments_for_folder(folder, config)
    except (StreamdError, OSError) as error:
        sys.exit(f"streamd: {error}")
    from streamd.cli.server import serve

    sys.exit(serve(arguments, program=SERVER_PROGRAMS[0]))


# --- What is to be run -----------------------------------------------------------------------------------------------------


def server_arguments(words: Sequence[str], environment: Mapping[str, str]) -> list[str] | None:
    """The command line of the server that the words ask for; None when they name another program. Raises OSError."""
    rest = list(words)
    if rest[:2] == ["streamd", "server"]:
        rest = rest[2:]
    elif rest[:1] and os.path.basename(rest[0]) in SERVER_PROGRAMS:
        rest = rest[1:]
    elif rest and not (rest[0].startswith("-") or rest[0].endswith(".conf") or is_file_of_settings(rest[0])):
        return None
    if rest[:1] in (["-v"], ["--version"], ["-h"], ["--help"]):
        return rest
    file = [rest.pop(0)] if rest and not rest[0].startswith("-") else []
    named = {word[2:].split()[0].lower() for word in rest if word.startswith("--") and word[2:].strip()}
    found = settings_of(environment)
    arguments = [*file]
    if "protected-mode" not in named | found.keys() and not (file and mentions_protected_mode(file[0])):
        arguments += ["--protected-mode", "no"]
    for name, value in found.items():
        if name in named:
            continue
        if name == "save" and value:
            arguments += ["--save", ""]  # else it would add to what the file has
        arguments += [f"--{name}", value]
    return arguments + rest


def is_file_of_settings(word: str) -> bool:
    """Whether a word is a file, and no program."""
    return os.path.isfile(word) and shutil.which(word) is None


def mentions_protected_mode(path: str) -> bool:
    try:
        return re.search(rb"(?im)^\s*protected-mode\s", Path(path).read_bytes()) is not None
    except OSError:
        return False  # the server will say so


def settings_of(environment: Mapping[str, str]) -> dict[str, str]:
    """Names and values of the settings in the environment; what begins like one and is none is told of. Raises OSError."""
    found = {}
    given = sorted(variable for variable in environment if variable.startswith(PREFIX))
    if given:
        import streamd.serve.launch  # noqa: F401  (declares the rest of the settings)
    for variable in given:
        value = environment[variable]
        name = variable.removeprefix(PREFIX).lower().replace("_", "-")
        if name == "port" and value.startswith("tcp://"):
            continue
        if name in by_name:
            found[by_name[name].name] = value
        elif name.endswith("-file") and name.removesuffix("-file") in by_name:
            content = Path(value).read_bytes().decode(*CODEC)
            found[by_name[name.removesuffix("-file")].name] = content.rstrip("\r\n")
        elif not SERVICE_LINK.fullmatch(variable):
            sys.stderr.write(f"streamd: {variable} is ignored: {unknown_text(name)}\n")
    return found


def run_other(words: Sequence[str]) -> NoReturn:
    """Become another program; raises OSError."""
    if shutil.which(words[0]) is None:
        raise FileNotFoundError(f"{words[0]} is not a program, an option of redis-server, or a file of settings")
    os.execvp(words[0], list(words))  # noqa: S606  what the user asks for


# --- Its folder ------------------------------------------------------------------------------------------------------------


def peek(arguments: Sequence[str]) -> Config | None:
    """The settings that the server will have; None when they cannot be known, or are wrong, which the server will say."""
    if "-" in arguments or arguments[:1] in (["-v"], ["--version"], ["-h"], ["--help"]):
        return None
    # A file may have lines that only the whole server knows: users, and commands that are renamed.
    if arguments and not arguments[0].startswith("-"):
        import streamd.serve.launch

    try:
        return Config.from_arguments(arguments, sys.stdin.buffer)
    except StreamdError:
        import streamd.serve.launch  # noqa: F401  (declares the rest of the settings)
    try:
        return Config.from_arguments(arguments, sys.stdin.buffer)
    except StreamdError:
        return None


def become_user(folder: str) -> None:
    """From root to the user of the image, after the data folder has been given to him where that is allowed."""
    import grp
    import pwd

    try:
        user = pwd.getpwnam(USER)
    except KeyError:
        return
    for place, _, files in os.walk(folder):
        for path in (place, *(os.path.join(place, name) for name in files)):
            try:
                if os.lstat(path).st_uid != user.pw_uid:
                    os.chown(path, user.pw_uid, user.pw_gid, follow_symlinks=False)
            except OSError:
                continue  # a file system that is read-only, or keeps owners itself
    os.setgroups([group.gr_gid for group in grp.getgrall() if USER in group.gr_mem] or [user.pw_gid])
    os.setgid(user.pw_gid)
    os.setuid(user.pw_uid)
    os.environ["HOME"] = user.pw_dir


def arguments_for_folder(folder: str, config: Config) -> list[str]:
    """Options for a data folder that cannot be written: not to save, where nobody asked for that. Raises StreamdError."""
    if os.access(folder, os.W_OK | os.X_OK):
        return []
    place = os.path.abspath(folder)
    if not os.path.isdir(folder):
        return []  # the server says so
    reason = f"{place} cannot be written by uid {os.getuid()}"
    if config.appendonly or (config.save and config.save != Config().save):
        raise StreamdError(
            f"{reason}, and the settings require saving: change its owner to that user, or mount a folder there"
        )
    if config.save:
        sys.stderr.write(f"streamd: {reason}: nothing is saved\n")
    return ["--save", ""]


# --- Health ----------------------------------------------------------------------------------------------------------------


def words_of_server() -> list[str]:
    """What the first process of the container was started with."""
    words = Path("/proc/1/cmdline").read_bytes().decode(*CODEC).split("\0")[:-1]
    return words[words.index(__spec__.name) + 1 :] if __spec__ is not None and __spec__.name in words else []


def health(words: Sequence[str], environment: Mapping[str, str]) -> int:
    """0 when the server serves; also when it wants a password for an answer. Raises StreamdError when it does not answer."""
    from streamd.client.client_errors import ServerError
    from streamd.client.connection import dial
    from streamd.client.place import Place

    config = peek(server_arguments(words, environment) or [])
    if config is None:
        config = Config()
    has_tls = not config.port and bool(config.tls_port)
    place = Place(
        port=config.port or config.tls_port,
        unix_path=config.unixsocket if not config.port and not config.tls_port else None,
        is_tls=has_tls,
        is_verified=False,
        cert_file=config.tls_cert_file if has_tls else None,
        key_file=config.tls_key_file if has_tls else None,
    )
    with dial(place, timeout_s=HEALTH_TIMEOUT_S) as connection:
        try:
            connection.command("PING")
        except ServerError as error:
            if not str(error).startswith(("NOAUTH", "NOPERM")):
                raise
    return 0


if __name__ == "__main__":
    main()
