"""The cluster of a folder: starting and stopping it, adding and removing nodes, sharing slots evenly.

What fails or is interrupted leaves nothing behind: of a first start neither processes nor files, of a later one no process that was not
there before.
"""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from streamd.client.client_errors import ServerError, UnreachableError
from streamd.clustering.cluster_error import ClusterError
from streamd.clustering.deadline_waits import Patience
from streamd.clustering.forming import check_counts, form, frequent_pings, meet, wait_for_agreement
from streamd.clustering.machine.checks import (
    check_folder,
    check_identities,
    check_memory,
    check_ports,
    check_settings,
    port_range,
)
from streamd.clustering.machine.node_process import MemberProcess
from streamd.clustering.machine.record import Member, Record, locked, merge_settings, read_record
from streamd.clustering.node_connection import Node
from streamd.clustering.shares import Move, moves_to_balance, moves_to_empty
from streamd.clustering.slot_moves import carry_out
from streamd.clustering.view import NodeView

__all__ = ["MachineCluster", "MemberStatus"]

FIRST_PORT = 7000
DEFAULT_NODES = 3
REACH_TIMEOUT_S = 2.0


@dataclass(frozen=True)
class MemberStatus:
    """
    view   the node as it sees itself; None: it does not run
    state  its cluster_state, or the reason why it does not show one
    """

    member: Member
    view: NodeView | None
    state: str
    pid: str = ""
    keys: int = 0
    memory: str = ""


class MachineCluster:
    """The cluster of a folder.

    patience  how long each wait may last, and what ends it
    """

    def __init__(self, folder: Path, patience: Patience) -> None:
        self.folder = folder
        self._patience = patience

    def record(self) -> Record:
        """Raises ClusterError when the folder holds no cluster."""
        found = read_record(self.folder)
        if found is None:
            raise ClusterError(
                f"{self.folder} holds no cluster: start one with `streamd cluster start --dir {self.folder}`"
            )
        return found

    @contextmanager
    def _locked(self) -> Iterator[Record]:
        """Keep other commands away from the cluster, and return what is recorded then. Raises ClusterError."""
        self.record()
        with locked(self.folder):
            yield self.record()

    # --- Starting ------------------------------------------------------------------------------------------------------------

    def start(
        self, nodes: int | None, replicas: int | None, port: int | None, settings: Sequence[tuple[str, ...]]
    ) -> list[MemberProcess]:
        """Start the nodes that do not run, those of a new cluster if the folder holds none; returns all when they agree.

        None: what is recorded, or the defaults. Raises ClusterError.
        """
        check_settings(settings)
        record = read_record(self.folder)
        if record is None:
            return self._start_new(
                DEFAULT_NODES if nodes is None else nodes, replicas or 0, FIRST_PORT if port is None else port, settings
            )
        for option, given, known in (
            ("nodes", nodes, len(record.members)), ("replicas", replicas, record.replicas), ("port", port, record.members[0].port),
        ):  # fmt: skip
            if given is not None and given != known:
                raise ClusterError(
                    f"The cluster in {self.folder} has --{option} {known}, not {given}: leave the option out, or choose another --dir"
                )
        with locked(self.folder):
            return self._start_again(replace(record, settings=merge_settings(record.settings, settings)))

    def _start_new(
        self, count: int, replicas: int, port: int, settings: Sequence[tuple[str, ...]]
    ) -> list[MemberProcess]:
        check_counts(count, replicas)
        check_folder(self.folder)
        ports = port_range(port, count)
        check_memory(count)
        check_ports(ports)
        existed = self.folder.exists()
        self.folder.mkdir(parents=True, exist_ok=True)
        with locked(self.folder):
            record = Record(self.folder, tuple(map(Member, ports)), replicas, tuple(settings))
            processes = [MemberProcess(record, member) for member in record.members]
            try:
                record.save()
                self._start_all(processes)
                form([each.node for each in processes], replicas, self._patience)
                members = [Member(each.member.port, each.node.id) for each in processes]
                replace(record, members=tuple(members), is_formed=True).save()
            except BaseException:
                for each in processes:
                    each.kill()
                self._remove_all(record, existed=existed)
                raise
        return processes

    def _start_again(self, record: Record) -> list[MemberProcess]:
        check_identities(record)
        processes = [MemberProcess(record, member) for member in record.members]
        absent = [each for each in processes if not each.is_running()]
        if not absent:
            raise ClusterError(
                f"The cluster in {self.folder} is running: `streamd cluster status --dir {self.folder}` shows it"
            )
        check_ports([each.member.port for each in absent])
        try:
            self._start_all(absent)
            nodes = [each.node for each in processes]
            with frequent_pings(nodes):
                wait_for_agreement(nodes, self._patience)
            record.save()
        except BaseException:
            self._end_started(absent)
            raise
        return processes

    def _start_all(self, processes: Sequence[MemberProcess]) -> None:
        for each in processes:
            self._patience.check()
            each.start()
        for each in processes:
            each.wait_until_it_answers(self._patience)
        for each in processes:
            self._check_announced_address(each.node)

    def _check_announced_address(self, node: Node) -> None:
        """Refuse an address under which nobody reaches the node."""
        host = node.setting("cluster-announce-ip")
        if not host:
            return
        port = int(node.setting("cluster-announce-bus-port")) or node.bus_port
        try:
            socket.create_connection((host, port), REACH_TIMEOUT_S).close()
        except OSError as error:
            raise ClusterError(
                f"Nobody reaches the bus of node {node.place.port} at the announced address {host}:{port} ({error}): correct"
                " --cluster-announce-ip, or --bind"
            ) from None

    def _end_started(self, processes: Sequence[MemberProcess]) -> None:
        """Stop what was started here; data that was changed is saved."""
        for each in processes:
            each.node.close()
            if each.child is not None:
                each.child.terminate()
        for each in processes:
            if each.child is not None:
                each.child.wait()

    def _remove_all(self, record: Record, *, existed: bool) -> None:
        for member in record.members:
            shutil.rmtree(record.folder_of(member), ignore_errors=True)
        for name in ("cluster.json", "lock"):
            (self.folder / name).unlink(missing_ok=True)
        if not existed:
            with suppress(OSError):
                os.rmdir(self.folder)

    # --- Stopping ------------------------------------------------------------------------------------------------------------

    def stop(self, started: Sequence[MemberProcess] = ()) -> int:
        """Stop all nodes that run, which save their data; returns how many these were. Raises ClusterError.

        started  processes that this one has started
        """
        with self._locked() as record:
            # A node that died here may have been started again by another command: then that process is the one to wait for.
            known = {each.member.port: each for each in started if each.child is not None and each.child.poll() is None}
            processes = [known.get(each.port) or MemberProcess(record, each) for each in record.members]
            running = [each for each in processes if each.is_running()]
            with ThreadPoolExecutor(max(len(running), 1)) as pool:
                # All at once: a primary that stops waits for its replicas.
                pids = list(pool.map(MemberProcess.request_stop, running))
            for each, pid in zip(running, pids, strict=True):
                self._patience.wait(lambda: each.has_ended(pid), lambda: f"The {each} (process {pid}) does not end")  # noqa: B023
        return len(running)

    # --- What there is ---------------------------------------------------------------------------------------------------------

    def status(self) -> list[MemberStatus]:
        """All nodes, as they see themselves."""
        record = self.record()
        return [self._status_of(MemberProcess(record, member)) for member in record.members]

    def _status_of(self, process: MemberProcess) -> MemberStatus:
        node = process.node
        try:
            if not process.is_running():
                return MemberStatus(process.member, None, "stopped")
            view = node.nodes()[node.id]
            server, memory = node.info("server"), node.info("memory")
            keys = node.ask("DBSIZE")
            return MemberStatus(
                process.member, view, node.cluster_info()["cluster_state"], server["process_id"], keys, memory["used_memory_human"]
            )  # fmt: skip
        except ClusterError:
            return MemberStatus(process.member, None, "another server")
        except (ServerError, UnreachableError) as error:
            return MemberStatus(process.member, None, str(error))
        finally:
            node.close()

    # --- Changing ------------------------------------------------------------------------------------------------------------

    def add_node(self, port: int | None, replica_of: int | None) -> MemberProcess:
        """Start another node: an empty primary, or a replica of the node with a port. Raises ClusterError."""
        with self._locked() as record:
            others = self._running_members(record)
            wanted = port or max(each.port for each in record.members) + 1
            if any(each.port == wanted for each in record.members):
                raise ClusterError(f"The port {wanted} belongs to a node of this cluster: choose another --port")
            primary = None if replica_of is None else record.member_at(replica_of)
            check_memory(1)
            check_ports(port_range(wanted, 1))
            process = MemberProcess(record, Member(wanted))
            if process.folder.exists():
                raise ClusterError(f"{process.folder} exists: remove it, or choose another --port")
            nodes = [*(each.node for each in others), process.node]
            try:
                self._start_all([process])
                with frequent_pings(nodes):
                    meet(nodes, self._patience, [process.node])
                    if primary is not None:
                        process.node.ask("CLUSTER", "REPLICATE", primary.id)
                    wait_for_agreement(nodes, self._patience)
                record.with_members([*record.members, Member(wanted, process.node.id)]).save()
            except BaseException:
                process.kill()
                self._forget(process.node, [each.node for each in others])
                shutil.rmtree(process.folder, ignore_errors=True)
                raise
        return process

    def remove_node(self, port: int, report: Callable[[Move], object]) -> None:
        """Move the slots of a node to the others, let them forget it, stop it, and remove its folder. Raises ClusterError."""
        with self._locked() as record:
            leaving = record.member_at(port)
            nodes = {each.node.id: each.node for each in self._running_members(record)}
            views = nodes[leaving.id].nodes()
            primaries = [each for each in views.values() if each.is_primary]
            others = [node for node_id, node in nodes.items() if node_id != leaving.id]
            with frequent_pings([*nodes.values()]):
                if views[leaving.id].is_primary:
                    if len(primaries) == 1:
                        raise ClusterError(
                            f"The node {port} is the only primary: add another one first, or stop the cluster"
                        )
                    carry_out(moves_to_empty(primaries, leaving.id), nodes, self._patience, report)
                    self._give_away_replicas(leaving.id, nodes)
                wait_for_agreement([*nodes.values()], self._patience)
            self._forget(nodes[leaving.id], others)
            process = MemberProcess(record, leaving)
            record.with_members([each for each in record.members if each != leaving]).save()
            pid = process.request_stop()
            self._patience.wait(lambda: process.has_ended(pid), lambda: f"The {process} (process {pid}) does not end")
            shutil.rmtree(process.folder, ignore_errors=True)

    def rebalance(self, report: Callable[[Move], object]) -> int:
        """Move slots until all primaries have even shares; returns how many have moved. Raises ClusterError."""
        with self._locked() as record:
            nodes = {each.node.id: each.node for each in self._running_members(record)}
            views = next(iter(nodes.values())).nodes()
            moves = moves_to_balance([each for each in views.values() if each.is_primary])
            with frequent_pings([*nodes.values()]):
                carry_out(moves, nodes, self._patience, report)
                wait_for_agreement([*nodes.values()], self._patience)
            return sum(len(move.slots) for move in moves)

    def _running_members(self, record: Record) -> list[MemberProcess]:
        """All nodes, which must run and agree. Raises ClusterError."""
        check_identities(record)
        processes = [MemberProcess(record, member) for member in record.members]
        for each in processes:
            if not each.is_running():
                raise ClusterError(f"The {each} does not run: `streamd cluster start --dir {self.folder}` starts it")
        wait_for_agreement([each.node for each in processes], self._patience)
        return processes

    def _give_away_replicas(self, leaving: str, nodes: dict[str, Node]) -> None:
        """Let the replicas of a node follow the primaries with the fewest replicas."""
        views = nodes[leaving].nodes()
        counts = {each.id: 0 for each in views.values() if each.is_primary and each.id != leaving}
        orphans = []
        for each in views.values():
            if each.primary_id == leaving:
                orphans.append(each.id)
            elif each.primary_id in counts:
                counts[each.primary_id] += 1
        for orphan in orphans:
            primary = min(counts, key=lambda node: counts[node])
            nodes[orphan].ask("CLUSTER", "REPLICATE", primary)
            counts[primary] += 1

    def _forget(self, node: Node, others: Sequence[Node]) -> None:
        with suppress(UnreachableError, ServerError):
            for other in others:
                with suppress(ServerError):  # it has not learnt of the node
                    other.ask("CLUSTER", "FORGET", node.id)
