"""How soon entries are rows of open tables, and what a day of the archiver's service leaves behind.

    python -m benchmarks.freshness [--only freshness|day] [--minutes N] [--rate N] [--every TIME]
                                   [--day-every TIME] [--day-rate N] [--day-pace TIME] [--quick]

Freshness: a process adds entries at an even rate while `streamd archive run --every ... --publish delta --publish iceberg` archives and trims
them at once. This process looks at both tables five times a second, as a reader does who opens their newest version: an entry is
visible from the moment at which a version with a row of its millisecond, or a later one, is found. The age of entries at that moment,
all of them weighted alike, gives p50 and p99. The first round, which includes the start of the service, does not count.

A day: the same service, accelerated. It runs the 86,400 s / --day-every rounds of a day every --day-pace, while entries are added so fast
that a round finds as many as it would of --day-rate a second; --trim-delay is as many rounds long as its default of 15 minutes would be. Small
files are merged beside the rounds. Files, snapshots and logs are those that lie there in the end; CPU and memory are those of the service.
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

from benchmarks.job_memory import peak_of
from benchmarks.servers import Server, describe_machine, start_server
from streamd.client.points import parse_duration_ms

STREAM = "readings"
LOOK_S = 0.2
STEP_S = 0.01
DAY_S = 86_400
TRIM_DELAY_S = 900
"""The default of --trim-delay."""
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


SERVICE = """
import sys
from streamd.cli.archive_run import keep_little_memory, serve
keep_little_memory()
from streamd.archive.archiver import ArchiveSettings
from streamd.archive.open_format import TableConfig
path, stream, port, every_ms, trim_delay_ms, *tables = sys.argv[1:]
settings = ArchiveSettings(
    hot_window_ms=0, trim_delay_ms=int(trim_delay_ms), every_ms=int(every_ms), publish=tuple(map(TableConfig, tables))
)
serve(path, {"port": port, "stream": stream}, settings, None, as_json=True)
"""
"""`archive run --every`, without its lower limit of a second."""


@dataclass
class Day:
    """What the service did: its rounds, the entries that it archived, CPU seconds, the largest resident set in bytes, what it says."""

    rounds: int
    rows: int
    cpu: float
    peak: int
    said: str


def run_day(server: Server, path: Path, rounds: int, rows: int, pace_s: float, trim_delay_s: float) -> Day:
    """So many rounds, one every `pace_s`, each of which finds about so many entries."""
    times = (round(pace_s * 1000), round(trim_delay_s * 1000))
    command = [sys.executable, "-c", SERVICE, str(path), STREAM, str(server.port), *map(str, times), *FORMATS]
    said: list[dict[str, Any]] = []
    with (
        producing(server.port, round(rows / pace_s)),
        subprocess.Popen(command, stdout=subprocess.PIPE) as service,
    ):
        assert service.stdout is not None
        for line in service.stdout:
            said.append(json.loads(line))
            if len(said) == rounds:
                break
        cpu, peak = cpu_of(service.pid), peak_of(service.pid)
        service.terminate()
        said += map(json.loads, service.stdout)
    archived = sum(each["rows"] for report in said for each in report.get("streams", ()))
    return Day(len(said), archived, cpu, peak, rounds_text(said))


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
@click.option("--day-every", default="30s", show_default=True)
@click.option("--day-rate", default=100, show_default=True, help="Entries a second of the day.")
@click.option("--day-pace", default="400ms", show_default=True, help="Time between its rounds here.")
@click.option("--only", type=click.Choice(["freshness", "day"]), help="Measure one of the two.  [default: both]")
@click.option("--quick", is_flag=True, help="A minute, and an hour's rounds of a day.")
def main(
    minutes: float, rate: int, every: str, day_every: str, day_rate: int, day_pace: str, only: str | None, quick: bool
) -> None:
    console = Console()
    console.print(describe_machine())
    if only != "day":
        show_freshness(console, 1 if quick else minutes, rate, every)
    if only != "freshness":
        show_day(console, day_every, day_rate, day_pace, 24 if quick else 1)


def show_freshness(console: Console, minutes: float, rate: int, every: str) -> None:
    with start_server("streamd") as server, tempfile.TemporaryDirectory() as folder:
        ages, cpu, rows, said = measure_freshness(server, Path(folder), minutes, rate, every)
    table = Table("table", "rounds seen", "p50", "p99")
    for form, each in ages.items():
        p50, p99 = each.percentiles()
        table.add_row(form, str(len(each.ranges)), f"{p50:.1f} s", f"{p99:.1f} s")
    row_us = cpu / rows * 1e6
    console.print(
        f"{rate:,} entries/s for {minutes:g} minutes, --every {every}: {rows:,} entries, {row_us:.2f} us of CPU each"
    )
    console.print(table)
    console.print(said)


def show_day(console: Console, every: str, rate: int, pace: str, share: int) -> None:
    """share  of the day's rounds, one in so many is run"""
    every_s, pace_s = parse_duration_ms(every) / 1000, parse_duration_ms(pace) / 1000
    rounds = int(DAY_S / every_s / share)
    with start_server("streamd") as server, tempfile.TemporaryDirectory() as folder:
        day = run_day(server, Path(folder), rounds, round(rate * every_s), pace_s, TRIM_DELAY_S / every_s * pace_s)
        table = Table(f"{24 / share:g} hours, --every {every}, {rate:,} entries/s", "")
        table.add_row("rounds, entries", f"{day.rounds:,}, {day.rows:,}")
        for name, text in left_behind(Path(folder)).items():
            table.add_row(name, text)
    table.add_row("CPU", f"{day.cpu:,.0f} s, {day.cpu / rounds * 1000:.0f} ms each round")
    table.add_row("of a core", f"{day.cpu * share / DAY_S:.2%}")
    table.add_row("memory", f"{day.peak / 1e6:.0f} MB at most")
    console.print(table)
    console.print(day.said)


if __name__ == "__main__":
    main()
