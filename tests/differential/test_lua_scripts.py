"""EVAL: the same replies, the same errors at the same places, and the same statistics as Redis's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.compare.differential import Pair
from support.compare.observing import command_counts
from support.wire import Wire, show, split_line

pytestmark = pytest.mark.real

SCRIPTS = Path(__file__).parent / "lua_scripts.txt"

BEFORE: tuple[tuple[bytes, ...], ...] = (
    (b"FLUSHALL",),
    (b"SET", b"str", b"text"),
    (b"SET", b"num", b"10"),
    (b"XADD", b"s", b"1-1", b"f", b"v"),
    (b"XADD", b"s", b"2-1", b"f", b"v", b"g", b"w"),
    (b"XGROUP", b"CREATE", b"s", b"g", b"0"),
    (b"CONFIG", b"RESETSTAT"),
)


def sections() -> Iterator[tuple[str, list[tuple[str, list[bytes]]]]]:
    """The scripts by the headings of the file: each with the arguments that follow it."""
    title, found = "", []
    for line in SCRIPTS.read_text(encoding="utf-8").splitlines():
        if line.startswith("# "):
            if found:
                yield title, found
            title, found = line.strip("# -"), []
        elif line:
            arguments, separator, script = line.partition(" :: ")
            if not separator:
                arguments, script = "0", line
            found.append((script.replace("⏎", "\n").replace("␍", "\r"), split_line(arguments)))
    yield title, found


def statistics(wire: Wire) -> list[bytes]:
    """How often errors occurred, and what became of the calls of each command, since the statistics were reset."""
    lines = wire.call("INFO", "errorstats", "commandstats").value.partition(b"# ")[2].splitlines()
    shown = [line for line in lines if line.startswith(b"errorstat_")]
    for line in lines:
        name, _, figures = line.partition(b":")
        # A call of a group of commands without its subcommand is nobody's here.
        if name.startswith(b"cmdstat_") and name not in (
            b"cmdstat_config|resetstat",
            b"cmdstat_info",
            b"cmdstat_xgroup",
        ):
            shown.append(name + b" " + command_counts(figures.decode()).encode())
    return sorted(shown)


@pytest.mark.parametrize("call", ["EVAL", "FCALL", "MULTI"])
@pytest.mark.parametrize("around", ["for i = 1, {levels} do t = {level} end", "t = {level} t[1] = t"])
@pytest.mark.parametrize(
    "level", ["{t}", "{1, t, 2}", "{map = {a = t}}", "{map = {[t] = 1}}", "{set = {[t] = true}}", "{err = t}"]
)
def test_values_of_many_levels(pair: Pair, call: str, around: str, level: str) -> None:
    """Both stop where Lua's stack ends. The replies are too deep to be parsed."""
    for levels in (2700, 20_000) if "levels" in around else (0,):
        code = f"local t = {{}} {around.format(level=level, levels=levels)} return t"
        seen = []
        for wire in pair.wires:
            if call == "FCALL":
                library = f"#!lua name=deep\nredis.register_function('deep', function() {code} end)"
                wire.call("FUNCTION", "LOAD", "REPLACE", library)
                wire.send("FCALL", "deep", "0")
            elif call == "MULTI":
                for request in (("MULTI",), ("EVAL", code, "0"), ("EXEC",)):
                    wire.send(*request)
            else:
                wire.send("EVAL", code, "0")
            wire.send("ECHO", "end of it")
            lines = []
            while not lines or lines[-1] != b"end of it\r\n":
                lines.append(wire.read_raw_line())
            seen.append(lines)
        assert seen[0] == seen[1]


@pytest.mark.parametrize(
    ("title", "scripts"), list(sections()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_replies_and_statistics(pair: Pair, title: str, scripts: list[tuple[str, list[bytes]]]) -> None:
    for script, arguments in scripts:
        seen = []
        for wire in pair.wires:
            wire.pipeline(BEFORE)
            reply = wire.call("EVAL", script, *arguments)
            seen.append((show(reply), statistics(wire)))
        assert seen[0] == seen[1], script
