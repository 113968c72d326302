"""What may ail a cluster as a whole: slots, nodes, shares, a stream that is too much for one node. Each check takes a `ClusterCase`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from streamd.client.key_slots import SLOT_COUNT
from streamd.watching.case import Thresholds
from streamd.watching.changes import change_of_stream
from streamd.watching.cluster_reading import ClusterLook, NodeLook
from streamd.watching.findings import Finding, counted, number, per_second, size, word

__all__ = ["CLUSTER_CHECKS", "ClusterCase"]

LEAST_BYTES = 64 * 1024 * 1024
LEAST_PER_S = 100.0
"""Below these, an uneven share does not matter."""


@dataclass
class ClusterCase:
    """What was seen of a cluster, in order of time."""

    looks: Sequence[ClusterLook]
    thresholds: Thresholds

    @property
    def look(self) -> ClusterLook:
        """The last one."""
        return self.looks[-1]

    @property
    def seconds(self) -> float:
        return self.looks[-1].at_s - self.looks[0].at_s

    def rate(self, node: NodeLook, name: str) -> float:
        """By how much a figure of a node grew each second."""
        first = self.looks[0].find(node.node.id)
        if first is None or first.look is None or node.look is None or self.seconds <= 0:
            return 0.0
        return max(0, node.look.number(name) - first.look.number(name)) / self.seconds


def nodes_down(case: ClusterCase) -> Iterator[Finding]:
    """Nodes that do not answer, or that the others believe to have failed."""
    for each in case.look.nodes:
        if each.look is not None and each.node.health != "fail":
            continue
        serves = each.shard.primary
        is_lost = serves is None or (serves.id == each.node.id and each.look is None)
        why = each.problem or f"The other nodes see it as {each.node.health}."
        yield Finding(
            "critical" if is_lost else "warning", "node-down", f"{role_of(each)} {each.node}", why,
            "Nobody serves its slots until it returns or a replica takes over." if is_lost
            else "Its shard has a copy less: another failure may lose data, and stop the shard.",
            (f"# start it again; or, at another node: CLUSTER FORGET {each.node.id}",),
            each.shard.slots, {"node": each.node.id, "health": each.node.health},
        )  # fmt: skip


def role_of(each: NodeLook) -> str:
    return "primary" if each.node.is_primary else "replica"


def slots_uncovered(case: ClusterCase) -> Iterator[Finding]:
    """Slots that nobody serves."""
    assigned = sum(shard.slots for shard in case.look.shards)
    lost = sum(shard.slots for shard in case.look.shards if shard.primary is None)
    uncovered = SLOT_COUNT - assigned + lost
    if not uncovered:
        return
    full = any(each.state.get("cluster_state") == "fail" for each in case.look.nodes)
    unassigned = f"{number(SLOT_COUNT - assigned)} belong to no node" if SLOT_COUNT - assigned else ""
    failed = f"{number(lost)} to primaries that have failed" if lost else ""
    yield Finding(
        "critical", "slots-uncovered", counted(uncovered, "slot"),
        f"Of {number(SLOT_COUNT)} slots, {' and '.join(filter(None, (unassigned, failed)))}.",
        "All requests are refused (CLUSTERDOWN) until they are covered." if full
        else "Requests for keys in these slots are refused (CLUSTERDOWN).",
        (f"# start the failed primaries; or: redis-cli --cluster fix {case.look.primaries[0].node}",),
        uncovered, {"slots": uncovered, "unassigned": SLOT_COUNT - assigned, "failed": lost},
    )  # fmt: skip


def skews(case: ClusterCase) -> Iterator[Finding]:
    """A primary with much more than the mean of all."""
    primaries = case.look.primaries
    if len(primaries) < 2:
        return
    measures: Sequence[tuple[str, Callable[[NodeLook], float], float, Callable[[float], str], str]] = (
        ("slots", lambda each: each.shard.slots, 0, number, "# streamd cluster rebalance, or: redis-cli --cluster rebalance {}"),
        ("memory", lambda each: each.look.number("used_memory") if each.look else 0, LEAST_BYTES, size,
         "# find its largest streams by `streamd top --table streams`, and divide them into parts (streamd.partitions)"),
        ("commands", lambda each: case.rate(each, "total_commands_processed"), LEAST_PER_S, per_second,
         "# find its busiest streams by `streamd top --table streams --sort in_per_s`, and divide them into parts"),
    )  # fmt: skip
    for what, measure, least, show, fix in measures:
        figures = [measure(each) for each in primaries]
        mean, most = sum(figures) / len(figures), max(figures)
        if mean <= 0 or most < least or most <= case.thresholds.skew * mean:
            continue
        owner = primaries[figures.index(most)]
        yield Finding(
            "warning", "cluster-skew", f"{what} of {owner.node}",
            f"{show(most)} where the mean of {len(primaries)} primaries is {show(mean)}: {most / mean:.1f} times as much.",
            "The cluster is at its limit when this node is, whatever the others have left.",
            (fix.format(owner.node),), most / mean,
            {"what": what, "node": owner.node.id, "most": most, "mean": mean},
        )  # fmt: skip


def hot_streams(case: ClusterCase) -> Iterator[Finding]:
    """A stream that gets most of the entries of a cluster."""
    rates = {
        key: change.in_per_s for key in case.look.streams if (change := change_of_stream(case.looks, key)) is not None
    }
    total = sum(rates.values())
    if len(case.look.primaries) < 2 or not total:
        return
    key, rate = max(rates.items(), key=lambda each: each[1])
    if rate < LEAST_PER_S or rate <= case.thresholds.hot * total:
        return
    yield Finding(
        "warning", "stream-hot", f"stream {word(key)}",
        f"{per_second(rate)} of {per_second(total)} entries a second are added to it.",
        "A stream is in one slot, on one primary and one core: more nodes do not make it faster.",
        ("# divide it into parts, which spread over all primaries: streamd.partitions, docs/cluster.md",), rate,
        {"stream": key.decode("utf-8", "backslashreplace"), "in_per_s": rate, "share": rate / total},
    )  # fmt: skip


def epochs_differ(case: ClusterCase) -> Iterator[Finding]:
    """Nodes that do not agree, at any look, on who owns which slots in which epoch."""
    found = [disagreement(look) for look in case.looks]
    if not all(found):
        return  # at the next look they agreed: a change was on its way
    who, what = found[-1] or ("", "")
    yield Finding(
        "warning", "epochs-differ", who, what,
        "Clients are sent from one node to another, and writes to the loser of the slots are lost when the nodes agree again.",
        ("CLUSTER NODES", "# check that the nodes reach each other's bus ports; a node that restarted with an old nodes.conf has to meet the others"),
    )  # fmt: skip


def disagreement(look: ClusterLook) -> tuple[str, str] | None:
    """The nodes that disagree, and on what; None: nobody does."""
    views = [each for each in look.nodes if each.view]
    claims: dict[int, list[str]] = {}
    for each in views:
        mine = each.view.get(each.node.id)
        if mine is not None and mine.is_primary and mine.ranges:
            claims.setdefault(mine.config_epoch, []).append(str(each.node))
    for epoch, claimants in claims.items():
        if len(claimants) > 1:
            return " and ".join(claimants), f"These primaries have the same config epoch, {epoch}."
    for each in views:
        for other in views:
            mine, seen = each.view.get(each.node.id), other.view.get(each.node.id)
            if mine is None or seen is None or not mine.is_primary:
                continue
            if mine.ranges != seen.ranges or mine.config_epoch != seen.config_epoch:
                return (
                    f"{each.node} and {other.node}",
                    f"{each.node} claims {counted(len(mine.slots), 'slot')} in epoch {mine.config_epoch}; {other.node} sees"
                    f" {counted(len(seen.slots), 'slot')} in epoch {seen.config_epoch}.",
                )
    return None


CLUSTER_CHECKS = (slots_uncovered, nodes_down, epochs_differ, skews, hot_streams)
