"""The command table: one declaration per command, used by everything that needs to know about commands.

A handler is declared where it is written:

    @command("XLEN", arity=2, group="stream", flags="readonly fast", keys=KeysAt(1, flags="RO"), since="5.0.0",
             summary="Returns the number of entries of a stream.", complexity="O(1)", args=(key(),))
    def xlen(ctx, args): ...

A handler is called as `handler(ctx, args)`: `args` is the request as received, including the command's name, with its
arity already checked. It replies through `ctx.reply` (exactly one reply, or none if it called `ctx.block_on`) or raises
CommandError, which drops what it has written. Dispatch, arity errors, ACL categories, COMMAND INFO, DOCS and GETKEYS
are derived from the declarations; what can be derived (`@read` from `readonly`) is not declared.

A subcommand is declared as "XGROUP CREATE"; its container must be declared with `container`, before or after it. A
command that can be called without a subcommand, such as COMMAND, is declared with `command`.

A declaration that contradicts itself or another one raises ValueError at import. What can be checked only after all
modules are imported (a subcommand whose container is missing) is checked by `CommandTable.check`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, Literal, NamedTuple

from streamd import REDIS_VERSION
from streamd.core.args import integer as integer_of
from streamd.errors import NotIntegerError

__all__ = [
    "ACL_CATEGORIES", "Arg", "ChannelsAt", "Command", "CommandTable", "KeySpec", "KeyUse", "KeysAfter", "KeysAt", "KeysCounted",
    "block", "command", "container", "double", "integer", "key", "keys_of", "multiple", "oneof", "optional", "pattern", "string", "table",
    "token", "unix_time",
]  # fmt: skip

Handler = Callable[..., None]


# --- Words allowed in declarations ----------------------------------------------------------------------------------

COMMAND_FLAGS = (
    "readonly", "write", "denyoom", "module", "pubsub", "admin", "blocking", "asking", "skip_monitor", "skip_slowlog",
    "no_async_loading", "no_mandatory_keys", "noscript", "loading", "stale", "no_auth", "no_multi", "allow_busy",
    "movablekeys", "fast",
)  # fmt: skip
"""The flags that COMMAND INFO shows, in the order of its output. `movablekeys` is derived, never declared."""

HIDDEN_FLAGS = frozenset({"may_replicate", "touches_arbitrary_keys", "runs_script"})
"""Flags that the server uses but COMMAND INFO does not show."""

ACL_CATEGORIES = (
    "keyspace", "read", "write", "set", "sortedset", "list", "hash", "string", "bitmap", "hyperloglog", "geo", "stream",
    "pubsub", "admin", "fast", "slow", "blocking", "dangerous", "connection", "transaction", "scripting",
)  # fmt: skip
"""Every ACL category, in the order of ACL CAT."""

GROUPS = {
    "bitmap": "bitmap", "cluster": None, "connection": "connection", "generic": "keyspace", "geo": "geo", "hash": "hash",
    "hyperloglog": "hyperloglog", "list": "list", "module": None, "pubsub": None, "scripting": "scripting",
    "server": None, "set": "set", "sorted-set": "sortedset", "stream": "stream", "string": "string",
    "transactions": "transaction",
}  # fmt: skip
"""The groups of the documentation, and the ACL category that each implies for its commands."""

DECLARABLE_FLAGS = frozenset(COMMAND_FLAGS) - {"movablekeys"} | HIDDEN_FLAGS
DECLARABLE_CATEGORIES = frozenset(ACL_CATEGORIES) | {f"-{category}" for category in ACL_CATEGORIES}

KEY_ACCESS = ("RO", "RW", "OW", "RM")
KEY_FLAGS = frozenset(
    {*KEY_ACCESS, "access", "update", "insert", "delete", "not_key", "incomplete", "variable_flags"}
)  # fmt: skip
"""How a key is used. The first four: read, read and written, overwritten, removed; each spec has one of them."""

DOC_FLAGS = frozenset({"deprecated", "syscmd"})

OWN_PREFIX = "STREAMD."
"""The prefix of commands that Redis does not have. Redis's own names never have a dot."""


def _release(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")))


@cache
def _split(text: str) -> frozenset[str]:
    """The words of a text; many commands share one set."""
    return frozenset(text.split())


def _words(text: str, known: frozenset[str], what: str, name: str) -> frozenset[str]:
    """The words of `text`; raises ValueError for one that is not known."""
    words = _split(text)
    if unknown := words.difference(known):
        raise ValueError(f"command {name}: unknown {what} {', '.join(sorted(unknown))}")
    return words


# --- Where the keys of a request are ------------------------------------------------------------------------------


@dataclass(frozen=True)
class KeySpec:
    """One key specification, in the terms of COMMAND INFO.

    begin    index of the first key (1 = first argument), or the keyword before the keys
    start    with a keyword: the argument from which the search starts
    last     last key relative to the first when >= 0, else relative to the end of the arguments (-1 = last)
    step     distance between keys
    limit    0: no limit; 2: keys are the first half of the rest; n: the first nth
    count_at position of the number of keys, relative to `begin`: the keys follow it; `last` and `limit` are unused
    flags    how the keys are used: RO, RW, OW or RM, then access, update, insert, delete, not_key, incomplete ...
    notes    a remark for readers of COMMAND INFO
    find     finds the keys if these terms do not define them exactly, with the parser that the handler uses, too.
             Returns their positions, empty if this request has no keys of this kind, or None if the request is invalid.
             A specification by keyword is then `incomplete`: an approximation for clients
    """

    begin: int | bytes
    start: int = 0
    last: int = 0
    step: int = 1
    limit: int = 0
    count_at: int | None = None
    flags: str = "RO access"
    notes: str = ""
    find: Callable[[list[bytes]], range | None] | None = None

    @cached_property
    def names_keys(self) -> bool:
        """Whether it describes keys; shard channels are described in the same terms."""
        return "not_key" not in self.flags.split()

    @cached_property
    def use_flags(self) -> str:
        """How one found key is used: without `incomplete`, which concerns only the specification."""
        return " ".join(word for word in self.flags.split() if word != "incomplete")

    @property
    def is_fixed(self) -> bool:
        """Whether the keys are defined by position alone, from the start or the end."""
        return isinstance(self.begin, int) and self.count_at is None and self.limit <= 1 and self.find is None

    def positions(self, args: list[bytes]) -> range | None:
        """The positions of the keys in `args`; None if the request does not match the specification."""
        if self.find is not None:
            return self.find(args)
        argc = len(args)
        first = self.begin if isinstance(self.begin, int) else self._find_keyword(self.begin, args)
        if first is None:
            return None
        if self.count_at is not None:
            return self._counted(first + self.count_at, args)
        if self.last >= 0:
            last = first + self.last
        elif self.limit <= 1:
            last = argc + self.last
        else:
            last = first + (argc - first) // self.limit + self.last
        return range(first, last + 1, self.step) if first <= last < argc else None

    def _counted(self, count_at: int, args: list[bytes]) -> range | None:
        """The positions of the keys whose number is at `count_at`."""
        try:
            count = integer_of(args[count_at])
        except (IndexError, NotIntegerError):
            return None
        found = range(count_at + 1, count_at + 1 + count * self.step, self.step)
        return found if found and found[-1] < len(args) else None

    def _find_keyword(self, keyword: bytes, args: list[bytes]) -> int | None:
        """The index after the keyword, searched from `start`: to the right, or to the left if it is negative."""
        argc = len(args)
        search = range(self.start, argc) if self.start > 0 else range(argc + self.start, 0, -1)
        return next((at + 1 for at in search if args[at].upper() == keyword), None)


def KeysAt(first: int, last: int = 0, step: int = 1, *, flags: str = "RO access", notes: str = "") -> KeySpec:
    """Keys at a fixed position; `last` is relative to `first`, or to the end when negative."""
    return KeySpec(first, last=last, step=step, flags=flags, notes=notes)


def KeysAfter(
    keyword: bytes,
    *,
    start: int = 1,
    limit: int = 2,
    flags: str = "RO access",
    notes: str = "",
    find: Callable[[list[bytes]], range | None] | None = None,
) -> KeySpec:
    """Keys that follow a keyword, as in XREAD: with limit 2, the first half of what follows."""
    return KeySpec(keyword, start=start, last=-1, step=1, limit=limit, flags=flags, notes=notes, find=find)


def KeysCounted(count_at: int, step: int = 1, *, flags: str = "RO access", notes: str = "") -> KeySpec:
    """Keys that follow an argument with their number, as in MSETEX."""
    return KeySpec(count_at, step=step, count_at=0, flags=flags, notes=notes)


class LegacyRange(NamedTuple):
    """Keys at a fixed position, for clients that do not know key specifications."""

    first: int
    last: int  # an index, or counted from the end when negative
    step: int

    @classmethod
    def of(cls, spec: KeySpec) -> LegacyRange | None:
        """A specification in these terms; None if it cannot be expressed in them."""
        if not isinstance(spec.begin, int) or spec.count_at is not None:
            return None
        return cls(spec.begin, spec.begin + spec.last if spec.last >= 0 else spec.last, spec.step)


class KeyUse(NamedTuple):
    """One key of a request."""

    position: int  # its index in the arguments
    flags: str  # how it is used, in the words of KeySpec.flags


class ChannelsAt(NamedTuple):
    """Which arguments of a command are channels, to be checked against ACL channel rules.

    first         index of the first (1 = first argument)
    last          index of the last, counted from the end when negative
    are_patterns  the arguments are channel patterns: a rule must allow the pattern itself, not its matches
    """

    first: int
    last: int
    are_patterns: bool = False

    def of(self, args: list[bytes]) -> list[bytes]:
        """The channels, or patterns, that a request names."""
        last = self.last if self.last >= 0 else len(args) + self.last
        return args[self.first : last + 1]


# --- The arguments, for COMMAND DOCS -------------------------------------------------------------------------------

ArgType = Literal["string", "integer", "double", "key", "pattern", "unix-time", "pure-token", "oneof", "block"]


class Arg(NamedTuple):
    """One argument as COMMAND DOCS describes it; created with the functions below."""

    name: str
    type: ArgType
    token: str | None = None
    display: str | None = None
    since: str | None = None
    deprecated_since: str | None = None
    key_spec_index: int | None = None
    optional: bool = False
    multiple: bool = False
    multiple_token: bool = False
    arguments: tuple[Arg, ...] = ()


def key(name: str = "key", spec: int = 0, **more: Any) -> Arg:
    return Arg(name, "key", key_spec_index=spec, **more)


def string(name: str, token: str | None = None, **more: Any) -> Arg:
    return Arg(name, "string", token, **more)


def integer(name: str, token: str | None = None, **more: Any) -> Arg:
    return Arg(name, "integer", token, **more)


def double(name: str, token: str | None = None, **more: Any) -> Arg:
    return Arg(name, "double", token, **more)


def unix_time(name: str, token: str | None = None, **more: Any) -> Arg:
    return Arg(name, "unix-time", token, **more)


def pattern(name: str, token: str | None = None, **more: Any) -> Arg:
    return Arg(name, "pattern", token, **more)


def token(text: str, name: str | None = None, **more: Any) -> Arg:
    """A literal word, such as NOMKSTREAM."""
    return Arg(name or text.lower(), "pure-token", text, **more)


def oneof(name: str, *choices: Arg, token: str | None = None, **more: Any) -> Arg:
    return Arg(name, "oneof", token, arguments=choices, **more)


def block(name: str, *parts: Arg, token: str | None = None, **more: Any) -> Arg:
    return Arg(name, "block", token, arguments=parts, **more)


def optional(arg: Arg, since: str | None = None) -> Arg:
    return arg._replace(optional=True, since=since or arg.since)


def multiple(arg: Arg, *, with_token: bool = False) -> Arg:
    """The argument may be repeated; `with_token`: each time with its token."""
    return arg._replace(multiple=True, multiple_token=with_token)


# --- Declarations --------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Command:
    """One declared command or subcommand.

    name         as in the documentation, upper case: "XADD", "XGROUP CREATE"
    arity        number of arguments, including the name; negative: at least that many
    flags        Redis's command flags, in COMMAND INFO's words
    categories   ACL categories beyond those implied by the group and the flags; `-keyspace` removes an implied one
    doc_flags    `syscmd`: for servers, not for people; `deprecated` is derived from `deprecated_since`
    key_flags    for a key specification with `variable_flags`: the flags that apply to one request
    channels     the arguments that are channels and need permission; None if there are none
    subcommands  for a container: upper-case subcommand name to its declaration
    """

    name: str
    handler: Handler | None
    arity: int
    group: str
    flags: frozenset[str]
    keys: tuple[KeySpec, ...]
    since: str
    summary: str
    complexity: str
    args: tuple[Arg, ...]
    categories: frozenset[str]
    tips: tuple[str, ...]
    history: tuple[tuple[str, str], ...]
    deprecated_since: str | None = None
    replaced_by: str | None = None
    doc_flags: frozenset[str] = frozenset()
    key_flags: Callable[[list[bytes]], str] | None = None
    channels: ChannelsAt | None = None
    subcommands: dict[str, Command] = field(default_factory=dict)

    @property
    def full_name(self) -> str:
        """The name as used in error texts and statistics: `xadd`, `xgroup|create`."""
        return self.name.lower().replace(" ", "|")

    @property
    def is_own(self) -> bool:
        """Whether Redis lacks this command; `since` is then a version of streamd."""
        return self.name.startswith(OWN_PREFIX)

    @property
    def is_newer(self) -> bool:
        """Whether Redis got it only after the release that streamd is compatible with (`streamd.REDIS_VERSION`)."""
        return not self.is_own and _release(self.since) > _release(REDIS_VERSION)

    def accepts(self, argc: int) -> bool:
        """Whether a request of `argc` arguments has the right number of them."""
        return argc == self.arity if self.arity >= 0 else argc >= -self.arity

    @cached_property
    def has_keys(self) -> bool:
        """Whether the command has key arguments."""
        return any(spec.names_keys for spec in self.keys)

    @cached_property
    def legacy_keys(self) -> tuple[int, int, int]:
        """First key, last key and step, for clients that do not read key specifications; zeros if not expressible.

        A single specification at a fixed position is used unchanged. Of several, those that follow each other without a
        gap are joined; if any is left out, the command's keys are movable.
        """
        ranges = self._legacy_ranges
        return (ranges[0].first, ranges[-1].last, ranges[0].step) if ranges else (0, 0, 0)

    @cached_property
    def _legacy_ranges(self) -> tuple[LegacyRange, ...]:
        """The key specifications that `legacy_keys` covers."""
        ranges = [LegacyRange.of(spec) for spec in self.keys]
        if len(ranges) == 1:
            return tuple(found for found in ranges if found is not None)
        joined: list[LegacyRange] = []
        for found in ranges:
            if found is not None and found.step == 1 and (not joined or found.first == joined[-1].last + 1):
                joined.append(found)
        return tuple(joined)

    @cached_property
    def has_movable_keys(self) -> bool:
        """Whether some requests have keys that `legacy_keys` leaves out."""
        return len(self._legacy_ranges) < len(self.keys) or any("incomplete" in k.flags.split() for k in self.keys)

    @cached_property
    def info_flags(self) -> tuple[str, ...]:
        """The flags as COMMAND INFO shows them."""
        shown = self.flags | {"movablekeys"} if self.has_movable_keys else self.flags
        return tuple(flag for flag in COMMAND_FLAGS if flag in shown)

    @cached_property
    def acl_categories(self) -> tuple[str, ...]:
        """All ACL categories: those declared, and those implied by the group and the flags."""
        found = {word for word in self.categories if not word.startswith("-")}
        flags = self.flags
        group = GROUPS[self.group]
        # A container itself does nothing: only its subcommands belong to the group.
        if group is not None and self.handler is not None:
            found.add(group)
        if "write" in flags:
            found.add("write")
        if "readonly" in flags and "scripting" not in found:
            found.add("read")
        if "admin" in flags:
            found |= {"admin", "dangerous"}
        found |= flags & {"pubsub", "blocking"}
        found.add("fast" if "fast" in flags else "slow")
        found -= {word[1:] for word in self.categories if word.startswith("-")}
        return tuple(category for category in ACL_CATEGORIES if category in found)


def _check_args(args: tuple[Arg, ...], specs: int, name: str) -> None:
    """Raise ValueError if an argument refers to a key specification that does not exist."""
    for arg in args:
        if arg.key_spec_index is not None and not 0 <= arg.key_spec_index < specs:
            raise ValueError(f"command {name}: argument {arg.name} has no key specification {arg.key_spec_index}")
        if arg.type in ("oneof", "block") and not arg.arguments:
            raise ValueError(f"command {name}: argument {arg.name} has no parts")
        _check_args(arg.arguments, specs, name)


def _check(declared: Command) -> None:
    """Raise ValueError when a declaration contradicts itself."""
    name = declared.name
    if name != name.upper() or len(name.split()) not in (1, 2):
        raise ValueError(f"command {name}: the name is one word or two, in upper case")
    if declared.group not in GROUPS:
        raise ValueError(f"command {name}: unknown group {declared.group}")
    if declared.arity == 0:
        raise ValueError(f"command {name}: the name itself counts in the arity")
    if {"readonly", "write"} <= declared.flags:
        raise ValueError(f"command {name} is readonly and write")
    for spec in declared.keys:
        words = _words(spec.flags, KEY_FLAGS, "key flag", name)
        if "not_key" not in words and len(words.intersection(KEY_ACCESS)) != 1:
            raise ValueError(f"command {name}: a key specification says one of {', '.join(KEY_ACCESS)}")
        if "variable_flags" in words and declared.key_flags is None:
            raise ValueError(f"command {name}: variable_flags need key_flags")
        if spec.find is not None and isinstance(spec.begin, bytes) and "incomplete" not in words:
            raise ValueError(f"command {name}: a key specification that is not followed is incomplete")
    _check_args(declared.args, len(declared.keys), name)


class CommandTable(Mapping[str, Command]):
    """Commands by upper-case name: those declared (`table`), or a server's copy, which may rename some of them.

    A renamed command is found only under its new name; error texts, statistics and COMMAND keep the original name.
    """

    def __init__(self, commands: Mapping[str, Command] | None = None) -> None:
        self._commands: dict[str, Command] = dict(commands or {})
        self._orphans: dict[str, dict[str, Command]] = {}  # subcommands whose container is not yet declared

    def __getitem__(self, name: str) -> Command:
        return self._commands[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._commands)

    def __len__(self) -> int:
        return len(self._commands)

    def walk(self) -> Iterator[Command]:
        """Every command, each followed by its subcommands."""
        for found in self._commands.values():
            yield found
            yield from found.subcommands.values()

    def copy(self) -> CommandTable:
        """A separate table, for renames. The declarations are shared, and complete: see `check`."""
        self.check()
        return CommandTable(self._commands)

    def check(self) -> None:
        """Raise ValueError when a declared subcommand has no container, or a container has no subcommand."""
        if self._orphans:
            raise ValueError(f"subcommands without a declared container: {', '.join(sorted(self._orphans))}")
        empty = [name for name, found in self._commands.items() if found.handler is None and not found.subcommands]
        if empty:
            raise ValueError(f"containers without a declared subcommand: {', '.join(sorted(empty))}")

    def declare(self, declared: Command) -> None:
        """Add a command or subcommand; raises ValueError when the name is taken or the declaration is wrong."""
        _check(declared)
        parent, _, sub = declared.name.partition(" ")
        if not sub:
            names = self._commands
        elif parent in self._commands:
            names = self._commands[parent].subcommands
        else:
            names = self._orphans.setdefault(parent, {})
        if (sub or parent) in names:
            raise ValueError(f"command {declared.name} is declared twice")
        names[sub or parent] = declared
        if not sub:
            declared.subcommands.update(self._orphans.pop(parent, {}))

    def rename(self, old: str, new: str) -> None:
        """Rename the command `old` to `new`, or remove it if `new` is empty.

        Raises ValueError with the error text of rename-command in a configuration file.
        """
        found = self._commands.pop(old.upper(), None)
        if found is None:
            raise ValueError("No such command in rename-command")
        if not new:
            return
        if new.upper() in self._commands:
            self._commands[old.upper()] = found
            raise ValueError("Target command name already exists")
        self._commands[new.upper()] = found

    def find(self, args: list[bytes]) -> Command | None:
        """The command, or subcommand, that a request calls; None if there is none.

        A container without a subcommand name is returned itself.
        """
        found = self._commands.get(args[0].upper().decode("latin-1"))
        if found is None or len(args) == 1 or not found.subcommands:
            return found
        return found.subcommands.get(args[1].upper().decode("latin-1"))

    def find_named(self, name: bytes) -> Command | None:
        """As `find`, for a name such as `xadd` or `xgroup|create`."""
        parts = name.split(b"|")
        if len(parts) > 2:
            return None
        found = self.find(parts)
        return None if found is not None and len(parts) == 2 and not found.name.count(" ") else found


table = CommandTable()
"""Every declared command."""


def keys_of(command: Command, args: list[bytes]) -> list[KeyUse]:
    """The keys of a request, in the order of the key specifications.

    Empty if the command has none, or if the request does not match one of them: such a request fails before it
    reaches a key.
    """
    return [KeyUse(at, flags) for positions, flags in groups_of_keys(command, args) for at in positions]


def groups_of_keys(command: Command, args: list[bytes]) -> list[tuple[Sequence[int], str]]:
    """As keys_of, but for each key specification: argument indices, and how these keys are used."""
    found: list[tuple[Sequence[int], str]] = []
    for spec in command.keys:
        if not spec.names_keys:
            continue
        positions = spec.positions(args)
        if positions is None:
            return []
        flags = spec.use_flags
        if command.key_flags is not None and "variable_flags" in spec.flags:
            flags = command.key_flags(args)
        found.append((positions, flags))
    return found


def command(
    name: str,
    *,
    arity: int,
    group: str,
    flags: str = "",
    keys: KeySpec | tuple[KeySpec, ...] = (),
    since: str,
    summary: str,
    complexity: str = "O(1)",
    args: tuple[Arg, ...] = (),
    categories: str = "",
    tips: tuple[str, ...] = (),
    history: tuple[tuple[str, str], ...] = (),
    deprecated_since: str | None = None,
    replaced_by: str | None = None,
    doc_flags: str = "",
    key_flags: Callable[[list[bytes]], str] | None = None,
    channels: ChannelsAt | None = None,
) -> Callable[[Handler], Handler]:
    """Declare the command that the decorated function handles; declaring a name twice raises ValueError."""
    declared = Command(
        name=name,
        handler=None,
        arity=arity,
        group=group,
        flags=_words(flags, DECLARABLE_FLAGS, "flag", name),
        keys=(keys,) if isinstance(keys, KeySpec) else keys,
        since=since,
        summary=summary,
        complexity=complexity,
        args=args,
        categories=_words(categories, DECLARABLE_CATEGORIES, "ACL category", name),
        tips=tips,
        history=history,
        deprecated_since=deprecated_since,
        replaced_by=replaced_by,
        doc_flags=_words(doc_flags, DOC_FLAGS, "documentation flag", name),
        key_flags=key_flags,
        channels=channels,
    )

    def declare(handler: Handler) -> Handler:
        declared.handler = handler
        table.declare(declared)
        return handler

    return declare


def container(name: str, *, group: str, since: str, summary: str, complexity: str = "Depends on subcommand.") -> None:
    """Declare a command that only has subcommands, such as XGROUP."""
    table.declare(
        Command(name, None, -2, group, frozenset(), (), since, summary, complexity, (), frozenset(), (), ())
    )  # fmt: skip
