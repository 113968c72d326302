"""Options shared by the subcommands that read streams as a client: where the server is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

__all__ = ["collect_options", "named", "with_server_options"]

F = TypeVar("F", bound=Callable[..., Any])

_SERVER: list[Callable[[F], F]] = [
    click.option("--url", metavar="URL", help="redis://user@host:port/db, rediss:// for TLS, unix:///path; redis+cluster://host:port,... for a cluster."),
    click.option("-h", "--host", metavar="HOST", help="Server's name or address.  [default: 127.0.0.1]"),
    click.option("-p", "--port", type=click.IntRange(1, 65535), help="Its TCP port.  [default: 6379]"),
    click.option("-n", "--db", type=click.IntRange(0), help="Number of the database."),
    click.option("--user", "username", metavar="NAME", help="ACL user."),
    click.option("--password-env", metavar="NAME", help="Environment variable that holds the password."),
    click.option("--password-file", metavar="FILE", help="File whose first line is the password."),
    click.option(
        "-o", "--option", "extra", multiple=True, metavar="NAME=VALUE",
        help="Another option of format(\"streamd\"): tlsCaFile, sentinels, readTimeout ...",
    ),
]  # fmt: skip


def with_server_options(command: F) -> F:
    """Give a command the options that say where the server is; `collect_options` reads them."""
    for option in reversed(_SERVER):
        command = option(command)
    return command


def named(pairs: tuple[str, ...], flag: str) -> dict[str, str]:
    """NAME=VALUE pairs. Raises click.UsageError for anything else."""
    found = {}
    for each in pairs:
        name, equals, value = each.partition("=")
        if not equals or not name:
            raise click.UsageError(f"{flag} takes NAME=VALUE, not {each!r}")
        found[name] = value
    return found


def collect_options(given: dict[str, Any]) -> dict[str, str]:
    """Extract the server's options from a command's arguments, in the form that format("streamd") accepts."""
    names = {
        "url": "url", "host": "host", "port": "port", "db": "db", "username": "username",
        "password_env": "passwordEnv", "password_file": "passwordFile",
    }  # fmt: skip
    options = {}
    for name, option in names.items():
        value = given.pop(name, None)
        if value is not None:
            options[option] = str(value)
    options |= named(given.pop("extra", ()), "--option")
    check_names(options)
    return options


def check_names(options: dict[str, str]) -> None:
    """Raise click.UsageError for an option that format("streamd") does not have."""
    from streamd.client.client_errors import OptionError
    from streamd.client.url_options import ConnectionOptions, lowered, refuse_unknown
    from streamd.transfer.read_options import SourceOptions

    try:
        refuse_unknown(lowered(options), SourceOptions, ConnectionOptions)
    except OptionError as error:
        raise click.UsageError(str(error)) from None
