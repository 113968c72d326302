"""Pause: CLIENT PAUSE, during which writes, or all requests, wait."""

from __future__ import annotations

import asyncio
import math
import time

from streamd.core.capability import Capability
from streamd.core.client import Client
from streamd.core.host import Host

__all__ = ["Pause"]

WRITES, EVERYTHING = 1, 2
"""Values of `Dispatcher.pause`: which requests wait; 0: none."""


class Pause(Capability):
    """The pause of a server, if there is one. `held`: the clients whose requests are held back, by ID."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._pauses: dict[str, tuple[float, int]] = {}
        """By whose pause it is: until when, and which requests wait."""
        self._handle: asyncio.TimerHandle | None = None
        self.held: dict[int, Client] = {}
        host.dispatcher.pause_keeper = self

    def begin(self, until: float, *, writes_only: bool, purpose: str = "client") -> None:
        """Hold requests back until a monotonic time; infinity: until `end`. A pause only becomes longer and stricter.

        purpose  whose pause it is: each has its own, and ends its own
        """
        mode = WRITES if writes_only else EVERYTHING
        before, mode_before = self._pauses.get(purpose, (0.0, mode))
        self._pauses[purpose] = max(until, before), max(mode, mode_before)
        self._follow()

    def end(self, purpose: str = "client") -> None:
        """End a pause; when it was the last one, postponed requests run in the order in which they came."""
        self._pauses.pop(purpose, None)
        self._follow()
        if self._pauses:
            return
        for capability in self._host.capabilities:
            capability.pause_ended()
        self._host.loop.call_soon(self._run_held)

    def _follow(self) -> None:
        """Hold back what the strictest pause says, until the first of them ends."""
        self.close()
        self._host.dispatcher.pause = max((mode for _, mode in self._pauses.values()), default=0)
        until, purpose = min(((until, purpose) for purpose, (until, _) in self._pauses.items()), default=(math.inf, ""))
        if until < math.inf:
            self._handle = self._host.loop.call_later(max(0.0, until - time.monotonic()), self.end, purpose)

    def hold_back(self, client: Client) -> None:
        """Postpone a client's request (`Client.postponed`)."""
        self.held[client.id] = client

    def client_gone(self, client: Client) -> None:
        self.held.pop(client.id, None)

    def close(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _run_held(self) -> None:
        dispatcher = self._host.dispatcher
        dispatcher.serve_held_back()
        held = list(self.held.values())
        self.held.clear()
        for client in held:
            dispatcher.run_postponed(client)
