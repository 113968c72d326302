"""`df.write.format("streamd")` and `df.writeStream.format("streamd")`: rows become entries of streams.

    StreamdWriter         a batch write
    StreamdStreamWriter   a streaming query

row_requests.py decides what an entry consists of; deliveries.py how rows are written, and how often; journal.py whether a batch is
repeated as it was. A batch write without `runId` gets a random one, which all of its tasks share, so that with
`delivery=exactly-once` a repeated task duplicates nothing.
"""

from __future__ import annotations

import logging
import uuid
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from streamd.client.client_errors import DeliveryError, OptionError
from streamd.client.key_names import stream_key
from streamd.client.key_slots import tag_beside
from streamd.spark.sink.deliveries import open_delivery
from streamd.spark.sink.journal import Content, Journal
from streamd.spark.sink.keyed import Keyed, key_capacity
from streamd.spark.sink.row_requests import RowPlan
from streamd.spark.sink.spool import Spool
from streamd.spark.spark_errors import told_in_one_line
from streamd.transfer.batch_rows import BatchRows, split_by_slot
from streamd.transfer.chunk_delivery import Delivery, WriterLink
from streamd.transfer.collector_pause import collector_paused
from streamd.transfer.marked import Marked
from streamd.transfer.task import Task
from streamd.transfer.trimming import parse_minid
from streamd.transfer.write_options import SinkOptions

if TYPE_CHECKING:
    import pyarrow

__all__ = ["StreamdStreamWriter", "StreamdWriter", "Written", "write_rows"]

log = logging.getLogger(__name__)

MAX_CHUNK_BYTES = 4 * 1024 * 1024
"""Maximum size of a transaction's rows in Arrow's form: the server keeps them all until EXEC."""

GENERATED_MARKER_TTL_MS = 86_400_000
"""How long the markers of a write without a name are kept: they are not needed once its tasks have ended."""


@dataclass
class Written(WriterCommitMessage):
    """What a task has written.

    stream_rows  rows for each stream
    """

    stream_rows: dict[bytes, int]


def write_rows(
    plan: RowPlan, task: Task, batches: Iterable[pyarrow.RecordBatch], *, marker_ttl_ms: int | None = None
) -> dict[bytes, int]:
    """Write the rows of a task; return how many there were for each stream.

    Without rows the server is not contacted, except for the journal of exactly-once.
    """
    filled = (batch for batch in batches if batch.num_rows)
    if plan.options.is_spread:
        return _write_spread(plan, task, filled, marker_ttl_ms)
    if plan.options.is_marked:
        return _write_marked(plan, task, filled, marker_ttl_ms)
    delivery: Delivery | None = None
    try:
        for batch in filled:
            if delivery is None:
                delivery = open_delivery(plan.options, task, marker_ttl_ms=marker_ttl_ms)
                if plan.key is not None:
                    Journal(plan.options, task, delivery.link, marker_ttl_ms).open(_way_of(plan, batch))
                encoder = plan.encoder(with_idmp=isinstance(delivery, Keyed))
            _deliver(plan, delivery, BatchRows(plan, encoder, plan.prepare(batch)))
        if delivery is None:
            return {}
        delivery.finish()
        return delivery.stream_rows
    finally:
        if delivery is not None:
            delivery.close()


def _way_of(plan: RowPlan, batch: pyarrow.RecordBatch) -> str:
    """What decides whether the server recognizes the keys of a repeated batch."""
    kind = batch.schema.field(plan.key).type
    return f"key {plan.key} {kind} {plan.options.idmp_producers}".replace("\n", "\\n")


def _write_marked(
    plan: RowPlan, task: Task, batches: Iterable[pyarrow.RecordBatch], marker_ttl_ms: int | None
) -> dict[bytes, int]:
    """Read all rows, have the journal agree to them, then write them."""
    link = WriterLink(plan.options.connection)
    ttl_ms = plan.options.marker_ttl_ms if marker_ttl_ms is None else marker_ttl_ms
    delivery = Marked(plan.options, task, link, ttl_ms)
    journal = Journal(plan.options, task, link, ttl_ms)
    encoder = plan.encoder(with_idmp=False)
    with closing(delivery), Spool() as spool:
        journal.open("marker")
        count = crc = 0
        streams: set[bytes] = set()
        for batch in batches:
            rows = BatchRows(plan, encoder, plan.prepare(batch))
            for start, stop in _chunks(plan, rows):
                crc = zlib.crc32(rows.encode(start, stop), crc)
            count += batch.num_rows
            streams.update(rows.streams(0, batch.num_rows))
            spool.add(rows.batch)
        delivery.begin(streams, lambda: journal.agree(Content(count, crc)))
        for prepared in spool:
            _deliver(plan, delivery, BatchRows(plan, encoder, prepared))
        delivery.finish()
        return delivery.stream_rows


def _write_spread(
    plan: RowPlan, task: Task, batches: Iterable[pyarrow.RecordBatch], marker_ttl_ms: int | None
) -> dict[bytes, int]:
    """Write the rows of one hash tag after the other, each with markers of its own, once the journal has agreed to all."""
    options = plan.options
    ttl_ms = options.marker_ttl_ms if marker_ttl_ms is None else marker_ttl_ms
    own = options.beside(stream_key(task.query))
    encoder = plan.encoder(with_idmp=False)
    places: dict[str, tuple[bytes, list[int]]] = {}  # one of the streams, and the batches, by hash tag
    with closing(WriterLink(own.connection)) as link, Spool() as spool:
        journal = Journal(own, task, link, ttl_ms, b":begun")
        if options.is_marked:
            journal.open("marker")
        count = crc = 0
        for number, batch in enumerate(batches):
            if number == 0 and plan.key is not None:
                journal.open(_way_of(plan, batch))
            rows = BatchRows(plan, encoder, plan.prepare(batch))
            if options.is_marked:
                for start, stop in _chunks(plan, rows):
                    crc = zlib.crc32(rows.encode(start, stop), crc)
            count += batch.num_rows
            for key, part in split_by_slot(rows.batch, plan.stream or ""):
                places.setdefault(tag_beside(key), (key, []))[1].append(spool.add(part))
        if options.is_marked:
            content = Content(count, crc)
            journal.agree(content)
            journal.begin(content)
        written: dict[bytes, int] = {}
        for key, numbers in places.values():
            part_plan = replace(plan, options=options.beside(key))
            delivery = open_delivery(part_plan.options, task, marker_ttl_ms=marker_ttl_ms)
            with closing(delivery):
                part_encoder = part_plan.encoder(with_idmp=isinstance(delivery, Keyed))
                for prepared in spool.read(numbers):
                    _deliver(part_plan, delivery, BatchRows(part_plan, part_encoder, prepared))
                delivery.finish()
                written |= delivery.stream_rows
        return written


def _deliver(plan: RowPlan, delivery: Delivery, rows: BatchRows) -> None:
    for start, stop in _chunks(plan, rows):
        while start < stop:
            start = delivery.deliver(rows, start, stop)


def _chunks(plan: RowPlan, rows: BatchRows) -> Iterator[tuple[int, int]]:
    """The rows of each transaction."""
    count, size = rows.batch.num_rows, rows.batch.nbytes
    chunk = max(1, min(plan.options.chunk_size, MAX_CHUNK_BYTES * count // max(size, 1)))
    for start in range(0, count, chunk):
        yield start, min(start + chunk, count)


class _Writer:
    """The common part of both writers."""

    def __init__(self, schema: StructType, options: SinkOptions) -> None:
        self.options = options
        self._attempt = uuid.uuid4().hex  # one for all tasks: Spark makes one writer, and copies it
        if self.options.minid is not None:
            try:
                parse_minid(self.options.minid, 2**50)
            except ValueError as error:
                raise OptionError("minId", str(error)) from None
        self.plan = RowPlan.of(schema, self.options)

    def _write(self, task: Task, batches: Iterator[pyarrow.RecordBatch], marker_ttl_ms: int | None = None) -> Written:
        with told_in_one_line(), collector_paused():
            return Written(write_rows(self.plan, task, batches, marker_ttl_ms=marker_ttl_ms))

    def _check_capacity(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Warn when all tasks together have written more keys to a stream than it remembers."""
        options = self.options
        if options.idempotency_key is None:
            return
        totals: dict[bytes, int] = {}
        for message in messages:
            if isinstance(message, Written):
                for stream, count in message.stream_rows.items():
                    totals[stream] = totals.get(stream, 0) + count
        capacity = key_capacity(options.idmp_maxsize or 10_000, options.idmp_producers)
        for stream, count in totals.items():
            if count > capacity:
                log.warning(
                    "option idempotencyProducers: %d rows were written to stream %s, which remembers about %d keys; had the "
                    "batch been repeated, some rows would have been written twice",
                    count,
                    stream.decode(errors="backslashreplace"),
                    capacity,
                )


class StreamdWriter(_Writer, DataSourceArrowWriter):
    """A batch write."""

    def __init__(self, schema: StructType, options: SinkOptions, overwrite: bool) -> None:
        super().__init__(schema, options)
        if overwrite:
            raise OptionError(
                "mode", "streams can only be appended to; use mode append, and DEL to start with an empty stream"
            )
        self._run = self.options.run_id or self._attempt
        self._ttl_ms = self.options.marker_ttl_ms
        if self.options.run_id is None and self._ttl_ms is None:
            self._ttl_ms = GENERATED_MARKER_TTL_MS

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> Written:
        context = TaskContext.get()
        partition = 0 if context is None else context.partitionId()
        return self._write(Task(self._run, 0, partition, self._attempt), iterator, self._ttl_ms)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._check_capacity(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """What is written stays: streams cannot retract entries. A write with the same runId completes it."""


class StreamdStreamWriter(_Writer, DataSourceStreamArrowWriter):
    """The sink of a streaming query. A batch is complete when its tasks are; `commit` has nothing to do.

    overwrite  output mode complete: as in other sinks that only append, each batch adds the whole result
    """

    def __init__(self, schema: StructType, options: SinkOptions, overwrite: bool) -> None:
        super().__init__(schema, options)
        if options.run_id is not None:
            raise OptionError("runId", "is for batch writes; a streaming query has an ID of its own, in its checkpoint")

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> Written:
        context = TaskContext.get()
        query = context and context.getLocalProperty("sql.streaming.queryId")
        batch = context and context.getLocalProperty("streaming.sql.batchId")
        if context is None or not query or not batch:
            raise DeliveryError(
                "this task does not belong to a streaming query: Spark names neither its query nor its batch"
            )
        return self._write(Task(query, int(batch), context.partitionId(), self._attempt), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._check_capacity(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """What is written stays, and is skipped when the batch is repeated."""
