"""Failover: a primary hands its part over to one of its replicas (FAILOVER).

    WAITING      writes wait, until the replica has everything
    IN_PROGRESS  this server follows the replica, and asks it to become the primary: PSYNC ... FAILOVER

If the replica does not get there in time, or refuses, this server stays the primary; with FORCE, it hands over what the
replica has. Behaviour: Redis 8.6.

Connections that have asked for announcements (`clients/maintenance.py`) lose no request: what they have sent and was not executed is
never answered with READONLY. They get the address of the primary, are closed, and send the request again there.
"""

from __future__ import annotations

import logging
import math
import time
from enum import Enum
from operator import attrgetter

from streamd.clients.maintenance import MOVING_S, Maintenance
from streamd.clients.pause import Pause
from streamd.core.capability import Capability
from streamd.core.client import Client
from streamd.core.host import Host
from streamd.core.info import Field
from streamd.replication.following import Following
from streamd.replication.refusals import READ_ONLY_TEXT, ReplicaRefusals
from streamd.replication.replica import Replica
from streamd.replication.replication import Replication

__all__ = ["Failover", "FailoverState"]

log = logging.getLogger("streamd")

QUESTION_S = 0.005
"""The time in which a replica that answers has read the question."""
ANNOUNCED_S = 10
"""How long a hand-over without a time-out may last, as it is announced."""


class FailoverState(Enum):
    """The values are those of INFO."""

    NONE = "no-failover"
    WAITING = "waiting-for-sync"
    IN_PROGRESS = "failover-in-progress"


class Failover(Capability):
    """The hand-over, if there is one."""

    rests = True
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
        self._maintenance = host.get(Maintenance)
        self._following.keeps_waiting = self._maintenance.waiting
        host.get(ReplicaRefusals).set_way(self._find_way)
        self._successor: tuple[str, int] | None = None
        """The replica that has become the primary, as long as this server follows it."""
        self._number = 0
        self._numbered_at = 0.0
        self._question_at = 0
        """The offset behind the last question for acknowledgements, and in `_wanted` the one before it."""
        self._wanted = 0

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
        self._host.wake(self)
        self.state = FailoverState.WAITING
        self._target, self._is_forced = target, is_forced
        self._ends_at = time.monotonic() + timeout_ms / 1000 if timeout_ms else math.inf
        log.info("FAILOVER requested to %s.", "any replica" if target is None else f"{target[0]}:{target[1]}")
        self._maintenance.announce("FAILING_OVER", math.ceil(timeout_ms / 1000) or ANNOUNCED_S)
        self._host.get(Pause).begin(math.inf, writes_only=True, purpose="failover")
        self._ask()

    def abort(self) -> None:
        """FAILOVER ABORT, or no success: stay the primary, or become it again."""
        is_following = self.state is FailoverState.IN_PROGRESS
        log.info("Failover cancelled." if is_following else "Failover aborted.")
        self._clear()
        self._maintenance.announce("FAILED_OVER")
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
        if self._replication.offset != self._question_at:
            self._ask()
        self.check()

    def _ask(self) -> None:
        """Ask the replicas how far they are: writes wait for the answer."""
        self._wanted = self._replication.offset
        self._replication.say([b"REPLCONF", b"GETACK", b"*"])
        self._question_at = self._replication.offset
        self._host.dispatcher.ask_before_replies()

    def check(self) -> None:
        """Hand over, if the replica has everything. Called when a replica has acknowledged something, too."""
        if self.state is not FailoverState.WAITING:
            return
        # The acknowledgement that answers the question does not cover the question itself.
        offset = self._replication.offset
        wanted = self._wanted if offset == self._question_at else offset
        for replica in self._replication.replicas.values():
            is_wanted = self._target in (None, (replica.ip, replica.port))
            if is_wanted and replica.is_online and replica.ack_offset >= wanted:
                # It may have acknowledged this a moment before the question arrived: it must have that, too.
                self._host.loop.call_later(
                    0 if replica.ack_offset >= offset else QUESTION_S, self._hand_over_to, replica
                )
                return

    def _hand_over_to(self, replica: Replica) -> None:
        """The replica has everything."""
        if self.state is FailoverState.WAITING and replica.is_online:
            log.info("Failover target is synced, failing over to %s.", replica.name)
            self._hand_over((replica.ip, replica.port))

    def _hand_over(self, target: tuple[str, int]) -> None:
        self.state = FailoverState.IN_PROGRESS
        self._successor = target
        self._number = 0
        self._following.follow(*target, is_handing_over=True)

    def _ended(self, is_done: bool) -> None:
        """The replica has answered."""
        if self.state is not FailoverState.IN_PROGRESS:
            return
        if is_done:
            log.info("Failover succeeded.")
            self._announce_successor()
            self._clear()
        else:
            log.info("Failover target rejected psync request")
            self.abort()

    # --- Connections that have asked ---------------------------------------------------------------------------------

    def _announce_successor(self) -> None:
        self._maintenance.announce("FAILED_OVER")
        assert self._successor is not None  # noqa: S101
        self._maintenance.move(self._make_number(), *self._successor)
        for client in self._maintenance.waiting():
            self._send_on(client, self._successor)

    def _make_number(self) -> int:
        """The number of this switch. Clients forget one after some time, and do not act twice on one that they know."""
        now = time.monotonic()
        if not self._number or now - self._numbered_at > MOVING_S:
            self._number, self._numbered_at = self._maintenance.make_number(), now
        return self._number

    def _send_on(self, client: Client, successor: tuple[str, int]) -> None:
        self._maintenance.move_one(client, self._make_number(), *successor)

    def _find_way(self, client: Client) -> str | None:
        """What a client gets whose write is refused because this server is a replica (`ReplicaRefusals.set_way`)."""
        if self._successor != (self._following.host, self._following.port) or not self._maintenance.is_listening(
            client
        ):
            return READ_ONLY_TEXT
        if self.state is FailoverState.IN_PROGRESS:
            return None  # the pause holds it back until the replica has answered
        self._send_on(client, self._successor)
        return ""
