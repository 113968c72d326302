"""How much memory a server takes, as the system counts it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .servers import Server

__all__ = ["MB", "resident"]

MB = 1 << 20


def resident(server: Server) -> int:
    """The resident memory of a server, in bytes."""
    status = Path(f"/proc/{server.process.pid}/status")
    if not status.exists():
        pytest.skip("only Linux tells how much memory a process has")
    match = re.search(r"VmRSS:\s+(\d+) kB", status.read_text())
    assert match is not None
    return int(match[1]) * 1024
