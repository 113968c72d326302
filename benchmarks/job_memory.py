"""The most memory that each job of the tools needs: archiving, merging, reading, exporting, loading, publishing, in Spark.

    python -m benchmarks.job_memory [--rows N] [--only WORD] [--no-spark] [--quick]

Each job is a command of its own; what is shown is the largest resident set that one of its processes has ever had (VmHWM), libraries
included. Java is left out: its heap is a setting. A stream of three fields, all in one day, is exported and loaded; then archived at once, read,
published, deleted from and restored; and archived again in forty runs, whose small files are merged, and by a service.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import click
import redis
from rich.console import Console
from rich.table import Table

from benchmarks.moving import START_MS, STREAM
from benchmarks.servers import Server, describe_machine, start_server
from benchmarks.tiered import Line
from benchmarks.tiered import fill as fill_part
from streamd.transfer.files import FORMATS

LOOK_S = 0.05
RUNS = 40
SCHEMA = "sensor string, celsius double, room string"
FILL = """
import sys
from benchmarks.moving import fill
from benchmarks.servers import Server
fill(Server("streamd", 0, int(sys.argv[1])), int(sys.argv[2]))
"""
SPARK = """
import sys
from streamd.spark import session
spark = session(master="local[1]")
read = spark.read.format("streamd").option("port", sys.argv[1]).option("stream", sys.argv[2])
if len(sys.argv) > 3:
    read = read.option("archive", sys.argv[3])
read.load().write.format("noop").mode("overwrite").save()
"""


def processes_below(pid: int) -> Iterator[int]:
    """A process and its descendants, as they are at the moment."""
    yield pid
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield from processes_below(int(child))


def peak_of(pid: int) -> int:
    """Bytes; 0 for a process that has ended, or is one of Java."""
    with suppress(OSError):
        lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        if lines["Name"].strip() != "java" and "VmHWM" in lines:
            return int(lines["VmHWM"].split()[0]) * 1024
    return 0


def run(*command: str) -> int:
    """Run a command; the largest peak of its processes, in bytes."""
    peak = 0
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen([sys.executable, *command], stdout=subprocess.DEVNULL, stderr=said)
        while process.poll() is None:
            peak = max(peak, *map(peak_of, processes_below(process.pid)))
            time.sleep(LOOK_S)
        if process.returncode:
            said.seek(0)
            raise SystemExit(f"{' '.join(command)}: {said.read().decode()}")
    return peak


class Bench:
    def __init__(self, server: Server, folder: Path, rows: int, only: str) -> None:
        self.server, self.folder, self.rows, self.only = server, folder, rows, only
        self.peaks: dict[str, int] = {}

    def job(self, name: str, *command: str, is_needed: bool = False) -> None:
        """Run a job if it is asked for, or needed by others."""
        if self.only in name or is_needed:
            self.peaks[name] = max(run(*command), self.peaks.get(name, 0))

    def streamd(self, name: str, *words: str, is_needed: bool = False) -> None:
        self.job(name, "-m", "streamd", *words, "-p", str(self.server.port), is_needed=is_needed)

    def offline(self, name: str, *words: str) -> None:
        self.job(name, "-m", "streamd", "archive", *words)

    def service(self, archive: str) -> None:
        """A service that keeps both tables, and merges small files beside its rounds, each of which archives one of RUNS parts."""
        name, key = "archive run --every, both tables, merging", "served"
        if self.only not in name:
            return
        command = [
            sys.executable, "-m", "streamd", "archive", "run", archive, key, "--every", "1s", "--keep", "0s", "--trim-delay", "0s",
            "-p", str(self.server.port), "--publish", "delta", "--publish", "iceberg",
        ]  # fmt: skip
        line, part = Line(self.server), self.rows // RUNS
        fill_part(line, 0, part, key)
        with (
            redis.Redis(port=self.server.port) as client,
            subprocess.Popen(command, stdout=subprocess.DEVNULL) as process,
        ):
            for number in range(1, RUNS):
                fill_part(line, part * number, part * (number + 1), key)
                while client.xlen(key) and process.poll() is None:
                    time.sleep(LOOK_S)
            self.peaks[name] = peak_of(process.pid)
            process.terminate()

    def run_all(self, *, with_spark: bool) -> None:
        archive, again, out = (str(self.folder / name) for name in ("archive", "again", "out"))
        port, now = str(self.server.port), ("--keep", "0s", "--trim-delay", "0s")
        run("-c", FILL, port, str(self.rows))
        for form in FORMATS:
            path = f"{out}{FORMATS[form][0]}"
            self.streamd(f"export, {form}", "export", STREAM, "--to", path, is_needed="load" in self.only)
            self.streamd(f"load, {form}", "load", path, "--into", "loaded", "--replace", "--again")
            self.server.send("DEL", "loaded")
            Path(path).unlink(missing_ok=True)
        self.service(str(self.folder / "served"))
        if with_spark:
            self.job("Spark, a stream", "-c", SPARK, port, STREAM)
        self.streamd("archive run", "archive", "run", archive, STREAM, *now, "--check", "content", is_needed=True)
        for form in ("table", *FORMATS):
            words = ("--archive", archive, "--format", form, "--out", out, "--replace")
            self.streamd(f"history, {form}", "history", STREAM, *words)
        self.offline("archive verify", "verify", archive)
        self.offline("archive schema infer", "schema", "infer", archive)
        for form in ("delta", "iceberg"):
            self.offline(f"archive publish, {form}", "publish", archive, "--format", form)
            typed = ("--format", form, "--schema", SCHEMA, "--rejects")
            self.offline(f"archive publish, {form} with a schema", "publish", archive, *typed)
        if with_spark:
            self.job("Spark, an archive", "-c", SPARK, port, STREAM, archive)
        # One entry of each million: all files are rewritten.
        ids = [word for at in range(7, self.rows, 1_000_000) for word in ("--id", f"{START_MS + at}-0")]
        self.streamd("archive delete", "archive", "delete", archive, STREAM, "--yes", *ids)
        is_needed = "merging" in self.only
        self.streamd(
            "archive restore", "archive", "restore", archive, STREAM, "--into", "restored", is_needed=is_needed
        )
        for number in range(1, RUNS + 1):
            keep_ms = int(time.time() * 1000) - START_MS - self.rows * number // RUNS
            until = ("--keep", f"{keep_ms}ms", "--trim-delay", "0s")
            self.streamd("archive run, merging", "archive", "run", again, "restored", *until)


@click.command(help=__doc__)
@click.option("--rows", default=10_000_000, show_default=True)
@click.option("--only", default="", metavar="WORD", help="Jobs with this word in their names.  [default: all]")
@click.option("--no-spark", is_flag=True, help="Leave out the jobs of Spark.")
@click.option("--quick", is_flag=True, help="A hundredth of the rows, without Spark.")
def main(rows: int, only: str, no_spark: bool, quick: bool) -> None:
    console = Console(width=110)
    rows = rows // 100 if quick else rows
    with start_server("streamd") as server, tempfile.TemporaryDirectory() as folder:
        console.print(describe_machine(server, rows=f"{rows:,}"))
        bench = Bench(server, Path(folder), rows, only)
        try:
            bench.run_all(with_spark=not (no_spark or quick))
        finally:
            table = Table("job", "peak of a process, MB")
            for name, peak in bench.peaks.items():
                table.add_row(name, f"{peak / 1e6:.0f}")
            console.print(table)


if __name__ == "__main__":
    main()
