"""What `streamd doctor` and `streamd top` make of what they have read: ages, figures, tables."""

from __future__ import annotations

import pytest

from streamd.client.place import Place
from streamd.stream_state import ConsumerState, GroupState, StreamState, age_s
from streamd.watching.board import name_of
from streamd.watching.case import Case, Thresholds
from streamd.watching.findings import counted, duration, number, per_second, size, word
from streamd.watching.look import Look
from streamd.watching.stream_checks import consumer_gone, lag_grows, unbounded
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


# --- Checks ------------------------------------------------------------------------------------------------------------


def look(at_s: float, *groups: GroupState, length: int = 1000, added: int = 1000) -> Look:
    stream = StreamState(b"s", length, added, (NOW_MS - 60_000, 0), (NOW_MS, 0), 10_000, None, [*groups])
    return Look(at_s, NOW_MS, 0.001, {"used_memory": "1000000", "maxmemory": "2000000"}, {b"s": stream})


def case(*looks: Look) -> Case:
    return Case(Place(), None, [*looks], Thresholds())  # type: ignore[arg-type]  # these checks ask for nothing more


def holding(*idle_s: float) -> GroupState:
    """A group of consumers last seen so long ago, each with an entry."""
    found = group(1, 0, len(idle_s))
    found.consumers = [ConsumerState(b"c%d" % at, 1, int(each * 1000)) for at, each in enumerate(idle_s)]
    found.consumer_count = len(idle_s)
    return found


def test_a_consumer_that_is_gone_is_worse_when_nobody_else_is_there() -> None:
    assert list(consumer_gone(case(look(0, holding(1, 599))))) == []
    (found,) = consumer_gone(case(look(0, holding(1, 601))))
    assert (found.severity, found.fix[0]) == ("warning", "XAUTOCLAIM s g c0 600000 0-0 COUNT 100")
    first, second = consumer_gone(case(look(0, holding(601, 7200))))
    assert {first.severity, second.severity} == {"critical"}
    assert "last seen 2.0 h ago" in second.figure


def test_a_lag_that_falls_once_does_not_only_grow() -> None:
    assert list(lag_grows(case(look(0, group(1, 500)), look(1, group(1, 499)), look(2, group(1, 600))))) == []
    (found,) = lag_grows(case(look(0, group(1, 500)), look(1, group(2, 550)), look(2, group(3, 600), added=1200)))
    assert (found.severity, found.values["in_per_s"]) == ("warning", 100)
    (found,) = lag_grows(case(look(0, group(1, 500)), look(1, group(1, 550)), look(2, group(1, 600), added=1200)))
    assert found.severity == "critical"
    assert list(lag_grows(case(look(0, group(1, None)), look(1, group(1, 550)), look(2, group(1, 600))))) == []


@pytest.mark.parametrize(
    ("added", "removed", "severity"),
    [(1000, 0, "critical"), (0, 0, "critical"), (1000, 900, None), (300, 300, None)],
)
def test_a_stream_without_a_bound_ends_memory_at_its_rate(added: int, removed: int, severity: str | None) -> None:
    """10 bytes an entry; 1 MB is left."""
    found = list(unbounded(case(look(0), look(10, length=1000 + added - removed, added=1000 + added))))
    assert [each.severity for each in found] == ([severity] if severity else [])
    if added == 1000 and severity:
        assert found[0].values["in_per_s"] == 100
        assert found[0].values["memory_ends_in_s"] == pytest.approx(1_000_000 / (100 * 10_000 / 2000))


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


@pytest.mark.parametrize(
    ("widths", "room", "found"),
    [
        ([20, 40, 5], 100, [20, 40, 5]),
        ([20, 40, 5], 60, [20, 27, 5]),
        ([20, 40, 5], 40, [13, 14, 5]),
        ([20, 40, 5], 10, [12, 12, 5]),
        ([5, 5, 5], 10, [5, 5, 5]),
    ],
)
def test_names_are_shortened_until_a_table_fits(widths: list[int], room: int, found: list[int]) -> None:
    screen = pytest.importorskip("streamd.watching.screen")
    assert screen.fitting(widths, [True, True, False], room) == found


def test_what_is_left_out_of_a_name_is_in_its_middle() -> None:
    screen = pytest.importorskip("streamd.watching.screen")
    assert screen.shortened("billing-north", 13) == "billing-north"
    assert screen.shortened("billing-north", 9) == "bill…orth"
    assert screen.shortened("billing-north", 8) == "bill…rth"
