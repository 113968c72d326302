"""The same on several servers at the same time: what is compared mostly waits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from ..servers import Server

__all__ = ["on_each"]

T = TypeVar("T")


def on_each(servers: Sequence[Server], act: Callable[[Server], T]) -> list[T]:
    """What it returns for each server, in their order. All have ended; the first error is raised."""
    with ThreadPoolExecutor(len(servers)) as pool:
        return list(pool.map(act, servers))
