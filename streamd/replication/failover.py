"""Failover: a primary hands its part over to one of its replicas (FAILOVER).

    WAITING      writes wait, until the replica has everything
    IN_PROGRESS  this server follows the replica, and asks it to become the primary: PSYNC ... FAILOVER

If the replica does not get there in time, or refuses, this server stays the primary; with FORCE, it hands over what the
replica has. Behaviour: Redis 8.6.
"""

from __future__ import annotations

import logging
import math
import time
from enum import Enum
from operator import attrgetter

from streamd.clients.pause import Pause
from streamd.core.capability import Capability
from streamd.core.host import Host
from streamd.core.info import Field
from streamd.replication.following import Following
from streamd.replication.replica import Replica
from streamd.replication.replication import Replication

__all__ = ["Failover", "FailoverState"]

log = logging.getLogger("streamd")


class FailoverState(Enum):
    """The values are those of INFO."""

    NONE = "no-failover"
    WAITING = "waiting-for-sync"
    IN_PROGRESS = "failover-in-progress"


class Failover(Capability):
    """The hand-over, if there is one."""

    info = {"replication": (Field("master_failover_state", attrgetter("state._value_")),)}

    def __init__(self, host: Host) -> None:
        self._replication = host.get(Replication)
        self._following = host.get(Following)
        self._host = host
        self.state = FailoverState.NONE
        self._target: tuple[str, int] | None = None
        self._is_forced = False
        self._ends_at = math.inf
        self._following.handed_over = self._ended

    @property
    def is_on(self) -> bool:
        return self.state is not FailoverState.NONE

    def find(self, target: tuple[str, int]) -> Replica | None:
        """The replica at an address."""
        return next((each for each in self._replication.replicas.values() if (each.ip, each.port) == target), None)

    def begin(self, target: tuple[str, int] | None, *, is_forced: bool, timeout_ms: int) -> None:
        """Start; the requests have been checked.

        target      the replica; None: the first one that has everything
        timeout_ms  how long writes may wait; 0: as long as it takes
        """
        self.state = FailoverState.WAITING
        self._target, self._is_forced = target, is_forced
        self._ends_at = time.monotonic() + timeout_ms / 1000 if timeout_ms else math.inf
        log.info("FAILOVER requested to %s.", "any replica" if target is None else f"{target[0]}:{target[1]}")
        self._host.get(Pause).begin(math.inf, writes_only=True, purpose="failover")

    def abort(self) -> None:
        """FAILOVER ABORT, or no success: stay the primary, or become it again."""
        is_following = self.state is FailoverState.IN_PROGRESS
        log.info("Failover cancelled." if is_following else "Failover aborted.")
        self._clear()
        if is_following:
            self._following.promote()

    def _clear(self) -> None:
        self.state = FailoverState.NONE
        self._target = None
        self._ends_at = math.inf
        self._host.get(Pause).end("failover")

    def cron(self, now_ms: int) -> None:
        if self.state is not FailoverState.WAITING:
            return
        if time.monotonic() >= self._ends_at:
            if self._is_forced and self._target is not None:
                log.info("Failover to %s:%d time out exceeded, failing over.", *self._target)
                self._hand_over(self._target)
            else:
                log.info("Replica never caught up before timeout")
                self.abort()
            return
        self.check()

    def check(self) -> None:
        """Hand over, if the replica has everything. Called when a replica has acknowledged something, too.

        Asking again would make the stream longer; replicas acknowledge it every second.
        """
        if self.state is not FailoverState.WAITING:
            return
        for replica in self._replication.replicas.values():
            is_wanted = self._target in (None, (replica.ip, replica.port))
            if is_wanted and replica.is_online and replica.ack_offset >= self._replication.offset:
                log.info("Failover target is synced, failing over to %s.", replica.name)
                self._hand_over((replica.ip, replica.port))
                return

    def _hand_over(self, target: tuple[str, int]) -> None:
        self.state = FailoverState.IN_PROGRESS
        self._following.follow(*target, is_handing_over=True)

    def _ended(self, is_done: bool) -> None:
        """The replica has answered."""
        if self.state is not FailoverState.IN_PROGRESS:
            return
        if is_done:
            log.info("Failover succeeded.")
            self._clear()
        else:
            log.info("Failover target rejected psync request")
            self.abort()
