"""`streamd cluster`: a cluster on this machine, and the first steps of any other. The work is done in `streamd/clustering`."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

from streamd.cli.exit_status import STOPPED
from streamd.cli.one_line import errors_in_one_line, say
from streamd.cli.stop_signal import StopSignal
from streamd.client.place import Place
from streamd.clustering.cluster_error import StopRequestedError
from streamd.clustering.deadline_waits import Patience
from streamd.clustering.forming import form, wait_for_agreement
from streamd.clustering.machine.folder import MachineCluster, MemberStatus
from streamd.clustering.machine.node_process import MemberProcess
from streamd.clustering.node_connection import Node
from streamd.clustering.shares import Move

__all__ = ["group", "parse_settings"]

TIMEOUT_S = 60.0
MOVE_TIMEOUT_S = 3600.0
LOOK_S = 0.2

with_folder = click.option(
    "--dir", "folder", type=click.Path(path_type=Path), default="streamd-cluster", show_default=True, metavar="DIR",
    help="The folder of the cluster.",
)  # fmt: skip


@click.group("cluster")
def group() -> None:
    """Start and change a cluster on this machine: a process for each node."""


@contextmanager
def stoppable() -> Iterator[StopSignal]:
    """Look at Ctrl-C and SIGTERM between two steps, so that none is left half done; exit status 130 when one came."""
    numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:  # nohup
        numbers.remove(signal.SIGHUP)
    with StopSignal(*numbers) as stop, errors_in_one_line():
        try:
            yield stop
        except StopRequestedError:
            say("Stopped.", err=True)
            sys.exit(STOPPED)


def patience(stop: StopSignal, timeout_s: float = TIMEOUT_S) -> Patience:
    def check() -> None:
        if stop.is_requested:
            raise StopRequestedError

    return Patience(check, timeout_s)


def parse_settings(words: Sequence[str]) -> list[tuple[str, ...]]:
    """Settings as on the command line of a server: `--name`, and its arguments. Raises click.UsageError."""
    found: list[list[str]] = []
    for word in words:
        # The first argument of a setting may begin with `--`, too: it may be a password.
        if word.startswith("--") and len(word) > 2 and not (found and len(found[-1]) == 1):
            found.append([word.removeprefix("--")])
        elif not found:
            raise click.UsageError(f"settings are given as --NAME VALUE, not as {word!r}")
        else:
            found[-1].append(word)
    for name, *values in found:
        if not values:
            raise click.UsageError(f"the setting --{name} needs a value")
    return [tuple(each) for each in found]


@group.command("start", context_settings={"ignore_unknown_options": True})
@click.option("--nodes", type=click.IntRange(1), metavar="N", help="Number of nodes.  [default: 3]")
@click.option(
    "--replicas", type=click.IntRange(0), metavar="N", help="Replicas of each primary, among the nodes.  [default: 0]"
)
@with_folder
@click.option("--port", type=click.IntRange(1, 65535), metavar="PORT", help="Port of the first node.  [default: 7000]")
@click.option("--detach", is_flag=True, help="Return when the cluster serves, and leave it running.")
@click.argument("settings", nargs=-1, type=click.UNPROCESSED, metavar="[--SETTING VALUE]...")
def start(
    nodes: int | None, replicas: int | None, folder: Path, port: int | None, detach: bool, settings: tuple[str, ...]
) -> None:
    """Start the cluster of a folder, a new one if the folder holds none.

    Any other option is a setting of all nodes: --appendonly yes. Without --detach the command stays in the foreground, and Ctrl-C stops all
    nodes. When it is killed with SIGKILL they live on, and `streamd cluster stop` ends them.
    """
    given = parse_settings(settings)
    with stoppable() as stop:
        cluster = MachineCluster(folder, patience(stop))
        processes = cluster.start(nodes, replicas, port, given)
        show(cluster.status())
        say(f"Connect: redis-cli -c -p {processes[0].member.port}")
        if detach:
            say(f"Stop:    streamd cluster stop --dir {folder}")
            return
        say("Ctrl-C stops all nodes.")
        sys.stdout.flush()
        if watch(processes, stop):
            say("Stopping.", err=True)
            MachineCluster(folder, Patience()).stop(processes)


def watch(processes: Sequence[MemberProcess], stop: StopSignal) -> bool:
    """Wait for a request to stop, and report nodes that end; False when all have ended by themselves."""
    running = list(processes)
    while not stop.is_requested:
        for each in list(running):
            if each.child is not None and each.child.poll() is not None:
                running.remove(each)
                say(f"The {each} has ended: {each.last_words()}. `streamd cluster start` starts it again.", err=True)
        if not any(each.child is not None for each in running):
            say("All nodes have ended.", err=True)
            return False
        stop.wait(LOOK_S)
    return True


@group.command("stop")
@with_folder
def stop(folder: Path) -> None:
    """Stop all nodes; they save their data as they do on SHUTDOWN."""
    with stoppable() as signals:
        count = MachineCluster(folder, patience(signals)).stop()
    say(f"{count} nodes stopped." if count else "No node was running.")


@group.command("status")
@with_folder
def status(folder: Path) -> None:
    """Show the nodes. Exit status: 0 all serve, 1 not."""
    with errors_in_one_line():
        found = MachineCluster(folder, Patience()).status()
    show(found)
    sys.exit(0 if all(each.state == "ok" for each in found) else 1)


@group.command("add-node")
@with_folder
@click.option(
    "--port", type=click.IntRange(1, 65535), metavar="PORT", help="Its port.  [default: the one after the last]"
)
@click.option(
    "--replica-of", type=click.IntRange(1, 65535), metavar="PORT", help="Make it a replica of the node with this port."
)
def add_node(folder: Path, port: int | None, replica_of: int | None) -> None:
    """Start another node, a primary without slots unless --replica-of is given."""
    with stoppable() as stop:
        process = MachineCluster(folder, patience(stop)).add_node(port, replica_of)
    say(f"The {process} belongs to the cluster.")
    if replica_of is None:
        say(f"It has no slots yet: `streamd cluster rebalance --dir {folder}`")


@group.command("remove-node")
@with_folder
@click.argument("port", type=click.IntRange(1, 65535))
def remove_node(folder: Path, port: int) -> None:
    """Move the slots of the node with PORT to the others, stop it, and remove its folder."""
    with stoppable() as stop:
        MachineCluster(folder, patience(stop, MOVE_TIMEOUT_S)).remove_node(port, report_of(folder))
    say(f"The node {port} has left the cluster.")


@group.command("rebalance")
@with_folder
def rebalance(folder: Path) -> None:
    """Move slots until all primaries have as many."""
    with stoppable() as stop:
        count = MachineCluster(folder, patience(stop, MOVE_TIMEOUT_S)).rebalance(report_of(folder))
    say(f"{count} slots moved.")


@group.command("create")
@click.argument("addresses", nargs=-1, required=True, metavar="HOST:PORT...")
@click.option(
    "--replicas", type=click.IntRange(0), default=0, show_default=True, metavar="N", help="Replicas of each primary."
)
@click.option("--password-env", metavar="NAME", help="Environment variable that holds the password of the nodes.")
def create(addresses: tuple[str, ...], replicas: int, password_env: str | None) -> None:
    """Make running nodes one cluster, on any machines; wait until they answer. Nodes that already are one are left alone."""
    password = os.environ.get(password_env) if password_env else None
    if password_env and password is None:
        raise click.UsageError(f"the environment has no {password_env}")
    with stoppable() as stop:
        waiting = patience(stop)
        nodes = [resolved(each, password, waiting) for each in addresses]
        ids = {node.id for node in nodes}
        if len(ids) > 1 and all(ids <= node.nodes().keys() for node in nodes):
            wait_for_agreement(nodes, waiting)
            say("The nodes are a cluster already.")
            return
        form(nodes, replicas, waiting)
    say(f"{len(nodes)} nodes are a cluster. Connect: redis-cli -c -h {nodes[0].place.host} -p {nodes[0].place.port}")


def resolved(address: str, password: str | None, waiting: Patience) -> Node:
    """A node at an address, once it answers. Nodes meet by IP addresses, so a name is looked up."""
    place = Place.from_url(f"redis://{address}")
    found: list[str] = []

    def answers() -> bool:
        try:
            found[:] = [str(socket.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)[0][4][0])]
        except socket.gaierror:
            return False  # its container may still start
        node = Node(Place(found[0], place.port))
        try:
            return node.answers()
        finally:
            node.close()

    waiting.wait(answers, lambda: f"The node {address} does not answer: check the address")
    return Node(Place(found[0], place.port, password=password))


def report_of(folder: Path) -> Callable[[Move], None]:
    """Prints a line for each move."""
    ports = {each.id: each.port for each in MachineCluster(folder, Patience()).record().members}

    def report(move: Move) -> None:
        say(f"{len(move.slots)} slots from {ports.get(move.source)} to {ports.get(move.target)}")

    return report


def show(found: Sequence[MemberStatus]) -> None:
    """Print the nodes as a table."""
    ports = {each.member.id: each.member.port for each in found}
    rows = [("PORT", "PID", "ROLE", "STATE", "SLOTS", "KEYS", "MEMORY", "ID")]
    for each in found:
        view = each.view
        if view is None:
            rows.append((str(each.member.port), "-", "-", each.state, "-", "-", "-", each.member.id[:8]))
            continue
        role = "primary" if view.primary_id is None else f"replica of {ports.get(view.primary_id, view.primary_id[:8])}"
        rows.append(
            (
                str(each.member.port), each.pid, role, each.state, str(len(view.slots)) if view.is_primary else "-",
                str(each.keys), each.memory, each.member.id[:8],
            )
        )  # fmt: skip
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        say("  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)).rstrip())
    primaries = sum(each.view is not None and each.view.is_primary and bool(each.view.ranges) for each in found)
    if primaries < 3 and any(each.view is not None and each.view.primary_id for each in found):
        say(f"With {primaries} primaries no replica takes over by itself: that needs three.")
