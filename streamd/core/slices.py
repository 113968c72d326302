"""Slices: work of the server's own that is cut into pieces, between which clients are served."""

from __future__ import annotations

import asyncio
import time

__all__ = ["Slices"]

SLICE_S = 0.0005
"""How long a piece of work takes before clients have their turn."""


class Slices:
    """Work in slices. `cpu_s` is the processor time of all so far."""

    def __init__(self) -> None:
        self.cpu_s = 0.0
        self._began = time.perf_counter()
        self._cpu_began = time.thread_time()

    async def breathe(self) -> None:
        """Let clients be served if the slice has been long enough."""
        if time.perf_counter() - self._began >= SLICE_S:
            self.pause()
            await asyncio.sleep(0)
            self.go_on()

    def pause(self) -> None:
        self.cpu_s += time.thread_time() - self._cpu_began

    def go_on(self) -> None:
        self._began, self._cpu_began = time.perf_counter(), time.thread_time()
