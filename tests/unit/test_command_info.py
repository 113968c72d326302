"""COMMAND and its subcommands, on a small table of their own. That the shapes are Redis's is a differential test."""

from __future__ import annotations

from typing import Any

import hiredis
import pytest

from streamd.core.context import Context
from streamd.core.host import Host
from streamd.core.spec import (
    Arg,
    Command,
    CommandTable,
    KeysAfter,
    KeysAt,
    KeySpec,
    block,
    key,
    multiple,
    oneof,
    optional,
    string,
    table,
    token,
)
from streamd.errors import CommandError
from streamd.observe import command_info
from streamd.protocol.reply import ReplyWriter
from streamd.settings.config import Config


def declaration(name: str, arity: int, flags: str, keys: tuple[KeySpec, ...], args: tuple[Arg, ...] = ()) -> Command:
    return Command(
        name=name, handler=lambda ctx, args: None, arity=arity, group="stream", flags=frozenset(flags.split()), keys=keys,
        since="5.0.0", summary=f"Does {name}.", complexity="", args=args, categories=frozenset(), tips=("a_tip",),
        history=(),
    )  # fmt: skip


@pytest.fixture
def small() -> CommandTable:
    made = CommandTable()
    streams = block("streams", multiple(key()), multiple(string("id")), token="STREAMS")
    made.declare(declaration("XLEN", 2, "readonly fast", (KeysAt(1, flags="RO"),), (key(display="the-key"),)))
    made.declare(declaration("XREAD", -4, "readonly blocking", (KeysAfter(b"STREAMS"),), (streams,)))
    made.declare(declaration("PING", -1, "fast", (), (optional(oneof("how", token("LOUD"), token("LOW"))),)))
    made.declare(declaration("OPTIONAL", -1, "no_mandatory_keys", (KeysAfter(b"KEYS", limit=0),)))
    box = declaration("XGROUP", -2, "", ())
    box.handler = None
    made.declare(box)
    made.declare(declaration("XGROUP CREATE", -5, "write", (KeysAt(2, flags="RW insert", notes="a note"),)))
    return made


def run(commands: CommandTable, line: str, resp: int = 2) -> Any:
    """Run a request; an error as its text, after `-`."""
    ctx = Context()
    ctx.reply = ReplyWriter(resp)
    ctx.parts[Host] = Host(Config(), commands)
    request = line.encode().split()
    found = table.find(request)
    assert found is not None
    assert found.handler is not None
    try:
        found.handler(ctx, request)
    except CommandError as error:
        return f"-{error}"
    reader = hiredis.Reader()
    reader.feed(ctx.reply.take())
    return reader.gets()


def test_command_tells_about_every_command(small: CommandTable) -> None:
    assert run(small, "COMMAND COUNT") == 5
    names = [record[0] for record in run(small, "COMMAND")]
    assert names == [record[0] for record in run(small, "COMMAND INFO")]
    assert names == [b"xlen", b"xread", b"ping", b"optional", b"xgroup"]
    assert run(small, "COMMAND LIST") == [*names, b"xgroup|create"]


def test_a_record_of_command_info(small: CommandTable) -> None:
    xlen, nothing, create = run(small, "COMMAND INFO XLEN nosuch xgroup|create")
    key_spec = [
        b"flags", [b"RO"],
        b"begin_search", [b"type", b"index", b"spec", [b"index", 1]],
        b"find_keys", [b"type", b"range", b"spec", [b"lastkey", 0, b"keystep", 1, b"limit", 0]],
    ]  # fmt: skip
    categories = [b"@read", b"@stream", b"@fast"]
    assert xlen == [b"xlen", 2, [b"readonly", b"fast"], 1, 1, 1, categories, [b"a_tip"], [key_spec], []]
    assert nothing is None
    assert create[0] == b"xgroup|create"
    assert create[8][0][:2] == [b"notes", b"a note"]


def test_a_container_holds_the_records_of_its_subcommands(small: CommandTable) -> None:
    ((*_, subcommands),) = run(small, "COMMAND INFO xgroup")
    assert subcommands == run(small, "COMMAND INFO xgroup|create")


def test_keys_behind_a_keyword(small: CommandTable) -> None:
    ((_, _, flags, first, last, step, _, _, (spec,), _),) = run(small, "COMMAND INFO xread", resp=3)
    assert b"movablekeys" in flags
    assert (first, last, step) == (0, 0, 0)
    assert spec[b"begin_search"] == {b"type": b"keyword", b"spec": {b"keyword": b"STREAMS", b"startfrom": 1}}
    assert spec[b"find_keys"] == {b"type": b"range", b"spec": {b"lastkey": -1, b"keystep": 1, b"limit": 2}}


def test_command_docs(small: CommandTable) -> None:
    assert run(small, "COMMAND DOCS nosuch xlen", resp=3) == {
        b"xlen": {
            b"summary": b"Does XLEN.",
            b"since": b"5.0.0",
            b"group": b"stream",
            b"arguments": [{b"name": b"key", b"type": b"key", b"display_text": b"the-key", b"key_spec_index": 0}],
        }
    }
    docs = run(small, "COMMAND DOCS", resp=3)
    assert list(docs) == [b"xlen", b"xread", b"ping", b"optional", b"xgroup"]
    assert docs[b"xgroup"][b"subcommands"] == run(small, "COMMAND DOCS xgroup|create", resp=3)
    (choice,) = docs[b"ping"][b"arguments"]
    assert choice[b"flags"] == [b"optional"]
    assert [part[b"token"] for part in choice[b"arguments"]] == [b"LOUD", b"LOW"]
    assert b"display_text" not in choice


def test_what_is_not_known_is_left_out_of_the_docs() -> None:
    writer = ReplyWriter(3)
    quit_ = declaration("QUIT", -1, "", ())
    quit_.complexity = "O(1)"
    quit_.deprecated_since, quit_.replaced_by = "7.2.0", "closing"
    quit_.history = (("6.0.0", "a change"),)
    command_info.write_docs(writer, quit_)
    reader = hiredis.Reader()
    reader.feed(writer.take())
    assert reader.gets() == {
        b"summary": b"Does QUIT.", b"since": b"5.0.0", b"group": b"stream", b"complexity": b"O(1)",
        b"doc_flags": [b"deprecated"], b"deprecated_since": b"7.2.0", b"replaced_by": b"closing",
        b"history": [[b"6.0.0", b"a change"]],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("PATTERN x*", [b"xlen", b"xread", b"xgroup", b"xgroup|create"]),
        ("pattern X?EN", [b"xlen"]),
        ("ACLCAT Write", [b"xgroup|create"]),
        ("ACLCAT @write", []),
        ("ACLCAT nosuch", []),
        ("MODULE x", []),
    ],
)
def test_command_list_filters(small: CommandTable, words: str, names: list[bytes]) -> None:
    assert run(small, f"COMMAND LIST FILTERBY {words}") == names


@pytest.mark.parametrize("words", ["x", "FILTERBY", "FILTERBY PATTERN", "FILTERBY WHAT x", "FILTERBY PATTERN a b"])
def test_command_list_refuses_what_is_no_filter(small: CommandTable, words: str) -> None:
    assert run(small, f"COMMAND LIST {words}") == "-ERR syntax error"


@pytest.mark.parametrize(
    ("asked", "reply"),
    [
        ("XLEN k", [b"k"]),
        ("xread streams a b 0 0", [b"a", b"b"]),
        ("xgroup create k g $", [b"k"]),
        ("optional a", []),
        ("optional keys a b", [b"a", b"b"]),
        ("nosuch k", "-ERR Invalid command specified"),
        ("xgroup nosuch k", "-ERR Invalid command specified"),
        ("ping", "-ERR The command has no key arguments"),
        ("xgroup", "-ERR The command has no key arguments"),
        ("xlen", "-ERR Invalid number of arguments specified for command"),
        ("xread a b c", "-ERR Invalid arguments specified for command"),
    ],
)
def test_command_getkeys(small: CommandTable, asked: str, reply: Any) -> None:
    assert run(small, f"COMMAND GETKEYS {asked}") == reply
    flags = {b"k": [b"RW", b"insert"] if "create" in asked else [b"RO"]}
    with_flags = [[name, flags.get(name, [b"RO", b"access"])] for name in reply] if isinstance(reply, list) else reply
    assert run(small, f"COMMAND GETKEYSANDFLAGS {asked}") == with_flags


def test_renamed_commands_are_found_by_their_new_name(small: CommandTable) -> None:
    own = small.copy()
    own.rename("XLEN", "LENGTH")
    assert [record and record[0] for record in run(own, "COMMAND INFO length xlen")] == [b"xlen", None]
    assert run(own, "COMMAND DOCS xlen") == []
    assert run(own, "COMMAND DOCS length")[0] == b"xlen"
    assert run(own, "COMMAND GETKEYS length k") == [b"k"]
    assert run(own, "COMMAND LIST FILTERBY PATTERN length") == []


def test_help_names_every_subcommand(small: CommandTable) -> None:
    lines = [line.decode() for line in run(small, "command HELP")]
    assert lines[0] == "COMMAND <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"
    assert lines[-2:] == ["HELP", "    Print this help."]
    named = {line.split()[0] for line in lines[1:] if not line.startswith((" ", "("))}
    assert named == set(table["COMMAND"].subcommands)
