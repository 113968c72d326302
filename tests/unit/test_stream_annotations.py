"""What the append-only file notes of a stream after a command: `StreamType.restore_state`."""

from __future__ import annotations

import pytest

from streamd.keyspace.database import Database
from streamd.values import VALUE_TYPES
from streamd.values.streams.stream import Stream
from streamd.values.streams.stream_type import StreamType

STREAMS = next(each for each in VALUE_TYPES if isinstance(each, StreamType))


@pytest.mark.parametrize(
    "args",
    [
        [],
        [b"PING"],
        [b"XGROUP"],
        [b"XGROUP", b"CREATE"],
        [b"XLEN", b"s"],
        [b"XGROUP", b"CREATE", b"s", b"g"],
        [b"X", b"none"],
    ],
)
@pytest.mark.parametrize("kind", [b"consumer", b"other"])
def test_a_note_after_another_command_is_skipped(args: list[bytes], kind: bytes) -> None:
    db = Database(0)
    db.add(b"s", Stream())
    STREAMS.restore_state(db, args, kind, [1, 2])


def test_the_numbers_of_idempotent_ids_are_restored() -> None:
    db = Database(0)
    stream = Stream()
    db.add(b"s", stream)
    STREAMS.restore_state(db, [b"XADD", b"s", b"*"], b"iids", [5, 2])
    assert (stream.iids_added, stream.iids_duplicates) == (5, 2)
