"""What subcommands show in one line (`printable.py`), and the bar beside it (`cli/progress_bar.py`)."""

from __future__ import annotations

import io
import sys
from typing import Any

import pytest

from streamd.cli import progress_bar
from streamd.printable import in_one_line, printable


@pytest.mark.parametrize(
    ("name", "shown"),
    [("a b", "a b"), ("ü", "ü"), ("", ""), ("a\nb\x1b", r"a\nb\x1b"), ("a\udcff", r"a\xff"), ("[/b]", "[/b]")],
)
def test_a_name_fits_in_one_line_of_text(name: str, shown: str) -> None:
    assert in_one_line(name) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\tb\r\nc", "a\tb\r\nc"),
        ("a\rb", r"a\rb"),
        ("\x1b[31mred\x07\x9b", r"\x1b[31mred\x07\x9b"),
        ("a\u202eb\ud800", r"a\u202eb\ud800"),
    ],
)
def test_lines_stay_and_what_a_terminal_would_obey_does_not(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_a_bar_shows_a_name_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rich")

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    shown: Any = Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    monkeypatch.setattr(progress_bar, "SHOWN_AFTER_S", 0)
    monkeypatch.setenv("TERM", "xterm")
    with progress_bar.bar("[/b]\n", 3) as update:
        update(1)
    assert r"[/b]\n" in shown.getvalue()
