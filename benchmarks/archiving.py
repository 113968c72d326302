"""What a run of the archiver costs: without and with open tables. The engine is the local one, without Spark.

    python -m benchmarks.archiving [--rows N] [--rounds N] [--before N] [--server streamd|redis] [--quick]

Each round archives a new stream into a new archive that has seen `--before` runs with a hundred entries each, so that the
tables have a history; only the last run, with all rows, is in the figures. CPU seconds are those of this process, in
which the archiver runs. An entry has four fields, as in benchmarks/spark_pipeline.py.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from benchmarks.servers import Server, describe_machine, start_server
from benchmarks.spark_pipeline import STREAM, fill

WAYS = {"files": (), "files and Delta": ("delta",), "files and Iceberg": ("iceberg",), "all": ("delta", "iceberg")}


def run_once(server: Server, path: Path, formats: tuple[str, ...]) -> tuple[float, float, int]:
    """Archive what is there; wall and CPU seconds, and rows."""
    from streamd.spark.archive.open_table import TableConfig
    from streamd.spark.archive.run import ArchiveSettings, archive

    settings = ArchiveSettings(hot_window_ms=0, trim=False, publish=tuple(map(TableConfig, formats)))
    start, cpu = time.perf_counter(), time.process_time()
    found = archive(str(path), {"host": "127.0.0.1", "port": str(server.port), "stream": STREAM}, settings=settings)
    took = time.perf_counter() - start, time.process_time() - cpu, found.rows
    if not found.is_success or any(each.warnings for each in found.streams):
        raise SystemExit(f"{[(each.error, each.warnings) for each in found.streams]}")
    return took


def measure(server: Server, folder: Path, formats: tuple[str, ...], rows: int, before: int) -> tuple[float, float]:
    path = folder / "archive"
    server.send("FLUSHALL")
    for number in range(before):
        fill(server, 100 * (number + 1), start=100 * number)
        run_once(server, path, formats)
    fill(server, 100 * before + rows, start=100 * before)
    wall, cpu, found = run_once(server, path, formats)
    if found != rows:
        raise SystemExit(f"archived {found} of {rows}")
    shutil.rmtree(path)
    return wall, cpu


@click.command(help=__doc__)
@click.option("--rows", default=2_000_000, show_default=True)
@click.option("--rounds", default=3, show_default=True)
@click.option("--before", default=40, show_default=True)
@click.option("--server", "name", default="streamd", show_default=True)
@click.option("--quick", is_flag=True, help="A tenth of the rows, once.")
def main(rows: int, rounds: int, before: int, name: str, quick: bool) -> None:
    if quick:
        rows, rounds = rows // 10, 1
    table = Table("archive", "s", "CPU s", "rows/s", "to files alone")
    found: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
    with start_server(name) as server, tempfile.TemporaryDirectory() as folder:
        for formats in WAYS.values():  # imports, and whatever else is done once
            measure(server, Path(folder), formats, 1000, 1)
        for _ in range(rounds):
            for way, formats in WAYS.items():
                found[way].append(measure(server, Path(folder), formats, rows, before))
    base = statistics.median(wall for wall, _ in found["files"])
    for way, took in found.items():
        wall, cpu = (statistics.median(each[at] for each in took) for at in (0, 1))
        table.add_row(way, f"{wall:.2f}", f"{cpu:.2f}", f"{rows / wall:,.0f}", f"{wall / base:.3f}")
    console = Console()
    console.print(f"{describe_machine()}\n{rows:,} rows after {before} runs, {rounds} rounds, medians")
    console.print(table)


if __name__ == "__main__":
    main()
