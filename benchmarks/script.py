"""The command line of a script: runs its cases, prints the machine and the table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console

from benchmarks import report
from benchmarks.cases import QUICK, ROUNDS, SEED, Case, run_cases
from benchmarks.servers import NAMES, describe_machine, end_in_order, find_servers, pin_load, start_servers

__all__ = ["command"]


def command(cases: Sequence[Case], doc: str | None, script: str = "") -> click.Command:
    """A command line over the cases: prints the machine and the table; `doc` is the script's docstring."""
    title = (doc or "").strip().partition("\n")[0]

    @click.command(help=title)
    @click.option("--rounds", default=ROUNDS, show_default=True, help="Rounds per server and case.")
    @click.option("--only", default="", help="Only the cases whose name contains this.")
    @click.option("--quick", is_flag=True, help="A tenth of the work, and one round.")
    @click.option("--servers", default=",".join(NAMES), show_default=True, help="The servers, separated by commas.")
    @click.option(
        "--json", "file", type=click.Path(dir_okay=False, path_type=Path), help="Write the rows to this file."
    )
    def main(rounds: int, only: str, quick: bool, servers: str, file: Path | None) -> None:
        console = Console(width=report.WIDTH, highlight=False)
        pin_load()
        end_in_order()
        scale = QUICK if quick else 1.0
        rounds = 1 if quick else rounds
        names, absent = find_servers([name.strip() for name in servers.split(",")])
        with start_servers(names) as running:
            console.print(describe_machine(*running, rounds=rounds, scale=scale, seed=SEED))
        for name in absent:
            console.print(f"{name} has not been found: left out")
        wanted = [case for case in cases if only in case.name]
        rows = run_cases(wanted, names, script=script, rounds=rounds, scale=scale,
                         progress=lambda line: console.print("  " + line, soft_wrap=True))  # fmt: skip
        console.print(report.table_of(title, rows))
        for line in report.shortfalls(rows):
            console.print(line, soft_wrap=True)
        if file:
            file.write_text(json.dumps([row.to_dict() for row in rows], indent=1) + "\n")

    return main
