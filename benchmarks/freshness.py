"""How soon entries are rows of open tables, and what a day of the archiver's service leaves behind.

    python -m benchmarks.freshness [--minutes N] [--rate N] [--every TIME] [--day-every TIME] [--no-day] [--quick]

Freshness: a process adds entries at an even rate while `streamd archive run --every ... --publish delta --publish iceberg` archives and trims
them at once. This process looks at both tables five times a second, as a reader does who opens their newest version: an entry is
visible from the moment at which a version with a row of its millisecond, or a later one, is found. The age of entries at that moment,
all of them weighted alike, gives p50 and p99. The first round, which includes the start of the service, does not count.

A day: the same settings with accelerated steps. Rounds follow each other at once, in this process, over entries whose IDs are as far apart
as the rounds of a day would be: 86,400 s / --day-every rounds with --day-rows entries each. Files, snapshots and logs are those that lie there in
the end: they depend on the rounds and their dates, not on the number of rows, as long as a merged file stays small. CPU is the time of
the rounds, and what the rows that are missing at the given rate would add, by the CPU of a row in the first part.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import redis
from rich.console import Console
from rich.table import Table

from benchmarks.servers import Server, describe_machine, start_server
from streamd.client.points import parse_duration_ms

STREAM = "readings"
LOOK_S = 0.2
STEP_S = 0.01
DAY_S = 86_400
FORMATS = ("delta", "iceberg")


# --- Freshness ------------------------------------------------------------------------------------------------------------


@dataclass
class Ages:
    """Ages of entries, in ms, when they became visible: each as (age of the oldest, age of the newest) of an even range."""

    ranges: list[tuple[int, int]] = field(default_factory=list)
    seen_ms: int = 0

    def see(self, newest_ms: int) -> None:
        now_ms = time.time_ns() // 1_000_000
        if newest_ms > self.seen_ms:
            if self.seen_ms:
                self.ranges.append((now_ms - self.seen_ms, now_ms - newest_ms))
            self.seen_ms = newest_ms

    def percentiles(self) -> tuple[float, float]:
        """p50 and p99 in seconds; of the first range, which the start of the service lengthens, nothing."""
        ages = [age / 1000 for oldest, newest in self.ranges[1:] for age in range(newest, oldest)]
        if len(ages) < 2:
            raise SystemExit("too few rounds became visible: give more minutes")
        cuts = statistics.quantiles(ages, n=100)
        return cuts[49], cuts[98]


def newest_of_delta(path: Path) -> int:
    from deltalake import DeltaTable

    try:
        found = DeltaTable(path / "data").get_add_actions(flatten=True)
    except Exception:  # the table has not been made yet
        return 0
    names = found.schema.names if hasattr(found, "schema") else found.column_names
    return (
        max((each or 0 for each in found.column(names.index("max.ms")).to_pylist()), default=0)
        if "max.ms" in names
        else 0
    )


def newest_of_iceberg(path: Path) -> int:
    from pyiceberg.catalog import load_catalog
    from pyiceberg.conversions import from_bytes
    from pyiceberg.types import LongType

    folder = path / "_tables" / "iceberg"
    if not folder.is_dir():
        return 0
    try:
        catalog = load_catalog("streamd", type="sql", uri=f"sqlite:///{folder}/catalog.db", warehouse=folder.as_uri())
        table = catalog.load_table("streamd.archive")
        number = table.schema().find_field("ms").field_id
        bounds = [each.file.upper_bounds[number] for each in table.scan().plan_files()]
    except Exception:  # the table has not been made yet
        return 0
    return max((from_bytes(LongType(), each) for each in bounds), default=0)


@contextmanager
def producing(port: int, rate: int) -> Iterator[list[int]]:
    """Entries at an even rate, from a thread; the block gets how many there are so far."""
    added, stopping = [0], threading.Event()

    def produce() -> None:
        with redis.Redis(port=port) as client:
            begun = time.monotonic()
            while not stopping.wait(STEP_S):
                pipe = client.pipeline(transaction=False)
                due = int((time.monotonic() - begun) * rate) - added[0]
                for at in range(due):
                    pipe.xadd(STREAM, {"sensor_id": at % 100, "temperature": at / 7, "num": at, "payload": "x" * 60})
                pipe.execute()
                added[0] += due

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield added
    finally:
        stopping.set()
        thread.join()


def cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure_freshness(
    server: Server, path: Path, minutes: float, rate: int, every: str
) -> tuple[dict[str, Ages], float, int, str]:
    """Ages by format, CPU seconds of the service, the entries that it archived, and what it says of its rounds."""
    command = [
        sys.executable, "-m", "streamd", "archive", "run", str(path), "--pattern", STREAM, "--every", every, "--keep", "0s", "--trim-delay", "0s", "--json",
        "--port", str(server.port), *(word for each in FORMATS for word in ("--publish", each)),
    ]  # fmt: skip
    found = {"delta": Ages(), "iceberg": Ages()}
    looks = {"delta": newest_of_delta, "iceberg": newest_of_iceberg}
    with (
        producing(server.port, rate) as added,
        tempfile.TemporaryFile() as said,
        subprocess.Popen(command, stdout=said) as service,
    ):
        until = time.monotonic() + 60 * minutes
        while time.monotonic() < until:
            for form, look in looks.items():
                found[form].see(look(path))
            time.sleep(LOOK_S)
        cpu = cpu_of(service.pid)
        service.terminate()
        service.wait()
        said.seek(0)
        return found, cpu, added[0], rounds_text([json.loads(line) for line in said])


def rounds_text(rounds: list[dict[str, Any]]) -> str:
    failed = [each for each in rounds if not each["is_success"]]
    errors = {each.get("error") or each["streams"][0]["error"] for each in failed}
    longest = max((each.get("seconds", 0) for each in rounds), default=0)
    return (
        f"{len(rounds)} rounds, the longest {longest:.1f} s, {len(failed)} failed {'; '.join(sorted(errors))}".rstrip()
    )


# --- A day ----------------------------------------------------------------------------------------------------------------


def simulate_day(server: Server, path: Path, every_s: float, rows: int) -> float:
    """The rounds of a day; return their CPU seconds."""
    from streamd.archive.archiver import Archiver, ArchiveSettings
    from streamd.archive.open_format import TableConfig

    settings = ArchiveSettings(hot_window_ms=0, trim_delay_ms=0, publish=tuple(map(TableConfig, FORMATS)))
    options = {"host": "127.0.0.1", "port": str(server.port), "stream": STREAM}
    midnight_ms = (time.time_ns() // 1_000_000 // 1000 // DAY_S - 2) * DAY_S * 1000
    cpu = 0.0
    with redis.Redis(port=server.port) as client:
        for number in range(int(DAY_S / every_s)):
            pipe = client.pipeline(transaction=False)
            for at in range(rows):
                entry_id = f"{midnight_ms + int(number * every_s * 1000)}-{at}"
                pipe.xadd(STREAM, {"sensor_id": at % 100, "temperature": at / 7, "num": at}, id=entry_id)
            pipe.execute()
            begun = time.process_time()
            report = Archiver(str(path), options, settings).run()
            cpu += time.process_time() - begun
            if not report.is_success:
                raise SystemExit(report.streams[0].error)
    return cpu


def left_behind(path: Path) -> dict[str, str]:
    """What lies there, and what readers must look through."""
    from deltalake import DeltaTable
    from pyiceberg.catalog import load_catalog

    def files(folder: Path, pattern: str = "*") -> str:
        found = [each for each in folder.rglob(pattern) if each.is_file()]
        return f"{len(found):,} ({sum(each.stat().st_size for each in found) / 1e6:,.1f} MB)"

    folder = path / "_tables" / "iceberg"
    catalog = load_catalog("streamd", type="sql", uri=f"sqlite:///{folder}/catalog.db", warehouse=folder.as_uri())
    table: Any = catalog.load_table("streamd.archive")
    delta = DeltaTable(path / "data")
    return {
        "Parquet files in the tables": f"{len(delta.file_uris()):,} Delta, {len(list(table.scan().plan_files())):,} Iceberg",
        "Parquet files that lie there": files(path / "data", "*.parquet"),
        "manifests of the archive": files(path / "_manifest"),
        "Delta: versions, files of the log": f"{delta.version():,}, {files(path / 'data' / '_delta_log')}",
        "Iceberg: snapshots, files of metadata": f"{len(table.snapshots()):,}, {files(folder)}",
    }


@click.command(help=__doc__)
@click.option("--minutes", default=10.0, show_default=True)
@click.option("--rate", default=10_000, show_default=True, help="Entries a second.")
@click.option("--every", default="10s", show_default=True)
@click.option("--day-every", default="60s", show_default=True)
@click.option("--day-rows", default=50, show_default=True)
@click.option("--no-day", is_flag=True, help="Measure freshness only.")
@click.option("--quick", is_flag=True, help="A minute, and an hour's rounds of a day.")
def main(minutes: float, rate: int, every: str, day_every: str, day_rows: int, no_day: bool, quick: bool) -> None:
    if quick:
        minutes, day_every = 1, "24m"
    console = Console()
    console.print(describe_machine())
    with start_server("streamd") as server, tempfile.TemporaryDirectory() as folder:
        ages, cpu, rows, said = measure_freshness(server, Path(folder), minutes, rate, every)
    row_us = cpu / rows * 1e6
    table = Table("table", "rounds seen", "p50", "p99")
    for form, each in ages.items():
        p50, p99 = each.percentiles()
        table.add_row(form, str(len(each.ranges)), f"{p50:.1f} s", f"{p99:.1f} s")
    console.print(
        f"{rate:,} entries/s for {minutes:g} minutes, --every {every}: {rows:,} entries, {row_us:.2f} us of CPU each"
    )
    console.print(table)
    console.print(said)
    if no_day:
        return
    every_s = parse_duration_ms(day_every) / 1000
    with start_server("streamd") as server, tempfile.TemporaryDirectory() as folder:
        steps = simulate_day(server, Path(folder), every_s, day_rows)
        table = Table(f"24 hours, --every {day_every}", "")
        for name, text in left_behind(Path(folder)).items():
            table.add_row(name, text)
    rounds = int(DAY_S / every_s)
    table.add_row("CPU of the rounds alone", f"{steps:,.0f} s, {steps / rounds * 1000:.0f} ms each")
    table.add_row(f"CPU with {rate:,} entries/s", f"{steps + row_us * rate * DAY_S / 1e6:,.0f} s of {DAY_S:,}")
    console.print(table)


if __name__ == "__main__":
    main()
