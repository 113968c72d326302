"""A guard against slower code that does not look at the clock: how many instructions the hot operations take.

    python -m benchmarks.instructions             a table: committed, measured, difference
    python -m benchmarks.instructions --check     the same; the exit code is 1 when an operation takes too many
    python -m benchmarks.instructions --update    write the measured counts to instructions.json, for this environment
    python -m benchmarks.instructions --profile "XADD, pipeline 16"      where an operation's instructions go

Valgrind's callgrind counts; the operations, and what is counted of them, are in counted.py. In one environment a count
repeats exactly, whatever else runs there; where other code in the process, or the name of a folder, changes, it moves by up to
3 %, because memory lies elsewhere. So an operation takes too many only if it does in each of LAYOUTS layouts of memory.
Counts depend on compilers and on versions: the committed figures say what they belong to. In such an environment an
operation may take TOLERANCE more; in another only a rough comparison is possible, with TOLERANCE_ELSEWHERE, and the output
says in capitals that this guards little.

Instructions are not time: they say nothing about caches, system calls, and waiting.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from benchmarks.counted import IDLE, NOTHING, OPERATIONS
from benchmarks.load import compile_source
from benchmarks.profile import Profile, read_profile

__all__ = ["Figure", "compare", "counted_run", "find_profiles", "read_counts"]

COMMITTED = Path(__file__).with_name("instructions.json")
ROOT = Path(__file__).parents[1]
TOLERANCE = 0.03
TOLERANCE_ELSEWHERE = 0.20
LAYOUTS = 3
DEADLINE_S = 300
HEAP = (
    "_int_malloc", "_int_free", "_int_free_merge_chunk", "_int_free_create_chunk", "_int_realloc", "_int_memalign",
    "unlink_chunk.constprop.0", "unlink_chunk.isra.0", "malloc_consolidate", "sysmalloc", "systrim.constprop.0",
    "systrim.isra.0",
)  # fmt: skip
"""The inside of the C library's heap. What it takes, copies of blocks that grow included, depends on all that has been allocated before,
and is not counted."""


# --- Counting ----------------------------------------------------------------------------------------------------------------


@contextmanager
def counted_run(layout: int = 0) -> Iterator[Path]:
    """Run every operation under callgrind; yields the folder with its output, which is deleted afterwards.

    layout  any number: memory is laid out in another way for each
    """
    if shutil.which("valgrind") is None:
        raise click.ClickException("valgrind is not installed")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # In a folder whose name has a fixed length: it is on the stack too.
        library = folder / "counting.so"
        shutil.copy(compile_source(Path(__file__).with_name("counting.c")), library)
        command = [
            "valgrind", "--tool=callgrind", "--instr-atstart=no", "--collect-atstart=no", "--compress-strings=no",
            "--compress-pos=no", f"--callgrind-out-file={folder / 'counts'}", f"--log-file={folder / 'valgrind.log'}",
            sys.executable, "-m", "benchmarks.counted", str(library), str(folder),
        ]  # fmt: skip
        # Nothing else of the environment: its size alone moves what is on the stack.
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONHASHSEED": "0",
            **{f"LAYOUT{number}": "" for number in range(100 * layout)},
            "LD_PRELOAD": str(library),
            # The heap grows once, and never shrinks.
            "MALLOC_TOP_PAD_": str(1 << 28),
            "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
        }
        program = command[command.index(sys.executable) :]
        # Once without valgrind, so that Python's caches exist.
        subprocess.run(program, env=environment, cwd=ROOT, timeout=DEADLINE_S, check=True, stdout=subprocess.DEVNULL)
        shutil.rmtree(folder / "appendonlydir")
        done = subprocess.run(
            command, env=environment, cwd=ROOT, timeout=DEADLINE_S, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        if done.returncode:
            raise click.ClickException(f"the counted process failed:\n{done.stdout}")
        yield folder


def find_profiles(folder: Path) -> dict[str, Profile]:
    """The counts of each operation, by its name."""
    profiles = {}
    for path in folder.glob("counts.*"):
        text = path.read_text(errors="replace")
        if name := re.search(r"^desc: Trigger: Client Request: (.*)$", text, re.MULTILINE):
            profiles[name[1]] = read_profile(text)
    return profiles


def read_counts(folder: Path) -> dict[str, float]:
    """Instructions of each operation for one of its unit, by its name, without what counting costs."""
    brackets = {told["name"]: told["brackets"] for told in json.loads((folder / "told.json").read_text())}
    totals = {}
    for name, profile in find_profiles(folder).items():
        copies = (cost for (caller, callee), cost in profile.calls.items() if caller in HEAP and callee not in HEAP)
        totals[name] = profile.total - sum(profile.own.get(function, 0) for function in HEAP) - sum(copies)
    idle, nothing = (totals[name] / brackets[name] for name in (IDLE, NOTHING))
    counts = {}
    for operation in OPERATIONS:
        if operation.name not in (IDLE, NOTHING):
            overhead = (idle if operation.has_turns else nothing) * brackets[operation.name]
            counts[operation.name] = (totals[operation.name] - overhead) / operation.count
    return counts


# --- What counts depend on ----------------------------------------------------------------------------------------------------


def describe_environment() -> dict[str, str]:
    """What counts depend on: versions, compilers, flags."""
    from streamd.pubsub import hub  # compiled like most others

    compiled = Path(hub.__file__).read_bytes()
    compiler = re.search(rb"(?:GCC|clang)[ :][ -~]+", compiled)
    flags = re.findall(r"-O\w+|-f(?:wrapv|lto)\b|-DNDEBUG|-m\S+", sysconfig.get_config_var("CFLAGS") or "")
    is_optimised = "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or "")
    return {
        "python": platform.python_version() + (", optimised" if is_optimised else ""),
        "python's compiler": platform.python_compiler(),
        "compiler": compiler[0].decode() if compiler else "unknown",
        "flags": " ".join([*dict.fromkeys(flags), "-O3"]),  # that of pyproject.toml comes last
        "cython": importlib.metadata.version("Cython"),
        "libc": " ".join(platform.libc_ver()),
        "machine": platform.machine() + (" avx2" if has_avx2() else ""),
    }


def has_avx2() -> bool:
    info = Path("/proc/cpuinfo")
    return info.exists() and " avx2 " in info.read_text()


# --- Comparing -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Figure:
    """
    name       of the operation
    unit       the unit that figures are for
    committed  instructions; None: not known yet
    measured   instructions
    tolerance  the allowed increase over the committed figure
    """

    name: str
    unit: str
    committed: float | None
    measured: float
    tolerance: float

    @property
    def difference(self) -> float:
        """Relative to the committed figure."""
        return self.measured / self.committed - 1 if self.committed else 0.0

    @property
    def is_slower(self) -> bool:
        return self.difference > self.tolerance

    @property
    def is_outdated(self) -> bool:
        """Faster by more than the tolerance, or new: the committed figure guards nothing."""
        return self.committed is None or self.difference < -self.tolerance


def read_committed() -> list[dict[str, Any]]:
    return json.loads(COMMITTED.read_text()) if COMMITTED.exists() else []


def find_nearest(known: list[dict[str, Any]], environment: dict[str, str]) -> dict[str, Any] | None:
    """The committed figures whose environment differs in the fewest points."""

    def differences(one: dict[str, Any]) -> int:
        return len(differing(one["environment"], environment))

    return min(known, key=differences, default=None)


def differing(theirs: dict[str, str], ours: dict[str, str]) -> list[str]:
    """What two environments differ in."""
    return [name for name in theirs.keys() | ours.keys() if theirs.get(name) != ours.get(name)]


def warn_of_roughness(unlike: list[str]) -> str:
    """The warning when nothing has been counted in this environment: a passing check guards little."""
    why = (
        f"Different from where these were counted: {', '.join(sorted(unlike))}." if unlike else "Nothing is committed."
    )
    return "\n".join([
        "!" * 100,
        f"WARNING: NO FIGURES FOR THIS ENVIRONMENT. {why}",
        f"Only an operation that takes {TOLERANCE_ELSEWHERE:.0%} more is found, instead of {TOLERANCE:.0%}: this is hardly a guard.",
        f"Run `python -m benchmarks.instructions --update` here, on a commit that is known to be good, and commit {COMMITTED.name}.",
        "!" * 100,
    ])  # fmt: skip


def compare(committed: dict[str, float], measured: dict[str, float], tolerance: float) -> list[Figure]:
    units = {operation.name: operation.unit for operation in OPERATIONS}
    return [Figure(name, units[name], committed.get(name), count, tolerance) for name, count in measured.items()]


def update(environment: dict[str, str], measured: dict[str, float]) -> None:
    """Replace the figures of this environment, or add them."""
    others = [one for one in read_committed() if one["environment"] != environment]
    figures = {name: round(count) for name, count in measured.items()}
    COMMITTED.write_text(json.dumps([*others, {"environment": environment, "figures": figures}], indent=2) + "\n")


def show(console: Console, figures: list[Figure]) -> None:
    table = Table("operation", "per", title="instructions")
    for title in ("committed", "measured", "difference"):
        table.add_column(title, justify="right")
    for figure in figures:
        style = "red" if figure.is_slower else "green" if figure.is_outdated else ""
        committed = "-" if figure.committed is None else f"{figure.committed:,.0f}"
        difference = "-" if figure.committed is None else f"{figure.difference:+.1%}"
        table.add_row(figure.name, figure.unit, committed, f"{figure.measured:,.0f}", difference, style=style)
    console.print(table)


# --- Profiles --------------------------------------------------------------------------------------------------------------------


def show_profile(console: Console, profile: Profile, name: str, most: int) -> None:
    table = Table("function", title=f"{name}: where {profile.total:,} instructions go")
    table.add_column("with what it calls", justify="right")
    table.add_column("itself", justify="right")
    ranked = sorted(profile.inclusive.items(), key=lambda item: -item[1])
    for function, cost in ranked[:most]:
        table.add_row(function, f"{cost / profile.total:.1%}", f"{profile.own.get(function, 0) / profile.total:.1%}")
    console.print(table)


# --- The command -------------------------------------------------------------------------------------------------------------------


@click.command(help=__doc__.partition("\n")[0] if __doc__ else None)
@click.option("--check", is_flag=True, help="Exit with 1 when an operation takes too many instructions.")
@click.option("--update", "is_update", is_flag=True, help="Write the measured counts to instructions.json.")
@click.option("--profile", help="Show where the instructions of one operation go, by its name in the table.")
@click.option("--most", default=40, show_default=True, help="Functions to show of a profile.")
def main(check: bool, is_update: bool, profile: str | None, most: int) -> None:
    console = Console(width=None if sys.stdout.isatty() else 120)
    with counted_run() as folder:
        measured = read_counts(folder)
        profiles = find_profiles(folder)
    if profile is not None:
        if profile not in profiles:
            raise click.ClickException(f"there is no operation {profile!r}")
        return show_profile(console, profiles[profile], profile, most)
    environment = describe_environment()
    nearest = find_nearest(read_committed(), environment)
    unlike = differing(nearest["environment"], environment) if nearest else []
    tolerance = TOLERANCE_ELSEWHERE if unlike else TOLERANCE
    committed = nearest["figures"] if nearest else {}
    figures = compare(committed, measured, tolerance)
    for layout in range(1, LAYOUTS if check else 1):
        if not any(figure.is_slower for figure in figures):
            break
        with counted_run(layout) as folder:
            again = read_counts(folder)
        measured = {name: min(count, again[name]) for name, count in measured.items()}
        figures = compare(committed, measured, tolerance)
    show(console, figures)
    for name in unlike:
        assert nearest is not None
        console.print(f"{name}: {environment.get(name)} here, {nearest['environment'].get(name)} where it was counted")
    if nearest is not None and not unlike:
        console.print(f"the same environment: up to {tolerance:.0%} more is accepted")
    if is_update:
        update(environment, measured)
        console.print(f"{COMMITTED.name} written")
        return None
    if outdated := [figure.name for figure in figures if figure.is_outdated]:
        console.print(f"new or better, to be kept with --update: {'; '.join(outdated)}")
    slower = [figure.name for figure in figures if figure.is_slower]
    if slower:
        console.print(f"slower: {'; '.join(slower)}", style="bold red")
    if unlike or nearest is None:
        # Last, where it is noticed in a long log, and on stderr.
        click.echo(warn_of_roughness(unlike), err=True)
    if check and slower:
        sys.exit(1)
    return None


if __name__ == "__main__":
    main()
