"""The manual page of commands, and the lines in it that show how a command is called."""

from __future__ import annotations

from typing import Any

import pytest

from streamd.cli.commands_page import manual, syntax
from streamd.core.spec import (
    Command,
    CommandTable,
    block,
    command,
    integer,
    multiple,
    oneof,
    optional,
    string,
    token,
)


def declare(name: str, table: CommandTable, monkeypatch: pytest.MonkeyPatch, **more: Any) -> Command:
    monkeypatch.setattr("streamd.core.spec.table", table)
    given = {"arity": -1, "group": "stream", "since": "5.0.0", "summary": "Does it."} | more
    command(name, **given)(lambda ctx, args: None)
    return next(each for each in table.walk() if each.name == name)


@pytest.mark.parametrize(
    ("args", "line"),
    [
        ((), "X"),
        ((string("a"), optional(string("b"))), "X a [b]"),
        ((integer("count", "COUNT"),), "X COUNT count"),
        ((optional(token("NOACK")),), "X [NOACK]"),
        ((multiple(string("a")),), "X a [a ...]"),
        ((optional(multiple(integer("id", "ID"))),), "X [ID id [id ...]]"),
        ((multiple(string("p", "PREFIX"), with_token=True),), "X PREFIX p [PREFIX p ...]"),
        ((oneof("o", token("ON"), token("OFF")),), "X <ON | OFF>"),
        ((optional(oneof("o", token("ON"), token("OFF"))),), "X [ON | OFF]"),
        ((optional(oneof("t", token("A"), token("B"), token="TYPE")),), "X [TYPE <A | B>]"),
        ((oneof("id", token("*", "auto-id"), string("id")),), "X <* | id>"),
        ((multiple(block("data", string("field"), string("value"))),), "X field value [field value ...]"),
        (
            (block("s", multiple(string("k")), multiple(string("id")), token="STREAMS"),),
            "X STREAMS k [k ...] id [id ...]",
        ),
        ((string("old", display="ip:port"),), "X ip:port"),
    ],
)
def test_syntax(args: Any, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert syntax(declare("X", CommandTable(), monkeypatch, args=args)) == line


def test_the_page_has_an_entry_for_every_command_that_can_be_called(monkeypatch: pytest.MonkeyPatch) -> None:
    table = CommandTable()
    declare(
        "ZZ", table, monkeypatch, group="string", complexity="O(N).", flags="readonly", history=(("6.0.0", "More."),)
    )
    declare("AA", table, monkeypatch, group="stream", deprecated_since="7.2.0", replaced_by="`ZZ`", flags="fast")
    page = manual(table)
    assert page.index("## Streams") < page.index("### AA") < page.index("## Strings") < page.index("### ZZ")
    assert "\n    ZZ\n\nDoes it.\n\n*since 5.0.0; O(N); @read @string @slow*\n\n- 6.0.0: More.\n" in page
    assert "*since 5.0.0; O(1); @stream @fast*\n\nDeprecated since 7.2.0; instead: `ZZ`.\n" in page
