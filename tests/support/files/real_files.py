"""A real Redis over a folder of files: which versions exist, whether it starts, and what it loads."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..compare.mask import NEWER_FIELDS
from ..servers import Oracle, find_oracle, free_port
from ..wire import ConnectionClosed, Wire

__all__ = ["RealRedis", "all_oracles", "view"]


def all_oracles() -> list[Oracle]:
    """The real Redis of the tests, and the system's when it is another version."""
    found = [oracle for oracle in [find_oracle()] if oracle is not None]
    on_path = shutil.which("redis-server")
    if on_path:
        system = Oracle(Path(on_path).parent)
        if all(system.version != oracle.version for oracle in found):
            found.append(system)
    return found


class RealRedis:
    """A redis-server in `folder`, with appendonly yes; `started` is False when it refused, and then `log` says why."""

    def __init__(self, oracle: Oracle, folder: Path, **directives: str) -> None:
        self.folder = folder
        self.port = free_port()
        self.log_path = folder / "redis.log"
        words = {"save": "", "appendonly": "yes", "bind": "127.0.0.1", "dir": str(folder), **directives}
        argv = [oracle.server, "--port", str(self.port)]
        for name, value in words.items():
            argv += [f"--{name.replace('_', '-')}", value]
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        self.started = self._wait()

    def _wait(self) -> bool:
        deadline = time.monotonic() + 120
        while self.process.poll() is None:
            try:
                with Wire(self.port, timeout_s=2.0) as wire:
                    if wire.call("PING").value == b"PONG":
                        return True
            except (OSError, ConnectionClosed):
                pass
            assert time.monotonic() < deadline, self.log
            time.sleep(0.002)
        return False

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def __enter__(self) -> RealRedis:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End it as SHUTDOWN does, and wait."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def run(self, *args: bytes | str | int) -> Any:
        with Wire(self.port) as wire:
            return wire.call(*args).plain()

    def runs(self, lines: list[list[bytes]]) -> list[Any]:
        with Wire(self.port) as wire:
            return [wire.call(*line).plain() for line in lines]

    def check(self, oracle: Oracle, path: Path, *options: str, answer: str = "") -> subprocess.CompletedProcess[str]:
        return check_aof(oracle, path, *options, answer=answer)


def check_aof(oracle: Oracle, path: Path, *options: str, answer: str = "") -> subprocess.CompletedProcess[str]:
    """redis-check-aof."""
    program = os.path.join(oracle.folder, "redis-check-aof")
    return subprocess.run(
        [program, *options, str(path)], input=answer, capture_output=True, text=True, errors="replace", check=False
    )


TIMES = {b"seen-time", b"active-time", b"idle", b"inactive"}
LAYOUT = {b"radix-tree-keys", b"radix-tree-nodes"}
NEW = {b"idmp-duration", b"idmp-maxsize", b"pids-tracked", b"iids-tracked", b"iids-added", b"iids-duplicates"}


def view(call: Callable[..., Any], *, times: bool = True, producers: bool = True, layout: bool = False) -> Any:
    """All state of database 0 that commands show; `call` runs one. Without `times`, what only Redis's snapshots keep is left out."""
    hidden = NEWER_FIELDS | (set() if times else TIMES) | (set() if layout else LAYOUT) | (set() if producers else NEW)
    found = {}
    for key in sorted(call("KEYS", "*")):
        kind = call("TYPE", key)
        expiry = call("PEXPIRETIME", key)
        if kind == b"stream":
            full = call("XINFO", "STREAM", key, "FULL", "COUNT", 0)
            found[key] = kind, expiry, _without(full, hidden), call("XRANGE", key, "-", "+")
        else:
            found[key] = kind, expiry, call("GET", key)
    return found


def _without(reply: Any, hidden: frozenset[bytes]) -> Any:
    """A reply without some fields of its flat maps."""
    if not isinstance(reply, list):
        return reply
    kept, skip = [], False
    for item in reply:
        if skip:
            skip = False
        elif isinstance(item, bytes) and item in hidden:
            skip = True
        else:
            kept.append(_without(item, hidden))
    return kept
