"""What a run of the archiver costs: without and with open tables, and in S3. The engine is the local one, without Spark.

    python -m benchmarks.archiving [--rows N] [--rounds N] [--before N] [--server streamd|redis] [--quick]

Each round archives a new stream into a new archive that has seen `--before` runs with a hundred entries each, so that the
tables have a history; only the last run, with all rows, is in the figures. CPU seconds are those of this process, in
which the archiver runs. S3 is moto's server, a process beside it, which keeps objects in memory and files; it is
written in Python, and no faster than a real one. An entry has four fields, as in benchmarks/spark_pipeline.py.
"""

from __future__ import annotations

import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import click
from rich.console import Console
from rich.table import Table

from benchmarks.servers import Server, describe_machine, start_server
from benchmarks.spark_pipeline import STREAM, fill

WAYS = {
    "files": (),
    "files and Delta": ("delta",),
    "files and Iceberg": ("iceberg",),
    "files and both": ("delta", "iceberg"),
    "S3": (),
}


@contextmanager
def s3_bucket() -> Iterator[str]:
    """A bucket on a server of its own; this process knows where it is."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    quiet = subprocess.DEVNULL
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(command, stdout=quiet, stderr=quiet) as process:
        try:
            os.environ |= {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_REGION": "us-east-1"}
            os.environ |= {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
            deadline = time.monotonic() + 60
            while True:
                try:
                    make = urllib.request.Request(f"http://127.0.0.1:{port}/bench", method="PUT")
                    urllib.request.urlopen(make, timeout=10).close()
                    break
                except OSError:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.1)
            yield "s3://bench"
        finally:
            process.kill()


def run_once(server: Server, path: str, formats: tuple[str, ...]) -> tuple[float, float, int]:
    """Archive what is there; wall and CPU seconds, and rows."""
    from streamd.spark.archive.open_table import TableConfig
    from streamd.spark.archive.run import ArchiveSettings, archive

    settings = ArchiveSettings(hot_window_ms=0, trim=False, publish=tuple(map(TableConfig, formats)))
    start, cpu = time.perf_counter(), time.process_time()
    found = archive(path, {"host": "127.0.0.1", "port": str(server.port), "stream": STREAM}, settings=settings)
    took = time.perf_counter() - start, time.process_time() - cpu, found.rows
    if not found.is_success or any(each.warnings for each in found.streams):
        raise SystemExit(f"{[(each.error, each.warnings) for each in found.streams]}")
    return took


def measure(server: Server, path: str, formats: tuple[str, ...], rows: int, before: int) -> tuple[float, float]:
    """Wall and CPU seconds of one run into a new archive."""
    server.send("FLUSHALL")
    for number in range(before):
        fill(server, 100 * (number + 1), start=100 * number)
        run_once(server, path, formats)
    fill(server, 100 * before + rows, start=100 * before)
    wall, cpu, found = run_once(server, path, formats)
    if found != rows:
        raise SystemExit(f"archived {found} of {rows}")
    return wall, cpu


@click.command(help=__doc__)
@click.option("--rows", default=2_000_000, show_default=True)
@click.option("--rounds", default=3, show_default=True)
@click.option("--before", default=20, show_default=True)
@click.option("--server", "name", default="streamd", show_default=True)
@click.option("--quick", is_flag=True, help="A tenth of the rows, once.")
def main(rows: int, rounds: int, before: int, name: str, quick: bool) -> None:
    if quick:
        rows, rounds = rows // 10, 1
    table = Table("archive", "s", "CPU s", "rows/s", "to files alone")
    found: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
    with start_server(name) as server, tempfile.TemporaryDirectory() as folder, s3_bucket() as bucket:
        for number in range(-1, rounds):  # the first one is for imports, and whatever else is done once
            for way, formats in WAYS.items():
                path = f"{bucket if way == 'S3' else folder}/{number}/{way}"
                took = measure(server, path, formats, rows if number >= 0 else 1000, before if number >= 0 else 1)
                found[way] += [took] if number >= 0 else []
    base = min(wall for wall, _ in found["files"])
    for way, took in found.items():
        wall, cpu = min(each[0] for each in took), statistics.median(each[1] for each in took)
        table.add_row(way, f"{wall:.2f}", f"{cpu:.2f}", f"{rows / wall:,.0f}", f"{wall / base:.3f}")
    console = Console()
    console.print(f"{describe_machine()}\n{rows:,} rows after {before} runs, {rounds} rounds; best s, median of CPU s")
    console.print(table)


if __name__ == "__main__":
    main()
