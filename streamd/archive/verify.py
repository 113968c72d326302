"""Is what was written what the server holds (before a commit), and is what is committed still what was written (any time)?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from streamd.archive.archive_errors import CorruptArchiveError, VerifyError
from streamd.archive.layout import Layout
from streamd.archive.live_stream import read_entries
from streamd.archive.manifest import FileRecord, check_order
from streamd.archive.manifest_log import LOOKS, ManifestLog
from streamd.archive.parquet import bounds_within, first_disorder, hash_of, open_file, read_rows
from streamd.archive.store import Place
from streamd.arrow.entry_table import default_table
from streamd.client.points import MAX_ID, parse_entry_id
from streamd.client.url_options import ConnectionOptions

__all__ = ["Depth", "StreamVerdict", "compare_with_server", "count_gone", "file_faults", "verify_archive"]

Depth = Literal["ids", "content"]


# --- Before a commit --------------------------------------------------------------------------------------------------------


def compare_with_server(
    options: ConnectionOptions,
    stream: str,
    low: int,
    high: int,
    root: Place,
    files: list[FileRecord],
    depth: Depth = "ids",
) -> int:
    """Compare files, in order, with the entries with IDs in [low, high] on the server, every one of them.

    depth  `ids`: which entries there are; `content`: their fields too
    Returns how many entries of the files are no longer on the server: deleted or trimmed since they were read, which is
    not an error. Raises VerifyError for one that is missing in the files, or differs.
    """
    try:
        check_order(files, low - 1, high)
    except ValueError as error:
        raise VerifyError(f"the written file is out of order: {error}") from error
    columns = ("id",) if depth == "ids" else ("id", "fields")
    written = (batch for file in files for batch in read_rows(root, file, low, high, columns))
    held = read_entries(options, stream, low, high, default_table(*columns))
    return count_gone(written, held)


def count_gone(written: Iterable[pa.RecordBatch], held: Iterable[pa.RecordBatch], where: str = "on the server") -> int:
    """Walk through both, in ascending order of IDs. Returns how many are in `written` only; raises VerifyError for any
    in `held` only, or with other fields.

    where  what `held` is, for the error's text
    """
    ours, theirs = Walk(written), Walk(held)
    gone = 0
    while ours.count:
        if not theirs.count:
            return gone + ours.skip_all()
        count = min(ours.count, theirs.count)
        left, right = ours.peek(count), theirs.peek(count)
        if same(left, right):
            ours.skip(count)
            theirs.skip(count)
            continue
        at = pc.index(pc.equal(left.column(0), right.column(0).cast(left.column(0).type)), False).as_py()
        if at < 0:
            raise VerifyError(f"the fields of an entry from {left.column(0)[0]} to {left.column(0)[-1]} differ")
        if not same(left.slice(0, at), right.slice(0, at)):
            raise VerifyError(f"the fields of an entry from {left.column(0)[0]} on differ")
        ours.skip(at)
        theirs.skip(at)
        our_id, their_id = left.column(0)[at].as_py(), right.column(0)[at].as_py()
        if parse_entry_id(our_id) > parse_entry_id(their_id):
            raise VerifyError(f"entry {their_id} is {where}, but not in the written file")
        # All of ours before theirs are gone; skipped by bisection, because a whole range may have been trimmed.
        below, _ = bounds_within(left.column(0), parse_entry_id(their_id), MAX_ID)
        ours.skip(below - at)
        gone += below - at
    if theirs.count:
        raise VerifyError(f"entry {theirs.peek(1).column(0)[0].as_py()} is {where}, but not in the written file")
    return gone


def same(left: pa.RecordBatch, right: pa.RecordBatch) -> bool:
    return all(a.equals(b.cast(a.type)) for a, b in zip(left.columns, right.columns, strict=True))


class Walk:
    """A walk through batches, a few rows at a time. `count`: rows available now; 0 at the end."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches: Iterator[pa.RecordBatch] = iter(batches)
        self._batch: pa.RecordBatch | None = None
        self._at = 0
        self.count = 0
        self._next()

    def _next(self) -> None:
        self._batch, self._at, self.count = None, 0, 0
        for batch in self._batches:
            if batch.num_rows:
                self._batch, self.count = batch, batch.num_rows
                return

    def peek(self, count: int) -> pa.RecordBatch:
        if self._batch is None:
            raise IndexError("the walk has ended")
        return self._batch.slice(self._at, count)

    def skip(self, count: int) -> None:
        self._at += count
        self.count -= count
        if self.count == 0:
            self._next()

    def skip_all(self) -> int:
        """Skip to the end; return how many rows there were."""
        skipped = 0
        while self.count:
            skipped += self.count
            self.skip(self.count)
        return skipped


# --- Any time -------------------------------------------------------------------------------------------------------------


@dataclass
class StreamVerdict:
    """What was found of one stream."""

    stream: str
    manifests: int = 0
    files: int = 0
    rows: int = 0
    bytes: int = 0
    faults: list[str] = field(default_factory=list)
    strangers: list[str] = field(
        default_factory=list
    )  # files that no manifest names; harmless, removed by the next run

    @property
    def is_whole(self) -> bool:
        return not self.faults

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "is_whole": self.is_whole}


def verify_archive(
    layout: Layout, stream: str, *, quick: bool = False, progress: Callable[[int, int], None] | None = None
) -> StreamVerdict:
    """Check everything that is archived of a stream.

    quick     manifests, and sizes and row groups of files; otherwise also every byte (hash) and every ID (order, range)
    progress  called with the bytes of the files that were checked, and of all
    """
    verdict = StreamVerdict(stream)
    try:
        log = ManifestLog.read(layout, stream)
    except CorruptArchiveError as error:
        verdict.faults.append(str(error))
        return verdict
    files = log.files
    verdict.manifests, verdict.files, verdict.rows = log.sequence, len(files), log.rows
    verdict.bytes = sum(file.size for file in files)
    verdict.faults += checkpoint_faults(log)
    verdict.faults += file_faults(log, quick=quick, progress=progress)
    # A replaced file remains for a while, for readers that started before.
    log = ManifestLog.read(layout, stream, known=log)
    named = {file.path for file in log.files} | log.replaced.keys()
    verdict.strangers = [path for each in layout.data_files(stream) if (path := layout.relative(each)) not in named]
    return verdict


def checkpoint_faults(log: ManifestLog) -> list[str]:
    """Does the checkpoint agree with the manifests below it, as far as those still exist?"""
    for _ in range(LOOKS):
        base = log.base
        if base is None:
            return []
        number = base.last.sequence
        try:
            earlier = ManifestLog.read_up_to(log.layout, log.stream, number)
        except CorruptArchiveError as error:
            # Unless an archiver has removed them meanwhile, because there is a later checkpoint.
            log = ManifestLog.read(log.layout, log.stream)
            if log.base is not None and log.base.last.sequence > number:
                continue
            return [str(error)]
        if earlier.files == list(base.files) and earlier.boundary == base.last.high:
            return []
        break
    return [f"checkpoint {number} does not agree with the manifests up to it"]


def file_faults(log: ManifestLog, *, quick: bool, progress: Callable[[int, int], None] | None = None) -> Iterator[str]:
    """What is wrong with the files that these manifests name, unless an archiver has replaced them meanwhile."""
    last = done = 0
    files = log.files
    total = sum(file.size for file in files)

    def tell(before: int, size: int, share: float) -> None:
        if progress is not None:
            progress(before + int(size * share), total)

    for file in files:
        before, done = done, done + file.size
        if file.first <= last:
            yield f"{file.path}: its IDs overlap those of the file before"
        last = file.last
        try:
            verify_file(log.layout, file, quick=quick, progress=partial(tell, before, file.size))
        except (CorruptArchiveError, OSError, pa.ArrowException) as error:
            # Only files that still count are checked: a checkpoint forgets replaced files once they are removed.
            log = ManifestLog.read(log.layout, log.stream, known=log)
            if any(each.path == file.path for each in log.files):
                text = str(error)
                yield text if file.path in text else f"{file.path}: {text.splitlines()[0]}"


def verify_file(layout: Layout, file: FileRecord, *, quick: bool, progress: Callable[[float], None]) -> None:
    """Raise an error if anything is wrong with a file; `progress` is called with the fraction that has been read."""
    open_file(layout.root, file).close()
    progress(0)
    if quick:
        return
    if file.sha256 and hash_of(layout.root / file.path) != file.sha256:
        raise CorruptArchiveError(f"{file.path}: its bytes differ from those that were written")
    for at, group in enumerate(file.row_groups):
        batches = read_rows(
            layout.root, file, group.first, group.last, ("id", "ms", "seq"), groups=(at, at + 1), batch_rows=group.rows
        )
        found = pa.Table.from_batches(batches).combine_chunks().to_batches()
        ids = found[0].column("id")
        if (
            len(found) != 1
            or found[0].num_rows != group.rows
            or parse_entry_id(ids[0].as_py()) != group.first
            or parse_entry_id(ids[-1].as_py()) != group.last
            or first_disorder(found[0]) is not None
        ):
            raise CorruptArchiveError(f"{file.path}: the IDs of row group {at} differ from its manifest")
        progress((at + 1) / len(file.row_groups))
