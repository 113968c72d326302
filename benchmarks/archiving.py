"""What a run of the archiver costs: without and with open tables, in a folder and in S3.

    python -m benchmarks.archiving [--rows N] [--rounds N] [--before N] [--server streamd|redis] [--only WORD] [--quick]

Each round archives a new stream into a new archive that has seen `--before` runs with a hundred entries each, so that the
tables have a history; only the last run, with all rows, is in the figures. CPU seconds are those of this process, in
which the archiver runs. S3 is moto's server, a process beside it, which keeps objects in memory and files; it is written in
Python, and no faster than a real one. An entry has four fields, as in benchmarks/spark_pipeline.py. "to files" is the time in
proportion to that of files.

A typed table has files of its own, with three of the fields as columns, which are made within the run.

"in tables" is how long a run was occupied with its tables, and how much that adds to the rest of the same run. It is what to judge
tables by: walls of different runs differ by more than that as soon as the machine does anything else.
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
from dataclasses import dataclass

import click
from rich.console import Console
from rich.table import Table

from benchmarks.servers import Server, describe_machine, start_server
from benchmarks.spark_pipeline import STREAM, fill


@dataclass(frozen=True)
class Way:
    """Where an archive lies, and the open tables that it has."""

    formats: tuple[str, ...] = ()
    in_s3: bool = False


WAYS = {
    "files": Way(),
    "files and Delta": Way(("delta",)),
    "files and Iceberg": Way(("iceberg",)),
    "files and both": Way(("delta", "iceberg")),
    "files and typed Delta": Way(("typed delta",)),
    "files and typed Iceberg": Way(("typed iceberg",)),
    "S3": Way(in_s3=True),
}

SCHEMA = "sensor_id string, temperature double, num bigint"


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


@dataclass(frozen=True)
class Took:
    """One run.

    wall, cpu  seconds
    tables     seconds of the wall in which tables were brought up
    """

    wall: float
    cpu: float
    tables: float
    rows: int

    @property
    def added(self) -> float:
        """What the tables add to the rest of the run."""
        return self.tables / (self.wall - self.tables)


def run_once(server: Server, path: str, way: Way) -> Took:
    """Archive what is there."""
    from streamd.archive.archiver import Archiver, ArchiveSettings
    from streamd.archive.manifest_log import ManifestLog
    from streamd.archive.open_format import TYPED_NAME, TableConfig
    from streamd.archive.publishing import OpenTables

    class TimedTables(OpenTables):
        seconds = 0.0

        def bring_up(self, log: ManifestLog) -> None:
            begun = time.perf_counter()
            super().bring_up(log)
            self.seconds += time.perf_counter() - begun

    configs = [
        TableConfig(each) if " " not in each else TableConfig(each.split()[1], TYPED_NAME, schema=SCHEMA)
        for each in way.formats
    ]
    settings = ArchiveSettings(hot_window_ms=0, trim=False, publish=tuple(configs))
    options = {"host": "127.0.0.1", "port": str(server.port), "stream": STREAM}
    start, cpu = time.perf_counter(), time.process_time()
    archiver = Archiver(path, options, settings)
    archiver.tables = tables = TimedTables(archiver.layout, archiver.disk)
    found = archiver.run()
    took = Took(time.perf_counter() - start, time.process_time() - cpu, tables.seconds, found.rows)
    if not found.is_success or any(each.warnings for each in found.streams):
        raise SystemExit(f"{[(each.error, each.warnings) for each in found.streams]}")
    return took


def measure(server: Server, path: str, way: Way, rows: int, before: int) -> Took:
    """One run into a new archive."""
    server.send("FLUSHALL")
    for number in range(before):
        fill(server, 100 * (number + 1), start=100 * number)
        run_once(server, path, way)
    fill(server, 100 * before + rows, start=100 * before)
    took = run_once(server, path, way)
    if took.rows != rows:
        raise SystemExit(f"archived {took.rows} of {rows}")
    return took


@click.command(help=__doc__)
@click.option("--rows", default=2_000_000, show_default=True)
@click.option("--rounds", default=3, show_default=True)
@click.option("--before", default=20, show_default=True)
@click.option("--server", "name", default="streamd", show_default=True)
@click.option("--only", metavar="WORD", default="", help="Only archives with this word in their names, and files.")
@click.option("--quick", is_flag=True, help="A tenth of the rows, once.")
def main(rows: int, rounds: int, before: int, name: str, only: str, quick: bool) -> None:
    if quick:
        rows, rounds = rows // 10, 1
    table = Table("archive", "s", "CPU s", "rows/s", "to files", "in tables")
    chosen = [way for each, way in WAYS.items() if only in each]
    ways = {each: way for each, way in WAYS.items() if way in {Way(), *chosen}}
    found: dict[str, list[Took]] = {each: [] for each in ways}
    with start_server(name) as server, tempfile.TemporaryDirectory() as folder, s3_bucket() as bucket:
        tempfile.tempdir = folder  # where files for a store are staged
        for number in range(-1, rounds):  # the first one is for imports, and whatever else is done once
            for each, way in ways.items():
                path = f"{bucket if way.in_s3 else folder}/{number}/{each}"
                took = measure(server, path, way, rows if number >= 0 else 1000, before if number >= 0 else 1)
                found[each] += [took] if number >= 0 else []
    base = min(one.wall for one in found["files"])
    for each, runs in found.items():
        wall, cpu = min(one.wall for one in runs), statistics.median(one.cpu for one in runs)
        tables, added = (
            statistics.median(both) for both in zip(*((one.tables, one.added) for one in runs), strict=True)
        )
        shown = f"{tables:.2f} s, +{added:.1%}" if ways[each].formats else ""
        table.add_row(each, f"{wall:.2f}", f"{cpu:.2f}", f"{rows / wall:,.0f}", f"{wall / base:.3f}", shown)
    console = Console()
    console.print(f"{describe_machine()}\n{rows:,} rows after {before} runs, {rounds} rounds; best s, median of CPU s")
    console.print(table)


if __name__ == "__main__":
    main()
