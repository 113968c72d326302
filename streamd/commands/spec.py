"""The command table: one declaration per command, read by everything that needs to know about commands.

A handler is declared where it is written:

    @command("XLEN", arity=2, group="stream", flags="readonly fast", keys=KeysAt(1, flags="RO"), since="5.0.0",
             summary="Returns the number of entries of a stream.", complexity="O(1)", args=(key(),))
    def xlen(ctx, args): ...

A handler is called as `handler(ctx, args)`: `args` is the request as received, the command's name included, its arity
already checked. It answers through `ctx.reply` (exactly one reply, or none when it has called `ctx.block_on`) or raises
CommandError; what it had written by then is dropped. Dispatch, arity errors, ACL categories, COMMAND INFO, DOCS and
GETKEYS are derived from the declarations; what follows from something else (`@read` from `readonly`) is not declared.

A subcommand is declared as "XGROUP CREATE"; its container must be declared with `container`, before or after it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

__all__ = [
    "Arg", "Command", "KeySpec", "KeysAfter", "KeysAt", "block", "command", "container", "double", "integer", "key",
    "multiple", "oneof", "optional", "pattern", "string", "table", "token", "unix_time",
]  # fmt: skip

Handler = Callable[..., None]


# --- Where the keys of a request are ------------------------------------------------------------------------------


@dataclass(frozen=True)
class KeySpec:
    """One key specification, in the terms of COMMAND INFO.

    begin    index of the first key (1 = first argument), or the keyword that the keys follow
    start    with a keyword: the argument from which it is looked for
    last     last key relative to the first when >= 0, else relative to the end of the arguments (-1 = last)
    step     distance between keys
    limit    0: no limit; 2: keys are the first half of what remains; n: the first nth
    flags    what is done with the keys: RO, RW, OW or RM, then access, update, insert, delete, not_key, incomplete ...
    """

    begin: int | bytes
    start: int = 0
    last: int = 0
    step: int = 1
    limit: int = 0
    flags: str = "RO access"


def KeysAt(first: int, last: int = 0, step: int = 1, *, flags: str = "RO access") -> KeySpec:
    """Keys at a fixed position; `last` is relative to `first`, or to the end when negative."""
    return KeySpec(first, last=last, step=step, flags=flags)


def KeysAfter(keyword: bytes, *, start: int = 1, limit: int = 2, flags: str = "RO access") -> KeySpec:
    """Keys that follow a keyword, as in XREAD: with limit 2, the first half of what follows."""
    return KeySpec(keyword, start=start, last=-1, step=1, limit=limit, flags=flags)


# --- The arguments, for COMMAND DOCS -------------------------------------------------------------------------------

ArgType = Literal["string", "integer", "double", "key", "pattern", "unix-time", "pure-token", "oneof", "block"]


@dataclass(frozen=True)
class Arg:
    """One argument as COMMAND DOCS describes it; made with the functions below."""

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
    """A word that stands for itself, such as NOMKSTREAM."""
    return Arg(name or text.lower(), "pure-token", text, **more)


def oneof(name: str, *choices: Arg, token: str | None = None, **more: Any) -> Arg:
    return Arg(name, "oneof", token, arguments=choices, **more)


def block(name: str, *parts: Arg, token: str | None = None, **more: Any) -> Arg:
    return Arg(name, "block", token, arguments=parts, **more)


def optional(arg: Arg, since: str | None = None) -> Arg:
    return replace(arg, optional=True, since=since or arg.since)


def multiple(arg: Arg, *, with_token: bool = False) -> Arg:
    """The argument may be repeated; `with_token`: each time with its token."""
    return replace(arg, multiple=True, multiple_token=with_token)


# --- Declarations --------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Command:
    """One declared command or subcommand.

    name         as in the documentation, upper case: "XADD", "XGROUP CREATE"
    arity        number of arguments, the name included; negative: at least that many
    flags        Redis's command flags, in COMMAND INFO's words
    categories   ACL categories beyond those that follow from the group and the flags
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
    subcommands: dict[str, Command] = field(default_factory=dict)

    @property
    def full_name(self) -> str:
        """The name as error texts and statistics have it: `xadd`, `xgroup|create`."""
        return self.name.lower().replace(" ", "|")


table: dict[str, Command] = {}
"""Every declared top-level command by upper-case name."""

_orphans: dict[str, dict[str, Command]] = {}


def _register(declared: Command) -> None:
    parent, _, sub = declared.name.partition(" ")
    names = table if not sub else table[parent].subcommands if parent in table else _orphans.setdefault(parent, {})
    if (sub or parent) in names:
        raise ValueError(f"command {declared.name} is declared twice")
    names[sub or parent] = declared
    if not sub:
        declared.subcommands.update(_orphans.pop(parent, {}))


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
) -> Callable[[Handler], Handler]:
    """Declare the command that the decorated function handles; declaring a name twice raises ValueError."""

    def declare(handler: Handler) -> Handler:
        specs = (keys,) if isinstance(keys, KeySpec) else keys
        _register(
            Command(
                name, handler, arity, group, frozenset(flags.split()), specs, since, summary, complexity, args,
                frozenset(categories.split()), tips, history, deprecated_since, replaced_by,
            )  # fmt: skip
        )
        return handler

    return declare


def container(name: str, *, group: str, since: str, summary: str, complexity: str = "Depends on subcommand.") -> None:
    """Declare a command that only has subcommands, such as XGROUP."""
    _register(
        Command(name, None, -2, group, frozenset(), (), since, summary, complexity, (), frozenset(), (), ())
    )  # fmt: skip
