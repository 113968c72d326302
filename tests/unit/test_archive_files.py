"""Files of the archive: order, dates, cuts; and rows of them as the replies that XRANGE would give."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="archives need streamd-server[spark]")
pytest.importorskip("pyspark", reason="archives need streamd-server[spark]")

import click
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from streamd.archive.archive_errors import ArchiveError, CorruptArchiveError, VerifyError
from streamd.archive.manifest import FileRecord
from streamd.archive.parquet import ROW_GROUP, file_schema, first_disorder, read_rows, write_files
from streamd.archive.verify import count_gone
from streamd.cli.one_line import errors_in_one_line
from streamd.client.points import MAX_ID, pack_id, parse_entry_id
from streamd.disk import Disk

HOUR_MS = 3_600_000
Entry = tuple[str, list[tuple[bytes, bytes]]]


def batch_of(entries: list[Entry]) -> Any:
    rows = []
    for entry_id, fields in entries:
        ms, seq = (int(part) if int(part) < 2**63 else None for part in entry_id.split("-"))
        time = None if ms is None or ms > 2**52 else datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
        pairs = [{"field": field, "value": value} for field, value in fields]
        rows.append({"id": entry_id, "ms": ms, "seq": seq, "time": time, "fields": pairs})
    return pa.RecordBatch.from_pylist(rows, schema=file_schema())


def hourly(count: int, start: int = 0) -> Any:
    return batch_of([(f"{(start + at) * HOUR_MS}-0", [(b"n", b"%d" % at)]) for at in range(count)])


def written(batches: list[Any], folder: Path, **options: int) -> list[FileRecord]:
    folder.mkdir(exist_ok=True)
    return [file.record for file in write_files(batches, folder, "part", Disk(), **options)]


def rows_between(files: list[FileRecord], low: int, high: int, **options: Any) -> list[str]:
    batches = (batch for file in files for batch in read_rows(Path("/"), file, low, high, ("id",), **options))
    return [row["id"] for batch in batches for row in batch.to_pylist()]


def test_each_day_gets_its_own_file(tmp_path: Path) -> None:
    files = list(write_files([hourly(30), hourly(30, 30)], tmp_path, "part", Disk()))
    assert [(file.day, file.record.rows) for file in files] == [
        ("1970-01-01", 24),
        ("1970-01-02", 24),
        ("1970-01-03", 12),
    ]
    assert files[1].record.first == pack_id(24 * HOUR_MS, 0)
    assert files[1].record.last == pack_id(47 * HOUR_MS, 0)


def test_no_entries_make_no_files(tmp_path: Path) -> None:
    assert written([], tmp_path) == []
    assert written([batch_of([])], tmp_path) == []


@pytest.mark.parametrize("ids", [["5-1", "5-1"], ["5-2", "5-1"], ["9-0", "10-0", "6-0"], [f"{2**63}-1", f"{2**63}-0"]])
def test_entries_out_of_order_are_refused(ids: list[str], tmp_path: Path) -> None:
    batch = batch_of([(each, [(b"f", b"v")]) for each in ids])
    assert first_disorder(batch) == len(ids) - 1
    with pytest.raises(ArchiveError, match="out of order"):
        written([batch], tmp_path)
    with pytest.raises(ArchiveError, match="out of order"):
        written([batch.slice(at, 1) for at in range(len(ids))], tmp_path)


def test_large_files_are_cut_and_have_many_row_groups(tmp_path: Path) -> None:
    count = ROW_GROUP + 10
    ids = pa.array([f"1-{at}" for at in range(count)])
    fields = pa.array([[{"field": b"f", "value": b"v"}]] * count, file_schema().field("fields").type)
    one, numbers = pa.array([1] * count, pa.int64()), pa.array(range(count), pa.int64())
    time = pa.nulls(count, file_schema().field("time").type)
    whole = pa.RecordBatch.from_arrays([ids, one, numbers, time, fields], schema=file_schema())
    (file,) = written([whole], tmp_path)
    assert [group.rows for group in file.row_groups] == [ROW_GROUP, 10]
    low, high = pack_id(1, ROW_GROUP - 3), pack_id(1, ROW_GROUP + 3)
    assert rows_between([file], low, high) == [f"1-{at}" for at in range(ROW_GROUP - 3, ROW_GROUP + 4)]
    assert rows_between([file], low, high, groups=(1, 2), batch_rows=2) == [
        f"1-{at}" for at in range(ROW_GROUP, ROW_GROUP + 4)
    ]
    two = written([whole.slice(at, 8192) for at in range(0, count, 8192)], tmp_path / "two", rows_per_file=30_000)
    assert [file.rows for file in two] == [32_768, 32_768, 10]


@settings(deadline=None, max_examples=40)
@given(low=st.integers(-2, 32), high=st.integers(-2, 32), batch_rows=st.integers(1, 40))
def test_any_range_is_cut_at_the_row(
    low: int, high: int, batch_rows: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    files = written([hourly(30)], tmp_path_factory.mktemp("files"))
    bounds = max(low, 0) * HOUR_MS << 64, (high * HOUR_MS << 64) if high >= 0 else -1
    want = [f"{at * HOUR_MS}-0" for at in range(30) if low <= at <= high]
    assert rows_between(files, *bounds, batch_rows=batch_rows) == want


def test_a_file_of_another_size_is_not_read(tmp_path: Path) -> None:
    (file,) = written([hourly(5)], tmp_path)
    Path(file.path).write_bytes(Path(file.path).read_bytes() + b"x")
    with pytest.raises(CorruptArchiveError, match="bytes"):
        rows_between([file], 0, MAX_ID)


# --- What was written against what there is -------------------------------------------------------------------------------


def some(ids: str, size: int = 3, value: bytes = b"v") -> Iterator[Any]:
    batch = batch_of([(f"{each}-0", [(b"f", value)]) for each in ids.split()])
    for at in range(0, batch.num_rows, size):
        yield batch.slice(at, size)


@pytest.mark.parametrize(
    ("ours", "theirs", "gone"),
    [("1 2 3 4 5", "1 2 3 4 5", 0), ("1 2 3 4 5", "2 4", 3), ("1 2 3", "", 3), ("", "", 0), ("1 2 10", "10", 2)],
)
@pytest.mark.parametrize("size", [1, 2, 5])
def test_entries_that_are_gone_since_are_counted(ours: str, theirs: str, gone: int, size: int) -> None:
    assert count_gone(some(ours, 3), some(theirs, size)) == gone


@pytest.mark.parametrize(
    ("ours", "theirs"), [("1 2 4", "1 2 3 4"), ("1 2", "1 2 3"), ("", "1"), ("2", "1"), ("2 3", "1 2")]
)
@pytest.mark.parametrize("size", [1, 2, 5])
def test_an_entry_that_was_not_written_is_reported(ours: str, theirs: str, size: int) -> None:
    with pytest.raises(VerifyError, match="is on the server, but not in the written file"):
        count_gone(some(ours, 3), some(theirs, size))
    with pytest.raises(VerifyError, match="is elsewhere, but not in the written file"):
        count_gone(some(ours, 3), some(theirs, size), "elsewhere")


def test_other_fields_are_notified() -> None:
    with pytest.raises(VerifyError, match="fields"):
        count_gone(some("1 2 3"), some("1 2 3", value=b"w"))


def test_ids_are_read_as_numbers_not_as_texts() -> None:
    assert parse_entry_id("9-0") < parse_entry_id("10-0")
    assert first_disorder(batch_of([("9-0", [(b"f", b"v")]), ("10-0", [(b"f", b"v")])])) is None


def test_errors_of_the_system_are_notified_in_one_line() -> None:
    with pytest.raises(click.ClickException, match="No space left on device"), errors_in_one_line():
        raise OSError(28, "No space left on device")
