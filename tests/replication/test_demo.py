"""The demonstration in docs/replication.md, run as it stands there."""

from __future__ import annotations

import os
import random
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from support.servers import find_oracle, python_environment

pytestmark = [pytest.mark.long, pytest.mark.real, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]


def six_free_ports() -> int:
    """The first of six ports in a row, below those that the system gives to connections."""
    while True:
        first = random.randint(10_000, 30_000)
        with ExitStack() as probes, suppress(OSError):
            for port in range(first, first + 6):
                probes.enter_context(socket.create_server(("", port)))
            return first


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Where `streamd`, `python`, `redis-server` and `redis-cli` are those of the tests; nothing is left running."""
    oracle = find_oracle()
    assert oracle is not None
    programs = tmp_path / "bin"
    programs.mkdir()
    python = shlex.quote(sys.executable)
    for name, arguments in {"streamd": " -m streamd", "python": ""}.items():
        (programs / name).write_text(f'#!/bin/sh\nexec {python}{arguments} "$@"\n')
        (programs / name).chmod(0o755)
    found = python_environment() | {
        "PATH": f"{programs}:{oracle.folder}:{os.environ['PATH']}",
        "RUN": str(tmp_path / "run"),
        "PORT": str(six_free_ports()),
        "DOWN_AFTER": "4000",  # on a busy machine a primary may be silent for longer than for people
    }
    yield found
    subprocess.run([ROOT / "examples/failover/cluster.sh", "stop"], env=found, check=True)


def blocks() -> tuple[str, str]:
    """The commands of the page, and what it says that they print."""
    page = (ROOT / "docs/replication.md").read_text()
    found = re.search(r"### A demonstration.*?```sh\n(.*?)```.*?```\n(.*?)```", page, re.DOTALL)
    assert found is not None
    return found[1], found[2]


def without_what_varies(text: str, first_port: int) -> list[str]:
    """The lines, without the primary's successor and the figures that the machine decides."""
    text = re.sub(r"\b(700[1-6])\b", lambda port: str(int(port[1]) - 7001 + first_port), text)
    text = re.sub(r"^(acknowledged entries|longest pause in seconds) +[\d.]+$", r"\1", text, flags=re.MULTILINE)
    lines = [re.sub(r"^(port \d+: )(master|slave)$", r"\1", line) for line in text.splitlines()]
    return [line for line in lines if not line.startswith("worked on more than once")]


def test_the_page_is_right(environment: dict[str, str]) -> None:
    commands, output = blocks()
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    first = int(environment["PORT"])
    assert without_what_varies(done.stdout, first) == without_what_varies(output, first)
    assert not Path(environment["RUN"]).exists()
    pause = re.search(r"longest pause in seconds +([\d.]+)", done.stdout)
    assert pause is not None
    assert 1 < float(pause[1]) < 60
