"""COMMAND: what the server can do, generated from the declarations.

The shapes are those of Redis 8.6, so that clients and redis-cli's hints can read them: a record with fixed places for
COMMAND INFO, maps for COMMAND DOCS, sets where the order has no meaning (arrays in RESP2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache

from streamd.core.dispatch import ServerContext
from streamd.core.help import declare_help
from streamd.core.host import Host
from streamd.core.spec import (
    ACL_CATEGORIES,
    Arg,
    Command,
    KeySpec,
    command,
    groups_of_keys,
    multiple,
    oneof,
    optional,
    pattern,
    string,
)
from streamd.engine.glob import Glob
from streamd.errors import CommandError, OptionSyntaxError
from streamd.protocol.reply import ReplyWriter

__all__ = ["write_docs", "write_info"]


# --- COMMAND INFO: one record per command -----------------------------------------------------------------------------


def _write_words(reply: ReplyWriter, words: Iterable[str]) -> None:
    """A set of simple strings."""
    words = tuple(words)
    reply.set(len(words))
    for word in words:
        reply.simple(word)


def _write_key_spec(reply: ReplyWriter, spec: KeySpec) -> None:
    reply.map(4 if spec.notes else 3)
    if spec.notes:
        reply.bulk(b"notes")
        reply.bulk_str(spec.notes)
    reply.bulk(b"flags")
    _write_words(reply, spec.flags.split())
    reply.bulk(b"begin_search")
    if isinstance(spec.begin, int):
        _write_search(reply, b"index", {b"index": spec.begin})
    else:
        _write_search(reply, b"keyword", {b"keyword": spec.begin, b"startfrom": spec.start})
    reply.bulk(b"find_keys")
    if spec.count_at is None:
        _write_search(reply, b"range", {b"lastkey": spec.last, b"keystep": spec.step, b"limit": spec.limit})
    else:
        counted: dict[bytes, bytes | int] = {b"keynumidx": spec.count_at, b"firstkey": spec.count_at + 1}
        _write_search(reply, b"keynum", {**counted, b"keystep": spec.step})


def _write_search(reply: ReplyWriter, kind: bytes, parameters: dict[bytes, bytes | int]) -> None:
    """One of the two steps of a key specification."""
    reply.map(2)
    reply.bulk(b"type")
    reply.bulk(kind)
    reply.bulk(b"spec")
    reply.map(len(parameters))
    for name, value in parameters.items():
        reply.bulk(name)
        if isinstance(value, bytes):
            reply.bulk(value)
        else:
            reply.integer(value)


def write_info(reply: ReplyWriter, found: Command) -> None:
    """One record of COMMAND INFO."""
    reply.array(10)
    reply.bulk_str(found.full_name)
    reply.integer(found.arity)
    _write_words(reply, found.info_flags)
    for number in found.legacy_keys:
        reply.integer(number)
    _write_words(reply, (f"@{category}" for category in found.acl_categories))
    reply.set(len(found.tips))
    for tip in found.tips:
        reply.bulk_str(tip)
    reply.set(len(found.keys))
    for spec in found.keys:
        _write_key_spec(reply, spec)
    if not found.subcommands:
        # Redis sends an empty set where it otherwise sends an array: clients see no difference in RESP2.
        reply.set(0)
        return
    reply.array(len(found.subcommands))
    for sub in found.subcommands.values():
        write_info(reply, sub)


@cache
def encoded(write: Callable[[ReplyWriter, Command], None], found: Command, resp: int) -> bytes:
    """The output of a function about a command, which never changes, encoded once."""
    reply = ReplyWriter(resp)
    write(reply, found)
    return reply.take()


# --- COMMAND DOCS: one map per command --------------------------------------------------------------------------------


def _write_arguments(reply: ReplyWriter, args: tuple[Arg, ...]) -> None:
    reply.array(len(args))
    for arg in args:
        _write_argument(reply, arg)


def _write_argument(reply: ReplyWriter, arg: Arg) -> None:
    # A choice and a block have no text of their own: their parts are displayed.
    display = None if arg.type in ("oneof", "block") else arg.display or arg.name
    texts = {
        b"name": arg.name,
        b"type": arg.type,
        b"display_text": display,
        b"token": arg.token,
        b"since": arg.since,
        b"deprecated_since": arg.deprecated_since,
    }
    shown = {name: text for name, text in texts.items() if text is not None}
    flags = {"optional": arg.optional, "multiple": arg.multiple, "multiple_token": arg.multiple_token}
    flags_set = tuple(flag for flag, is_set in flags.items() if is_set)
    reply.map(len(shown) + (arg.key_spec_index is not None) + bool(flags_set) + bool(arg.arguments))
    for name, text in shown.items():
        reply.bulk(name)
        reply.bulk_str(text)
        if name == b"display_text" and arg.key_spec_index is not None:
            reply.bulk(b"key_spec_index")
            reply.integer(arg.key_spec_index)
    if flags_set:
        reply.bulk(b"flags")
        _write_words(reply, flags_set)
    if arg.arguments:
        reply.bulk(b"arguments")
        _write_arguments(reply, arg.arguments)


def write_docs(reply: ReplyWriter, found: Command) -> None:
    """The map of COMMAND DOCS about one command, subcommands included."""
    texts = {b"summary": found.summary, b"since": found.since, b"group": found.group}
    if found.complexity:
        texts[b"complexity"] = found.complexity
    replacement = {b"deprecated_since": found.deprecated_since, b"replaced_by": found.replaced_by}
    replaced = {name: text for name, text in replacement.items() if text is not None}
    flags = sorted(found.doc_flags | {"deprecated"} if found.deprecated_since else found.doc_flags)
    parts = bool(flags), bool(found.history), bool(found.args), bool(found.subcommands)
    reply.map(len(texts) + len(replaced) + sum(parts))
    _write_texts(reply, texts)
    if flags:
        reply.bulk(b"doc_flags")
        _write_words(reply, flags)
    _write_texts(reply, replaced)
    if found.history:
        reply.bulk(b"history")
        reply.set(len(found.history))
        for version, change in found.history:
            reply.array(2)
            reply.bulk_str(version)
            reply.bulk_str(change)
    if found.args:
        reply.bulk(b"arguments")
        _write_arguments(reply, found.args)
    if found.subcommands:
        reply.bulk(b"subcommands")
        _write_all_docs(reply, found.subcommands.values())


def _write_texts(reply: ReplyWriter, texts: dict[bytes, str]) -> None:
    for name, text in texts.items():
        reply.bulk(name)
        reply.bulk_str(text)


def _write_all_docs(reply: ReplyWriter, commands: Iterable[Command]) -> None:
    """A map from full names to the documentation of commands."""
    commands = tuple(commands)
    reply.map(len(commands))
    for each in commands:
        reply.bulk_str(each.full_name)
        reply.raw(encoded(write_docs, each, reply.resp))


# --- The commands ---------------------------------------------------------------------------------------------------------


@command(
    "COMMAND", arity=-1, group="server", flags="loading stale", categories="connection", since="2.8.13",
    complexity="O(N) with N being the number of commands", tips=("nondeterministic_output_order",),
    summary="Describes all commands, for programs.",
)  # fmt: skip
def command_(ctx: ServerContext, args: list[bytes]) -> None:
    commands = ctx.get(Host).commands
    ctx.reply.array(len(commands))
    for each in commands.values():
        ctx.reply.raw(encoded(write_info, each, ctx.reply.resp))


@command(
    "COMMAND COUNT", arity=2, group="server", flags="loading stale", categories="connection", since="2.8.13",
    summary="Returns the number of commands.",
)  # fmt: skip
def command_count(ctx: ServerContext, args: list[bytes]) -> None:
    ctx.reply.integer(len(ctx.get(Host).commands))


@command(
    "COMMAND INFO", arity=-2, group="server", flags="loading stale", categories="connection", since="2.8.13",
    complexity="O(N) with N being the number of names", tips=("nondeterministic_output_order",),
    summary="Describes some commands, or all, for programs.", history=(("7.0.0", "The names are optional."),),
    args=(optional(multiple(string("command-name"))),),
)  # fmt: skip
def command_info(ctx: ServerContext, args: list[bytes]) -> None:
    if len(args) == 2:
        command_(ctx, args)
        return
    ctx.reply.array(len(args) - 2)
    for name in args[2:]:
        found = ctx.get(Host).commands.find_named(name)
        if found is None:
            ctx.reply.null()
        else:
            ctx.reply.raw(encoded(write_info, found, ctx.reply.resp))


@command(
    "COMMAND DOCS", arity=-2, group="server", flags="loading stale", categories="connection", since="7.0.0",
    complexity="O(N) with N being the number of commands described", tips=("nondeterministic_output_order",),
    summary="Returns the documentation of some commands, or of all.",
    args=(optional(multiple(string("command-name"))),),
)  # fmt: skip
def command_docs(ctx: ServerContext, args: list[bytes]) -> None:
    commands = ctx.get(Host).commands
    if len(args) == 2:
        _write_all_docs(ctx.reply, commands.values())
        return
    found = (commands.find_named(name) for name in args[2:])
    _write_all_docs(ctx.reply, [each for each in found if each is not None])


def _in_category(value: bytes) -> Callable[[Command], bool]:
    category = value.decode("latin-1").lower()
    return lambda each: category in ACL_CATEGORIES and category in each.acl_categories


def _in_pattern(value: bytes) -> Callable[[Command], bool]:
    glob = Glob(value, nocase=True)
    return lambda each: glob.match(each.full_name.encode())


_FILTERS: dict[bytes, Callable[[bytes], Callable[[Command], bool]]] = {
    b"MODULE": lambda value: lambda each: False,
    b"ACLCAT": _in_category,
    b"PATTERN": _in_pattern,
}


@command(
    "COMMAND LIST", arity=-2, group="server", flags="loading stale", categories="connection", since="7.0.0",
    complexity="O(N) with N being the number of commands", tips=("nondeterministic_output_order",),
    summary="Returns the names of commands.",
    args=(
        optional(
            oneof(
                "filterby",
                string("module-name", "MODULE"),
                string("category", "ACLCAT"),
                pattern("pattern", "PATTERN"),
                token="FILTERBY",
            )
        ),
    ),
)  # fmt: skip
def command_list(ctx: ServerContext, args: list[bytes]) -> None:
    commands = ctx.get(Host).commands.walk()
    if len(args) > 2:
        if len(args) != 5 or args[2].upper() != b"FILTERBY" or args[3].upper() not in _FILTERS:
            raise OptionSyntaxError
        commands = filter(_FILTERS[args[3].upper()](args[4]), commands)
    ctx.reply.bulk_array([each.full_name.encode() for each in commands])


def _keys_asked(ctx: ServerContext, request: list[bytes]) -> list[tuple[Sequence[int], str]]:
    """Positions of the keys in the request that a client asks about, as groups; CommandError when it has none."""
    found = ctx.get(Host).commands.find(request)
    if found is None:
        raise CommandError("ERR Invalid command specified")
    if not found.has_keys:
        raise CommandError("ERR The command has no key arguments")
    if not found.accepts(len(request)):
        raise CommandError("ERR Invalid number of arguments specified for command")
    keys = groups_of_keys(found, request)
    if not any(positions for positions, _ in keys) and "no_mandatory_keys" not in found.flags:
        raise CommandError("ERR Invalid arguments specified for command")
    return keys


@command(
    "COMMAND GETKEYS", arity=-3, group="server", flags="loading stale", categories="connection", since="2.8.13",
    complexity="O(N) with N being the number of arguments", summary="Returns the keys in a request.",
    args=(string("command"), optional(multiple(string("arg")))),
)  # fmt: skip
def command_getkeys(ctx: ServerContext, args: list[bytes]) -> None:
    request = args[2:]
    ctx.reply.bulk_array([request[at] for positions, _ in _keys_asked(ctx, request) for at in positions])


@command(
    "COMMAND GETKEYSANDFLAGS", arity=-3, group="server", flags="loading stale", categories="connection", since="7.0.0",
    complexity="O(N) with N being the number of arguments",
    summary="Returns the keys in a request, and how they are accessed.",
    args=(string("command"), optional(multiple(string("arg")))),
)  # fmt: skip
def command_getkeysandflags(ctx: ServerContext, args: list[bytes]) -> None:
    request = args[2:]
    groups = _keys_asked(ctx, request)
    ctx.reply.array(sum(len(positions) for positions, _ in groups))
    for positions, flags in groups:
        words = ReplyWriter(ctx.reply.resp)
        _write_words(words, flags.split())
        shown = words.take()
        for at in positions:
            ctx.reply.array(2)
            ctx.reply.bulk(request[at])
            ctx.reply.raw(shown)


declare_help(
    "COMMAND", "server", "5.0.0",
    "(no subcommand)",
    "    Describe all commands.",
    "COUNT",
    "    Show the number of commands.",
    "LIST [FILTERBY (MODULE <module-name>|ACLCAT <category>|PATTERN <pattern>)]",
    "    List the names of all commands, or of those of a kind.",
    "INFO [<command-name> ...]",
    "    Describe commands, for programs; all, if none is named.",
    "DOCS [<command-name> ...]",
    "    Show the documentation of commands; of all, if none is named.",
    "GETKEYS <full-command>",
    "    Show the keys in a request.",
    "GETKEYSANDFLAGS <full-command>",
    "    Show the keys in a request, and how they are accessed.",
    categories="connection",
)  # fmt: skip
