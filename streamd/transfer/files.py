"""Files as batches of rows that can be encoded as XADD requests.

    DataFile(path, form)       a file, or the standard input; `open` gives its Reading
    Reading                    its shape, and its batches

The roles of columns (of members, in JSON Lines), by their names, see `Roles`:

    id       the entry's ID, `ms-seq`. A column that is merely called `id`, and whose first value is no such ID, is a field
    stream   the key; a field when the key is given
    fields   the whole entry: a list of pairs, a map, or JSON of an object or of a list of pairs. The other columns, except for
             those two, are ignored. Without it each of them is a field

This is how `streamd export` and `streamd history` write entries, and how tables look anyway. Text becomes values as it stands: 1.50 in
CSV or JSON remains `1.50`. Values of Parquet and Arrow: see arrow/as_text.py.
"""

from __future__ import annotations

import csv
import io
import itertools
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, ClassVar

from streamd.transfer.move_error import MoveError

if TYPE_CHECKING:
    import pyarrow as pa

Raw = Iterator[tuple["pa.RecordBatch", int]]
"""Batches as they are in a file, and how many bytes of it are read by then."""

__all__ = ["FIELDS", "FORMATS", "ID", "STREAM", "DataFile", "Reading", "Roles", "Shape", "format_of"]

FORMATS = {
    "csv": (".csv",),
    "json": (".jsonl", ".json", ".ndjson"),
    "parquet": (".parquet",),
    "arrow": (".arrow", ".feather"),
}
"""The formats, each with what the names of files end in; the first is what is written."""

ID, STREAM, FIELDS, FIELD = "id", "stream", "fields", "="
"""Names of the columns of prepared batches; `=` is before the name of a field."""

ROWS = 10_000
"""Rows of a batch, where the file does not say."""

BLOCK = 2 * 1024 * 1024
"""Bytes of text that become a batch."""

IS_ID = re.compile(rb"\d+-\d+")


def format_of(path: str) -> str | None:
    """The format that the name of a file says; None when it says none."""
    suffix = Path(path).suffix.lower()
    return next((form for form, suffixes in FORMATS.items() if suffix in suffixes), None)


@dataclass(frozen=True)
class Roles:
    """Names of columns; None: no column has the role.

    is_id_sure  the column is the ID whatever it looks like, and must be there
    keeps_ids   otherwise the server makes IDs, and the column is left out
    """

    id: str = "id"
    stream: str | None = "stream"
    fields: str = "fields"
    is_id_sure: bool = False
    keeps_ids: bool = True

    def of_entries(self, names: Sequence[str]) -> list[str]:
        """Those of the columns that are needed beside one of whole entries, and that one."""
        return [name for name in names if name in (self.id, self.stream, self.fields)]


@dataclass(frozen=True)
class Shape:
    """The columns of a file's prepared batches, in this order; all are strings or bytes, except for `fields`.

    has_id, has_stream  whether there are such columns
    fields              names of the fields; None: there is a column of whole entries
    """

    has_id: bool
    has_stream: bool
    fields: tuple[str, ...] | None

    @property
    def columns(self) -> list[str]:
        last = [FIELDS] if self.fields is None else [FIELD + name for name in self.fields]
        return [*([ID] if self.has_id else []), *([STREAM] if self.has_stream else []), *last]


class Reading:
    """The rows of a file.

    shape    of its batches; None: it has no rows
    batches  the prepared batches, each with how many bytes of the file are read by then
    Errors of the file are MoveError, and name it.
    """

    def __init__(self, name: str, shape: Shape | None, batches: Iterator[tuple[pa.RecordBatch, int]]) -> None:
        self.shape = shape
        self._name = name
        self._batches = batches

    @property
    def batches(self) -> Iterator[tuple[pa.RecordBatch, int]]:
        import pyarrow as pa

        try:
            yield from self._batches
        except (ValueError, pa.ArrowException) as error:
            raise MoveError(f"{self._name}: {error}") from None


@dataclass(frozen=True)
class DataFile:
    """A file with entries.

    path  `-`: the standard input
    form  one of FORMATS
    """

    path: str
    form: str

    @property
    def size(self) -> int | None:
        """Bytes; None when that is not known."""
        return None if self.path == "-" else Path(self.path).stat().st_size

    def open(self, roles: Roles) -> Reading:
        """Raises MoveError when the file is damaged or another column is needed, OSError."""
        import pyarrow as pa

        try:
            raw = (each for each in self._readers[self.form](self, roles) if each[0].num_rows)
            first = next(raw, None)
            if first is None:
                return Reading(self.path, None, iter(()))
            preparing = Preparing(roles, first[0])
            batches = ((preparing.prepare(batch), done) for batch, done in itertools.chain([first], raw))
            return Reading(self.path, preparing.shape, batches)
        except (ValueError, pa.ArrowException) as error:
            raise MoveError(f"{self.path}: {error}") from None

    def _opened(self) -> BinaryIO:
        return sys.stdin.buffer if self.path == "-" else open(self.path, "rb")

    def _read_parquet(self, roles: Roles) -> Raw:
        import pyarrow.parquet as pq

        if self.path == "-":
            raise ValueError("Parquet cannot be read from a pipe")
        with pq.ParquetFile(self.path) as file:
            size, total, rows = self.size or 0, max(file.metadata.num_rows, 1), 0
            for batch in file.iter_batches(batch_size=ROWS, columns=needed_columns(roles, file.schema_arrow)):
                rows += batch.num_rows
                yield batch, size * rows // total

    def _read_arrow(self, roles: Roles) -> Raw:
        import pyarrow as pa

        with self._opened() as file:
            is_file = self.path != "-" and file.read(6) == b"ARROW1"
            if self.path != "-":
                file.seek(0)
            reader = pa.ipc.open_file(file) if is_file else pa.ipc.open_stream(file)
            count = reader.num_record_batches if is_file else 0
            batches = (reader.get_batch(at) for at in range(count)) if is_file else reader
            for at, batch in enumerate(batches):
                done = (self.size or 0) * (at + 1) // count if is_file else 0
                for start in range(0, batch.num_rows, ROWS):
                    yield batch.slice(start, ROWS), done

    def _read_csv(self, roles: Roles) -> Raw:
        import pyarrow as pa
        import pyarrow.csv as pc

        with self._opened() as file:
            header = file.readline()
            names = next(csv.reader([header.decode("utf-8-sig")]), [])
            if len(set(names)) != len(names):
                raise ValueError("two columns have the same name")
            if not (first := file.read(BLOCK)):
                return
            row = dict(
                zip(names, next(csv.reader(io.StringIO(first.decode(errors="replace"), newline="")), []), strict=False)
            )
            is_whole = row.get(roles.fields, "")[:1] in ("{", "[")
            if self.path == "-":
                rest = pa.PythonFile(Continued(first, file), mode="r")
            else:
                rest = pa.OSFile(self.path)
                rest.seek(len(header))
            reader = pc.open_csv(
                rest,
                pc.ReadOptions(column_names=names, block_size=BLOCK),
                pc.ParseOptions(newlines_in_values=True),
                # An empty cell is null, unless it is quoted.
                pc.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.binary()), strings_can_be_null=True, null_values=[""],
                    quoted_strings_can_be_null=False, include_columns=roles.of_entries(names) if is_whole else names,
                ),
            )  # fmt: skip
            for batch in reader:
                yield batch, 0 if self.path == "-" else rest.tell()

    def _read_json(self, roles: Roles) -> Raw:
        import pyarrow as pa

        from streamd.arrow.parse import parse_lines

        stream = STREAM if roles.stream is None else roles.stream
        stream_name = None if roles.stream is None else roles.stream.encode()
        id_name: bytes | None = roles.id.encode()
        line = done = 0
        with self._opened() as file:
            for block in blocks_of(file):
                *columns, lines = parse_lines(block, id_name, stream_name, roles.fields.encode(), line)
                if not line and not is_id_column(roles, columns[0]):
                    id_name = None  # being called so is not enough
                    *columns, lines = parse_lines(block, id_name, stream_name, roles.fields.encode(), line)
                line += lines
                done += len(block)
                yield pa.RecordBatch.from_arrays(columns, [roles.id, stream, roles.fields]), done

    _readers: ClassVar[Mapping[str, Callable[[DataFile, Roles], Raw]]] = {
        "csv": _read_csv, "json": _read_json, "parquet": _read_parquet, "arrow": _read_arrow,
    }  # fmt: skip


def blocks_of(file: BinaryIO) -> Iterator[bytes]:
    """A file in blocks of whole lines."""
    while block := file.read(BLOCK):
        yield block if block.endswith(b"\n") else block + file.readline()


class Continued:
    """A file whose beginning has been read."""

    closed = False

    def __init__(self, first: bytes, rest: BinaryIO) -> None:
        self._first = first
        self._rest = rest

    def read(self, size: int = -1) -> bytes:
        if self._first:
            found = self._first if size < 0 else self._first[:size]
            self._first = self._first[len(found) :]
            return found
        return self._rest.read(size)

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self.closed = True


# --- Roles ---------------------------------------------------------------------------------------------------------------


def is_pairs(kind: pa.DataType) -> bool:
    """Whether a column of this type is whole entries, whatever its values."""
    import pyarrow as pa

    types = pa.types
    return bool(
        types.is_map(kind)
        or (types.is_list(kind) and types.is_struct(kind.value_type) and kind.value_type.num_fields == 2)
    )


def needed_columns(roles: Roles, schema: pa.Schema) -> list[str]:
    """Without the columns that whole entries make needless."""
    if roles.fields in schema.names and is_pairs(schema.field(roles.fields).type):
        return roles.of_entries(schema.names)
    return list(schema.names)


def first_of(column: pa.Array) -> bytes:
    """The first value as bytes; none for null."""
    found = column[0].as_py() if len(column) else None
    return found if isinstance(found, bytes) else b"" if found is None else str(found).encode()


def is_id_column(roles: Roles, column: pa.Array) -> bool:
    return roles.is_id_sure or IS_ID.fullmatch(first_of(column)) is not None


class Preparing:
    """Makes the batches of one file what the encoder needs; the first batch decides the roles of columns.

    Raises ValueError when a column is missing or unsuitable.
    """

    def __init__(self, roles: Roles, first: pa.RecordBatch) -> None:
        names = first.schema.names
        if roles.is_id_sure and roles.id not in names:
            raise ValueError(f"there is no column {roles.id}")
        self._roles = roles
        self._rows = 0
        is_id = roles.id in names and is_id_column(roles, first.column(roles.id))
        has_stream = roles.stream in names and first.column(roles.stream)[0].is_valid
        fields: tuple[str, ...] | None = None
        if not self._is_whole(first):
            fields = tuple(
                name for name in names if not (is_id and name == roles.id) and not (has_stream and name == roles.stream)
            )
            if not fields:
                raise ValueError("no column is left to be a field of the entries")
        self.shape = Shape(is_id and roles.keeps_ids, has_stream, fields)

    def _is_whole(self, batch: pa.RecordBatch) -> bool:
        if self._roles.fields not in batch.schema.names:
            return False
        column = batch.column(self._roles.fields)
        return is_pairs(column.type) or first_of(column)[:1] in (b"{", b"[")

    def prepare(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        import pyarrow as pa

        shape, roles = self.shape, self._roles
        arrays = []
        if shape.has_id:
            arrays.append(self._filled(batch, roles.id))
        if shape.has_stream and roles.stream is not None:
            arrays.append(self._filled(batch, roles.stream))
        if shape.fields is None:
            arrays.append(self._entries(batch.column(roles.fields)))
        else:
            arrays += [self._text(batch, name) for name in shape.fields]
        self._rows += batch.num_rows
        return pa.RecordBatch.from_arrays(arrays, shape.columns)

    def _entries(self, column: pa.Array) -> pa.Array:
        from streamd.arrow.as_text import pairs_as_text
        from streamd.arrow.parse import parse_fields

        if not is_pairs(column.type):
            return parse_fields(column, self._rows)
        made = pairs_as_text(column)
        if made.values.null_count:
            raise ValueError(f"column {self._roles.fields} has a list with a null in it")
        return made

    def _filled(self, batch: pa.RecordBatch, name: str) -> pa.Array:
        made = self._text(batch, name)
        if made.null_count:
            row = made.is_null().index(True).as_py()
            raise ValueError(f"row {self._rows + row + 1:,} has no value in column {name}; others have one")
        return made

    def _text(self, batch: pa.RecordBatch, name: str) -> pa.Array:
        import pyarrow as pa

        from streamd.arrow.as_text import as_text

        try:
            return as_text(batch.column(name))
        except pa.ArrowException:
            raise ValueError(f"column {name} is Arrow's {batch.column(name).type}, which has no text form") from None
