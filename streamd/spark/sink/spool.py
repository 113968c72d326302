"""Record batches that are kept until all of them have been seen: in memory, and beyond that in Spark's local folder."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow

__all__ = ["Spool"]

MEMORY_BYTES = 32 * 1024 * 1024


class Spool:
    """Add batches of one schema, then iterate over them once."""

    def __init__(self) -> None:
        # Spark gives each application folders of its own for such files; the first one will do.
        folder = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
        where = folder if os.path.isdir(folder) else None
        self._file = tempfile.SpooledTemporaryFile(MEMORY_BYTES, dir=where)  # noqa: SIM115 - closed by __exit__
        self._writer: pyarrow.RecordBatchStreamWriter | None = None

    def add(self, batch: pyarrow.RecordBatch) -> None:
        import pyarrow.ipc

        if self._writer is None:
            self._writer = pyarrow.ipc.new_stream(self._file, batch.schema)
        self._writer.write_batch(batch)

    def __iter__(self) -> Iterator[pyarrow.RecordBatch]:
        import pyarrow.ipc

        if self._writer is None:
            return
        self._writer.close()
        self._file.seek(0)
        with pyarrow.ipc.open_stream(self._file) as batches:
            yield from batches

    def __enter__(self) -> Spool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._file.close()
