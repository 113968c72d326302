"""All benchmarks, one after the other: the table of every path beside Redis 8.6, Valkey and Redis 7.0.

    python -m benchmarks [--quick] [--rounds N] [--scripts NAMES] [--servers NAMES] [--out FOLDER] [--spark]

Takes less than 20 minutes on two cores, with --quick less than 3. Writes table.md, results.json and a picture for each
script into benchmarks/results, or into another folder. `--spark` also runs the pipeline of Spark, which needs Java and
prints a table of its own.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import click
from rich.console import Console

from benchmarks import report
from benchmarks.cases import QUICK, ROUNDS, SEED, Row, run_cases
from benchmarks.servers import NAMES, describe_machine, end_in_order, find_servers, pin_load, start_servers

SCRIPTS = (
    "append",
    "ranges",
    "groups",
    "waiting",
    "pubsub",
    "latency",
    "memory",
    "persistence",
    "replication",
    "growth",
    "scripts",
    "describing",
)
"""Modules of this package, each with a list `CASES`. One that also has `ROWS` keeps more data than rows do, for a picture."""


def find_script(name: str) -> ModuleType:
    """The script of a name."""
    try:
        return importlib.import_module(f"benchmarks.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"benchmarks.{name}":
            raise
        raise click.BadParameter(f"there is no script {name!r}", param_hint="--scripts") from error


@click.command()
@click.option("--rounds", default=ROUNDS, show_default=True, help="Rounds per server and case.")
@click.option("--quick", is_flag=True, help="A tenth of the work, and one round.")
@click.option("--scripts", default=",".join(SCRIPTS), show_default=True, help="Which ones, separated by commas.")
@click.option("--servers", default=",".join(NAMES), show_default=True, help="The servers, separated by commas.")
@click.option("--out", default=report.RESULTS, type=click.Path(file_okay=False, path_type=Path), help="Where files go.")
@click.option("--spark", is_flag=True, help="Run the pipeline of Spark too.")
def main(rounds: int, quick: bool, scripts: str, servers: str, out: Path, spark: bool) -> None:
    """Measure every path beside the other servers, and write the table and the pictures."""
    began = time.monotonic()
    console = Console(width=report.WIDTH, highlight=False)
    scale, rounds = (QUICK, 1) if quick else (1.0, rounds)
    # All imported first, so that editing a file while this runs has no effect.
    modules = {name: find_script(name) for name in (each.strip() for each in scripts.split(","))}
    names, absent = find_servers([name.strip() for name in servers.split(",")])
    pin_load()
    end_in_order()
    with start_servers(names) as running:
        about = describe_machine(*running, rounds=rounds, scale=scale, seed=SEED)
    if absent:
        about += f"\nleft out  {', '.join(absent)}: not found"
    console.print(about)
    rows: list[Row] = []
    pictured: list[str] = []
    for script, module in modules.items():
        since = time.monotonic()

        def show_progress(line: str) -> None:
            console.print("  " + line, soft_wrap=True)

        rows += run_cases(module.CASES, names, script=script, rounds=rounds, scale=scale, progress=show_progress)
        if hasattr(module, "ROWS") and module.ROWS.write_picture(out / f"{script}.svg", about):
            pictured.append(script)
        console.print(f"{script}: {time.monotonic() - since:.0f} s")
        # After each script, so that an interrupted run leaves its results so far.
        report.write(out, rows, f"{about}\ntook      {(time.monotonic() - began) / 60:.1f} minutes", pictured)
    console.print(report.table_of("streamd beside Redis and Valkey", rows))
    for line in report.shortfalls(rows):
        console.print(line, soft_wrap=True)
    console.print(f"Where the time goes on each path is in {report.PROFILES}. Written to {out}", soft_wrap=True)
    if spark:
        more = ["--quick"] if quick else []
        subprocess.run([sys.executable, "-m", "benchmarks.spark_pipeline", *more], check=True)


if __name__ == "__main__":
    main()
