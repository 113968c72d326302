"""Programs that some tests need beside a Redis: tmux, Prometheus, Chromium, PHP.

STREAMD_REQUIRE_TOOLS=1 turns the skips for a missing one into failures, as CI does.
"""

from __future__ import annotations

import os
import shutil
from typing import NoReturn

import pytest

__all__ = ["do_without", "find_tool"]


def do_without(reason: str) -> NoReturn:
    if os.environ.get("STREAMD_REQUIRE_TOOLS"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def find_tool(name: str) -> str:
    """The path of a program; without it the test is skipped, and the reason printed."""
    path = shutil.which(name)
    if path is None:
        do_without(f"there is no program {name} on the PATH")
    return path
