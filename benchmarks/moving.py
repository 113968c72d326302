"""Streams to files and files to streams: rows per second of each format, out and in.

    python -m benchmarks.moving [--rows N] [--rounds N] [--server streamd|redis] [--quick]

Each case is one run of a command of `streamd`, its start included, which is about 0.2 s; the CPU is that of the command alone. The
command and the server have a core each. An entry has three fields, some 100 bytes in a reply of XRANGE. A load writes in transactions
with a marker, as it always does.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from benchmarks.servers import Server, describe_machine, start_server
from streamd.transfer.files import FORMATS

WIDTH = 100
STREAM = "readings"
START_MS = 1_767_225_600_000
CHUNK = 1_000


def fill(server: Server, rows: int) -> None:
    import pyarrow as pa

    from streamd.arrow.encode import XAddEncoder
    from streamd.client.connection import connect
    from streamd.client.url_options import ConnectionOptions

    names = ["id", "sensor", "celsius", "room"]
    encoder = XAddEncoder(
        key=STREAM.encode(), id_column=0, field_names=[name.encode() for name in names[1:]], field_columns=[1, 2, 3]
    )
    with connect(ConnectionOptions(port=server.port)) as connection:
        for start in range(0, rows, CHUNK):
            numbers = range(start, min(start + CHUNK, rows))
            columns = (
                [f"{START_MS + at}-0" for at in numbers],
                [f"s{at % 50}" for at in numbers],
                [f"{20 + at % 1000 / 100:.2f}" for at in numbers],
                ["kitchen"] * len(numbers),
            )
            connection.socket_send(encoder.encode(pa.record_batch(dict(zip(names, columns, strict=True)))))
            connection.replies(len(numbers))


@dataclass
class Found:
    """What the rounds of one case gave: rows per second of wall time, and CPU microseconds for a row."""

    speeds: list[float] = field(default_factory=list)
    cpus: list[float] = field(default_factory=list)


@dataclass
class Bench:
    server: Server
    folder: Path
    rows: int

    def run(self, *words: str, to_pipe: bool = False) -> None:
        command = [sys.executable, "-m", "streamd", *words, "-p", str(self.server.port)]
        if to_pipe:
            with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
                assert process.stdout is not None
                while process.stdout.read(1 << 20):
                    continue
            assert process.returncode == 0
        else:
            subprocess.run(command, check=True, stderr=subprocess.PIPE)

    def path(self, form: str) -> str:
        return str(self.folder / f"{STREAM}{FORMATS[form][0]}")

    def history(self, form: str) -> None:
        self.run("history", STREAM, "--format", form, "--out", str(self.folder / "out"))

    def history_to_pipe(self, form: str) -> None:
        self.run("history", STREAM, "--format", form, to_pipe=True)

    def export(self, form: str) -> None:
        self.run("export", STREAM, "--to", self.path(form))

    def load(self, form: str) -> None:
        self.run("load", self.path(form), "--into", "loaded", "--replace", "--again")

    def load_with_new_ids(self, form: str) -> None:
        self.server.send("DEL", "loaded")
        self.run("load", self.path(form), "--into", "loaded", "--new-ids", "--again")


def cases_of(bench: Bench) -> dict[str, Callable[[], None]]:
    cases: dict[str, Callable[[], None]] = {}
    for form in ("table", *FORMATS):
        cases[f"history to a file: {form}"] = partial(bench.history, form)
    for form in FORMATS:
        cases[f"history to a pipe: {form}"] = partial(bench.history_to_pipe, form)
    for form in FORMATS:
        cases[f"export: {form}"] = partial(bench.export, form)
    for form in FORMATS:
        cases[f"load with groups: {form}"] = partial(bench.load, form)
    cases["load with new IDs: parquet"] = partial(bench.load_with_new_ids, "parquet")
    return cases


def cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure(case: Callable[[], None], rows: int, found: Found) -> None:
    started, cpu = time.perf_counter(), cpu_of_children()
    case()
    found.speeds.append(rows / (time.perf_counter() - started))
    found.cpus.append((cpu_of_children() - cpu) * 1e6 / rows)


@click.command()
@click.option("--rows", default=1_500_000, show_default=True, help="Entries of the stream.")
@click.option("--rounds", default=3, show_default=True)
@click.option("--server", "name", type=click.Choice(["streamd", "redis"]), default="streamd", show_default=True)
@click.option("--quick", is_flag=True, help="200,000 rows and one round.")
def main(rows: int, rounds: int, name: str, quick: bool) -> None:
    """Print the table."""
    rows, rounds = (200_000, 1) if quick else (rows, rounds)
    console = Console(width=WIDTH)
    with start_server(name) as server, tempfile.TemporaryDirectory() as folder:
        console.print(describe_machine(server, rows=rows, rounds=rounds))
        fill(server, rows)
        bench = Bench(server, Path(folder), rows)
        cases = cases_of(bench)
        results = {each: Found() for each in cases}
        for _ in range(rounds):
            for each, case in cases.items():
                measure(case, rows, results[each])
        table = Table(title="rows per second, and CPU microseconds for a row")
        for heading in ("case", "median rows/s", "best rows/s", "CPU of the command"):
            table.add_column(heading, justify="left" if heading == "case" else "right", no_wrap=True)
        for each, found in results.items():
            speeds = f"{statistics.median(found.speeds):,.0f}", f"{max(found.speeds):,.0f}"
            table.add_row(each, *speeds, f"{statistics.median(found.cpus):.2f}")
        console.print(table)


if __name__ == "__main__":
    main()
