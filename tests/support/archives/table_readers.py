"""What other programs read from the open tables of an archive: pyiceberg, deltalake, polars and DuckDB.

    python -m support.archives.table_readers PATH [NAME]    prints, as JSON, the number of rows and a checksum for each of them

NAME is that of a typed table with the columns SCHEMA; without it, the plain tables are read. In a process of its own for all of them: polars and DuckDB warn, and keep threads.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from streamd.archive.full_history import plan_history, read_part
from streamd.archive.open_format import TableConfig
from streamd.archive.published_columns import table_schema
from streamd.arrow.entry_table import TableLayout, default_schema, default_table
from streamd.spark.source.schema import table_layout
from streamd.transfer.read_options import SourceOptions
from support.archives.runs import KEY

__all__ = [
    "READERS",
    "SCHEMA",
    "delta_folder",
    "digest",
    "digest_of",
    "files_named",
    "iceberg_table",
    "read_by_all",
    "read_delta",
    "read_history",
    "read_iceberg",
    "read_typed_history",
    "typed_digest",
]

PLAIN = "streamd.archive"
"""The name under which the readers find the plain tables; any other is that of typed ones."""

SCHEMA = (
    "user string, amount double, at timestamp, local timestamp_ntz, day date, small tinyint, short smallint, number int, "
    "big bigint, ratio float, flag boolean, price decimal(10,2), wide decimal(38,6), blob binary, `odd-name` string, "
    "_corrupt_record string"
)
"""A column of each type."""


def iceberg_table(path: Path, name: str = PLAIN) -> Any:
    from pyiceberg.catalog import load_catalog

    folder = path / "_tables" / "iceberg"
    catalog = load_catalog("streamd", type="sql", uri=f"sqlite:///{folder}/catalog.db", warehouse=folder.as_uri())
    try:
        return catalog.load_table(name)
    finally:
        catalog.close()  # type: ignore[attr-defined]


def delta_folder(path: Path, name: str = PLAIN) -> Path:
    return path / "data" if name == PLAIN else path / "_tables" / f"delta-{name}"


def read_iceberg(path: Path, name: str = PLAIN) -> pa.Table:
    return iceberg_table(path, name).scan().to_arrow()


def read_delta(path: Path, name: str = PLAIN) -> pa.Table:
    from deltalake import DeltaTable

    return DeltaTable(delta_folder(path, name)).to_pyarrow_table()


def read_iceberg_by_polars(path: Path, name: str = PLAIN) -> pa.Table:
    import polars

    return polars.scan_iceberg(iceberg_table(path, name)).collect().to_arrow()


def read_delta_by_polars(path: Path, name: str = PLAIN) -> pa.Table:
    import polars

    return polars.scan_delta(str(delta_folder(path, name))).collect().to_arrow()


def read_by_duckdb(query: str) -> pa.Table:
    import duckdb

    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for name in ("avro", "iceberg", "delta"):
            # Of PyPI, since DuckDB's own installer downloads them.
            package = Path(str(importlib.import_module(f"duckdb_extension_{name}").__file__)).parent
            connection.execute(f"LOAD '{next(package.rglob('*.duckdb_extension'))}'")
        return connection.execute(query).to_arrow_table()


def read_iceberg_by_duckdb(path: Path, name: str = PLAIN) -> pa.Table:
    return read_by_duckdb(f"SELECT * FROM iceberg_scan('{iceberg_table(path, name).metadata_location}')")


def read_delta_by_duckdb(path: Path, name: str = PLAIN) -> pa.Table:
    return read_by_duckdb(f"SELECT * FROM delta_scan('{delta_folder(path, name)}')")


READERS: dict[str, Callable[[Path, str], pa.Table]] = {
    "pyiceberg": read_iceberg,
    "deltalake": read_delta,
    "polars, Iceberg": read_iceberg_by_polars,
    "polars, Delta": read_delta_by_polars,
    "DuckDB, Iceberg": read_iceberg_by_duckdb,
    "DuckDB, Delta": read_delta_by_duckdb,
}


def read_history(path: Path, options: Mapping[str, str], stream: str = KEY) -> pa.Table:
    """What `streamd history` gives of a stream."""
    return read_table(path, options, stream, lambda source: default_table())


def read_typed_history(path: Path, options: Mapping[str, str], schema: Any, stream: str = KEY) -> pa.Table:
    """What Spark gives of a stream, read with a schema (pyspark's StructType)."""
    return read_table(path, options, stream, lambda source: table_layout(schema, source))


def read_table(
    path: Path, options: Mapping[str, str], stream: str, layout: Callable[[SourceOptions], TableLayout]
) -> pa.Table:
    source = SourceOptions.parse({"stream": stream, "archiveLease": "0", **options, "archive": str(path)})
    table = layout(source)
    batches = [batch for part in plan_history(source) for batch in read_part(source, table, part)]
    return pa.Table.from_batches(batches, table.schema)


def digest(table: pa.Table) -> tuple[int, str]:
    """The number of rows, and a checksum of all values of the columns that `history` has; whatever the order of the rows."""
    return digest_of(table, default_schema())


def typed_digest(table: pa.Table) -> tuple[int, str]:
    """The same for the columns of SCHEMA, and the others that a typed table has."""
    typed = [each for each in table_schema(TableConfig("delta", schema=SCHEMA)) if each.name != "date"]
    return digest_of(table, pa.schema(typed))


def digest_of(table: pa.Table, schema: pa.Schema) -> tuple[int, str]:
    """The same for the columns of a schema, to whose types the table's are cast."""
    made = {}
    for field in schema:
        column = table.column(field.name).cast(field.type)
        # What a time is in Python depends on libraries, and Python has no years above 9999.
        made[field.name] = column.cast(pa.int64()) if pa.types.is_timestamp(field.type) else column
    lines = sorted(repr(sorted(row.items())) for row in pa.table(made).to_pylist())
    return len(lines), hashlib.sha256("\n".join(lines).encode(errors="surrogateescape")).hexdigest()


def read_by_all(path: Path, name: str = PLAIN) -> dict[str, tuple[int, str]]:
    """What each reader finds, in a process of its own."""
    command = [sys.executable, "-m", "support.archives.table_readers", str(path), name]
    tests = Path(__file__).parents[2]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False, cwd=tests.parent,
        env={**os.environ, "PYTHONPATH": f"{tests}:{tests.parent}"},
    )  # fmt: skip
    assert done.stdout, done.stderr
    return {name: (rows, checksum) for name, (rows, checksum) in json.loads(done.stdout).items()}


def files_named(path: Path, name: str = PLAIN) -> set[str]:
    """All files that any snapshot of the Iceberg table, and the newest version of the Delta table, name."""
    from deltalake import DeltaTable

    table = iceberg_table(path, name)
    found = {
        task.file.file_path.removeprefix("file://")
        for snapshot in table.snapshots()
        for task in table.scan(snapshot_id=snapshot.snapshot_id).plan_files()
    }
    return found | {unquote(each) for each in DeltaTable(delta_folder(path, name)).file_uris()}


def main(path: Path, name: str = PLAIN) -> None:
    make = digest if name == PLAIN else typed_digest
    print(json.dumps({reader: make(read(path, name)) for reader, read in READERS.items()}))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(Path(sys.argv[1]), *sys.argv[2:])
