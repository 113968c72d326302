"""Replication: the history that a server's data is part of, and the stream of its changes.

A history has an ID and grows by the bytes of the replication stream; `offset` is how many there have been. A replica
has the history of its primary. When it becomes a primary, a new history begins, which is the same as the old one up to
`second_offset`: replicas that know the old ID continue from there. Behaviour: Redis 8.6.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from streamd.core.capability import Capability
from streamd.core.effects import Effect, EffectSink
from streamd.core.host import Host
from streamd.core.info import Fields
from streamd.observe.rates import Rate
from streamd.persistence.persistence import Persistence
from streamd.replication.replication_stream import ReplicationStream, StreamMemory

if TYPE_CHECKING:
    from streamd.replication.replica import Replica

__all__ = ["Replication"]

log = logging.getLogger("streamd")

NO_ID = "0" * 40


class Replication(Capability):
    """A server's history.

    replid         ID of the history: 40 hexadecimal digits
    replid2        ID of the history that it was part of before; zeros: none
    second_offset  the first byte that does not belong to that one any more; -1: there is none
    stream         the stream; open from the first replica, or the first full resync of its own, on
    replicas       those connected here, in any state, by ID of their connection
    is_silent      a primary that is not sure to be it: nothing goes into the stream, and no data changes
    more_aux       what others have to say in snapshots: each returns fields
    aux_observers  called with the fields of the snapshot that the data of this replica comes from
    is_handing_over  a replica is about to take over at the present offset: nothing is said that has no effect
    is_link_up     this server is a replica, and has what its primary has sent
    stream_db      the database that the primary's stream has selected
    """

    rests = True
    info = {
        "replication": (
            Fields(
                "role master_replid master_replid2 master_repl_offset second_repl_offset repl_backlog_active repl_backlog_size"
                " repl_backlog_first_byte_offset repl_backlog_histlen",
                lambda self: (
                    "slave" if self._host.dispatcher.is_replica else "master",
                    self.replid,
                    self.replid2,
                    self._effects.counter.offset,
                    self.second_offset,
                    is_open := self.stream.is_open,
                    self.backlog_size,
                    self.stream.first_offset if is_open else 0,
                    len(self.stream),
                ),
            ),
        ),
        "memory": (
            Fields(
                "mem_replication_backlog mem_total_replication_buffers",
                lambda self: (min(memory, self.backlog_size) if (memory := self.stream.memory()) else 0, memory),
            ),
        ),
        "stats": (
            Fields(
                "total_net_repl_output_bytes instantaneous_output_repl_kbps",
                lambda self: (self.stream.sent_bytes, self.output_rate.per_second() / 1024),
            ),
        ),
    }

    def __init__(self, host: Host) -> None:
        self._host = host
        self._config = host.config
        self._effects = host.dispatcher.effects
        self._aof = host.get(Persistence).append_only.aof.buffer
        self.stream = ReplicationStream(self._effects)
        self.replicas: dict[int, Replica] = {}
        self._sinks: list[EffectSink] = []
        self.role_observers: list[Callable[[], object]] = []
        """Called when the server has become a replica, or a primary."""
        self.is_silent = False
        self.data_taken: Callable[[], object] = lambda: None
        """Called when a server that wanted what is ahead here has gone again."""
        self.more_aux: list[Callable[[], Mapping[str, str | int]]] = []
        self.aux_observers: list[Callable[[Mapping[str, str]], object]] = []
        self.is_link_up = False
        self.is_handing_over = False
        self.stream_db = 0
        self.replid = os.urandom(20).hex()
        self.replid2 = NO_ID
        self.second_offset = -1
        self._effects.counter = self._aof
        append_only = host.get(Persistence).append_only
        append_only.replication_offset = lambda: self.offset
        self._tail = append_only.aof.tail
        self.reset_statistics()
        self.apply_settings()
        host.memory_users.append(StreamMemory(self.stream))

    def apply_settings(self) -> None:
        self.backlog_size = self._config.repl_backlog_size
        self.stream.limit_backlog(self.backlog_size)

    def reset_statistics(self) -> None:
        self.stream.sent_bytes = 0
        self.output_rate = Rate()

    def cron(self, now_ms: int) -> None:
        self.output_rate.sample(time.monotonic(), self.stream.sent_bytes)

    @property
    def is_replica(self) -> bool:
        """Whether this server is a replica. The dispatcher knows, since the data depends on it."""
        return self._host.dispatcher.is_replica

    # --- The history --------------------------------------------------------------------------------------------------

    @property
    def offset(self) -> int:
        """master_repl_offset: bytes of the stream; without a backlog, it grows by the commands in the AOF."""
        counter = self._effects.counter
        assert counter is not None  # noqa: S101
        return counter.offset

    def change_id(self) -> None:
        """Begin a new history here; nobody can continue the old one."""
        self.replid = os.urandom(20).hex()
        self.replid2 = NO_ID
        self.second_offset = -1

    def branch_off(self) -> None:
        """Begin a new history that continues the one so far."""
        self.replid2, self.second_offset = self.replid, self.offset + 1
        self.replid = os.urandom(20).hex()
        log.info(
            "Setting secondary replication ID to %s, valid up to offset: %d. New replication ID is %s",
            self.replid2, self.second_offset, self.replid,
        )  # fmt: skip

    def restore(self, replid: str, offset: int) -> None:
        """Data was loaded that ends at this point of a history."""
        self.open_backlog(offset)
        self._tail.renumber(offset)
        self.replid = replid

    def report_deleted(self, places: Iterable[tuple[int, bytes]]) -> None:
        """Keys of these databases were deleted, as far as replicas are concerned, which may continue where they were."""
        for index, key in places:
            self.stream.take_effects([Effect(index, [b"DEL", key])], 0)

    # --- The backlog --------------------------------------------------------------------------------------------------

    @property
    def has_backlog(self) -> bool:
        return self.stream.is_open

    def open_backlog(self, offset: int | None = None) -> None:
        """Start to keep the stream, behind `offset`; None: where it is."""
        self.stream.open(self.offset if offset is None else offset)
        self._effects.counter = self.stream
        self._follow_role()

    def close_backlog(self) -> None:
        """Forget the stream; there must be no replicas."""
        self._aof.offset = self.stream.offset
        self._effects.counter = self._aof
        self.stream.close()
        self._follow_role()

    def _follow_role(self) -> None:
        is_source = self.stream.is_open and not self.is_replica and not self.is_silent
        self._effects.set_replicas((*((self.stream,) if is_source else ()), *self._sinks))

    def add_sink(self, sink: EffectSink) -> None:
        """From now on, pass the stream of replicas to this receiver as well, whether or not a replica is connected."""
        self._sinks.append(sink)
        self._follow_role()

    def remove_sink(self, sink: EffectSink) -> None:
        if sink in self._sinks:
            self._sinks.remove(sink)
            self._follow_role()

    def change_silence(self, is_silent: bool) -> None:
        """Be silent from now on, or not."""
        self.is_silent = self._host.dispatcher.keeps_keys = is_silent
        self._follow_role()

    def say(self, words: list[bytes]) -> None:
        """Put a command that changes nothing into the stream: PING, REPLCONF GETACK."""
        if not (self.is_replica or self.is_silent or self.is_handing_over):
            self.stream.append(words)

    # --- Roles --------------------------------------------------------------------------------------------------------

    def follow(self, is_replica: bool) -> None:
        """Become a replica, or a primary: its own effects feed the stream only while it is a primary."""
        self._host.dispatcher.is_replica = is_replica
        self.is_link_up = False
        self._follow_role()
        for observer in self.role_observers:
            observer()

    def promote(self) -> None:
        """A replica has become a primary: its replicas reconnect, and continue."""
        self.disconnect_replicas()
        self.branch_off()
        self.follow(False)
        self.stream.select_again()

    def return_to_branch(self) -> None:
        """Nothing has happened since the last `branch_off`: have the history of before."""
        if self.second_offset == self.offset + 1:
            self.replid, self.replid2, self.second_offset = self.replid2, NO_ID, -1

    def adopt(self, replid: str, offset: int) -> None:
        """A primary's data has been loaded: this is the server's history now."""
        self.disconnect_replicas()
        self.change_id()
        self.restore(replid, offset)

    def continue_as(self, replid: str) -> None:
        """The primary has branched off from the history that this replica has, and it continues there."""
        if replid != self.replid:
            self.disconnect_replicas()
            self.replid2, self.second_offset = self.replid, self.offset + 1
            self.replid = replid
        if not self.stream.is_open:
            self.open_backlog()

    def feed_raw(self, data: bytes) -> None:
        """Complete commands of the primary have been executed: pass them on."""
        self.stream.append_raw(data)
        self.send()

    def send(self) -> None:
        """Send replicas what is new in this turn."""
        for replica in self.replicas.values():
            if replica.is_fed:
                replica.client.send_later()

    def disconnect_replicas(self) -> None:
        """Close the connections of all replicas: what they have may not be what is here."""
        for replica in list(self.replicas.values()):
            replica.close()

    def snapshot_aux(self) -> dict[str, str | int]:
        """What a snapshot made now says of the stream."""
        if not self.stream.is_open:
            return {}
        stream_db = self.stream_db if self.is_replica else max(self.stream.selected, 0)
        place: dict[str, str | int] = {"repl-stream-db": stream_db, "repl-id": self.replid, "repl-offset": self.offset}
        for find_more in self.more_aux:
            place |= find_more()
        return place
