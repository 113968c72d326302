"""The event loop that a server runs in: uvloop's if installed, else asyncio's own, which is slower."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["has_uvloop", "run_in_new_loop"]

T = TypeVar("T")


def has_uvloop() -> bool:
    """Whether uvloop is installed. It has no wheels for some platforms, such as Windows."""
    try:
        import uvloop  # noqa: F401
    except ImportError:
        return False
    return True


def run_in_new_loop(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` to its end in an event loop of its own."""
    make_loop = None
    if has_uvloop():
        import uvloop

        make_loop = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=make_loop) as runner:
        return runner.run(main)
