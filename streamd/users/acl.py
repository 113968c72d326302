"""Access control: users, their permissions, and the text form of both.

    User        a name, passwords, on or off, and sets of rules: its own, and any number of selectors
    RuleSet     one set of rules, changed by rules in text form, one by one (`+@read`, `~orders:*`, `resetchannels`)
    Acl         all users of a server: checks requests and passwords, keeps the log of denials, reads and writes files

Rules are applied one after the other, to a copy of the user, which replaces the user when all of them are valid: nobody
ever runs under half a change. The rules that requests are checked against are rebuilt with each change (permissions.pyx).

The text of command rules follows from their history, as in Redis: `-@all +@read -xrange` is kept as given, but a rule
replaces an earlier one with the same name, and earlier ones for subcommands of its command. Names are those of the
declarations; rename-command changes what clients have to send, but not the rules. Rules may name commands of Redis that
this server does not have, so that Redis's files can be read; such rules have no effect.

What must hold: `Acl.users` has a user `default`; a client's `user` is in `Acl.users`, or the client is being closed; a
client is LIMITED exactly when its user may not do everything.

Texts and behaviour: Redis 8.6, as seen on a running server.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamd.core.capability import Capability
from streamd.core.client import CLIENT_STATES
from streamd.core.client_line import describe
from streamd.core.foreign import FOREIGN_COMMANDS, FOREIGN_CONTAINERS
from streamd.core.host import Host
from streamd.core.identity import Identity
from streamd.core.info import Field
from streamd.core.route import Route
from streamd.core.spec import ACL_CATEGORIES, Command, table
from streamd.disk import replace_file
from streamd.errors import AclError, CommandError, ConfigError, RuleError, UnmatchedError, printable
from streamd.settings.config import Config, directive
from streamd.users.permissions import Catalogue, Permissions, Rules
from streamd.users.selectors import merge_selectors

if TYPE_CHECKING:
    from streamd.core.client import Client

log = logging.getLogger("streamd")

__all__ = ["Acl", "CommandIndex", "DenialLog", "FileReader", "LogEntry", "Reason", "RuleSet", "User", "as_set"]

DEFAULT_USER = b"default"
READ, WRITE = 1, 2
GROUPING_S = 60.0
"""Similar denials within this time are one entry of the log, which counts them."""
WRONG_LOGIN = "WRONGPASS invalid username-password pair or user is disabled."
BOTH_SOURCES = (
    "Users are declared both in the configuration and in an ACL file, which is error-prone and may leave access open. Please"
    " use only one of them."
)


class Reason(IntEnum):
    """Why something was denied; the values rank the reasons of several sets of rules."""

    COMMAND = 1
    KEY = 2
    AUTH = 3
    CHANNEL = 4
    TLS_CERT = 5

    @property
    def word(self) -> str:
        """As shown in the log."""
        return self.name.lower().replace("_", "-")


SYNTAX = "Syntax error"
HASH_FORM = "The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters"
NOT_A_LOGIN = "The password you are trying to remove from the user does not exist"
PATTERN_AFTER_ALL = (
    "Adding a pattern after the * pattern (or the '{}' flag) is not valid and does not have any effect. Try '{}' to start"
    " with an empty list of {}"
)


def _unknown() -> RuleError:
    return RuleError("Unknown command or category name in ACL", is_unknown=True)


# --- Commands by the names that rules use ------------------------------------------------------------------------------


class CommandIndex:
    """The commands of a server as rules see them: by declared name, and by category.

    numbers    `xadd`, `xgroup|create` -> Entry.index, for those that can be run
    catalogue  where their keys and channels are
    everything the set of all commands; a set is an integer with a byte, 0 or 1, for each command by number
    free       the set of those that every connection may run, whatever the rules say: AUTH and similar ones
    """

    def __init__(self, numbers: Mapping[str, int], commands: Mapping[str, Command] = table) -> None:
        self.numbers = dict(numbers)
        self._named = {each.full_name: each for found in commands.values() for each in _family(found)}
        self.count = max(self.numbers.values(), default=-1) + 1
        self.catalogue = Catalogue((number, self._named[name]) for name, number in self.numbers.items())
        self.everything = as_set(range(self.count))
        self.free = as_set(number for name, number in self.numbers.items() if "no_auth" in self._named[name].flags)
        self._families = {name: as_set(self.numbers_of(each)) for name, each in self._named.items()}
        self._members = {category: as_set(self._find_members(category)) for category in ACL_CATEGORIES}

    def find(self, name: str) -> Command | None:
        """The command of that name, or None."""
        return self._named.get(name)

    @staticmethod
    def is_foreign(name: str) -> bool:
        """Whether Redis has such a command, which this server may lack."""
        return name in FOREIGN_COMMANDS

    def numbers_of(self, command: Command) -> list[int]:
        """The numbers of a command and of its subcommands."""
        return [self.numbers[each.full_name] for each in _family(command) if each.full_name in self.numbers]

    def names_in(self, category: str) -> list[str]:
        """Names of the commands in a category, as ACL CAT lists them."""
        return [each.full_name for each in self._named.values() if category in each.acl_categories]

    def family(self, command: Command) -> int:
        """The set of a command and its subcommands."""
        return self._families[command.full_name]

    def members(self, category: str) -> int:
        """The set of commands that a rule about a category covers: a container includes its subcommands."""
        return self._members[category]

    def _find_members(self, category: str) -> set[int]:
        found = [each for each in self._named.values() if category in each.acl_categories]
        return {number for each in found for number in self.numbers_of(each)}


def as_set(numbers: Iterable[int]) -> int:
    """A set of commands, from their numbers, each given once."""
    return sum(1 << 8 * number for number in numbers)


def _family(command: Command) -> list[Command]:
    return [command, *command.subcommands.values()]


# --- One set of rules ------------------------------------------------------------------------------------------------------


class RuleSet:
    """The commands, keys and channels that are allowed; initially none.

    commands      the set of those that are allowed
    first_args    command's number -> first arguments with which it is allowed anyway
    command_rules rules about commands since the last `+@all` or `-@all`: name -> `+` or `-`, in order
    keys          pattern -> READ, WRITE or both
    channels      patterns of channels, in order
    """

    def __init__(self, index: CommandIndex, *, all_channels: bool = False) -> None:
        self._index = index
        self.commands = 0
        self.first_args: dict[int, set[bytes]] = {}
        self.begins_with_all = False
        self.command_rules: dict[str, str] = {}
        self.keys: dict[bytes, int] = {}
        self.all_keys = False
        self.channels: dict[bytes, None] = {}
        self.all_channels = all_channels

    def copy(self) -> RuleSet:
        other = RuleSet.__new__(RuleSet)
        other.__dict__.update(self.__dict__)
        other.first_args = {number: set(words) for number, words in self.first_args.items()}
        other.command_rules = dict(self.command_rules)
        other.keys = dict(self.keys)
        other.channels = dict(self.channels)
        return other

    def compile(self) -> Rules:
        """The compiled rules that requests are checked against."""
        commands = (self.commands | self._index.free).to_bytes(self._index.count, "little")
        return Rules(commands, self.first_args, self.keys.items(), self.all_keys, self.channels, self.all_channels)

    # -- Changing it

    def apply(self, rule: bytes) -> None:
        """Apply one rule in text form; raises RuleError."""
        word = rule.lower()
        if word in _WORDS:
            _WORDS[word](self)
        elif word in (b"+@all", b"-@all"):
            self.set_all_commands(word[:1] == b"+")
        elif rule[:2] in (b"+@", b"-@"):
            self._apply_category(word[:1].decode(), word[2:])
        elif rule[:1] == b"+" and b"|" in rule:
            self._apply_part(word[1:])
        elif rule[:1] in (b"+", b"-"):
            self._apply_command(word[:1].decode(), word[1:])
        elif rule[:1] in (b"~", b"%"):
            self._apply_key_pattern(rule)
        elif rule[:1] == b"&":
            self._apply_channel(rule[1:])
        else:
            raise RuleError(SYNTAX)

    def set_all_keys(self, allowed: bool) -> None:
        self.all_keys = allowed
        self.keys.clear()

    def set_all_channels(self, allowed: bool) -> None:
        self.all_channels = allowed
        self.channels.clear()

    def set_all_commands(self, allowed: bool) -> None:
        self.begins_with_all = allowed
        self.commands = self._index.everything if allowed else 0
        self.first_args.clear()
        self.command_rules.clear()

    def _apply_category(self, sign: str, name: bytes) -> None:
        category = name.decode("latin-1")
        if category not in ACL_CATEGORIES:
            raise _unknown()
        self._set_commands(self._index.members(category), sign)
        self._remember(sign, f"@{category}")

    def _apply_command(self, sign: str, word: bytes) -> None:
        name = word.decode("latin-1")
        found = self._index.find(name)
        if found is not None:
            self._set_commands(self._index.family(found), sign)
        elif not self._index.is_foreign(name):
            raise _unknown()
        self._remember(sign, name)

    def _apply_part(self, word: bytes) -> None:
        """`+command|subcommand`, or `+command|argument` for a command without subcommands."""
        name, _, part = word.decode("latin-1").rpartition("|")
        found = self._index.find(name)
        if found is None and not self._index.is_foreign(name):
            raise _unknown()
        if "|" in name:
            raise RuleError("Allowing first-arg of a subcommand is not supported")
        if not part:
            raise RuleError(SYNTAX)
        if (found is not None and found.subcommands) or name in FOREIGN_CONTAINERS:
            self._apply_command("+", word)
            return
        for number in [] if found is None else self._index.numbers_of(found):
            if not self._allows(number):
                self.first_args.setdefault(number, set()).add(part.encode("latin-1"))
        self._remember("+", f"{name}|{part}")

    def _set_commands(self, commands: int, sign: str) -> None:
        self.commands = self.commands | commands if sign == "+" else self.commands & ~commands
        for number in [number for number in self.first_args if commands >> 8 * number & 1]:
            del self.first_args[number]

    def _allows(self, number: int) -> bool:
        return bool(self.commands >> 8 * number & 1)

    def _remember(self, sign: str, name: str) -> None:
        """Add a rule to the text, replacing those that it overrides."""
        for old in [old for old in self.command_rules if old == name or old.startswith(f"{name}|")]:
            del self.command_rules[old]
        self.command_rules[name] = sign

    def _apply_key_pattern(self, rule: bytes) -> None:
        if self.all_keys:
            raise RuleError(PATTERN_AFTER_ALL.format("allkeys", "resetkeys", "patterns"))
        access, pattern = READ | WRITE, rule[1:]
        if rule[:1] == b"%":
            letters, _, pattern = rule[1:].partition(b"~")
            letters = letters.upper()
            if letters not in (b"R", b"W", b"RW", b"WR"):
                raise RuleError(SYNTAX)
            access = (READ if b"R" in letters else 0) | (WRITE if b"W" in letters else 0)
        if _has_blanks(pattern):
            raise RuleError(SYNTAX)
        self.keys[pattern] = self.keys.get(pattern, 0) | access

    def _apply_channel(self, pattern: bytes) -> None:
        if self.all_channels:
            raise RuleError(PATTERN_AFTER_ALL.format("allchannels", "resetchannels", "channels"))
        if _has_blanks(pattern):
            raise RuleError(SYNTAX)
        self.channels[pattern] = None

    def check_invariants(self) -> None:
        """Assert what must hold; for tests."""
        assert self.commands & ~self._index.everything == 0
        assert not any(map(self._allows, self.first_args)), "allowed with any argument, and with some"
        assert not (self.all_keys and self.keys)
        assert not (self.all_channels and self.channels)
        assert all(access in _KEY_SIGNS for access in self.keys.values())
        parents = {name.rpartition("|")[0] for name in self.command_rules}
        for name in parents & self.command_rules.keys():
            assert all(
                list(self.command_rules).index(name) < at
                for at, part in enumerate(self.command_rules)
                if part.startswith(f"{name}|")
            ), "a rule precedes the one that overrides it"

    # -- Writing it down

    @property
    def command_text(self) -> bytes:
        """Such as `-@all +@read -xrange`."""
        rules = [f"{sign}{name}" for name, sign in self.command_rules.items()]
        return " ".join(["+@all" if self.begins_with_all else "-@all", *rules]).encode("latin-1")

    @property
    def key_text(self) -> bytes:
        """Such as `~orders:* %R~stock:*`."""
        if self.all_keys:
            return b"~*"
        return b" ".join(_KEY_SIGNS[access] + pattern for pattern, access in self.keys.items())

    @property
    def channel_text(self) -> bytes:
        """Such as `&news:*`."""
        return b"&*" if self.all_channels else b" ".join(b"&" + pattern for pattern in self.channels)

    @property
    def text(self) -> bytes:
        """All of it, as rules that produce it when applied to an empty set."""
        channels = self.channel_text if self.all_channels else b"resetchannels " + self.channel_text
        return b" ".join(filter(None, (self.key_text, channels.rstrip(b" "), self.command_text)))


_KEY_SIGNS = {READ: b"%R~", WRITE: b"%W~", READ | WRITE: b"~"}

_WORDS: dict[bytes, Callable[[RuleSet], None]] = {
    b"allkeys": lambda rules: rules.set_all_keys(True),
    b"~*": lambda rules: rules.set_all_keys(True),
    b"resetkeys": lambda rules: rules.set_all_keys(False),
    b"allchannels": lambda rules: rules.set_all_channels(True),
    b"&*": lambda rules: rules.set_all_channels(True),
    b"resetchannels": lambda rules: rules.set_all_channels(False),
    b"allcommands": lambda rules: rules.set_all_commands(True),
    b"nocommands": lambda rules: rules.set_all_commands(False),
}
"""Rules that are words."""


def _has_blanks(text: bytes) -> bool:
    return len(text.translate(None, b" \t\n\v\f\r\0")) != len(text)


# --- Users -----------------------------------------------------------------------------------------------------------------


class User(Identity):
    """A user; initially off, without passwords, and without permissions.

    name            bytes without blanks
    is_enabled      whether clients can log in as this user
    is_nopass       any password will do
    sanitizes       whether payloads that it RESTOREs are checked thoroughly
    hashes          SHA-256 of its passwords, in hex, in the order in which they were added
    rule_sets       its own rules, then those of its selectors
    permissions     the compiled rules that requests are checked against
    """

    _line: bytes | None  # cache of `line`; only `take` changes a user

    def __init__(self, name: bytes, index: CommandIndex, *, all_channels: bool = False) -> None:
        self.name = name
        self._index = index
        self._all_channels = all_channels
        self.is_enabled = False
        self.is_nopass = False
        self.sanitizes = True
        self.hashes: dict[bytes, None] = {}
        self.rule_sets = [RuleSet(index, all_channels=all_channels)]
        self.permissions: Permissions
        self._compile()

    def __repr__(self) -> str:
        return f"<User {self.text.decode('utf-8', 'backslashreplace')}>"

    @property
    def is_limited(self) -> bool:
        return not self.permissions.allow_everything

    def _compile(self) -> None:
        self._line = None
        self.permissions = Permissions(self._index.catalogue, [rules.compile() for rules in self.rule_sets])

    def copy(self) -> User:
        other = User.__new__(User)
        other.__dict__.update(self.__dict__)
        other.hashes = dict(self.hashes)
        other.rule_sets = [rules.copy() for rules in self.rule_sets]
        return other

    def take(self, other: User) -> None:
        """Take over everything from another user, which is no longer used."""
        self.is_enabled = other.is_enabled
        self.is_nopass = other.is_nopass
        self.sanitizes = other.sanitizes
        self.hashes = other.hashes
        self.rule_sets = other.rule_sets
        self.permissions = other.permissions
        self._line = None

    def changed(self, rules: Iterable[bytes], *, all_channels: bool = False) -> User:
        """This user after applying some rules, as a copy; raises RuleError, whose `at` is the index of the rule.

        all_channels  whether `reset` allows all channels
        """
        other = self.copy()
        other._all_channels = all_channels
        for at, rule in enumerate(rules):
            try:
                other._apply(rule)
            except RuleError as error:
                error.at = at
                raise
        other._compile()
        return other

    # -- Rules

    def _apply(self, rule: bytes) -> None:
        word, sign = rule.lower(), rule[:1]
        if word in _USER_WORDS:
            _USER_WORDS[word](self)
        elif sign == b">":
            self._add_hash(hash_of(rule[1:]))
        elif sign == b"#":
            self._add_hash(_checked_hash(rule[1:]))
        elif sign == b"<":
            self._remove_hash(hash_of(rule[1:]))
        elif sign == b"!":
            self._remove_hash(_checked_hash(rule[1:]))
        elif sign == b"(" and rule[-1:] == b")":
            selector = RuleSet(self._index)
            for part in rule[1:-1].split(b" "):
                if part:
                    selector.apply(part)
            self.rule_sets.append(selector)
        elif rule:
            self.rule_sets[0].apply(rule)

    def _add_hash(self, digest: bytes) -> None:
        self.is_nopass = False
        self.hashes[digest] = None

    def _remove_hash(self, digest: bytes) -> None:
        if digest not in self.hashes:
            raise RuleError(NOT_A_LOGIN)
        del self.hashes[digest]

    def _set_enabled(self, is_enabled: bool) -> None:
        self.is_enabled = is_enabled

    def _set_sanitizes(self, sanitizes: bool) -> None:
        self.sanitizes = sanitizes

    def _set_nopass(self, is_nopass: bool) -> None:
        self.is_nopass = is_nopass
        self.hashes.clear()

    def _clear_selectors(self) -> None:
        del self.rule_sets[1:]

    def _reset(self) -> None:
        self._set_nopass(False)
        self._set_enabled(False)
        self._set_sanitizes(True)
        self.rule_sets = [RuleSet(self._index, all_channels=self._all_channels)]

    def check_invariants(self) -> None:
        """Assert what must hold; for tests."""
        assert self.rule_sets, "a user has rules of its own"
        assert not (self.is_nopass and self.hashes)
        assert all(len(digest) == 64 for digest in self.hashes)
        for rules in self.rule_sets:
            rules.check_invariants()
        assert self.permissions.allow_everything == self.rule_sets[0].compile().allows_everything

    # -- Questions

    def accepts(self, password: bytes) -> bool:
        """Whether a password is accepted. Takes the same time whichever of the passwords matches."""
        digest = hash_of(password)
        is_right = False
        for known in self.hashes:
            is_right |= hmac.compare_digest(known, digest)
        return self.is_enabled and (self.is_nopass or is_right)

    @property
    def flags(self) -> list[bytes]:
        """As shown by ACL GETUSER."""
        nopass = [b"nopass"] if self.is_nopass else []
        sanitize = b"sanitize-payload" if self.sanitizes else b"skip-sanitize-payload"
        return [b"on" if self.is_enabled else b"off", *nopass, sanitize]

    @property
    def text(self) -> bytes:
        """The rules of this user, as in ACL LIST and in files, without `user` and the name."""
        own, *selectors = self.rule_sets
        hashes = [b"#" + digest for digest in self.hashes]
        return b" ".join([*self.flags, *hashes, own.text, *(b"(" + rules.text + b")" for rules in selectors)])

    @property
    def line(self) -> bytes:
        """The line about this user in a file."""
        if self._line is None:
            self._line = b"user " + self.name + b" " + self.text
        return self._line


_USER_WORDS: dict[bytes, Callable[[User], None]] = {
    b"on": lambda user: user._set_enabled(True),
    b"off": lambda user: user._set_enabled(False),
    b"nopass": lambda user: user._set_nopass(True),
    b"resetpass": lambda user: user._set_nopass(False),
    b"sanitize-payload": lambda user: user._set_sanitizes(True),
    b"skip-sanitize-payload": lambda user: user._set_sanitizes(False),
    b"clearselectors": lambda user: user._clear_selectors(),
    b"reset": lambda user: user._reset(),
}


def hash_of(password: bytes) -> bytes:
    """SHA-256 of a password, in hex."""
    return hashlib.sha256(password).hexdigest().encode()


def _checked_hash(digest: bytes) -> bytes:
    if len(digest) != 64 or not frozenset(b"0123456789abcdef").issuperset(digest):
        raise RuleError(HASH_FORM)
    return digest


# --- The log -----------------------------------------------------------------------------------------------------------------


@dataclass
class LogEntry:
    """A group of similar denials.

    context   `toplevel` or `multi`
    subject   the command, key or channel that was denied
    client    its line of CLIENT LIST, at the last denial
    created_ms, updated_ms   Unix time of the first denial and of the last
    """

    id: int
    reason: Reason
    context: str
    subject: bytes
    username: bytes
    client: bytes
    created_ms: int
    updated_ms: int
    count: int = 1

    def is_like(self, other: LogEntry) -> bool:
        return (self.reason, self.context, self.subject, self.username) == (
            other.reason,
            other.context,
            other.subject,
            other.username,
        ) and abs(other.updated_ms - self.updated_ms) <= GROUPING_S * 1000


@dataclass
class DenialLog:
    """Recent denials, newest first, and how many there were of each kind since the start.

    max_len  callable: maximum number of entries
    """

    max_len: Callable[[], int]
    entries: deque[LogEntry] = field(default_factory=deque)
    totals: dict[Reason, int] = field(default_factory=lambda: dict.fromkeys(Reason, 0))
    next_id: int = 0

    def add(self, reason: Reason, context: str, subject: bytes, username: bytes, client: bytes) -> None:
        self.totals[reason] += 1
        if not self.max_len():
            self.entries.clear()
            return
        now_ms = time.time_ns() // 1_000_000
        new = LogEntry(self.next_id, reason, context, subject, username, client, now_ms, now_ms)
        # Only the newest ones are compared: a flood of different denials must not cost more with each.
        for old in list(self.entries)[:10]:
            if old.is_like(new):
                self.entries.remove(old)
                old.count += 1
                old.client, old.updated_ms = client, now_ms
                self.entries.appendleft(old)
                return
        self.next_id += 1
        self.entries.appendleft(new)
        while len(self.entries) > self.max_len():
            self.entries.pop()


# --- All users -----------------------------------------------------------------------------------------------------------------

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
            Field("acl_access_denied_auth", lambda self: self.log.totals[Reason.AUTH]),
            Field("acl_access_denied_cmd", lambda self: self.log.totals[Reason.COMMAND]),
            Field("acl_access_denied_key", lambda self: self.log.totals[Reason.KEY]),
            Field("acl_access_denied_channel", lambda self: self.log.totals[Reason.CHANNEL]),
            Field("acl_access_denied_tls_cert", lambda self: self.log.totals[Reason.TLS_CERT]),
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
        self._log(client, reason, subject, user.name, is_multi=is_multi)
        if in_exec:
            return NOPERM_IN_EXEC + EXEC_REASONS[reason]
        if reason is Reason.COMMAND:
            return f"NOPERM User {printable(user.name)} has no permissions to run the '{command.full_name}' command"
        return f"NOPERM No permissions to access a {reason.name.lower()}"

    def _log(self, client: Client, reason: Reason, subject: bytes, username: bytes, *, is_multi: bool) -> None:
        context = "multi" if is_multi else "toplevel"
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
            self._log(client, Reason.AUTH, command, name, is_multi=client.transaction is not None)
            raise CommandError(WRONG_LOGIN)
        self._flush_notifications()
        client.set_authenticated(True, user)

    def authenticate_by_certificate(self, client: Client, name: bytes) -> None:
        """Log a client in as the user that its certificate names; without such a user nothing changes."""
        user = self.users.get(name)
        if user is None or not user.is_enabled:
            self._log(client, Reason.TLS_CERT, b"", name, is_multi=False)
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
        if _has_blanks(name):
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
            content = Path(path).read_bytes()
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


@directive("user")
def declare_user(config: Config, args: list[str]) -> None:
    """A line about a user in a configuration file. Its command rules are checked once commands are known: see
    `Acl.load_at_start`.
    """
    name, *words = (arg.encode("utf-8", "surrogateescape") for arg in args)
    if any(name == other for other, _ in config.users):
        reason = "Duplicate user found. A user can only be defined once in config files"
        raise ConfigError("user", f"Error in user declaration '{args[0]}': {reason}")
    try:
        rules = merge_selectors(words)
    except UnmatchedError as error:
        raise ConfigError("user", "Error in user declaration 'user': Wrong format") from error
    user = User(name, CommandIndex({}))
    for at, rule in enumerate(rules):
        try:
            user.take(user.changed([rule]))
        except RuleError as error:
            if not error.is_unknown:
                # Redis names the word of the line at the rule's index.
                named = ["user", *args][at]
                raise ConfigError("user", f"Error in user declaration '{named}': {error}") from error
    config.users.append((name, rules))


class FileReader:
    """Reads an ACL file: a line `user <name> <rules>` for each user; blank lines, and those that start with `#`, are ignored."""

    def __init__(self, path: str, new_user: Callable[[bytes], User]) -> None:
        self._path = path
        self._new_user = new_user
        self._users: dict[bytes, User] = {}

    def read(self, content: bytes) -> dict[bytes, User]:
        """All users by name; raises AclError with everything that is wrong."""
        errors = [
            text
            for number, line in enumerate(content.split(b"\n"), 1)
            for text in self._read_line(number, line.strip(b" \t\r\n"))
        ]
        if errors:
            outcome = "WARNING: ACL errors detected, no change to the previously active ACL rules was performed"
            raise AclError("".join([*errors, outcome]))
        return self._users

    def _read_line(self, number: int, line: bytes) -> Iterator[str]:
        """Read one line; yields its errors, each text ending with the separator to the next."""
        place = f"{self._path}:{number}"
        if not line or line[:1] == b"#":
            return
        words = line.split(b" ")
        if words[0] != b"user" or len(words) < 2:
            yield f"{place} should start with user keyword followed by the username. "
            return
        name = words[1]
        if _has_blanks(name):
            yield f"'{place}: username '{printable(name)}' contains invalid characters. "
            return
        if name in self._users:
            yield f"WARNING: Duplicate user '{printable(name)}' found on line {number}. "
            return
        user = self._users[name] = self._new_user(name)
        try:
            rules = merge_selectors(words[2:])
        except UnmatchedError as error:
            yield f"{place}: {error}"
            return
        try:
            user.take(user.changed(rules))
            return
        except RuleError:
            pass  # one by one, to report what is wrong with each
        is_reported = False
        for rule in rules:
            try:
                user.take(user.changed([rule]))
            except RuleError as error:
                if error.is_unknown:
                    yield f"{place}: Error in applying operation '{printable(rule)}': {error}. "
                elif not is_reported:
                    is_reported = True
                    yield f"{place}: {error}. "
