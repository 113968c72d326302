"""What other programs read from the open tables of an archive: pyiceberg, deltalake, polars and DuckDB.

    python -m support.table_readers PATH    prints, as JSON, the number of rows and a checksum for each of them

In a process of its own for all of them: polars and DuckDB warn, and keep threads.
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

from streamd.spark.archive.full_history import plan_history, read_part
from streamd.spark.arrow.entry_table import default_schema, default_table
from streamd.spark.source.read_options import SourceOptions
from support.archives import KEY

__all__ = [
    "READERS",
    "digest",
    "files_named",
    "iceberg_table",
    "read_by_all",
    "read_delta",
    "read_history",
    "read_iceberg",
]


def iceberg_table(path: Path) -> Any:
    from pyiceberg.catalog import load_catalog

    folder = path / "_tables" / "iceberg"
    catalog = load_catalog("streamd", type="sql", uri=f"sqlite:///{folder}/catalog.db", warehouse=folder.as_uri())
    try:
        return catalog.load_table("streamd.archive")
    finally:
        catalog.close()  # type: ignore[attr-defined]


def read_iceberg(path: Path) -> pa.Table:
    return iceberg_table(path).scan().to_arrow()


def read_delta(path: Path) -> pa.Table:
    from deltalake import DeltaTable

    return DeltaTable(path / "data").to_pyarrow_table()


def read_iceberg_by_polars(path: Path) -> pa.Table:
    import polars

    return polars.scan_iceberg(iceberg_table(path)).collect().to_arrow()


def read_delta_by_polars(path: Path) -> pa.Table:
    import polars

    return polars.scan_delta(str(path / "data")).collect().to_arrow()


def read_by_duckdb(query: str) -> pa.Table:
    import duckdb

    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for name in ("avro", "iceberg", "delta"):
            # Of PyPI, since DuckDB's own installer downloads them.
            package = Path(str(importlib.import_module(f"duckdb_extension_{name}").__file__)).parent
            connection.execute(f"LOAD '{next(package.rglob('*.duckdb_extension'))}'")
        return connection.execute(query).to_arrow_table()


def read_iceberg_by_duckdb(path: Path) -> pa.Table:
    return read_by_duckdb(f"SELECT * FROM iceberg_scan('{iceberg_table(path).metadata_location}')")


def read_delta_by_duckdb(path: Path) -> pa.Table:
    return read_by_duckdb(f"SELECT * FROM delta_scan('{path / 'data'}')")


READERS: dict[str, Callable[[Path], pa.Table]] = {
    "pyiceberg": read_iceberg,
    "deltalake": read_delta,
    "polars, Iceberg": read_iceberg_by_polars,
    "polars, Delta": read_delta_by_polars,
    "DuckDB, Iceberg": read_iceberg_by_duckdb,
    "DuckDB, Delta": read_delta_by_duckdb,
}


def read_history(path: Path, options: Mapping[str, str], stream: str = KEY) -> pa.Table:
    """What `streamd history` gives of a stream."""
    source = SourceOptions.parse({"stream": stream, "archiveLease": "0", **options, "archive": str(path)})
    table = default_table()
    batches = [batch for part in plan_history(source) for batch in read_part(source, table, part)]
    return pa.Table.from_batches(batches, table.schema)


def digest(table: pa.Table) -> tuple[int, str]:
    """The number of rows, and a checksum of all values of the columns that `history` has; whatever the order of the rows."""
    plain = [field.with_type(pa.int64()) if field.name == "time" else field for field in default_schema()]
    found = table.select(default_schema().names)
    at = found.schema.get_field_index("time")
    times = found.column("time").cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    rows = found.set_column(at, "time", times).cast(pa.schema(plain)).to_pylist()
    lines = sorted(repr(sorted(row.items())) for row in rows)
    return len(lines), hashlib.sha256("\n".join(lines).encode(errors="surrogateescape")).hexdigest()


def read_by_all(path: Path) -> dict[str, tuple[int, str]]:
    """What each reader finds, in a process of its own."""
    command = [sys.executable, "-m", "support.table_readers", str(path)]
    tests = Path(__file__).parents[1]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False, cwd=tests.parent,
        env={**os.environ, "PYTHONPATH": f"{tests}:{tests.parent}"},
    )  # fmt: skip
    assert done.stdout, done.stderr
    return {name: (rows, checksum) for name, (rows, checksum) in json.loads(done.stdout).items()}


def files_named(path: Path) -> set[str]:
    """All files that any snapshot of the Iceberg table, and the newest version of the Delta table, name."""
    from deltalake import DeltaTable

    table = iceberg_table(path)
    found = {
        task.file.file_path.removeprefix("file://")
        for snapshot in table.snapshots()
        for task in table.scan(snapshot_id=snapshot.snapshot_id).plan_files()
    }
    return found | {unquote(each) for each in DeltaTable(path / "data").file_uris()}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(json.dumps({name: digest(read(Path(sys.argv[1]))) for name, read in READERS.items()}))
