"""The rows of a file as transactions, encoded ahead of their delivery; in the place of entries that are gone, placeholders."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from streamd.arrow.encode import XAddEncoder
from streamd.client.key_names import stream_key
from streamd.client.points import parse_entry_id
from streamd.transfer.batch_rows import BatchRows
from streamd.transfer.files import FIELDS, ID, STREAM, Shape
from streamd.transfer.write_options import SinkOptions

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["CHUNK_ROWS", "Chunk", "LoadPlan", "chunks_of", "with_placeholders"]

CHUNK_ROWS = 1_000
CHUNK_BYTES = 4 * 1024 * 1024
"""What a transaction holds at most, in Arrow's form: the server keeps it until EXEC."""


@dataclass(frozen=True)
class LoadPlan:
    """The plan for the rows of a file (`batch_rows.Plan`)."""

    options: SinkOptions
    shape: Shape

    @property
    def key(self) -> None:
        return None

    @property
    def words(self) -> list[bytes]:
        return []

    @property
    def stream(self) -> str | None:
        return STREAM if self.options.stream is None else None

    def encoder(self) -> XAddEncoder:
        at = {name: number for number, name in enumerate(self.shape.columns)}
        names = self.shape.fields or ()
        first = len(at) - len(names)
        return XAddEncoder(
            key=None if self.options.stream is None else stream_key(self.options.stream),
            key_column=at[STREAM] if self.options.stream is None else -1,
            id_column=at[ID] if self.shape.has_id else -1,
            fields_column=at[FIELDS] if self.shape.fields is None else -1,
            field_names=[name.encode() for name in names],
            field_columns=[first + number for number in range(len(names))],
            null_values=self.options.null_values,
        )


class EncodedRows(BatchRows):
    """Rows of which some are encoded already."""

    encoded: tuple[int, int, bytes] = (0, 0, b"")
    """From which row on, up to which one, and their requests."""

    def encode(self, start: int, stop: int, producer_id: bytes = b"") -> bytes:
        if (start, stop) == self.encoded[:2]:
            return self.encoded[2]
        return super().encode(start, stop, producer_id)


class Deliverer(Protocol):
    """What writes rows: see chunk_delivery.Delivery."""

    def deliver(self, rows: BatchRows, start: int, stop: int) -> int: ...


@dataclass(frozen=True)
class Chunk:
    """The rows that a transaction writes.

    start, stop  of the rows
    encoded      their requests
    done         how many bytes of the file are read by then
    """

    rows: EncodedRows
    start: int
    stop: int
    encoded: bytes
    done: int

    def deliver(self, delivery: Deliverer) -> None:
        self.rows.encoded = self.start, self.stop, self.encoded
        start = self.start
        while start < self.stop:
            start = delivery.deliver(self.rows, start, self.stop)


def chunks_of(plan: LoadPlan, batches: Iterator[tuple[pa.RecordBatch, int]]) -> Generator[Chunk]:
    """Batches of a file, and how many bytes are read after each, as transactions whose requests are encoded.

    May run in a thread, ahead of the delivery, which encodes again what has to be sent in other pieces.
    """
    # One encoder for each side of the thread.
    ahead, encoder = plan.encoder(), plan.encoder()
    for batch, done in batches:
        early, rows = BatchRows(plan, ahead, batch), EncodedRows(plan, encoder, batch)
        fitting = CHUNK_BYTES * batch.num_rows // max(batch.nbytes, 1)
        size = max(1, min(CHUNK_ROWS, fitting))
        for start in range(0, batch.num_rows, size):
            stop = min(start + size, batch.num_rows)
            yield Chunk(rows, start, stop, early.encode(start, stop), done)


def with_placeholders(
    batches: Iterator[tuple[pa.RecordBatch, int]], gone: list[str]
) -> Iterator[tuple[pa.RecordBatch, int]]:
    """The batches of whole entries, with an entry for each of the IDs `gone`, which are sorted, in its place."""
    done, schema = 0, None
    for batch, done in batches:
        schema = batch.schema
        last = parse_entry_id(batch.column(ID)[-1].as_py())
        count = bisect_left(gone, last, key=parse_entry_id)
        yield (merged(batch, gone[:count]) if count else batch), done
        gone = gone[count:]
    if gone:
        yield placeholders(gone, schema), done


def merged(batch: pa.RecordBatch, gone: list[str]) -> pa.RecordBatch:
    import pyarrow as pa

    ids = list(map(parse_entry_id, batch.column(ID).to_pylist()))
    parts, start = [], 0
    for each in gone:
        at = bisect_left(ids, parse_entry_id(each))
        parts += [batch.slice(start, at - start), placeholders([each], batch.schema)]
        start = at
    parts.append(batch.slice(start))
    (made,) = pa.Table.from_batches(parts).combine_chunks().to_batches()
    return made


def placeholders(gone: list[str], schema: pa.Schema | None) -> pa.RecordBatch:
    """Entries for IDs, in the form of the others."""
    import pyarrow as pa

    from streamd.arrow.entry_table import default_schema

    if schema is None:
        schema = pa.schema([(ID, pa.string()), (FIELDS, default_schema().field("fields").type)])
    kind = schema.field(ID).type
    ids = pa.array(gone, pa.string()).cast(kind)
    fields = pa.array([[{"field": b"gone", "value": b""}]] * len(gone), default_schema().field("fields").type)
    return pa.RecordBatch.from_arrays([ids, fields.cast(schema.field(FIELDS).type)], schema=schema)
