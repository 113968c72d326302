"""Acl: the users of a server. It checks requests and passwords, changes users, and keeps the log of denials.

    acl_rules.py        commands, keys and channels that are allowed, and how that is written
    user.py         one user
    permissions.pyx what requests are checked against; compiled from the rules with each change
    denials.py      the log of what was denied
    user_lines.py   users in files

What must hold: `Acl.users` has a user `default`; a client's `user` is in `Acl.users`, or the client is being closed; a
client is LIMITED exactly when its user may not do everything.

Texts and behaviour: Redis 8.6, as seen on a running server.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from typing import Any

from streamd.core.capability import Capability
from streamd.core.client import CLIENT_STATES, Client
from streamd.core.client_line import describe
from streamd.core.host import Host
from streamd.core.identity import Identity
from streamd.core.info import Fields
from streamd.core.route import Route
from streamd.core.spec import Command
from streamd.disk import replace_file
from streamd.errors import AclError, CommandError, RuleError, printable
from streamd.users.acl_rules import CommandIndex, has_blanks
from streamd.users.denials import DenialLog, Reason
from streamd.users.user import User
from streamd.users.user_lines import FileReader

__all__ = ["Acl"]

log = logging.getLogger("streamd")

DEFAULT_USER = b"default"
WRONG_LOGIN = "WRONGPASS invalid username-password pair or user is disabled."
BOTH_SOURCES = (
    "Users are declared both in the configuration and in an ACL file, which is error-prone and may leave access open. Please"
    " use only one of them."
)
NOPERM_IN_EXEC = (
    "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This command is no"
    " longer allowed for the following reason: "
)
EXEC_REASONS = {
    Reason.COMMAND: "no permission to execute the command or subcommand",
    Reason.KEY: "no permission to touch the specified keys",
    Reason.CHANNEL: "no permission to access one of the channels used as arguments",
}


class Acl(Capability):
    """The users of a server.

    users     by name
    default   the user that new connections have
    log       the denials
    """

    info = {
        "stats": (
            # In the order of Reason.
            Fields(
                "acl_access_denied_cmd acl_access_denied_key acl_access_denied_auth acl_access_denied_channel"
                " acl_access_denied_tls_cert",
                lambda self: self.log.counted,
            ),
        ),
    }
    refusal_rank = 10

    def __init__(self, host: Host) -> None:
        self.client_bits = CLIENT_STATES["limited"]
        self._host = host
        self._config = host.config
        routes = host.dispatcher.routes.by_full_name
        self.index = CommandIndex({name: route.index for name, route in routes.items()})
        self.log = DenialLog(lambda: int(self._config.acllog_max_len))
        self.default = self._new_default()
        self.users: dict[bytes, User] = {DEFAULT_USER: self.default}
        self.set_password()
        for warning in self.load_at_start():
            log.warning("%s", warning)
        self._config.callbacks["password"] = self.set_password
        self._config.user_lines = self.config_lines

    def _new_default(self) -> User:
        rules = (b"on", b"nopass", b"~*", b"&*", b"+@all")
        return User(DEFAULT_USER, self.index).changed(rules)

    def _new_user(self, name: bytes) -> User:
        return User(name, self.index, all_channels=self._gives_all_channels)

    @property
    def _gives_all_channels(self) -> bool:
        return bool(self._config.acl_pubsub_default == "allchannels")

    def in_order(self) -> list[User]:
        """All users, by name."""
        return [self.users[name] for name in sorted(self.users)]

    def check_invariants(self) -> None:
        """Assert what must hold; for tests."""
        assert self.users[DEFAULT_USER] is self.default
        assert self._host.dispatcher.default_user is self.default
        assert self._host.dispatcher.needs_password == self.needs_password
        for name, user in self.users.items():
            assert user.name == name
            user.check_invariants()
        for client in self._host.clients.values():
            assert client.user is None or client.close_after_reply or self.users[client.user.name] is client.user

    # -- Checking requests

    def find_refusal(self, client: Client, route: Route, args: list[bytes]) -> str | None:
        """The error with which a request of a client is refused, or None. Called for LIMITED clients."""
        user: Any = client.user  # a client without a user is never LIMITED
        denial = user.permissions.find_denial(route.index, args)
        if denial is None:
            return None
        return self._refuse(client, user, route.command, args, denial, self._host.dispatcher.context.in_transaction)

    def _refuse(
        self, client: Client, user: User, command: Command, args: list[bytes], denial: tuple[int, int], in_exec: bool
    ) -> str:
        reason = Reason(denial[0])
        subject = command.full_name.encode() if reason is Reason.COMMAND else args[denial[1]]
        is_multi = in_exec or client.transaction is not None
        self._log(client, reason, subject, user.name, "multi" if is_multi else "toplevel")
        if in_exec:
            return NOPERM_IN_EXEC + EXEC_REASONS[reason]
        if reason is Reason.COMMAND:
            return f"NOPERM User {printable(user.name)} has no permissions to run the '{command.full_name}' command"
        return f"NOPERM No permissions to access a {reason.name.lower()}"

    def find_script_refusal(self, client: Client, route: Route, args: list[bytes]) -> str | None:
        """The error with which a command that a client's script calls is refused, or None."""
        user: Any = client.user
        denial = user.permissions.find_denial(route.index, args)
        if denial is None:
            return None
        command, reason = route.command, Reason(denial[0])
        subject = command.full_name.encode() if reason is Reason.COMMAND else args[denial[1]]
        self._log(client, reason, subject, user.name, "lua")
        if reason is Reason.COMMAND:
            text = f"User {printable(user.name)} has no permissions to run the '{command.full_name}' command"
        else:
            text = f"No permissions to access a {reason.name.lower()}"
        return f"ERR ACL failure in script: {text}"

    def _log(self, client: Client, reason: Reason, subject: bytes, username: bytes, context: str) -> None:
        self.log.add(reason, context, subject, username, describe(client, time.monotonic()))

    def explain(self, user: User, command: Command, args: list[bytes]) -> bytes | None:
        """ACL DRYRUN: why a user may not run a request; None when it may."""
        denial = user.permissions.find_denial(self.index.numbers[command.full_name], args)
        if denial is None:
            return None
        reason = Reason(denial[0])
        if reason is Reason.COMMAND:
            return b"User %b has no permissions to run the '%b' command" % (user.name, command.full_name.encode())
        kind = reason.name.lower().encode()
        return b"User %b has no permissions to access the '%b' %b" % (user.name, args[denial[1]], kind)

    # -- Logging in

    @property
    def needs_password(self) -> bool:
        """Whether a new connection has to log in."""
        return not self.default.is_nopass or not self.default.is_enabled

    def authenticate(self, client: Client, name: bytes, password: bytes, command: bytes) -> None:
        """Log a client in as a user; CommandError when the password is wrong. `command` is what it called."""
        user = self.users.get(name)
        if user is None or not user.accepts(password):
            self._log(client, Reason.AUTH, command, name, "toplevel" if client.transaction is None else "multi")
            raise CommandError(WRONG_LOGIN)
        self._flush_notifications()
        client.set_authenticated(True, user)

    def authenticate_by_certificate(self, client: Client, name: bytes) -> None:
        """Log a client in as the user that its certificate names; without such a user nothing changes."""
        user = self.users.get(name)
        if user is None or not user.is_enabled:
            self._log(client, Reason.TLS_CERT, b"", name, "toplevel")
        else:
            client.set_authenticated(True, user)

    def set_password(self) -> None:
        """requirepass has changed: set the password of the default user, or remove it."""
        password = self._config.requirepass.encode("utf-8", "surrogateescape")
        rules = (b"resetpass", b">" + password) if password else (b"nopass",)
        self.default.take(self.default.changed(rules))
        self._follow(self.default)

    # -- Changing users

    def set_user(self, name: bytes, rules: Sequence[bytes]) -> None:
        """ACL SETUSER: create or change a user; on RuleError nothing has changed."""
        user = self.users.get(name)
        changed = (user or self._new_user(name)).changed(rules, all_channels=self._gives_all_channels)
        if user is None:
            self.users[name] = changed
            return
        self._flush_notifications()
        user.take(changed)
        self._follow(user)

    def delete_user(self, name: bytes) -> bool:
        """ACL DELUSER; its connections are closed. False when there is no such user."""
        user = self.users.pop(name, None)
        if user is None:
            return False
        self._flush_notifications()
        for client in self._clients_of(user):
            self._host.kill(client)
        return True

    def _flush_notifications(self) -> None:
        """Notify clients of changed keys (CLIENT TRACKING ON BCAST) before their permissions change."""
        self._host.permissions_change()

    def _clients_of(self, user: User) -> list[Client]:
        return [client for client in self._host.clients.values() if client.user is user]

    def _follow(self, user: User, clients: Iterable[Client] | None = None) -> None:
        """Update the permissions of a user's clients after the user has changed.

        clients   those of the user, if known
        """
        if user is self.default:
            self._update_new_connections()
        for client in self._clients_of(user) if clients is None else clients:
            client.follow_user()
            if client.is_subscribed and not may_keep_subscriptions(user, client):
                self._host.kill(client)

    def _update_new_connections(self) -> None:
        """Whether new connections must log in has changed with the default user."""
        dispatcher = self._host.dispatcher
        dispatcher.default_user = self.default
        dispatcher.needs_password = self.needs_password
        for client in self._host.clients.values():
            if not client.authenticated:
                client.follow_user()

    # -- Files

    def load_at_start(self) -> list[str]:
        """Read the users that the configuration declares, or those of its ACL file; returns warnings to log.

        Raises AclError.
        """
        declared: list[tuple[bytes, list[bytes]]] = self._config.users
        if self._config.aclfile:
            if declared:
                raise AclError(BOTH_SOURCES)
            try:
                self.load_file()
            except AclError as error:
                raise AclError(f"Aborting startup because of ACL errors: {error}") from error
            return []
        warnings = []
        for name, rules in declared:
            user = self._declared_user(name, rules)
            if not user.is_enabled:
                shown = printable(name)
                warnings.append(
                    f"The user '{shown}' is off (its description has no 'on'). Make sure that this is intended."
                )
            self._put(user)
        return warnings

    def _declared_user(self, name: bytes, rules: Sequence[bytes]) -> User:
        user = self._new_user(name)
        if has_blanks(name):
            raise AclError("Spaces not allowed in ACL usernames")
        try:
            return user.changed(rules, all_channels=self._gives_all_channels)
        except RuleError as error:
            rule = printable(rules[error.at])
            raise AclError(
                f"Error loading ACL rule '{rule}' for the user named '{printable(name)}': {error}"
            ) from error

    def _put(self, user: User) -> None:
        """Add a user, or update the existing user of that name."""
        if user.name in self.users:
            self.users[user.name].take(user)
            self._follow(self.users[user.name])
        else:
            self.users[user.name] = user

    def load_file(self) -> None:
        """ACL LOAD: replace the users by those of the file; on AclError nothing has changed.

        Users that are not in the file are removed, and their connections closed; the others stay connected, whatever their
        passwords are now.
        """
        path = self._config.aclfile
        try:
            with open(path, "rb") as file:
                content = file.read()
        except OSError as error:
            raise AclError(f"Error loading ACLs, opening file '{path}': {error.strerror}") from error
        loaded = FileReader(path, self._new_user).read(content)
        loaded.setdefault(DEFAULT_USER, self._new_default())
        self._flush_notifications()
        # All clients are visited once, not once for each user.
        clients: dict[Identity, list[Client]] = {}
        for client in self._host.clients.values():
            if client.user is not None:
                clients.setdefault(client.user, []).append(client)
        for name in [name for name in self.users if name not in loaded]:
            for client in clients.get(self.users.pop(name), ()):
                self._host.kill(client)
        for name, user in loaded.items():
            if name in self.users:
                self.users[name].take(user)
                self._follow(self.users[name], clients.get(self.users[name], ()))
            else:
                self.users[name] = user

    def save_file(self) -> None:
        """ACL SAVE: write all users to the file, atomically; raises OSError."""
        replace_file(self._config.aclfile, b"".join(user.line + b"\n" for user in self.in_order()))

    def config_lines(self) -> list[str]:
        """The `user` lines of a configuration file; none when the users have a file of their own."""
        if self._config.aclfile:
            return []
        return [user.line.decode("utf-8", "surrogateescape") for user in self.in_order()]


def may_keep_subscriptions(user: User, client: Client) -> bool:
    """Whether a user may have all the subscriptions that a client has."""
    allow = user.permissions.allow_channel
    return all(allow(name) for name in (*client.channels, *client.shard_channels)) and all(
        allow(name, True) for name in client.patterns
    )
