"""Shutdown: how a server stops, by SHUTDOWN or by a signal.

    SHUTDOWN FAILOVER ─▶ a replica takes over ─▶ clients are sent there ─┐
    SHUTDOWN ──────────▶ replicas get what they lack (shutdown-timeout) ─┴▶ data to the disk ─▶ the end

If no replica can take over, or none does in time, the server stops as it does without FAILOVER.
"""

from __future__ import annotations

import logging
import math
import os
import signal
import time
from collections.abc import Callable, Iterator

from streamd.clients.pause import Pause
from streamd.cluster.cluster import Cluster
from streamd.core.capability import Capability
from streamd.core.client import Client
from streamd.core.host import Host
from streamd.core.info import Lines
from streamd.persistence.persistence import Persistence
from streamd.process.log import interject
from streamd.replication.failover import Failover
from streamd.replication.replica import Replica
from streamd.replication.replication import Replication

__all__ = ["Shutdown"]

log = logging.getLogger("streamd")

LINGER_S = 1.0
"""For which a server whose replica has taken over goes on: its clients are sent on, rather than cut off."""
SIGNAL_GRACE_S = 0.01
"""Delay between a signal and the shutdown that it requests: requests already received may cancel it."""


class Shutdown(Capability):
    """The shutdown of a server.

    is_done   whether it has been asked to stop
    exit_code the exit code of the process
    """

    rests = True
    info = {
        "server": (Lines("shutdown_in_milliseconds", lambda self: self._lines() if self._request is not None else ()),)
    }

    def __init__(self, host: Host) -> None:
        self._host = host
        self._config = host.config
        self._persistence = host.get(Persistence)
        self.signal: int | None = None
        """SIGTERM or SIGINT, until the requested shutdown has been cancelled or has failed."""
        self.is_done = False
        self._replication = host.get(Replication)
        self._request: tuple[bool | None, bool] | None = None
        """The shutdown that waits for replicas: `save` and `force`; until when, in monotonic seconds; who has asked."""
        self._wait_until = 0.0
        self._hands_over = False
        self._lingers_until = math.inf
        self._clients: list[Client] = []
        self.exit_code = 0
        self.stop: Callable[[], None]
        """Callback that stops the server; set by the server."""

    def _lines(self) -> Iterator[str]:
        yield f"shutdown_in_milliseconds:{max(0, int(1000 * (self._wait_until - time.monotonic())))}"

    # --- By a signal --------------------------------------------------------------------------------------------------

    def take_signal(self, number: int) -> None:
        """Handle SIGTERM or SIGINT in a signal handler, which may interrupt anything. A later SIGINT exits at once."""
        if number == signal.SIGINT and self.signal is not None:
            interject("You insist... exiting now.")
            self._persistence.saving.remove_temporary_snapshot()
            os._exit(1)
        interject(f"Received {signal.Signals(number).name} scheduling shutdown...")
        self.signal = number
        if self.is_done:
            return  # the loop may be closed by now
        self._host.wake(self)
        self._host.loop.call_soon_threadsafe(self._host.loop.call_later, SIGNAL_GRACE_S, self._follow_signal)

    def cron(self, now_ms: int) -> None:
        self._look_at_replicas()
        if self.signal is not None and not self.is_waiting:
            self._host.loop.call_soon(self._follow_signal)  # after requests that wait for their turn

    def _follow_signal(self) -> None:
        """Start the shutdown requested by a signal."""
        if self.signal is None or self._host.is_cron_paused or self._host.dispatcher.is_busy:
            return
        is_interrupt = self.signal == signal.SIGINT
        words = self._config.shutdown_on_sigint if is_interrupt else self._config.shutdown_on_sigterm
        save = True if "save" in words else False if "nosave" in words else None
        self.request(save=save, force="force" in words, is_urgent="now" in words, hands_over="failover" in words)

    def call_off(self) -> bool:
        """SHUTDOWN ABORT: cancel a shutdown that waits for replicas, or that a signal has requested a moment ago.

        Returns False if there is none.
        """
        if self.signal is None and not self.is_waiting:
            return False
        self.signal = None
        self._end_wait("ERR Errors trying to SHUTDOWN. Check logs.")
        log.info("Shutdown manually aborted.")
        return True

    # --- On request ---------------------------------------------------------------------------------------------------

    def request(
        self, *, save: bool | None = None, force: bool = False, is_urgent: bool = True, hands_over: bool = False
    ) -> bool:
        """Stop: write the data to disk, hand unsent replies to the kernel, close every client.

        save       whether to write a snapshot; None: if there are save points
        force      stop even if the data cannot be written
        is_urgent  do not wait for replicas that have not received everything
        hands_over let a replica take over first, if one can
        Returns False, and the server continues, if the data cannot be written. If it has to wait, `is_waiting` is True.
        """
        if self.is_done or self.is_waiting:
            return True
        self._host.wake(self)
        log.info("User requested shutdown...")
        self._host.supervisor.tell("STOPPING=1")
        self._wait_until = time.monotonic() + self._config.shutdown_timeout
        if hands_over and not is_urgent and self._begin_hand_over():
            self._request = save, force
            return True
        if not is_urgent and self._config.shutdown_timeout and self._lagging():
            log.info("Waiting for replicas before shutting down.")
            self._request = save, force
            self._host.get(Pause).begin(math.inf, writes_only=True, purpose="shutdown")
            return True
        return self._finish(save=save, force=force)

    # --- A replica that takes over -------------------------------------------------------------------------------------

    def _begin_hand_over(self) -> bool:
        """Have a replica take over; False: none can."""
        cluster, failover = self._host.get(Cluster), self._host.get(Failover)
        if self._host.is_loading or self._replication.is_replica or failover.is_on:
            return False
        if cluster.is_on:
            self._hands_over = cluster.hand_over(self._give_up)
        elif any(each.is_online for each in self._replication.replicas.values()):
            failover.begin(None, is_forced=False, timeout_ms=1000 * self._config.shutdown_timeout)
            self._hands_over = True
        if not self._hands_over:
            log.info("There is no replica that could take over.")
        self._lingers_until = math.inf
        return self._hands_over

    def _give_up(self) -> None:
        """The replica refuses: stop without it."""
        if self._hands_over and self._request is not None:
            self._hands_over, (save, force) = False, self._request
            self._request = None
            if not self.request(save=save, force=force, is_urgent=False):
                self._request = save, force
                self._end_wait("ERR Errors trying to SHUTDOWN. Check logs.")

    def _look_at_hand_over(self) -> None:
        now = time.monotonic()
        if self._replication.is_replica and not self._host.get(Failover).is_on:
            if self._lingers_until == math.inf:
                log.info("A replica has taken over.")
                self._lingers_until = now + LINGER_S
            if now < self._lingers_until:
                return
        elif now < self._wait_until:
            return
        self._hands_over = False

    def _finish(self, *, save: bool | None, force: bool) -> bool:
        for replica in self._lagging():
            log.info(
                "Lagging replica %s reported offset %d behind master, lag=%d, state=%s.",
                replica.name, self._replication.offset - replica.ack_offset, replica.lag_s, replica.state.name.lower(),
            )  # fmt: skip
        if replicas := self._replication.replicas:
            in_sync = len(replicas) - len(self._lagging())
            log.info("%d of %d replicas are in sync when shutting down.", in_sync, len(replicas))
        if self._host.is_loading:
            log.warning("Received shutdown signal during loading, exiting now.")
            self._persistence.loader.abandon()
        elif not self._persistence.finish(save=save, force=force):
            self.signal = None
            log.warning("Errors trying to shut down the server. Check the logs for more information.")
            return False
        cluster = self._host.get(Cluster)
        if cluster.is_on:
            cluster.before_replies()  # nodes.conf comes before the replies that clients still get
        if not self.is_done:  # it is where that file could not be written
            self.stop()
        return True

    # --- Replicas -----------------------------------------------------------------------------------------------------

    @property
    def is_waiting(self) -> bool:
        """Whether a shutdown waits for replicas."""
        return self._request is not None

    def _lagging(self) -> list[Replica]:
        """The replicas that have not acknowledged everything."""
        if self._replication.is_replica:
            return []
        offset = self._replication.offset
        return [each for each in self._replication.replicas.values() if each.ack_offset < offset]

    def block(self, client: Client) -> None:
        """A client has asked for the shutdown that waits; it gets an error if that fails."""
        self._clients.append(client)

    def _look_at_replicas(self) -> None:
        if self._request is None:
            return
        if self._hands_over:
            self._look_at_hand_over()
        if self._hands_over or (self._lagging() and time.monotonic() < self._wait_until):
            return
        save, force = self._request
        if self._finish(save=save, force=force):
            self._request = None
        else:
            self._end_wait("ERR Errors trying to SHUTDOWN. Check logs.")

    def _end_wait(self, text: str) -> None:
        """The shutdown is cancelled or has failed: writes go on, and those who have asked for it get an error."""
        if self._request is None:
            return
        self._request = None
        self._hands_over = False
        self._host.get(Pause).end("shutdown")
        clients, self._clients = self._clients, []
        for client in clients:
            if client.blocked is not None:
                self._host.blocked.fail(client.blocked, text)

    def abort(self) -> None:
        """Stop immediately, without sending anything: pending replies would be false."""
        for client in list(self._host.clients.values()):
            client.close()
        self.exit_code = 1
        self.stop()
