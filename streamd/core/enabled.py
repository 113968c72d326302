"""Commands that are available only to the clients that a setting allows: DEBUG and MODULE."""

from __future__ import annotations

from streamd.core.client import Client
from streamd.errors import CommandError

__all__ = ["check_enabled"]


def check_enabled(name: str, setting: str, client: Client) -> None:
    """Raise CommandError unless `setting`, the value of enable-NAME-command, allows a client to use a command."""
    if setting != "yes" and not (setting == "local" and client.is_local):
        raise CommandError(
            f'ERR {name} command not allowed. If the enable-{name.lower()}-command option is set to "local", you can run it'
            " from a local connection, otherwise you need to set this option in the configuration file, and then restart"
            " the server."
        )
