"""What happens to the nodes of a `Cluster` in a round: see support.failover.rounds."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..replicas.network import CLIENTS
from ..replicas.nodes import DEADLINE_S, wait_until
from ..servers import Server
from .cluster import NO_ANSWER, SERVICE, Cluster, Member

__all__ = [
    "AHEAD",
    "COMMAND",
    "FAULTS",
    "HIDE",
    "ISOLATE_WITH_CLIENTS",
    "KILL",
    "KILL_LAGGING",
    "NEW_SENTINELS",
    "POWER_CUT",
    "RESTART",
    "RESTART_REPLICA",
    "RETURN",
    "SWITCH",
    "TWO_DEATHS",
    "Fault",
]

Strike = Callable[[Cluster, Any, random.Random], Member | None]
Heal = Callable[[Cluster, Any, random.Random], None]


@dataclass(frozen=True)
class Fault:
    """Something that happens to a node.

    target      whom it strikes: primary, replica, sentinel
    failovers   how often the Sentinels replace the primary
    strike      does it; returns the primary whose replacement is to be waited for, if that is not the victim
    heal        brings processes back, or the network; the roles of nodes are seen to later
    absent      how many data nodes are away until it is healed, or out of the reach of the Sentinels
    is_patient  the roles of those who come back are left to the Sentinels, which takes them 10 s and more
    is_cut_off  clients reach a primary that reaches nobody else
    is_simple   one node fails or is cut off, and another one that lives takes over; or no primary is replaced at all
    """

    name: str
    target: str
    failovers: int
    strike: Strike
    heal: Heal
    absent: int = 1
    is_patient: bool = False
    is_cut_off: bool = False
    is_simple: bool = True


# --- Strikes ------------------------------------------------------------------------------------------------------------


def _kill(cluster: Cluster, victim: Any, chance: random.Random) -> None:
    victim.kill()


def _freeze(cluster: Cluster, victim: Any, chance: random.Random) -> None:
    _process(victim).process.send_signal(signal.SIGSTOP)


def _lag_and_kill(cluster: Cluster, victim: Member, chance: random.Random) -> None:
    """It dies with writes that no replica has received."""
    cluster.network.cut([(victim.name, member.name) for member in cluster.members if member is not victim])
    # Clients that wait for replicas write nothing more after their first.
    offset, until = victim.node.offset, time.monotonic() + (0.3 if cluster.mode.durable else DEADLINE_S)
    wait_until(lambda: victim.node.offset > offset + 10_000 or time.monotonic() > until, "writes")
    victim.kill()
    cluster.network.heal(drop=True)


def _isolate(cluster: Cluster, victim: Any, chance: random.Random) -> None:
    """Nobody reaches it, clients included."""
    cluster.network.cut([(victim.name, name) for name in (*_others(cluster, victim), CLIENTS)])


def _isolate_with_clients(cluster: Cluster, victim: Any, chance: random.Random) -> None:
    """Clients reach it, other nodes do not: it goes on as if nothing had happened."""
    cluster.network.cut([(victim.name, name) for name in _others(cluster, victim)])


def _hide(cluster: Cluster, victim: Any, chance: random.Random) -> None:
    """Only the Sentinels do not reach it, so they replace a primary that works and has its replicas."""
    cluster.network.cut([(victim.name, sentinel.name) for sentinel in cluster.sentinels])


def _switch(cluster: Cluster, victim: Member, chance: random.Random) -> None:
    """SENTINEL FAILOVER: a living primary is replaced on purpose."""

    def is_ordered() -> bool:
        with chance.choice(cluster.sentinels).connect(timeout_s=DEADLINE_S) as wire:
            return bool(wire.call("SENTINEL", "FAILOVER", SERVICE).value == b"OK")

    wait_until(is_ordered, "a Sentinel that begins a fail-over")


def _command(cluster: Cluster, victim: Member, chance: random.Random) -> None:
    """FAILOVER, of which the Sentinels know nothing: they replace the old primary half a minute later. Clients are told."""

    def is_done() -> bool:
        if not victim.followed():
            victim.node.call("FAILOVER")
        return bool(victim.followed())

    wait_until(is_done, "the end of FAILOVER")
    cluster.told = int(victim.followed())


def _kill_with_replica(cluster: Cluster, victim: Member, chance: random.Random) -> None:
    """It and a replica die; what the third one may lack is on their disks."""
    chance.choice(cluster.replicas()).kill()
    victim.kill()


def _kill_two(cluster: Cluster, victim: Member, chance: random.Random) -> Member:
    """It dies, and its successor as well before it has come back."""
    victim.kill()
    cluster.wait_until_primary_is_not(victim)
    successor = cluster.primary()
    _wait_for_writes(cluster, successor)
    successor.kill()
    return successor


def _cut_power(cluster: Cluster, victim: Member, chance: random.Random) -> None:
    """All nodes die at once."""
    for member in cluster.members:
        member.note_role()
    for member in cluster.members:
        member.node.kill()


def _kill_successor_of_one_ahead(cluster: Cluster, victim: Member, chance: random.Random) -> Member:
    """It is cut off and writes what nobody confirms; it comes back as a replica when its successor dies."""
    _isolate_with_clients(cluster, victim, chance)
    offset = victim.node.offset
    with victim.node.connect() as wire:
        for _ in range(1000):
            wire.send("XADD", "unconfirmed", "*", "v", b"x" * 1000)
        wait_until(lambda: victim.node.offset > offset + 500_000, "what nobody confirms")
    cluster.wait_until_primary_is_not(victim)
    successor = cluster.primary()
    _wait_for_writes(cluster, successor)
    cluster.network.heal(drop=True)
    cluster.follow(victim, successor)
    successor.kill()
    return successor


def _replace_sentinels(cluster: Cluster, victim: Any, chance: random.Random) -> None:
    """One after the other is replaced by one with another identity, as pods without a volume are."""
    replicas, others = len(cluster.members) - 1, len(cluster.sentinels) - 1
    for number in range(len(cluster.sentinels)):
        cluster.replace_sentinel(number)
        newcomer = cluster.sentinels[number]
        wait_until(partial(newcomer.knows, replicas, others), "a Sentinel that knows all")


def _restart(cluster: Cluster, victim: Member, chance: random.Random) -> None:
    """As an upgrade does, before the Sentinels take it for dead."""
    victim.stop()
    victim.start()


def _wait_for_writes(cluster: Cluster, member: Member) -> None:
    """Wait until clients have written something to a new primary, if the replicas that are left are enough for it."""
    if len(cluster.members) - 2 < cluster.mode.needed_among(len(cluster.members) - 1):
        return
    seen: list[int] = []

    def has_more() -> bool:
        with suppress(*NO_ANSWER):
            seen.append(member.node.offset)
        return bool(seen) and seen[-1] > seen[0] + 10_000

    wait_until(has_more, f"writes to {member}")


# --- Cures --------------------------------------------------------------------------------------------------------------


def _start(cluster: Cluster, victim: Any, chance: random.Random) -> None:
    """Start all that are dead, in any order, as they were."""
    for member in chance.sample(cluster.members, len(cluster.members)):
        if not member.node.is_running:
            member.start()


def _start_staggered(cluster: Cluster, victim: Member, chance: random.Random) -> None:
    """Start all, one much later than another: sometimes the Sentinels have made the first one the primary by then."""
    first, *others = chance.sample(cluster.members, len(cluster.members))
    first.start()
    if first is not victim and chance.random() < 0.5:
        cluster.wait_until_primary_is_not(victim)
    for member in others:
        member.start()


def _thaw(cluster: Cluster, victim: Any, chance: random.Random) -> None:
    _process(victim).process.send_signal(signal.SIGCONT)


def _heal(cluster: Cluster, victim: Any, chance: random.Random) -> None:
    cluster.network.heal(drop=chance.random() < 0.5)


def _leave(cluster: Cluster, victim: Any, chance: random.Random) -> None:
    """There is nothing to heal."""


def _forget_sentinels(cluster: Cluster, victim: Any, chance: random.Random) -> None:
    """SENTINEL RESET: Sentinels count those who were replaced until then."""
    for sentinel in cluster.sentinels:
        sentinel.ask("RESET", SERVICE)


def _others(cluster: Cluster, victim: Any) -> list[str]:
    names = [*(member.name for member in cluster.members), *(sentinel.name for sentinel in cluster.sentinels)]
    return [name for name in names if name != victim.name]


def _process(victim: Any) -> Server:
    return victim.node if isinstance(victim, Member) else victim


KILL = Fault("kill primary", "primary", 1, _kill, _start)
KILL_LAGGING = Fault("kill lagging primary", "primary", 1, _lag_and_kill, _start)
FREEZE = Fault("freeze primary", "primary", 1, _freeze, _thaw)
ISOLATE = Fault("isolate primary", "primary", 1, _isolate, _heal)
ISOLATE_WITH_CLIENTS = Fault(
    "isolate primary with clients", "primary", 1, _isolate_with_clients, _heal, is_cut_off=True
)
HIDE = Fault("hide primary from sentinels", "primary", 1, _hide, _heal, is_simple=False)
SWITCH = Fault("planned switch", "primary", 1, _switch, _leave, absent=0, is_simple=False)
COMMAND = Fault("FAILOVER beside sentinels", "primary", 1, _command, _leave, absent=0, is_patient=True, is_simple=False)
RETURN = Fault(
    "return of the dead", "primary", 1, _kill_with_replica, _start, absent=2, is_patient=True, is_simple=False
)
TWO_DEATHS = Fault("two deaths", "primary", 2, _kill_two, _start, absent=2, is_simple=False)
POWER_CUT = Fault("power cut", "primary", 0, _cut_power, _start_staggered, absent=3, is_patient=True, is_simple=False)
AHEAD = Fault("one that is ahead", "primary", 2, _kill_successor_of_one_ahead, _start, is_cut_off=True, is_simple=False)
RESTART = Fault("restart primary", "primary", 0, _restart, _leave, absent=0, is_patient=True, is_simple=False)
KILL_REPLICA = Fault("kill replica", "replica", 0, _kill, _start)
RESTART_REPLICA = Fault("restart replica", "replica", 0, _restart, _leave, absent=0)
FREEZE_REPLICA = Fault("freeze replica", "replica", 0, _freeze, _thaw)
ISOLATE_REPLICA = Fault("isolate replica", "replica", 0, _isolate, _heal)
ISOLATE_SENTINEL = Fault("isolate sentinel", "sentinel", 0, _isolate, _heal, absent=0)
NEW_SENTINELS = Fault("replace sentinels", "sentinel", 0, _replace_sentinels, _forget_sentinels, absent=0)
FAULTS = {
    fault.name: fault
    for fault in (
        KILL, KILL_LAGGING, FREEZE, ISOLATE, ISOLATE_WITH_CLIENTS, HIDE, SWITCH, COMMAND, RETURN, TWO_DEATHS, POWER_CUT, AHEAD, RESTART,
        KILL_REPLICA, RESTART_REPLICA, FREEZE_REPLICA, ISOLATE_REPLICA, ISOLATE_SENTINEL, NEW_SENTINELS,
    )
}  # fmt: skip
