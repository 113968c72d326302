"""Rows of an archive as elements of a reply: EntryBatch and EntryPacker against the obvious Python."""

from __future__ import annotations

import random
import sys
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="archives need streamd-server[archive]")

import pyarrow as pa

from streamd.arrow.entry_batches import EntryBatch, EntryPacker
from streamd.arrow.entry_table import default_schema
from streamd.client.points import MAX_ID, format_entry_id
from streamd.packed_entries import PackedEntries

ALL = sys.maxsize
Row = tuple[int, list[tuple[bytes, bytes]]]


def drawn_rows(draw: random.Random, count: int) -> list[Row]:
    numbers = sorted({draw.choice((0, 1, 5 << 64, (5 << 64) + 9, MAX_ID, draw.getrandbits(128))) for _ in range(count)})
    words = (b"", b"f", b"\r\n\0\xff", b"x" * 99, b"y" * 100, b"z" * 1000)
    return [(each, [(draw.choice(words), draw.choice(words)) for _ in range(draw.randrange(5))]) for each in numbers]


def batch_of(rows: list[Row], draw: random.Random) -> EntryBatch:
    """A batch that is a slice of a larger one."""
    schema = pa.schema([each for each in default_schema() if each.name in ("id", "fields")])
    before = draw.randrange(3)
    every = [(0, [(b"before", b"")])] * before + rows
    found: Any = pa.RecordBatch.from_pylist(
        [
            {"id": format_entry_id(number), "fields": [{"field": name, "value": value} for name, value in fields]}
            for number, fields in every
        ],
        schema=schema,
    )
    return EntryBatch(found.slice(before))


def element(row: Row) -> bytes:
    words = [word for pair in row[1] for word in pair]
    entry_id = format_entry_id(row[0]).encode()
    return b"".join(
        [
            b"*2\r\n$%d\r\n%s\r\n*%d\r\n" % (len(entry_id), entry_id, len(words)),
            *(b"$%d\r\n%s\r\n" % (len(each), each) for each in words),
        ]
    )


def assert_packed(found: PackedEntries, rows: list[Row]) -> None:
    assert [found.id_at(at) for at in range(found.count)] == [row[0] for row in rows]
    assert bytes(found.data) == b"".join(map(element, rows))
    end = 0
    for at, row in enumerate(rows):
        assert found.size(at, at + 1) == len(element(row))
        end += len(element(row))
        assert found.size(0, at + 1) == end


@pytest.mark.parametrize("seed", range(50))
def test_rows_become_elements_of_a_reply(seed: int) -> None:
    draw = random.Random(seed)
    rows = drawn_rows(draw, draw.choice((1, 2, 30)))
    batch = batch_of(rows, draw)
    assert (batch.rows, batch.last) == (len(rows), rows[-1][0])
    low, high = (draw.choice((0, MAX_ID, draw.choice(rows)[0])) for _ in range(2))
    start, stop = batch.between(low, high)
    assert rows[start:stop] == ([row for row in rows if low <= row[0] <= high])
    for is_reverse in (False, True):
        packer = EntryPacker()
        most, enough, least = (draw.choice((1, 200, 3000, ALL)) for _ in range(3))
        count = draw.choice((1, 3, ALL))
        start = draw.randrange(len(rows))
        stop = draw.randint(start, len(rows))
        added = packer.add(
            batch,
            start,
            stop,
            is_reverse=is_reverse,
            most_bytes=most,
            enough_rows=count,
            enough_bytes=enough,
            least_bytes=least,
        )
        expected: list[Row] = []
        for row in reversed(rows[start:stop]) if is_reverse else rows[start:stop]:
            if sum(len(element(each)) for each in [*expected, row]) > most:
                break
            expected.append(row)
            size = sum(len(element(each)) for each in expected)
            if size >= least and (len(expected) >= count or size >= enough):
                break
        assert added == packer.count == len(expected)
        assert_packed(packer.packed(), expected)
        both = EntryPacker()
        both.add_all(packer)
        both.add_all(packer, is_reverse=True)
        assert_packed(both.packed(), [*expected, *reversed(expected)])
        assert both.size_of(added) == packer.size


def test_an_index_that_does_not_fit_is_refused() -> None:
    draw = random.Random(1)
    packer = EntryPacker()
    rows = drawn_rows(draw, 5)
    packer.add(batch_of(rows, draw), 0, len(rows), most_bytes=ALL, enough_rows=ALL, enough_bytes=ALL)
    packed = packer.packed()
    for index, data in ((packed.index, packed.data[:-1]), (packed.index[:-24], packed.data)):
        with pytest.raises(ValueError, match="index"):
            PackedEntries(index, data)
    assert PackedEntries().count == 0


def test_other_columns_are_refused() -> None:
    with pytest.raises(TypeError, match="columns"):
        EntryBatch(pa.RecordBatch.from_pydict({"id": ["1-1"]}))
    with pytest.raises(TypeError, match="fields"):
        EntryBatch(pa.RecordBatch.from_pydict({"id": ["1-1"], "fields": ["x"]}))
    schema = pa.schema([each for each in default_schema() if each.name in ("id", "fields")])
    with pytest.raises(ValueError, match="invalid ID"):
        _ = EntryBatch(pa.RecordBatch.from_pylist([{"id": "1-x", "fields": []}], schema=schema)).last
