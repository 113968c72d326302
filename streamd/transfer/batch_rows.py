"""Rows of a record batch in the form that a delivery needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from streamd.client.client_errors import OptionError
from streamd.client.key_names import stream_key
from streamd.client.key_slots import tag_beside
from streamd.client.reply_reader import ReplyReader
from streamd.transfer.write_options import SinkOptions

if TYPE_CHECKING:
    import pyarrow

__all__ = ["BatchRows", "Plan", "split_by_slot"]


class Plan(Protocol):
    """What the rows become. Columns by name."""

    @property
    def options(self) -> SinkOptions: ...
    @property
    def stream(self) -> str | None:
        """The column that names a row's stream; None: all go to that of the options."""

    @property
    def key(self) -> str | None:
        """The column of idempotency keys."""

    @property
    def words(self) -> list[bytes]:
        """Arguments of XADD between the key and the ID."""


class BatchRows:
    """Rows of a prepared record batch, ready to be encoded; `start` and `stop` count from its first row."""

    def __init__(self, plan: Plan, encoder: Any, batch: pyarrow.RecordBatch) -> None:
        self._plan = plan
        self._encoder = encoder
        self.batch = batch
        self._key = None if plan.options.stream is None else stream_key(plan.options.stream)
        self._streams: tuple[int, int, dict[bytes, int]] = (0, 0, {})

    def encode(self, start: int, stop: int, producer_id: bytes = b"") -> bytes:
        """Their XADD requests, in order."""
        try:
            return bytes(self._encoder.encode(self.batch, start, stop, producer_id))
        except ValueError as error:
            raise OptionError(
                "nullValues" if "field" in str(error) or "value" in str(error) else "fieldsColumn", str(error)
            ) from None

    def streams(self, start: int, stop: int) -> dict[bytes, int]:
        """The keys they go to, and how many to each."""
        if self._key is not None:
            return {self._key: stop - start}
        if self._streams[:2] != (start, stop):
            counted = self._column(self._plan.stream, start, stop).value_counts()
            names, counts = counted.field("values").to_pylist(), counted.field("counts").to_pylist()
            found = {_raw(name): count for name, count in zip(names, counts, strict=True)}
            self._streams = (start, stop, found)
        return self._streams[2]

    def keys(self, start: int, stop: int) -> list[bytes]:
        """Their idempotency keys."""
        return [_raw(key) for key in self._column(self._plan.key, start, stop).to_pylist()]

    def key_of(self, row: int) -> bytes:
        """The stream of a row."""
        return self._key if self._key is not None else _raw(self._column(self._plan.stream, row, row + 1)[0].as_py())

    def entry_of(self, row: int) -> tuple[bytes, list[bytes]]:
        """ID, then alternating fields and values, as they are sent."""
        reader = ReplyReader()
        reader.feed(self.encode(row, row + 1))
        words: list[bytes] = reader.next()
        at = 2 + len(self._plan.words)
        return words[at], words[at + 1 :]

    def _column(self, name: str | None, start: int, stop: int) -> Any:
        return self.batch.column(name).slice(start, stop - start)


def split_by_slot(batch: pyarrow.RecordBatch, column: str) -> list[tuple[bytes, pyarrow.RecordBatch]]:
    """The rows of streams that one transaction can write in a cluster, in their order, with one of these streams.

    column  has the streams' keys. Those with one hash tag are together, in every batch
    """
    import pyarrow.compute

    encoded = batch.column(column).dictionary_encode()
    by_tag: dict[str, list[int]] = {}
    keys = [_raw(name) for name in encoded.dictionary.to_pylist()]
    for number, key in enumerate(keys):
        by_tag.setdefault(tag_beside(key), []).append(number)
    if len(by_tag) == 1:
        return [(keys[0], batch)]
    return [
        (
            keys[numbers[0]],
            batch.filter(
                pyarrow.compute.is_in(encoded.indices, value_set=pyarrow.array(numbers, encoded.indices.type))
            ),
        )
        for numbers in by_tag.values()
    ]


def _raw(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value
