"""Offsets of streaming queries: canonical, complete, and able to tell when entries are gone."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamd.client.key_names import stream_key, stream_name
from streamd.client.points import MAX_ID, pack_id
from streamd.client.stream_info import StreamInfo
from streamd.spark.source.offsets import (
    Loss,
    Offset,
    OffsetError,
    Part,
    Position,
    end_of_stream,
    find_loss,
    inside_stream,
)

ids = st.integers(0, MAX_ID)
counts = st.none() | st.integers(0, 2**63)
cuts = st.lists(st.tuples(ids, counts), max_size=4).map(tuple)
positions = st.builds(
    Position, at=ids, last=ids, added=counts, read=counts, next=st.none() | st.integers(1, MAX_ID), cuts=cuts
)
names = st.binary(min_size=1, max_size=8).map(stream_name)
offsets = st.builds(Offset, st.dictionaries(names, positions, max_size=4))


def over_the_wire(offset: Offset) -> Offset:
    return Offset.from_json(json.loads(json.dumps(offset.to_json())))


# --- JSON -----------------------------------------------------------------------------------------------------------------


@given(offsets)
def test_an_offset_survives_json(offset: Offset) -> None:
    assert over_the_wire(offset) == offset


@given(offsets)
def test_equal_offsets_have_equal_texts(offset: Offset) -> None:
    backwards = Offset(dict(reversed(list(offset.positions.items()))))
    assert json.dumps(backwards.to_json()) == json.dumps(over_the_wire(offset).to_json())


def test_what_follows_from_the_rest_is_left_out() -> None:
    position = Position(at=pack_id(5, 1), last=pack_id(5, 1), added=7, read=7)
    assert Offset({"b": position, "a": Position()}).to_json() == {
        "streams": {"a": {"added": 0, "at": "0-0"}, "b": {"added": 7, "at": "5-1"}},
        "version": 1,
    }


@given(st.binary())
def test_every_key_has_a_name(key: bytes) -> None:
    assert stream_key(stream_name(key)) == key
    assert json.loads(json.dumps(stream_name(key))) == stream_name(key)


@pytest.mark.parametrize(
    "value",
    [
        None,
        {},
        {"version": 2, "streams": {}},
        {"version": 1},
        {"version": 1, "streams": {"a": {}}},
        {"version": 1, "streams": {"a": {"at": "x"}}},
        {"version": 1, "streams": {"a": {"at": "1-1", "parts": [["1-1"]]}}},
    ],
)
def test_a_foreign_offset_is_refused(value: object) -> None:
    with pytest.raises(OffsetError, match="checkpoint"):
        Offset.from_json(value)


# --- Parts ----------------------------------------------------------------------------------------------------------------


def test_a_part_ends_where_the_next_one_begins() -> None:
    position = Position(at=30, last=40, cuts=((10, 5), (17, None), (25, 2)))
    assert list(position.parts("s")) == [Part("s", 10, 16, 5), Part("s", 17, 24, None), Part("s", 25, 30, 2)]


def test_only_streams_that_moved_have_parts() -> None:
    before = Offset({"a": Position(at=9, last=9, cuts=((1, 3),)), "b": Position(at=5, last=5, cuts=((2, 1),))})
    after = before.advanced({"b": Position(at=8, last=8, cuts=((6, 2),))})
    assert after.parts() == [Part("b", 6, 8, 2)]
    assert after.positions["a"] == Position(at=9, last=9)


# --- Positions ------------------------------------------------------------------------------------------------------------


def info(length: int, first: int, last: int, added: int | None, max_deleted: int | None = 0) -> StreamInfo:
    return StreamInfo(length, last, first if length else None, added, max_deleted)


def test_the_counter_at_a_position_is_what_the_batch_leaves() -> None:
    # Ten were added, the first two trimmed long ago, three of the eight are read.
    made = inside_stream(Position(next=3), info(8, 3, 10, 10), 5, 6, ((3, 3),))
    assert (made.read, made.added, made.next) == (5, 10, 6)


def test_the_counter_continues_from_the_last_batch() -> None:
    # Entries below the old position are still there: only the last batch's counter helps.
    before = Position(at=5, last=10, added=10, read=5, next=6)
    assert inside_stream(before, info(10, 1, 10, 10), 7, 8, ((6, 2),)).read == 7


def test_the_counter_is_unknown_after_deletions() -> None:
    before = Position(at=5, last=10, added=10, read=5, next=6)
    assert inside_stream(before, info(9, 1, 10, 10, max_deleted=7), 8, 9, ((6, 2),)).read is None


def test_reply_of_xinfo_is_read() -> None:
    reply = [b"length", 2, b"last-generated-id", b"9-1", b"max-deleted-entry-id", b"4-0", b"entries-added", 7,
             b"recorded-first-entry-id", b"8-0", b"first-entry", [b"8-0", [b"a", b"b"]]]  # fmt: skip
    assert StreamInfo.parse(reply) == StreamInfo(2, pack_id(9, 1), pack_id(8, 0), 7, pack_id(4, 0))


def test_reply_of_an_old_server_is_read() -> None:
    reply = [b"length", 1, b"last-generated-id", b"9-1", b"first-entry", [b"9-1", [b"a", b"b"]]]
    assert StreamInfo.parse(reply) == StreamInfo(1, pack_id(9, 1), pack_id(9, 1))
    empty = [b"length", 0, b"last-generated-id", b"9-1", b"first-entry", None]
    assert StreamInfo.parse(empty) == StreamInfo(0, pack_id(9, 1), None)


# --- Loss -----------------------------------------------------------------------------------------------------------------

CAUGHT_UP = end_of_stream(info(5, 6, 10, 10))
BEHIND = Position(at=7, last=10, added=10, read=7, next=8)
FUTURE = Position(at=50, last=10, added=10, read=None)

NO_LOSS = {
    "nothing new": (CAUGHT_UP, info(5, 6, 10, 10)),
    "more of it": (CAUGHT_UP, info(8, 6, 13, 13)),
    "what was read is trimmed": (CAUGHT_UP, info(0, 0, 10, 10)),
    "what was read is trimmed up to what is new": (CAUGHT_UP, info(3, 11, 13, 13)),
    "one of the new is deleted, an old one is left": (CAUGHT_UP, info(7, 6, 13, 13, max_deleted=12)),
    "one of the read is deleted": (CAUGHT_UP, info(2, 11, 12, 12, max_deleted=9)),
    "a blank one appears": (Position(), info(3, 1, 3, 3)),
    "a blank one is still not there": (Position(at=77, read=None), None),
    "the next one is there": (BEHIND, info(3, 8, 10, 10)),
    "the next one is deleted, an old one is left": (BEHIND, info(3, 7, 10, 10, max_deleted=8)),
    "what is not to be read is trimmed": (FUTURE, info(0, 0, 20, 20)),
    "a server that does not count": (end_of_stream(info(5, 6, 10, None, None)), info(1, 15, 15, None, None)),
}


@pytest.mark.parametrize("case", NO_LOSS)
def test_no_loss(case: str) -> None:
    assert find_loss("s", *NO_LOSS[case]) is None


LOSS = {
    "deleted": (CAUGHT_UP, None, True, "deleted"),
    "lower last ID": (CAUGHT_UP, info(1, 3, 3, 11), True, "recreated"),
    "fewer added": (CAUGHT_UP, info(1, 11, 11, 1), True, "recreated"),
    "more there than were added": (CAUGHT_UP, info(12, 11, 30, 12), True, "recreated"),
    "new ones trimmed": (
        CAUGHT_UP,
        info(2, 14, 15, 15),
        False,
        "3 entries of stream s after 0-10 were removed before they were read",
    ),
    "a blank one appears trimmed": (
        Position(),
        info(2, 2, 3, 3),
        False,
        "1 entries of stream s after 0-0 were removed",
    ),
    "all new ones trimmed": (CAUGHT_UP, info(0, 0, 15, 15), False, "nothing is left"),
    "new ones trimmed or deleted": (CAUGHT_UP, info(2, 14, 15, 15, max_deleted=11), False, "XDEL was used up to 0-11"),
    "the next one trimmed": (BEHIND, info(2, 9, 10, 10), False, "from 0-8 on were removed"),
    "everything trimmed": (BEHIND, info(0, 0, 10, 10), False, "from 0-8 on were removed"),
    "trimmed on a server that does not count": (
        Position(at=7, last=10, added=None, read=None, next=8),
        info(2, 9, 10, None, None),
        False,
        "were removed",
    ),
}


@pytest.mark.parametrize("case", LOSS)
def test_loss(case: str) -> None:
    position, now, is_other_stream, text = LOSS[case]
    loss = find_loss("s", position, now)
    assert isinstance(loss, Loss)
    assert loss.is_other_stream == is_other_stream
    assert text in loss.text


@given(
    added=st.integers(1, 30),
    read=st.integers(0, 30),
    trimmed=st.integers(0, 30),
    later=st.integers(0, 30),
    data=st.data(),
)
def test_trimming_is_a_loss_exactly_when_something_unread_goes(
    added: int, read: int, trimmed: int, later: int, data: st.DataObject
) -> None:
    """Entries 1, 2, 3 ...: so many are there when the query has read some; then more come, and some are trimmed."""
    read, total = min(read, added), added + later
    trimmed = min(trimmed, total)
    before = info(added, 1, added, added)
    if read == added:
        position = end_of_stream(before)
    else:
        position = inside_stream(Position(next=1), before, read, read + 1, ((1, read),) if read else ())
    now = info(total - trimmed, trimmed + 1 if trimmed < total else 0, total, total)
    assert (find_loss("s", position, now) is not None) == (trimmed > read)
