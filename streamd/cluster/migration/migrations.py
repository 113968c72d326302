"""SlotMigrations: atomic slot migration, by which slots change their owner with all their keys at once.

    CLUSTER MIGRATION IMPORT ─▶ Task ─▶ Import (target.py)   on the node that gets the slots
              CLUSTER SYNCSLOTS ─────▶ Handover (source.py)  on the node that has them

A node does one task at a time. Clients are served by the old owner until the new one has everything; then by the new one. When a task fails,
the keys that have arrived are deleted, and the node that imports tries again after a second, until the task is cancelled (CANCEL), or the
owner of a slot changes. Behaviour: Redis 8.6, as seen on running servers.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable, Mapping

from streamd.clients.connections import Connections
from streamd.cluster.bus.nodes import Node
from streamd.cluster.cluster import Cluster
from streamd.cluster.migration.slot_trimming import Trimming
from streamd.cluster.migration.source import Handover
from streamd.cluster.migration.target import Import
from streamd.cluster.migration.tasks import Task, merge_ranges, parse_ranges_text, ranges_text
from streamd.core.capability import Capability
from streamd.core.client import Client
from streamd.core.host import Host
from streamd.core.identity import Identity
from streamd.core.info import Fields
from streamd.errors import CommandError
from streamd.keyspace.commands.expiry import Expiry
from streamd.replication.replication import Replication

__all__ = ["SlotMigrations"]

log = logging.getLogger("streamd")

RETRY_S = 1.0
NOT_STABLE = "ERR all slot states must be STABLE to start a slot migration task."
SLOTS_CHANGED = "Cancelled due to slots configuration updated"


class NodeUser(Identity):
    """Who another node of the cluster is: it may do everything."""

    name = b"internal connection"


class SlotMigrations(Capability):
    """The tasks of this node: at most one at a time, and the last ones that have ended."""

    info = {
        "memory": (
            Fields(
                "mem_cluster_slot_migration_output_buffer mem_cluster_slot_migration_input_buffer"
                " mem_cluster_slot_migration_input_buffer_peak",
                lambda self: (
                    self._handover.unsent if self._handover is not None else 0,
                    self._import.kept_bytes if self._import is not None else 0,
                    self._peak,
                ),
            ),
        ),
    }

    def __init__(self, host: Host) -> None:
        self._host = host
        self._config = host.config
        self._cluster = host.get(Cluster)
        self.rests = not self._cluster.is_on
        self._replication = host.get(Replication)
        self._nodes: dict[int, bytes] = {}  # clients that are other nodes of the cluster: the node by ID of the client
        self._user = NodeUser()
        self._current: Task | None = None
        self._import: Import | None = None
        self._handover: Handover | None = None
        self._ended: list[Task] = []  # the last one first
        self._given_up: list[Task] = []  # what is left of them has to be removed yet
        self._failed_at = 0.0
        self.fail_point: tuple[str, str] | None = None  # DEBUG ASM-FAILPOINT: the step of which connection breaks it
        self._peak = 0
        # On a replica, what its primary imports: the notice of each task, and its slots.
        self._announced: dict[bytes, tuple[bytes, list[tuple[int, int]]]] = {}
        if not self._cluster.is_on:
            return
        self.trimming = Trimming(
            host.databases[0], host.loop, lambda: host.dispatcher.is_busy, self._start_import_if_possible
        )
        host.get(Connections).log_in_node = self.log_in
        self._cluster.view_changed = self._view_changed
        self._cluster.slots_to_delete = self._slots_to_delete
        self._cluster.hand_over_begins = self._abandon
        self._replication.role_observers.append(self._role_changed)
        self._replication.more_aux.append(self._snapshot_aux)
        self._replication.aux_observers.append(self._snapshot_loaded)

    def close(self) -> None:
        for part in (self._import, self._handover):
            if part is not None:
                part.close()
        if self._cluster.is_on:
            self.trimming.close()

    # --- INFO ----------------------------------------------------------------------------------------------------------------

    def describe(self) -> list[tuple[str, int]]:
        """The fields of CLUSTER INFO."""
        trimming = self.trimming
        return [
            ("cluster_slot_migration_active_tasks", int(self._current is not None)),
            ("cluster_slot_migration_active_trim_running", int(trimming.is_running)),
            ("cluster_slot_migration_active_trim_current_job_keys", trimming.keys if trimming.is_running else 0),
            ("cluster_slot_migration_active_trim_current_job_trimmed", trimming.done if trimming.is_running else 0),
            ("cluster_slot_migration_stats_active_trim_started", trimming.started),
            ("cluster_slot_migration_stats_active_trim_completed", trimming.completed),
            ("cluster_slot_migration_stats_active_trim_cancelled", 0),
        ]

    # --- Other nodes as clients ------------------------------------------------------------------------------------------------

    def log_in(self, client: Client, secret: bytes) -> None:
        """AUTH "internal connection": the client is another node of the cluster. Raises CommandError."""
        if secret != self._cluster.core.state.internal_secret:
            raise CommandError("WRONGPASS invalid internal password")
        client.set_authenticated(True, self._user)
        self._nodes[client.id] = b""

    def mark_internal(self, client: Client, is_on: bool) -> None:
        """DEBUG MARK-INTERNAL-CLIENT: let a client send what only other nodes may."""
        if is_on:
            self._nodes.setdefault(client.id, b"")
        else:
            self._nodes.pop(client.id, None)

    def is_node(self, client: Client) -> bool:
        return client.id in self._nodes

    def name_node(self, client: Client, node_id: bytes) -> None:
        """CONF NODE-ID: which node a client is. Raises CommandError."""
        if self._cluster.core.state.find(node_id) is None:
            raise CommandError("ERR unknown node")
        self._nodes[client.id] = node_id

    def client_reset(self, client: Client) -> None:
        self._nodes.pop(client.id, None)

    def client_gone(self, client: Client) -> None:
        self._nodes.pop(client.id, None)
        handover = self._handover
        if handover is None:
            return
        if client is handover.main and handover.task.state != "stream-eof":
            # Later, the other node drops the connection when it has taken the slots: whether it has, the bus tells.
            self._fail(handover.task, handover.task.explain("Main channel - Connection lost"))
        elif client is handover.channel:
            handover.channel_lost()

    # --- Tasks -----------------------------------------------------------------------------------------------------------------

    def find(self, task_id: bytes | None) -> list[Task]:
        """The tasks of STATUS, the newest first: all, or that with an ID."""
        known = [*([self._current] if self._current is not None else []), *self._ended]
        return [task for task in known if task_id is None or task.id == task_id]

    def check_stable(self, slot: int) -> None:
        """Raise CommandError if SETSLOT must not touch a slot, since it is part of a task."""
        if self._current is not None and self._current.has_slot(slot):
            raise CommandError(
                f"ERR Slot {slot} is currently in an active atomic slot migration. CLUSTER SETSLOT cannot be used at this"
                " time. To perform a legacy slot migration instead, first cancel the ongoing task with CLUSTER MIGRATION"
                " CANCEL"
            )
        self.trimming.finish(slot)

    def begin_import(self, ranges: list[tuple[int, int]]) -> bytes:
        """IMPORT: begin to move slots here; returns the ID of the task. Raises CommandError."""
        state = self._cluster.core.state
        if state.myself.is_replica:
            raise CommandError("ERR slot migration not allowed on replica.")
        if state.migrating or state.importing:
            raise CommandError(NOT_STABLE)
        source = self._find_source(ranges)
        if self._current is not None:
            if self._current.state != "failed":
                raise CommandError("ERR another ASM task is already in progress")
            self._cancel(self._current, "Cancelled due to new import requested")
        task_id = os.urandom(20).hex().encode()
        task = Task(
            task_id, merge_ranges(ranges), source.id, state.myself.id, is_import=True, now_ms=self._cluster.now_ms
        )
        task.reached = self._look_at_fail_point
        self._current = task
        log.info("Import task %s created: src=%s, dest=%s, slots=%s", task.id.decode(), source.id.decode(),
                 task.dest.decode(), ranges_text(task.ranges))  # fmt: skip
        self._start_import_if_possible()
        return task_id

    def _find_source(self, ranges: list[tuple[int, int]]) -> Node:
        """The owner of all slots. Raises CommandError."""
        state = self._cluster.core.state
        found: Node | None = None
        for first, last in ranges:
            for slot in range(first, last + 1):
                owner = state.owners[slot]
                if owner is None:
                    raise CommandError(f"ERR slot has no owner: {slot}")
                if owner is state.myself:
                    raise CommandError("ERR this node is already the owner of the slot range")
                if found is not None and owner is not found:
                    raise CommandError("ERR slots belong to different source nodes")
                found = owner
        assert found is not None  # noqa: S101  (a range has a slot)
        return found

    def _start_import_if_possible(self) -> None:
        """Start a task that waits: writes must not be paused, and no key of the slots be about to be deleted."""
        task = self._current
        if task is None or not task.is_import or self._import is not None or task.state != "none":
            return
        if self._host.dispatcher.pause or self.trimming.is_running:
            return
        state = self._cluster.core.state
        source = state.find(task.source)
        if source is None:
            self._cancel(task, "Cancelled due to unknown source node")
            return
        # What an import left that ended with the process: nobody but the owner of the slots has a say about their keys.
        for slot in task.slots():
            if self._host.databases[0].count_in_slot(slot):
                self._trim(task)
                return
        self._import = Import(
            self._host, task, myself=state.myself.id, secret=state.internal_secret, source=source,
            take_over=self._take_over, failed=lambda text: self._fail(task, text),
        )  # fmt: skip
        log.info("Import task %s started for slots: %s", task.id.decode(), ranges_text(task.ranges))
        task.state, task.last_error, task.started_ms = "connecting", "", self._cluster.now_ms
        self._notify(task, "connecting")
        self._host.get(Expiry).has_arrivals = True
        self._import.start()

    def _take_over(self, task: Task) -> None:
        """Everything is here: become the owner."""
        state = self._cluster.core.state
        if state.myself.is_replica or any(owner.id != task.source for owner in self._owners(task)):
            self._cancel(task, SLOTS_CHANGED)
            return
        with self._cluster.input as core:
            self._end(task, "completed")
            core.take_slots(task.slots())
        log.info("Import task %s completed for slots: %s", task.id.decode(), ranges_text(task.ranges))
        self._notify(task, "completed")

    def _owners(self, task: Task) -> set[Node]:
        """The nodes that own slots of a task; its own source does not count when nobody does."""
        owners = self._cluster.core.state.owners
        return {owner for slot in task.slots() if (owner := owners[slot]) is not None}

    # --- The source ------------------------------------------------------------------------------------------------------------

    def begin_handover(self, client: Client, task_id: bytes, ranges: list[tuple[int, int]]) -> None:
        """SYNC: another node gets slots of this one. Raises CommandError."""
        state = self._cluster.core.state
        dest = self._nodes[client.id]
        if not dest:
            raise CommandError("ERR the node has not sent its ID")
        if state.myself.is_replica:
            raise CommandError("ERR slot migration not allowed on replica.")
        for first, last in ranges:
            if any(state.owners[slot] is not state.myself for slot in range(first, last + 1)):
                raise CommandError("ERR this node is not the owner of the slots")
        if state.migrating or state.importing:
            raise CommandError(NOT_STABLE)
        if self._current is not None:
            raise CommandError("NOTREADY another ASM task is already in progress")
        if self.trimming.is_running or self._host.dispatcher.pause:
            raise CommandError("NOTREADY the slots cannot be handed over now")
        task = Task(task_id, merge_ranges(ranges), state.myself.id, dest, is_import=False, now_ms=self._cluster.now_ms)
        task.reached = self._look_at_fail_point
        self._ended = [each for each in self._ended if each.id != task_id]
        self._current = task
        self._handover = Handover(self._host, task, client, lambda text: self._fail(task, task.explain(text)))
        log.info("Migrate task %s created: src=%s, dest=%s, slots=%s", task_id.decode(), task.source.decode(),
                 dest.decode(), ranges_text(task.ranges))  # fmt: skip
        self._notify(task, task.state)

    def open_channel(self, client: Client, task_id: bytes) -> None:
        """RDBCHANNEL: the second connection of a task. Raises CommandError."""
        handover = self._handover
        if handover is None or handover.task.id != task_id or handover.task.state != "wait-rdbchannel":
            raise CommandError("ERR no task waits for this channel")
        handover.open_channel(client)
        self._host.loop.call_soon(self._begin_snapshot)

    def _begin_snapshot(self) -> None:
        if self._handover is not None:
            self._handover.begin_if_possible()

    def acknowledge(self, client: Client, applied: int) -> None:
        """ACK."""
        if self._handover is not None and client is self._handover.main:
            self._handover.acknowledge(applied)

    def peer_failed(self, client: Client, reason: str) -> None:
        """FAIL: the other node gives up."""
        handover = self._handover
        if handover is not None and client in (handover.main, handover.channel):
            self._fail(handover.task, handover.task.explain(f"The target has failed: {reason}"))

    def _look_at_fail_point(self, channel: str, state: str) -> None:
        """A task has begun a step: break the connection if it is the one of the fail point."""
        if (channel, state) == self.fail_point:
            log.info("Fail point active: channel=%s, state=%s", channel, state)
            is_main = channel.endswith("main-channel")
            if self._import is not None:
                self._import.break_off(is_main)  # at once: all that the step waits for may have arrived
            else:
                self._host.loop.call_soon(self._break, is_main)

    def _break(self, is_main: bool) -> None:
        if self._handover is not None:
            self._handover.break_off(is_main)

    # --- The end of a task -----------------------------------------------------------------------------------------------------

    def cancel(self, task_id: bytes | None) -> int:
        """CANCEL: all tasks, or that with an ID; returns how many."""
        task = self._current
        if task is None or (task_id is not None and task.id != task_id):
            return 0
        self._cancel(task, "Cancelled due to user request")
        return 1

    def _cancel(self, task: Task, reason: str) -> None:
        self._fail(task, task.explain(reason), is_final=True)

    def _fail(self, task: Task, text: str, *, is_final: bool = False) -> None:
        """A task cannot go on: it ends, or is tried again."""
        if task is not self._current or task.has_ended:
            return
        was_running = self._import is not None or self._handover is not None
        task.last_error = text
        log.warning("%s task %s failed: slots=%s, err=%s", task.operation.capitalize(), task.id.decode(),
                    ranges_text(task.ranges), text)  # fmt: skip
        if is_final or not task.is_import:
            self._end(task, "canceled" if is_final else "failed")
        else:
            self._stop()
            task.state = "failed"
            self._failed_at = time.monotonic()
        if was_running:
            self._given_up.append(task)
            self._clean_up()

    def _clean_up(self) -> None:
        """Tell replicas of tasks that were given up, and delete what has arrived.

        Not while a replica takes over at the present offset: it deletes the keys itself when it is the primary.
        """
        if self._replication.is_handing_over:
            return
        given_up, self._given_up = self._given_up, []
        for task in given_up if not self._replication.is_replica else ():
            self._notify(task, "failed")
            if task.is_import:
                self._trim(task)

    def _end(self, task: Task, state: str) -> None:
        """A task has ended."""
        task.end(state, self._cluster.now_ms)
        self._stop()
        self._current = None
        self._ended.insert(0, task)
        del self._ended[self._config.cluster_slot_migration_max_archived_tasks :]

    def _stop(self) -> None:
        """Drop the connections of the present task."""
        importing, self._import = self._import, None
        handover, self._handover = self._handover, None
        if importing is not None:
            self._host.get(Expiry).has_arrivals = False
            self._peak = max(self._peak, importing.peak)
            importing.close()
        if handover is not None:
            handover.close()

    def _abandon(self) -> None:
        """This node is handing over to a replica."""
        if self._current is not None:
            self._cancel(self._current, "Cancelled due to manual failover")

    def data_dropped(self) -> None:
        """FLUSHALL, on either side: what has been sent is not what is here any more."""
        if not self._cluster.is_on:
            return
        self.trimming.forget()
        task = self._current
        if task is not None and (self._import is not None or self._handover is not None):
            self._fail(task, task.explain("Cancelled due to FLUSHALL"), is_final=True)

    # --- What the cluster says -------------------------------------------------------------------------------------------------

    def _view_changed(self) -> None:
        """The owners of slots, or the role of this node, may have changed."""
        for slot in [each for each in self.trimming.slots if self._cluster.shows(each)]:
            self.trimming.finish(slot)
        task = self._current
        if task is None:
            return
        state = self._cluster.core.state
        owners = {owner.id for owner in self._owners(task)}
        if not task.is_import and owners == {task.dest} and task.state == "stream-eof":
            self._end(task, "completed")
            log.info("Migrate task %s completed for slots: %s", task.id.decode(), ranges_text(task.ranges))
            if not self._replication.is_replica:
                self._notify(task, "completed")
                self._trim(task)
        elif owners != {task.source} or state.myself.is_replica:
            self._cancel(task, SLOTS_CHANGED)

    def _slots_to_delete(self, slots: Iterable[int]) -> list[int]:
        """Of slots that this node has lost, those whose keys are neither being deleted yet nor arriving again."""
        busy = set(self.trimming.slots)
        if self._current is not None and self._current.is_import:
            busy.update(self._current.slots())
        return [slot for slot in slots if slot not in busy]

    def _trim(self, task: Task) -> None:
        """Delete the keys of a task's slots: on replicas and in files by one command, here bit by bit."""
        keys = self.trimming.begin(task.slots())
        log.info("Background trim started for slots: %s to trim %d keys.", ranges_text(task.ranges), keys)
        bounds = [b"%d" % bound for run in task.ranges for bound in run]
        self._host.dispatcher.effects.announce([b"TRIMSLOTS", b"RANGES", b"%d" % len(task.ranges), *bounds])

    def _notify(self, task: Task, state: str) -> None:
        """Tell replicas where a task stands."""
        words = [b"CLUSTER", b"SYNCSLOTS", b"CONF", b"ASM-TASK", task.notice(state)]
        self._host.dispatcher.effects.announce(words, is_for_replicas=True)

    # --- On a replica ----------------------------------------------------------------------------------------------------------

    def primary_says(self, notice: bytes) -> None:
        """CONF ASM-TASK in the stream of the primary: should this node take over, an import is not complete."""
        task_id, _, _, operation, state, ranges = notice.split(b":", 5)
        if operation == b"import" and state not in (b"completed", b"failed", b"canceled"):
            self._announced[task_id] = notice, parse_ranges_text(ranges)
        else:
            self._announced.pop(task_id, None)

    def _snapshot_aux(self) -> dict[str, str | int]:
        """What snapshots say of an import, since they contain keys that have arrived."""
        notices = [notice for notice, _ in self._announced.values()]
        if self._import is not None:
            notices = [self._import.task.notice(self._import.task.state)]
        return {"cluster-asm-task": notices[0].decode() if notices else ""}

    def _snapshot_loaded(self, aux: Mapping[str, str]) -> None:
        """The data comes from a snapshot of the primary, or of this replica."""
        self._announced.clear()
        notice = aux.get("cluster-asm-task", "")
        try:
            if notice:
                self.primary_says(notice.encode())
        except ValueError:
            log.warning(
                "Ignoring the field cluster-asm-task of a snapshot, which is no slot migration: %s", notice[:256]
            )

    def _role_changed(self) -> None:
        """Become a primary: delete what the old one was importing."""
        announced, self._announced = self._announced, {}
        if self._replication.is_replica:
            self.trimming.forget()
            return
        for task_id, (_, ranges) in announced.items():
            foreign = [run for run in ranges if not any(map(self._cluster.has_slot, range(run[0], run[1] + 1)))]
            if foreign:
                self._trim(Task(task_id, foreign, b"", b"", is_import=True, now_ms=0))

    # --- Time --------------------------------------------------------------------------------------------------------------------

    def cron(self, now_ms: int) -> None:
        if self._given_up:
            self._clean_up()
        task = self._current
        if task is None:
            return
        self._view_changed()
        if self._handover is not None:
            self._handover.look_after()
        if task.state == "failed" and task.is_import and time.monotonic() - self._failed_at >= RETRY_S:
            task.retries += 1
            task.state = task.channel_state = "none"
        self._start_import_if_possible()

    def each_second(self, now_ms: int) -> None:
        if self._handover is not None:
            self._handover.keep_alive()
