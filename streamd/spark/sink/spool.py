"""Record batches that are kept until all of them have been seen: in memory, and beyond that in Spark's local folder."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow

__all__ = ["Spool"]

MEMORY_BYTES = 32 * 1024 * 1024


class Spool:
    """Add batches of one schema, then read them."""

    def __init__(self) -> None:
        # Spark gives each application folders of its own for such files; the first one will do.
        folder = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
        where = folder if os.path.isdir(folder) else None
        self._file = tempfile.SpooledTemporaryFile(MEMORY_BYTES, dir=where)  # noqa: SIM115 - closed by __exit__
        self._writer: pyarrow.RecordBatchFileWriter | None = None
        self._reader: pyarrow.RecordBatchFileReader | None = None
        self._count = 0

    def add(self, batch: pyarrow.RecordBatch) -> int:
        """Add a batch, and return its number, from 0."""
        import pyarrow.ipc

        if self._writer is None:
            self._writer = pyarrow.ipc.new_file(self._file, batch.schema)
        self._writer.write_batch(batch)
        self._count += 1
        return self._count - 1

    def read(self, numbers: Iterable[int]) -> Iterator[pyarrow.RecordBatch]:
        """Batches by their numbers; none is added any more."""
        import pyarrow.ipc

        if self._writer is None:
            return
        if self._reader is None:
            self._writer.close()
            self._reader = pyarrow.ipc.open_file(self._file)
        for number in numbers:
            yield self._reader.get_batch(number)

    def __iter__(self) -> Iterator[pyarrow.RecordBatch]:
        return self.read(range(self._count))

    def __enter__(self) -> Spool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._file.close()
