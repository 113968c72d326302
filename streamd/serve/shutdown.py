"""Shutdown: how a server stops, by SHUTDOWN or by a signal."""

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
"""Delay between a signal and the shutdown that it requests: requests already received may cancel it."""


class Shutdown(Capability):
    """The shutdown of a server.

    is_done   whether it has been asked to stop
    exit_code the exit code of the process
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._config = host.config
        self._persistence = host.get(Persistence)
        self.signal: int | None = None
        """SIGTERM or SIGINT, until the requested shutdown has been cancelled or has failed."""
        self.is_done = False
        self.exit_code = 0
        self.stop: Callable[[], None]
        """Callback that stops the server; set by the server."""

    # --- By a signal --------------------------------------------------------------------------------------------------

    def take_signal(self, number: int) -> None:
        """Handle SIGTERM or SIGINT in a signal handler, which may interrupt anything. A later SIGINT exits at once."""
        if number == signal.SIGINT and self.signal is not None:
            interject("You insist... exiting now.")
            self._persistence.saving.remove_temporary_snapshot()
            os._exit(1)
        interject(f"Received {signal.Signals(number).name} scheduling shutdown...")
        self.signal = number
        self._host.loop.call_soon_threadsafe(self._host.loop.call_later, SIGNAL_GRACE_S, self._follow_signal)

    def cron(self, now_ms: int) -> None:
        if self.signal is not None:
            self._host.loop.call_soon(self._follow_signal)  # after requests that wait for their turn

    def _follow_signal(self) -> None:
        """Start the shutdown requested by a signal."""
        if self.signal is None or self._host.is_cron_paused:
            return
        is_interrupt = self.signal == signal.SIGINT
        words = self._config.shutdown_on_sigint if is_interrupt else self._config.shutdown_on_sigterm
        save = True if "save" in words else False if "nosave" in words else None
        self.request(save=save, force="force" in words)

    def call_off(self) -> bool:
        """SHUTDOWN ABORT: cancel a shutdown requested by a signal; False if there is none or it has started."""
        if self.signal is None:
            return False
        self.signal = None
        log.info("Shutdown manually aborted.")
        return True

    # --- On request ---------------------------------------------------------------------------------------------------

    def request(self, *, save: bool | None = None, force: bool = False) -> bool:
        """Stop: write the data to disk, hand unsent replies to the kernel, close every client.

        save   whether to write a snapshot; None: if there are save points
        force  stop even if the data cannot be written
        Returns False, and the server continues, if the data cannot be written.
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
        """Stop immediately, without sending anything: pending replies would be false."""
        for client in list(self._host.clients.values()):
            client.close()
        self.exit_code = 1
        self.stop()
