"""Shutdown: how a server comes to its end, by SHUTDOWN or by a signal."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable

from streamd.core.capability import Capability
from streamd.core.host import Host
from streamd.core.log import interject
from streamd.persistence.keeper import Persistence

__all__ = ["Shutdown"]

log = logging.getLogger("streamd")

SIGNAL_GRACE_S = 0.01
"""Between a signal that asks for a shutdown and the shutdown: requests that are there already may call it off."""


class Shutdown(Capability):
    """The end of a server.

    is_done   whether it has been asked to stop
    exit_code of the process
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._config = host.config
        self._persistence = host.get(Persistence)
        self.signal: int | None = None
        """SIGTERM or SIGINT, until the shutdown that it asks for has been called off or has failed."""
        self.is_done = False
        self.exit_code = 0
        self.stop: Callable[[], None]
        """What ends the server; set by it."""

    # --- By a signal ---------------------------------------------------------------------------------------------------

    def take_signal(self, number: int) -> None:
        """SIGTERM or SIGINT, from a signal handler, which interrupts anything. A SIGINT that is not the first ends at once."""
        if number == signal.SIGINT and self.signal is not None:
            interject("You insist... exiting now.")
            self._persistence.saving.remove_temporary_snapshot()
            os._exit(1)
        interject(f"Received {signal.Signals(number).name} scheduling shutdown...")
        self.signal = number
        self._host.loop.call_soon_threadsafe(self._host.loop.call_later, SIGNAL_GRACE_S, self._follow_signal)

    def cron(self, now_ms: int) -> None:
        if self.signal is not None:
            self._host.loop.call_soon(self._follow_signal)  # behind requests that wait for their turn

    def _follow_signal(self) -> None:
        """Begin the shutdown that a signal has asked for."""
        if self.signal is None or self._host.is_cron_paused:
            return
        is_interrupt = self.signal == signal.SIGINT
        words = self._config.shutdown_on_sigint if is_interrupt else self._config.shutdown_on_sigterm
        save = True if "save" in words else False if "nosave" in words else None
        self.request(save=save, force="force" in words)

    def call_off(self) -> bool:
        """SHUTDOWN ABORT: call off what a signal has asked for; False when it has not, or the shutdown goes on already."""
        if self.signal is None:
            return False
        self.signal = None
        log.info("Shutdown manually aborted.")
        return True

    # --- On request ----------------------------------------------------------------------------------------------------

    def request(self, *, save: bool | None = None, force: bool = False) -> bool:
        """Stop: bring the data to the disk, give unsent replies to the kernel, close every client.

        save   write a snapshot, or do not; None: when there are save points
        force  stop though the data cannot be written
        Returns False, and goes on, when the data cannot be written.
        """
        if self.is_done:
            return True
        log.info("User requested shutdown...")
        if self._host.is_loading:
            log.warning("Received shutdown signal during loading, exiting now.")
            self._persistence.loader.abandon()
        elif not self._persistence.finish(save=save, force=force):
            self.signal = None
            log.warning("Errors trying to shut down the server. Check the logs for more information.")
            return False
        self.stop()
        return True

    def abort(self) -> None:
        """Stop immediately, without sending anything: replies would not be true."""
        for client in list(self._host.clients.values()):
            client.close()
        self.exit_code = 1
        self.stop()
