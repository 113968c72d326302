"""Imports as programs: `streamd import`, to its end or beside the test."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from .servers import eventually, python_environment

__all__ = ["Running", "run_import", "words_of"]

DEADLINE_S = 200


class HasPort(Protocol):
    @property
    def port(self) -> int: ...


def words_of(source: HasPort | str, target: HasPort | str, *options: str) -> list[str]:
    urls = [each if isinstance(each, str) else f"redis://127.0.0.1:{each.port}" for each in (source, target)]
    return [sys.executable, "-m", "streamd", "import", urls[0], "--to", urls[1], *options]


def run_import(source: HasPort | str, target: HasPort | str, *options: str, status: int = 0) -> str:
    """Import; the output, or the error where one is expected: a single line."""
    done = subprocess.run(
        words_of(source, target, *options), stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=DEADLINE_S, env=python_environment(), check=False,
    )  # fmt: skip
    assert done.returncode == status, done.stdout + done.stderr
    if status:
        assert done.stderr.count("\n") == 1, done.stderr
        return done.stderr
    return done.stdout


class Running:
    """An import that runs beside the test."""

    def __init__(self, words: Sequence[str], output: Path) -> None:
        self.output = output
        with output.open("wb") as file:
            self.process = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=file, stderr=subprocess.STDOUT, env=python_environment()
            )

    def said(self) -> str:
        return self.output.read_text(errors="replace")

    def wait_for(self, *texts: str) -> None:
        """Wait until it has said one of the texts."""
        eventually(lambda: self.has_said(texts) or self.process.poll() is not None, DEADLINE_S, " or ".join(texts))
        assert self.has_said(texts), self.said()

    def has_said(self, texts: Sequence[str]) -> bool:
        said = self.said()
        return any(text in said for text in texts)

    def press_enter(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()

    def end(self) -> int:
        return self.process.wait(DEADLINE_S)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()
