"""What `streamd doctor` and `streamd top` make of what they have read: ages, figures, tables."""

from __future__ import annotations

import pytest

from streamd.stream_state import GroupState, StreamState, age_s
from streamd.watching.board import name_of
from streamd.watching.findings import counted, duration, number, per_second, size, word
from streamd.watching.tables import TABLES, Row, render, shown_rows

NOW_MS = 1_800_000_000_000


def group(last: int, lag: int | None, pending: int = 0, oldest: int | None = None) -> GroupState:
    return GroupState(b"g", (last, 0), None, lag, None, pending, None if oldest is None else (oldest, 0), 0)


@pytest.mark.parametrize(
    ("entry_id", "age"),
    [(None, None), ((NOW_MS - 1500, 7), 1.5), ((NOW_MS + 900, 0), 0.0), ((1, 1), None), ((2 * NOW_MS, 0), None)],
)
def test_an_id_that_is_no_time_has_no_age(entry_id: tuple[int, int] | None, age: float | None) -> None:
    assert age_s(entry_id, NOW_MS) == age


def test_what_all_groups_have_acknowledged_is_done() -> None:
    stream = StreamState(b"s", 100, 100, (1, 0), (100, 0), groups=[group(90, 10), group(80, 20, 5, 70)])
    assert (stream.done_entries, stream.done_before) == (75, (70, 0))
    stream.groups = [group(90, 10)]
    assert (stream.done_entries, stream.done_before) == (90, (90, 1))
    stream.groups = [group(90, 10), group(80, None)]
    assert stream.done_entries is None
    stream.groups = []
    assert (stream.done_entries, stream.done_before) == (None, None)


def test_figures_are_short() -> None:
    assert [duration(each) for each in (0, 0.25, 9, 75, 7200, 86400 * 12)] == [
        "0 s",
        "0.2 s",
        "9 s",
        "1.2 min",
        "2.0 h",
        "12 d",
    ]
    assert [size(each) for each in (0, 1023, 1536, 50 << 20, 3 << 40)] == [
        "0 bytes",
        "1,023 bytes",
        "1.5 KiB",
        "50 MiB",
        "3.0 TiB",
    ]
    assert (number(12345), per_second(0.24), per_second(1234.5)) == ("12,345", "0.2", "1,234")
    assert (counted(1, "key"), counted(2, "entry", "entries")) == ("1 key", "2 entries")


def test_names_are_quoted_where_they_must_be() -> None:
    assert [word(each) for each in (b"orders:{1}", b"my orders", b"", b'"')] == [
        "orders:{1}",
        '"my orders"',
        '""',
        '"\\""',
    ]
    assert [name_of(each) for each in ("Bücher".encode(), b"a b", b"\xff", b"a\nb")] == [
        "Bücher",
        "a b",
        '"\\xff"',
        '"a\\nb"',
    ]


def row(name: str, pending: int | None) -> Row:
    return {"stream": "s", "group": "g", "consumer": name, "pending": pending, "seen_s": 0.5, "active_s": None}


def test_rows_are_sorted_with_what_is_unknown_last() -> None:
    table = TABLES["consumers"]
    rows = [row("b", 1), row("a", None), row("c", 5)]
    assert [each["consumer"] for each in shown_rows(table, rows)] == ["c", "b", "a"]
    assert [each["consumer"] for each in shown_rows(table, rows, is_reversed=True)] == ["b", "c", "a"]
    assert [each["consumer"] for each in shown_rows(table, rows, sort="consumer")] == ["a", "b", "c"]
    assert [each["consumer"] for each in shown_rows(table, rows, wanted="C")] == ["c"]
    assert shown_rows(table, rows, wanted="nobody") == []


def test_a_table_is_aligned() -> None:
    lines = render(TABLES["consumers"], [row("alice", 12), row("b", None)])
    assert lines == [
        "stream  group  consumer  pending   seen  got something",
        "s       g      alice          12  0.5 s              -",
        "s       g      b               -  0.5 s              -",
    ]
