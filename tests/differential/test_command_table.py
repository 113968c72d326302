"""Every declaration against what a real Redis says about the same command.

Compared is everything that a program reads: arity, flags, key positions, ACL categories, tips, key specifications,
arguments, versions and groups. Not compared are summaries, complexities, histories and the text of notes, which are
streamd's own words. Subcommands that streamd does not have are left out on the other side, and commands that only it has,
or that are newer than that Redis, on this one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.compare.differential import Pair
from support.compare.later import LATER_OPTIONS, flags_before
from support.servers import Server
from support.wire import Reply, ReplyReader, Wire

from streamd.absent.commands import FOREIGN_COMMANDS
from streamd.core.spec import Command, table
from streamd.observe.command_info import write_docs, write_info
from streamd.protocol.reply import ReplyWriter
from streamd.serve.families import load_all

pytestmark = pytest.mark.real

load_all()
COMMANDS = sorted(
    (each for each in table.values() if not (each.is_own or each.is_newer)), key=lambda command: command.name
)

OWN_SUBCOMMANDS = {b"client|maint_notifications"}
"""What the Redis of the tests lacks."""
OWN_WORDS = (b"summary", b"complexity", b"history")


@pytest.fixture(params=[2, 3], ids=["RESP2", "RESP3"], scope="module")
def wire(request: pytest.FixtureRequest, redis_server: Server) -> Iterator[Wire]:
    with redis_server.connect(request.param) as wire:
        wire.protocol = request.param  # type: ignore[attr-defined]
        yield wire


def rendered(protocol: int, write: Callable[[ReplyWriter], None]) -> Reply:
    """What streamd writes, read back."""
    writer = ReplyWriter(protocol)
    write(writer)
    reader = ReplyReader()
    reader.feed(writer.take())
    reply = reader.next_reply()
    assert reply is not None
    assert not reader.buffer
    return reply


# --- Replies in a form that can be compared -----------------------------------------------------------------------------


def pairs(reply: Reply) -> dict[bytes, Reply]:
    """A map, or the flat array that stands for one in RESP2."""
    values = reply.value
    return {key.value: value for key, value in zip(values[::2], values[1::2], strict=True)}


def unordered(reply: Reply) -> Any:
    return reply.kind, sorted(repr(element) for element in reply.value)


def comparable_spec(spec: Reply, command: str) -> Any:
    fields = pairs(spec)
    fields.pop(b"notes", None)
    flags = fields.pop(b"flags")
    return spec.kind, unordered(Reply(flags.kind, tuple(flags_before(command, flags.value)))), fields


def declared_subcommands(known: Command) -> dict[bytes, Command]:
    """Those that both servers have, by name."""
    declared = {sub.full_name.encode(): sub for sub in known.subcommands.values()}
    return {name: sub for name, sub in declared.items() if name not in OWN_SUBCOMMANDS}


def comparable_info(record: Reply, known: Command) -> dict[str, Any]:
    """A record of COMMAND INFO, with only those subcommands that `known` has."""
    assert record.kind == "*"
    name, arity, flags, first, last, step, categories, tips, specs, subs = record.value
    declared = declared_subcommands(known)
    return {
        "name": name,
        "arity": arity,
        "flags": unordered(flags),
        "first, last, step": (first, last, step),
        "categories": unordered(categories),
        "tips": unordered(tips),
        "key specifications": (specs.kind, [comparable_spec(spec, known.full_name) for spec in specs.value]),
        "subcommands": (
            subs.kind,
            {
                sub.value[0].value: comparable_info(sub, declared[sub.value[0].value])
                for sub in subs.value
                if sub.value[0].value in declared
            },
        ),
    }


def comparable_argument(argument: Reply) -> Any:
    fields: dict[bytes, Any] = dict(pairs(argument))
    if b"flags" in fields:
        fields[b"flags"] = unordered(fields[b"flags"])
    if b"arguments" in fields:
        fields[b"arguments"] = [comparable_argument(part) for part in fields[b"arguments"].value]
    return argument.kind, fields


def comparable_docs(docs: Reply, known: Command) -> dict[str, Any]:
    """An entry of COMMAND DOCS, with only those subcommands that `known` has."""
    fields: dict[bytes, Any] = dict(pairs(docs))
    for name in OWN_WORDS:
        fields.pop(name, None)
    if b"doc_flags" in fields:
        fields[b"doc_flags"] = unordered(fields[b"doc_flags"])
    if b"arguments" in fields:
        later = LATER_OPTIONS.get(known.full_name, ())
        fields[b"arguments"] = [
            comparable_argument(argument)
            for argument in fields[b"arguments"].value
            if pairs(argument)[b"name"].value not in later
        ]
    if b"subcommands" in fields:
        declared = declared_subcommands(known)
        kind = fields[b"subcommands"].kind
        fields[b"subcommands"] = (
            kind,
            {
                name: comparable_docs(sub, declared[name])
                for name, sub in pairs(fields[b"subcommands"]).items()
                if name in declared
            },
        )
    return {"kind": docs.kind, **{name.decode(): value for name, value in fields.items()}}


# --- The tests ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name.lower())
def test_command_info_is_that_of_redis(command: Command, wire: Wire) -> None:
    theirs = wire.call("COMMAND", "INFO", command.full_name).value[0]
    assert theirs.value is not None, f"Redis has no command {command.full_name}"
    ours = rendered(wire.protocol, lambda reply: write_info(reply, command))  # type: ignore[attr-defined]
    assert comparable_info(ours, command) == comparable_info(theirs, command)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name.lower())
def test_command_docs_are_those_of_redis(command: Command, wire: Wire) -> None:
    (theirs,) = pairs(wire.call("COMMAND", "DOCS", command.full_name)).values()
    ours = rendered(wire.protocol, lambda reply: write_docs(reply, command))  # type: ignore[attr-defined]
    assert comparable_docs(ours, command) == comparable_docs(theirs, command)


KEYS_ASKED = """
    COMMAND GETKEYS XADD k * a b
    COMMAND GETKEYS XREAD STREAMS a
    COMMAND GETKEYS XREAD COUNT 1 STREAMS a b 0 0
    COMMAND GETKEYS XREAD a b c
    COMMAND GETKEYS XREAD a b streams
    COMMAND GETKEYS XREADGROUP GROUP streams c STREAMS k 0
    COMMAND GETKEYS XREADGROUP GROUP g streams STREAMS k 0
    COMMAND GETKEYS XREADGROUP GROUP g c COUNT 1 k 0
    COMMAND GETKEYS XREADGROUP GROUP g c STREAMS
    COMMAND GETKEYS XREADGROUP GROUP g c NOACK STREAMS k
    COMMAND GETKEYS PING
    COMMAND GETKEYS NOSUCH a
    COMMAND GETKEYS GET
    COMMAND GETKEYS GET a b
    COMMAND GETKEYS gEt a
    COMMAND GETKEYS GET ""
    COMMAND GETKEYS XGROUP
    COMMAND GETKEYS XGROUP NOSUCH a
    COMMAND GETKEYS XGROUP CREATE
    COMMAND GETKEYS XGROUP CREATE k g $
    COMMAND GETKEYS XGROUP|CREATE k g $
    COMMAND GETKEYS XGROUP HELP
    COMMAND GETKEYS CLIENT ID
    COMMAND GETKEYS DEL a b c
    COMMAND GETKEYS MSETEX 1 a 1
    COMMAND GETKEYS MSETEX 2 a 1 b 2 EX 10
    COMMAND GETKEYS MSETEX 2 a 1 b
    COMMAND GETKEYS MSETEX 2 a 1
    COMMAND GETKEYS MSETEX 0 a 1
    COMMAND GETKEYS MSETEX -1 a 1
    COMMAND GETKEYS MSETEX x a 1
    COMMAND GETKEYS MSETEX 01 a 1
    COMMAND GETKEYS MSETEX 4611686018427387905 a 1
    COMMAND GETKEYSANDFLAGS MSETEX 1 a 1
    COMMAND GETKEYS MIGRATE h 1 a 0 1
    COMMAND GETKEYS MIGRATE h 1 a 0 1 FOO
    COMMAND GETKEYS MIGRATE h 1 a 0 1 KEYS b
    COMMAND GETKEYS MIGRATE h 1 "" 0 1
    COMMAND GETKEYS MIGRATE h 1 "" 0 1 KEYS a b
    COMMAND GETKEYS MIGRATE h 1 "" 0 1 FOO KEYS a
    COMMAND GETKEYS MIGRATE h 1 "" 0 1 AUTH KEYS KEYS a b
    COMMAND GETKEYS MIGRATE h 1 "" 0 1 AUTH2 KEYS x KEYS a KEYS
    COMMAND GETKEYS MIGRATE h 1 a 0 1 KEYS
    COMMAND GETKEYS MIGRATE h 1 "" 0 1 COPY KEYS
    COMMAND GETKEYS MIGRATE h 1 "" 0 1 AUTH KEYS KEYS
    COMMAND GETKEYS MIGRATE h 1 "" 0 1 AUTH KEYS COPY KEYS
    COMMAND GETKEYS MIGRATE h 1 "" 0 1 AUTH KEYS a
    COMMAND GETKEYS MIGRATE h 1 a 0 1 AUTH KEYS b
    COMMAND GETKEYS MIGRATE h 1 a 0 1 AUTH KEYS KEYS
    COMMAND GETKEYS MIGRATE KEYS 1 "" 0 1 COPY KEYS
    COMMAND GETKEYSANDFLAGS MIGRATE h 1 "" 0 1 KEYS a
    COMMAND GETKEYSANDFLAGS MIGRATE h 1 a 0 1
    COMMAND GETKEYSANDFLAGS SET k v
    COMMAND GETKEYSANDFLAGS SET k v GET
    COMMAND GETKEYSANDFLAGS SET k v EX get
    COMMAND GETKEYSANDFLAGS SET GET v
    COMMAND GETKEYSANDFLAGS XADD k * a b
    COMMAND GETKEYSANDFLAGS COPY a b
    COMMAND GETKEYSANDFLAGS RENAME a b
    COMMAND GETKEYSANDFLAGS DEL a b
    COMMAND GETKEYSANDFLAGS OBJECT ENCODING k
    COMMAND GETKEYSANDFLAGS XREADGROUP GROUP g c STREAMS a b > >
    COMMAND GETKEYSANDFLAGS PING
    COMMAND GETKEYS
    COMMAND GETKEYSANDFLAGS
"""


def test_getkeys_finds_the_keys_that_redis_finds(pair: Pair) -> None:
    pair.run_text(KEYS_ASKED)


ODD_REQUESTS = """
    COMMAND COUNT 1
    COMMAND NOSUCH
    COMMAND INFO nosuch
    COMMAND INFO xgroup|nosuch xadd|foo xlen| xgroup|create|x
    COMMAND DOCS nosuch
    COMMAND LIST FOO
    COMMAND LIST FILTERBY
    COMMAND LIST FILTERBY MODULE
    COMMAND LIST FILTERBY MODULE nosuch
    COMMAND LIST FILTERBY MODULE nosuch x
    COMMAND LIST FILTERBY ACLCAT nosuch
    COMMAND LIST FILTERBY ACLCAT @stream
    COMMAND LIST FILTERBY FOO x
    COMMAND LIST FILTERBY PATTERN xlen
    COMMAND LIST filterby pattern XLEN
    COMMAND HELP x
"""


def test_odd_requests_are_answered_as_redis_answers_them(pair: Pair) -> None:
    pair.run_text(ODD_REQUESTS)


@pytest.mark.parametrize("arguments", ["ACLCAT stream", "ACLCAT STREAM", "PATTERN xgroup|*", "PATTERN xread*"])
def test_command_list_filters_as_redis_does(arguments: str, pair: Pair) -> None:
    ours, theirs = (wire.line(f"COMMAND LIST FILTERBY {arguments}") for wire in pair.wires)
    known = {command.full_name.encode() for command in table.walk()}
    own = {command.full_name.encode() for command in table.walk() if command.is_own or command.is_newer}
    assert ours.kind == theirs.kind
    assert {name.value for name in ours.value} - own == {name.value for name in theirs.value} & known


def test_every_command_of_redis_is_declared_or_listed_as_not_supported(wire: Wire) -> None:
    theirs = {name.value.decode().lower() for name in wire.call("COMMAND", "LIST").value}
    assert theirs - {each.full_name for each in table.walk()} == FOREIGN_COMMANDS
