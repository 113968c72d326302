"""What may be archived, and what may be trimmed."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("pyarrow", reason="archives need streamd-server[spark]")

from streamd.archive.archive_errors import IncarnationError
from streamd.archive.boundary import (
    can_have_become,
    check_incarnation,
    choose_end,
    find_gap,
    find_gap_in_copy,
    has_fewer_removed,
    holders,
    trim_limit,
)
from streamd.archive.manifest import FileRecord, Manifest, RowGroup
from streamd.client.points import pack_id
from streamd.client.stream_info import GroupNeeds, StreamInfo


def state(last: int = pack_id(100, 0), added: int | None = 50, deleted: int | None = 0) -> StreamInfo:
    return StreamInfo(50, last, pack_id(1, 0), added, deleted)


def last_manifest(high: int = pack_id(80, 0), next_id: int | None = pack_id(90, 0), added: int | None = 40) -> Manifest:
    file = FileRecord("data/x", 1, 1, high, high, (RowGroup(1, high, high),), "")
    return Manifest("s", 1, 0, high, 1, (file,), "r", 1, 0, added, pack_id(95, 0), next_id)


def group(delivered: int, first_pending: int | None = None, name: str = "g") -> GroupNeeds:
    return GroupNeeds(name, pack_id(delivered, 0), 0 if first_pending is None else 1, first_pending)


def test_the_end_is_older_than_the_hot_window() -> None:
    assert choose_end(state(), now_ms=90, hot_window_ms=20) == pack_id(70, 0) - 1


def test_the_end_is_never_above_what_the_stream_has_generated() -> None:
    # At an ID above it, an entry could still be added: with the clock's cut it would be lost.
    assert choose_end(state(last=pack_id(50, 3)), now_ms=1000, hot_window_ms=0) == pack_id(50, 3)


def test_a_hot_window_longer_than_time_leaves_nothing() -> None:
    assert choose_end(state(), now_ms=10, hot_window_ms=1000) < 0


def test_without_groups_and_readers_everything_archived_may_go() -> None:
    assert trim_limit(pack_id(80, 0), leased=None) == pack_id(80, 0)


def test_what_a_group_has_not_been_given_stays() -> None:
    assert trim_limit(pack_id(80, 0), leased=None, groups=[group(30), group(60)]) == pack_id(30, 0)


def test_what_is_pending_stays() -> None:
    limit = trim_limit(pack_id(80, 0), leased=None, groups=[group(60, first_pending=pack_id(20, 5))])
    assert limit == pack_id(20, 4)


def test_a_pending_entry_above_the_last_delivered_one_holds_nothing_more() -> None:
    # XCLAIM FORCE can make entries pending that were never delivered.
    assert group(30, first_pending=pack_id(60, 0)).free_until == pack_id(30, 0)


def test_a_group_that_has_never_read_holds_everything() -> None:
    assert trim_limit(pack_id(80, 0), leased=None, groups=[group(0)]) == 0


def test_ignored_groups_hold_nothing() -> None:
    groups = [group(0, name="old"), group(70, name="new")]
    assert trim_limit(pack_id(80, 0), leased=None, groups=groups, ignored=frozenset({"old"})) == pack_id(70, 0)


def test_a_reader_holds_what_is_above_its_boundary() -> None:
    assert trim_limit(pack_id(80, 0), leased=pack_id(40, 0)) == pack_id(40, 0)


def test_holders_are_notified_with_what_they_still_need() -> None:
    groups = [group(80, name="done"), group(30, name="slow")]
    assert holders(groups, pack_id(80, 0)) == {"slow": "30-0"}


def test_the_stream_that_was_archived_is_taken() -> None:
    check_incarnation(state(), last_manifest())


@pytest.mark.parametrize(
    "found",
    [
        None,
        state(last=pack_id(70, 0)),
        state(last=pack_id(94, 0)),
        state(added=39),
        state(last=pack_id(95, 0), added=41),  # more entries, and no higher ID
        StreamInfo(
            50, pack_id(200, 0), pack_id(100, 0), 50, 0
        ),  # more entries above the last ID of then than were added
    ],
    ids=str,
)
def test_a_stream_recreated_is_refused(found: StreamInfo | None) -> None:
    with pytest.raises(IncarnationError, match=r"A new (stream|one) needs a new archive"):
        check_incarnation(found, last_manifest())


def test_a_server_that_does_not_count_entries_is_taken() -> None:
    check_incarnation(state(added=None, deleted=None), last_manifest(added=None))


BEFORE = StreamInfo(length=10, last_generated=200, first_entry=100, entries_added=50, max_deleted=50)
EMPTY = StreamInfo(length=0, last_generated=200, first_entry=None, entries_added=50, max_deleted=50)


@pytest.mark.parametrize(
    ("then", "now"),
    [
        (BEFORE, BEFORE),
        (BEFORE, StreamInfo(12, 202, 100, 52, 50)),  # two were added
        (BEFORE, StreamInfo(9, 200, 110, 50, 50)),  # one was trimmed
        (BEFORE, StreamInfo(9, 200, 100, 50, 150)),  # one was deleted
        (BEFORE, EMPTY),
        (EMPTY, StreamInfo(1, 205, 205, 51, 50)),
        (BEFORE, StreamInfo(1, 205, 205, 51, 50)),
        (replace(BEFORE, entries_added=None, max_deleted=None), StreamInfo(12, 202, 100, None, None)),
    ],
)
def test_a_stream_that_has_grown_and_was_trimmed_is_the_same(then: StreamInfo, now: StreamInfo) -> None:
    assert can_have_become(then, now)


@pytest.mark.parametrize(
    ("then", "now"),
    [
        (BEFORE, StreamInfo(10, 199, 100, 50, 50)),  # its last ID fell
        (BEFORE, StreamInfo(10, 205, 100, 49, 50)),  # it has had fewer entries
        (BEFORE, StreamInfo(11, 200, 100, 51, 50)),  # one was added, not above the last ID
        (BEFORE, StreamInfo(10, 205, 100, 50, 50)),  # the last ID rose, and none was added
        (BEFORE, StreamInfo(12, 205, 100, 51, 50)),  # fewer were removed
        (BEFORE, StreamInfo(10, 205, 90, 55, 50)),  # an entry in front of the first one
        (BEFORE, StreamInfo(10, 205, 100, 55, 40)),  # one that was deleted never was
        (BEFORE, StreamInfo(11, 205, 110, 51, 50)),  # the first one is gone, and none was removed
        (BEFORE, StreamInfo(11, 205, 100, 51, 150)),  # one was deleted, and none was removed
        (EMPTY, StreamInfo(1, 205, 200, 51, 50)),
        (replace(BEFORE, entries_added=None), StreamInfo(11, 200, 100, None, None)),
    ],
)
def test_a_stream_that_additions_and_trims_cannot_make_is_another_one(then: StreamInfo, now: StreamInfo) -> None:
    assert not can_have_become(then, now)


def test_a_stream_from_which_less_was_removed_is_looked_at_closely() -> None:
    last = replace(last_manifest(), length=30)
    assert has_fewer_removed(state(added=59), last)
    assert not has_fewer_removed(state(added=60), last)
    assert not has_fewer_removed(state(added=None), last)
    assert not has_fewer_removed(state(added=50), last_manifest())


def test_entries_trimmed_before_they_were_archived_are_a_gap() -> None:
    gap = find_gap(state(), last_manifest(), next_is_there=False)
    assert gap is not None
    assert gap.is_certain
    assert "90-0" in gap.text
    assert find_gap(state(), last_manifest(), next_is_there=True) is None


def test_an_entry_deleted_on_purpose_is_an_uncertain_gap() -> None:
    gap = find_gap(state(deleted=pack_id(90, 0)), last_manifest(), next_is_there=False)
    assert gap is not None
    assert not gap.is_certain


@pytest.mark.parametrize(
    ("length", "first", "deleted", "is_certain"),
    [(10, 96, 0, None), (9, 97, 0, True), (9, 97, 95, True), (9, 96, 97, False), (0, None, 0, True), (50, 1, 0, None)],
)
def test_entries_that_were_added_are_counted_when_all_before_were_archived(
    length: int, first: int | None, deleted: int, is_certain: bool | None
) -> None:
    last = last_manifest(high=pack_id(95, 0), next_id=None, added=40)
    first_id = None if first is None else pack_id(first, 0)
    gap = find_gap(StreamInfo(length, pack_id(200, 0), first_id, 50, pack_id(deleted, 0)), last, next_is_there=False)
    assert (None if gap is None else gap.is_certain) == is_certain


@pytest.mark.parametrize(
    ("first", "length", "gone", "is_gap"),
    [(10, 5, 0, False), (11, 4, 0, True), (None, 0, 0, True), (10, 4, 1, False), (10, 4, 0, True)],
)
def test_what_goes_during_a_copy_is_a_gap_unless_it_was_copied(
    first: int | None, length: int, gone: int, is_gap: bool
) -> None:
    before = StreamInfo(5, pack_id(20, 0), pack_id(10, 0), 50, 0)
    after = StreamInfo(length, pack_id(20, 0), pack_id(10, 0), 50, 0)
    first_id = None if first is None else pack_id(first, 0)
    found = find_gap_in_copy(
        before, after, low=pack_id(9, 0), first_above=pack_id(10, 0), first=first_id, gone=gone, next_is_there=True
    )
    assert (found is not None) == is_gap


def test_what_redis_says_is_read() -> None:
    reply = [
        b"length", 2, b"last-generated-id", b"7-1", b"max-deleted-entry-id", b"3-0", b"entries-added", 9,
        b"groups", 0, b"first-entry", [b"5-0", [b"f", b"v"]], b"last-entry", None,
    ]  # fmt: skip
    assert StreamInfo.parse(reply) == StreamInfo(2, pack_id(7, 1), pack_id(5, 0), 9, pack_id(3, 0))
    old = StreamInfo.parse([b"length", 0, b"last-generated-id", b"0-0", b"first-entry", None])
    assert old == StreamInfo(0, 0, None, None, None)
    info = [b"name", b"g", b"consumers", 1, b"pending", 2, b"last-delivered-id", b"6-0"]
    assert GroupNeeds.parse(info, [2, b"5-0", b"6-0", []]) == GroupNeeds("g", pack_id(6, 0), 2, pack_id(5, 0))
    assert GroupNeeds.parse(info, [0, None, None, None]).first_pending is None
