"""Rounds with real servers and Sentinels are paths of the model that tests/support/failover/protocol.py searches.

While a round is played, INFO of all nodes is read again and again: whether a node's view is established, the view that it has joined, and
that of its data. Views are compared by their order. Then the model has to get from each of these looks to the next one.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.failover.faults import HIDE, KILL, SWITCH, Fault
from support.failover.protocol import Anything, Node, State, tidy
from support.failover.rounds import LOSS_FREE, Cluster, Member, play
from support.servers import target_is_redis
from support.wire import ConnectionClosed

from streamd.replication.standing import NONE, View

pytestmark = [
    pytest.mark.long,
    pytest.mark.real,
    pytest.mark.timeout(400),
    pytest.mark.skipif(target_is_redis(), reason="min-replicas-durable is streamd's"),
]

Seen = tuple[bool, int, int]
"""Of a node: its view is established; the places of the view that it has joined, and of that of its data, among all views seen."""
Look = tuple[Seen | None, ...]
"""Of all nodes; None: it does not answer, or its data is being replaced, which the model does in one step."""


def in_places(rows: Sequence[tuple[bool, View, View] | None]) -> Look:
    views = sorted({view for row in rows if row is not None for view in row[1:]})
    return tuple(None if row is None else (row[0], views.index(row[1]), views.index(row[2])) for row in rows)


# --- What servers show ------------------------------------------------------------------------------------------------------


def ask(member: Member) -> tuple[bool, View, View] | None:
    try:
        with member.node.connect() as wire:
            lines = wire.call("INFO", "replication").value.decode().splitlines()
    except (OSError, ConnectionClosed):
        return None
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    if "durable_view" not in fields or fields.get("master_sync_in_progress") == "1":
        return None
    is_established = fields["durable_view_established"] == "1"
    data = View.parse(fields["durable_data_view"])
    return None if data == NONE else (is_established, View.parse(fields["durable_view"]), data)


ORDERS = (
    "MASTER <-> REPLICA sync: Master accepted a Partial Resynchronization",
    "MASTER <-> REPLICA sync: Finished with success",
    "MASTER MODE enabled",
    "Ready to accept connections",
    "it is taken over first",
)
"""What logs say of the orders of the model: a link was made, a server was promoted, has started, or takes over what it lacks.

The model writes nothing here: instead of taking something over, a primary returns, and its replica makes its link once more.
"""


def count_orders(cluster: Cluster) -> int:
    """How many there have been: more than planned when a busy machine breaks links, or Sentinels take a node for dead."""
    return sum(member.node.log().count(text) for member in cluster.members for text in ORDERS)


class Watcher(threading.Thread):
    """Looks at all nodes until the block is left; keeps looks that held while they were taken, and differ from the one before."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(daemon=True)
        self._members = cluster.members
        self._stopped = threading.Event()
        self.looks: list[Look] = []

    def run(self) -> None:
        while not self._stopped.is_set():
            self.look()
            self._stopped.wait(0.01)

    def look(self) -> None:
        rows = [ask(member) for member in self._members]
        if rows != [ask(member) for member in self._members]:
            return
        look = in_places(rows)
        if look not in self.looks[-1:]:
            self.looks.append(look)

    def __enter__(self) -> Watcher:
        self.look()
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stopped.set()
        self.join()
        self.look()


# --- What the model allows ----------------------------------------------------------------------------------------------------


def row_of(node: Node) -> tuple[bool, View, View]:
    return node.established and node.is_primary, node.own or node.promised, node.data


def shows(state: State, look: Look) -> bool:
    """Whether a state looks like that; views are compared among the nodes that answered."""
    rows = [row if seen is not None else None for row, seen in zip(map(row_of, state.nodes), look, strict=True)]
    return in_places(rows) == look


def _advance(state: State, looks: Sequence[Look], at: int) -> int:
    """How many looks there have been when `at` had been before, and the state shows those that follow."""
    while at < len(looks) and shows(state, looks[at]):
        at += 1
    return at


def count_steps(looks: Sequence[Look], orders: int) -> int:
    """How many steps the model needs to show all looks, one after the other; -1: it cannot."""
    model = Anything(faults=orders, writes=0)
    first = tidy(model.first())
    assert shows(first, looks[0]), looks[0]
    number = itertools.count()
    queue = [(-_advance(first, looks, 0), 0, next(number), first)]
    done = {(first, -queue[0][0])}
    while queue:
        reached, steps, _, state = heapq.heappop(queue)
        if -reached == len(looks):
            return steps
        for _, after in model.steps(state):
            after = tidy(after)
            at = _advance(after, looks, -reached)
            if (after, at) not in done:
                done.add((after, at))
                heapq.heappush(queue, (-at, steps + 1, next(number), after))
    return -1


@pytest.mark.parametrize("fault", [KILL, SWITCH, HIDE], ids=lambda fault: fault.name)
def test_a_round_is_a_path_of_the_model(tmp_path: Path, fault: Fault) -> None:
    with Cluster(tmp_path, ["streamd"] * 3, mode=LOSS_FREE) as cluster, Watcher(cluster) as watcher:
        before = count_orders(cluster)
        result = play(cluster, fault, seed=1)
        orders = count_orders(cluster) - before
    assert not result.wrong
    looks = [look for look in watcher.looks if any(look)]
    print(orders, *looks, sep="\n")
    assert len(looks) > 2
    # One more than the logs have: a link can break, and its primary begin another view, before its replica logs it.
    assert count_steps(looks, orders + 1) >= 0


def test_a_primary_that_is_established_alone_is_no_path_of_the_model() -> None:
    alone = (True, 1, 1), (False, 0, 0), (False, 0, 0)
    together = (True, 1, 1), (False, 1, 1), (False, 0, 0)
    first = (True, 0, 0), (False, 0, 0), (False, 0, 0)
    assert count_steps([first, together], orders=3) > 0
    assert count_steps([first, alone], orders=3) < 0
