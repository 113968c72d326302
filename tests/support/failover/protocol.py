"""The protocol of min-replicas-durable, as a model that can be searched to the end.

Three data nodes, three Sentinels, clients that write, and faults. A *state* is a tuple; `Model.steps` lists everything that may happen
next. `search` goes through all states, and returns a way to one that breaks a promise, with as few faults as possible.

    found = search(Model(durable=1, faults=2))
    print(found)

    python -m tests.support.failover.protocol --anything --faults 5      how many states there are, or a trace
    python -m tests.support.failover.protocol --faults 1 --without views
    python -m tests.support.failover.search --faults 3 --writes 1        in C, a hundred times faster

What servers decide about views is not copied: the model calls `streamd.replication.standing.Standing`. Everything else is written out
here: what a stream, a link, a disk and a Sentinel do.

Time is not counted. Whatever may take long may take forever, and of two things that may happen either may be first. The few orders
that timers guarantee are conditions of steps; docs/replication.md lists them under "Verification".

Nodes and Sentinels are interchangeable: states that differ only in who is who are one (`canonical`).
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import Any, NamedTuple

from streamd.replication.standing import NONE, Greeting, Position, Standing, Verdict, View

__all__ = [
    "FAULTS",
    "NOW",
    "Anything",
    "Found",
    "Model",
    "Rules",
    "State",
    "canonical",
    "find_stuck",
    "main",
    "name_of",
    "retrace",
    "search",
    "tidy",
]

UP, FROZEN, DEAD = range(3)
PRIMARY = -1
UNKNOWN = -1
NEVER, HEARD, SILENT = range(3)
THREE = range(3)

Entry = int | View
"""A write, by its number, or the beginning of a view."""


class Node(NamedTuple):
    """A data node.

    life      UP, FROZEN or DEAD
    follows   the node that it is a replica of, or PRIMARY; kept over a restart
    log       what its data consists of, on its disk
    linked    a replica: its primary's stream arrives
    fresh     a primary: it has not been complete since it became one, and refuses data
    hears     a primary: Sentinels were heard NEVER yet, are HEARD, or SILENT
    gone      a primary: how many Sentinels it waits for in vain
    facks     a primary: what each node has confirmed, as a length of the log; UNKNOWN: none of its replicas
    pending   a confirmation of this node that is under way: (primary, length)
    promised  the latest view that it has joined or begun; on its disk
    own       a primary: its view
    established  a primary: that is in its log
    """

    life: int
    follows: int
    log: tuple[Entry, ...]
    linked: bool
    fresh: bool = False
    hears: int = NEVER
    gone: int = 0
    facks: tuple[int, ...] = (UNKNOWN,) * 3
    pending: tuple[int, ...] = ()
    promised: View = NONE
    own: View | None = None
    established: bool = False

    @property
    def is_primary(self) -> bool:
        return self.follows == PRIMARY

    @property
    def data(self) -> View:
        """The view that its data belongs to."""
        return next((each for each in reversed(self.log) if isinstance(each, View)), NONE)

    def standing(self) -> Standing:
        """Its part of the protocol, as the server has it."""
        standing = Standing()
        standing.promised, standing.data, standing.own = self.promised, self.data, self.own
        standing.is_established, standing.begun_at = self.established, len(self.log)
        return standing

    def with_standing(self, standing: Standing) -> Node:
        return self._replace(promised=standing.promised, own=standing.own, established=standing.is_established)

    def with_fack(self, replica: int, length: int) -> Node:
        facks = list(self.facks)
        facks[replica] = length
        return self._replace(facks=tuple(facks))


class Guard(NamedTuple):
    """A Sentinel.

    view   the node that it takes for the primary
    epoch  of the fail-over that made it that
    task   the fail-over that it leads: (node to be promoted, epoch, whether it was, whether an operator has asked for it)
    """

    view: int
    epoch: int
    task: tuple[int, ...] = ()


class State(NamedTuple):
    """
    cuts    who does not hear whom: bits of PAIR and WATCH
    acked   what was acknowledged, as bits
    writes  how many there have been
    faults  how many may still happen
    wrong   the promise that was broken; empty: none
    """

    nodes: tuple[Node, ...]
    guards: tuple[Guard, ...]
    cuts: int = 0
    acked: int = 0
    writes: int = 0
    faults: int = 0
    wrong: str = ""


Steps = Iterator[tuple[str, State]]

PAIR = {(0, 1): 1, (1, 0): 1, (0, 2): 2, (2, 0): 2, (1, 2): 4, (2, 1): 4}
"""Bits of State.cuts: two nodes do not hear each other."""
WATCH = (8, 16, 32)
"""The same of a node and the Sentinels."""
ENDS = {1: (0, 1), 2: (0, 2), 4: (1, 2)}


def _all_cuts() -> dict[int, str]:
    found = {bit: f"{a} and {b} are cut off from each other" for bit, (a, b) in ENDS.items()}
    for n in THREE:
        peers = sum(PAIR[n, m] for m in THREE if m != n)
        found |= {WATCH[n]: f"{n} is cut off from the Sentinels", peers: f"{n} is cut off from the other nodes",
                  peers | WATCH[n]: f"{n} is cut off from all but clients"}  # fmt: skip
    return found


CUTS = _all_cuts()


@dataclass(frozen=True)
class Rules:
    """What keeps the promise. Each can be switched off, to see what it is good for.

    scripts   replies of scripts wait as those of other commands do
    views     there are views; without: a primary is complete when enough replicas have its data, whatever it lacks
    follow    a primary that is not established takes over what a replica has that is ahead of it
    above     a primary that meets a promise for a later view begins another one above that
    rank      of two servers, the one with data of the later view is ahead; without: the one with the greater offset
    chain     a replica does not serve a server that is ahead of it
    disk      promises are on the disk
    mark      a view begins in the stream when it is established; without: when it begins
    forget    a Sentinel that was replaced is forgotten
    """

    scripts: bool = True
    views: bool = True
    follow: bool = True
    above: bool = True
    rank: bool = True
    chain: bool = True
    disk: bool = True
    mark: bool = True
    forget: bool = True

    def without(self, *names: str) -> Rules:
        return replace(self, **dict.fromkeys(names, False))


NOW = Rules()
FAULTS = frozenset({"death", "cut", "freeze", "planned", "power", "order", "sentinel"})
"""
death     a node dies; it may return with the data that it had
cut       two nodes, or a node and others, do not hear each other; that may end
freeze    a node stops; it may go on
planned   SENTINEL FAILOVER: any replica may be chosen, since what a Sentinel knows of offsets may be old
power     all die at once
order     somebody sends REPLICAOF to a node, though no Sentinel wants that
sentinel  a Sentinel is replaced by another one
"""


@dataclass(frozen=True)
class Model:
    """What may happen.

    durable  min-replicas-durable
    rules    that servers keep
    faults   how many there may be, of `kinds`
    writes   how many there may be
    watches  a primary lets no reply go while Sentinels are silent; without, the promise must hold all the same
    calm     no fault ends while a fail-over is under way
    """

    durable: int = 1
    rules: Rules = NOW
    faults: int = 2
    kinds: frozenset[str] = FAULTS
    writes: int = 2
    watches: bool = False
    calm: bool = False

    def first(self) -> State:
        """A primary with two replicas, and Sentinels that know that."""
        hears = HEARD if self.watches else NEVER
        view = View(10, "") if self.rules.views else None
        log: tuple[Entry, ...] = () if view is None else (view,)
        promised = view or NONE
        facks = (UNKNOWN, len(log), len(log))
        primary = Node(UP, PRIMARY, log, False, hears=hears, facks=facks, promised=promised, own=view, established=True)
        replica = Node(UP, 0, log, True, promised=promised)
        return State((primary, replica, replica), (Guard(0, 0),) * 3, faults=self.faults)

    def steps(self, state: State) -> Steps:
        """Everything that may happen next."""
        ends = not self.calm or not any(guard.task for guard in state.guards)
        for n, node in enumerate(state.nodes):
            if node.life == DEAD:
                yield from self._return(state, n) if ends else ()
            elif node.life == FROZEN:
                yield from self._thaw(state, n) if ends else ()
            elif node.is_primary:
                yield from self._lead(state, n)
            else:
                yield from self._follow(state, n)
            if node.pending and node.life == UP:
                yield from self._arrive(state, n)
        yield from self._watch(state)
        if state.cuts and ends:
            yield from self._heal(state)
        if state.faults:
            yield from self._break(state)

    # --- Acknowledgements ---------------------------------------------------------------------------------------------

    def serves(self, node: Node) -> bool:
        """Whether a node lets replies go."""
        return node.life == UP and node.is_primary and not node.fresh and (not self.watches or node.hears != SILENT)

    def settle(self, state: State) -> State:
        """Let all replies go that may go, and look at what must not be.

        A reply that goes at once is the worst case: it changes nothing but what is promised.
        """
        state = self._unfence(state)
        acked, wrong = state.acked, ""
        for n, node in enumerate(state.nodes):
            if not self.serves(node):
                continue
            confirmed = sorted(node.facks)[-self.durable]
            new = _bits(node.log[: max(0, confirmed)]) & ~acked
            acked |= new
            if acked & ~_bits(node.log) and (new or self.is_complete(state, n)):
                wrong = f"{n} acknowledges, and does not have all that was acknowledged"
        if acked and not wrong and acked & ~_bits(entry for node in state.nodes for entry in node.log):
            wrong = "nobody has what was acknowledged"
        if acked == state.acked and not wrong:
            return state
        return state._replace(acked=acked, wrong=wrong)

    def _unfence(self, state: State) -> State:
        """Drop the fences of those that are complete: at once, which is the worst case as well."""
        for n, node in enumerate(state.nodes):
            is_begun = node.established or not self.rules.views
            is_heard = not self.watches or node.hears != SILENT
            is_confirmed = sorted(node.facks)[-self.durable] >= len(node.log)
            if node.life == UP and node.fresh and is_begun and is_heard and is_confirmed:
                nodes = list(state.nodes)
                nodes[n] = node._replace(fresh=False)
                state = state._replace(nodes=tuple(nodes))
        return state

    def is_complete(self, state: State, n: int) -> bool:
        """Whether the node's next write would be acknowledged, if nothing else happened."""
        log = state.nodes[n].log
        ready = 0
        for r, other in enumerate(state.nodes):
            is_fed = other.life == UP and other.follows == n and other.linked
            ready += is_fed and other.log == log and not state.cuts & PAIR[n, r]
        return ready >= self.durable

    # --- Roles --------------------------------------------------------------------------------------------------------

    def _leave(self, state: State, nodes: list[Node], r: int) -> None:
        """A replica's connection ends; its primary sees that unless it is cut off or frozen."""
        node = nodes[r]
        if not node.is_primary:
            primary = nodes[node.follows]
            if primary.life == UP and not state.cuts & PAIR[node.follows, r]:
                nodes[node.follows] = primary.with_fack(r, UNKNOWN)
        nodes[r] = node._replace(linked=False)

    def _hang_up(self, nodes: list[Node], p: int) -> None:
        """All connections of replicas to a node end."""
        for r, node in enumerate(nodes):
            if node.follows == p and node.linked:
                nodes[r] = node._replace(linked=False)

    def _obey(self, state: State, n: int, primary: int) -> tuple[Node, ...]:
        """REPLICAOF another node."""
        nodes = list(state.nodes)
        self._leave(state, nodes, n)
        self._hang_up(nodes, n)
        old = nodes[n]
        nodes[n] = Node(UP, primary, old.log, False, pending=old.pending, promised=old.promised)
        return tuple(nodes)

    def _promote(self, state: State, n: int) -> Iterator[tuple[Node, ...]]:
        """REPLICAOF NO ONE."""
        nodes = list(state.nodes)
        self._leave(state, nodes, n)
        self._hang_up(nodes, n)
        old = nodes[n]
        nodes[n] = Node(UP, PRIMARY, old.log, False, fresh=True, pending=old.pending, promised=old.promised)
        yield from self._begin(state._replace(nodes=tuple(nodes)), n)

    def _begin(self, state: State, n: int, above: View = NONE) -> Iterator[tuple[Node, ...]]:
        """Begin a view, later than all that the node knows; of the others, it may be later than any."""
        nodes = list(state.nodes)
        node = nodes[n]
        if not self.rules.views:
            yield state.nodes
            return
        self._hang_up(nodes, n)
        standing = node.standing()
        least = standing.begin(len(node.log), "", above)
        for view in (least, *(View(each.number + 1, "") for each in _views(state.nodes) if each > least)):
            log = node.log if self.rules.mark else (*node.log, view)
            begun = node._replace(log=log, fresh=True, facks=(UNKNOWN,) * 3, promised=view, own=view, established=False)
            nodes[n] = begun
            yield tuple(nodes)

    # --- What a node does ---------------------------------------------------------------------------------------------

    def _return(self, state: State, n: int) -> Steps:
        node = state.nodes[n]
        nodes = list(state.nodes)
        nodes[n] = node._replace(life=UP, fresh=node.is_primary)
        after = state._replace(nodes=tuple(nodes))
        for some in self._begin(after, n) if node.is_primary else [after.nodes]:
            yield f"{n} returns as it was", state._replace(nodes=some)

    def _thaw(self, state: State, n: int) -> Steps:
        """It reads what has arrived meanwhile: of connections that have ended, the end."""
        nodes = list(state.nodes)
        node = nodes[n]
        for r in THREE:
            if r != n and not state.cuts & PAIR[n, r] and not (nodes[r].follows == n and nodes[r].linked):
                node = node.with_fack(r, UNKNOWN)
                if nodes[r].pending[:1] == (n,):
                    nodes[r] = nodes[r]._replace(pending=())
        nodes[n] = node._replace(life=UP, hears=SILENT if node.hears == HEARD else node.hears)
        yield f"{n} thaws", self.settle(state._replace(nodes=tuple(nodes)))

    def _lead(self, state: State, n: int) -> Steps:
        node = state.nodes[n]

        def change(text: str, new: Node, **more: Any) -> tuple[str, State]:
            nodes = tuple(new if m == n else other for m, other in enumerate(state.nodes))
            return text, self.settle(state._replace(nodes=nodes, **more))

        if not node.fresh and state.writes < self.writes:
            number = state.writes
            longer = node._replace(log=(*node.log, number))
            yield change(f"{n} executes write {number}", longer, writes=number + 1)
            if not self.rules.scripts:
                acked = state.acked | 1 << number
                yield change(f"{n} executes and answers script {number}", longer, writes=number + 1, acked=acked)
        if self.watches:
            if state.cuts & WATCH[n]:
                if node.hears == HEARD:
                    yield change(f"{n} notices that Sentinels are silent", node._replace(hears=SILENT))
            elif node.hears != HEARD and 2 * len(state.guards) > len(state.guards) + node.gone:
                yield change(f"{n} hears most Sentinels", node._replace(hears=HEARD))
        if self.rules.views and not node.established and sorted(node.facks)[-self.durable] != UNKNOWN:
            yield change(f"{n} is established", _established(node, self.rules))

    def _follow(self, state: State, n: int) -> Steps:
        node = state.nodes[n]
        primary = state.nodes[node.follows]
        if primary.life != UP or state.cuts & PAIR[n, node.follows] or not (primary.is_primary or primary.linked):
            return
        if not node.linked:
            yield from self._greet(state, n)
        elif len(node.log) < len(primary.log):
            log = primary.log[: len(node.log) + 1]
            nodes = list(state.nodes)
            nodes[n] = node._replace(log=log, pending=())
            if primary.is_primary:
                nodes[node.follows] = primary.with_fack(n, len(log))
            yield f"{n} receives and confirms {log[-1]}", self.settle(state._replace(nodes=tuple(nodes)))
            if state.faults and primary.is_primary and state.guards:
                nodes[node.follows] = primary
                nodes[n] = node._replace(log=log, pending=(node.follows, len(log)))
                yield f"{n} receives {log[-1]}, and confirms it late", self.settle(state._replace(nodes=tuple(nodes)))

    def _arrive(self, state: State, n: int) -> Steps:
        """A confirmation that was under way is there."""
        target, length = state.nodes[n].pending
        primary = state.nodes[target]
        if primary.life == UP and not state.cuts & PAIR[n, target]:
            nodes = list(state.nodes)
            nodes[n] = nodes[n]._replace(pending=())
            if primary.facks[n] != UNKNOWN:
                nodes[target] = primary.with_fack(n, max(primary.facks[n], length))
            yield f"the confirmation of {n} reaches {target}", self.settle(state._replace(nodes=tuple(nodes)))

    # --- A replica asks for the stream --------------------------------------------------------------------------------

    def _greet(self, state: State, n: int) -> Steps:
        node = state.nodes[n]
        p = node.follows
        primary = state.nodes[p]
        greeting = Greeting(node.promised, Position(node.data, len(node.log)))
        if primary.own is None:
            is_behind = primary.standing().is_behind(greeting, len(primary.log))
            if not (self.rules.views and self.rules.chain and is_behind):
                yield self._link(state, n)
            return
        standing = primary.standing()
        if not self.rules.rank:
            greeting = greeting._replace(position=Position(standing.data, len(node.log)))
        verdict = standing.judge(greeting, len(primary.log))
        if verdict is Verdict.BEGIN and self.rules.above:
            for nodes in self._begin(state, p, greeting.promised):
                yield f"{p} begins a view above that of {n}", self.settle(state._replace(nodes=nodes))
            return
        standing = node.standing()
        standing.join(primary.own)
        nodes = tuple(other if m != n else node.with_standing(standing) for m, other in enumerate(state.nodes))
        joined = state._replace(nodes=nodes)
        if verdict is Verdict.FOLLOW and self.rules.follow:
            if nodes[n] != node:
                yield f"{n} joins the view of {p}", joined
            yield from self._take_over(state, p, n)
        else:
            yield self._link(joined, n)

    def _take_over(self, state: State, p: int, r: int) -> Steps:
        """A primary follows a replica until it has its data, and begins anew; or until something comes between."""
        primary, log = state.nodes[p], state.nodes[r].log
        is_partial = log[: len(primary.log)] == primary.log
        for end in range(len(primary.log) + 1 if is_partial else len(log), len(log) + 1):
            nodes = list(state.nodes)
            nodes[p] = primary._replace(log=log[:end])
            for some in self._begin(state._replace(nodes=tuple(nodes)), p):
                yield f"{p} takes over what {r} has", self.settle(state._replace(nodes=some))

    def _link(self, state: State, n: int) -> tuple[str, State]:
        """PSYNC: the stream goes on where the replica is, or all data is replaced."""
        nodes = list(state.nodes)
        node = nodes[n]
        primary = nodes[node.follows]
        is_partial = primary.log[: len(node.log)] == node.log
        log = node.log if is_partial else primary.log
        nodes[n] = node._replace(log=log, linked=True, pending=())
        if primary.is_primary:
            nodes[node.follows] = primary.with_fack(n, len(log))
        text = f"{n} continues from {node.follows}" if is_partial else f"{n} takes all data of {node.follows}"
        return text, self.settle(state._replace(nodes=tuple(nodes)))

    # --- Sentinels ----------------------------------------------------------------------------------------------------

    def _reaches(self, state: State, n: int) -> bool:
        return state.nodes[n].life == UP and not state.cuts & WATCH[n]

    def _takes_for_dead(self, state: State, n: int) -> bool:
        """Also one that says for long that it is a replica.

        A primary that is cut off has noticed that before: min-replicas-durable-sentinel-timeout is the shorter time.
        """
        node = state.nodes[n]
        if node.life != UP or not node.is_primary:
            return True
        return bool(state.cuts & WATCH[n]) and not (self.watches and node.hears == HEARD)

    def _watch(self, state: State) -> Steps:
        guards = state.guards
        top = max(guard.epoch for guard in guards)
        is_limbo = any(guard.task and guard.task[2] for guard in guards)
        for g in THREE:
            guard = guards[g]
            if guard in guards[:g]:
                continue
            if guard.task:
                yield from self._go_on(state, g)
            elif guard.epoch == top:
                yield from self._choose(state, g)
            if guard.epoch < top:
                if any(self._reaches(state, n) for n in THREE):
                    best = next(each for each in guards if each.epoch == top)
                    yield _tell(f"sentinel {g} learns of {best.view}", state, g, best._replace(task=()))
            elif not is_limbo:
                yield from self._put_right(state, g)

    def _choose(self, state: State, g: int) -> Steps:
        """Begin a fail-over: because most take the primary for dead, or because an operator asks for it."""
        guard = state.guards[g]
        epoch = 1 + max(max((each.epoch, *each.task[1:2])) for each in state.guards)
        others = [n for n in THREE if n != guard.view and self._reaches(state, n)]
        if self._takes_for_dead(state, guard.view):
            agreeing = sum(each[:2] == guard[:2] for each in state.guards)
            if agreeing >= 2 and not any(each.task and not each.task[3] for each in state.guards):
                for n in self._best(state, others):
                    text = f"sentinel {g} takes {guard.view} for dead and chooses {n}"
                    yield _tell(text, state, g, guard._replace(task=(n, epoch, 0, 0)))
        elif state.faults and "planned" in self.kinds:
            for n in others:
                if not state.nodes[n].is_primary:
                    text = f"FAULT: SENTINEL FAILOVER at {g}, which chooses {n}"
                    after = state._replace(faults=state.faults - 1)
                    yield _tell(text, after, g, guard._replace(task=(n, epoch, 0, 1)))

    def _best(self, state: State, some: list[int]) -> list[int]:
        """Whom a Sentinel may choose: one with the greatest offset; with views, it does not matter."""
        if self.rules.views:
            return some
        offsets = {n: -1 if state.nodes[n].is_primary else len(state.nodes[n].log) for n in some}
        return [n for n in some if offsets[n] == max(offsets.values())]

    def _go_on(self, state: State, g: int) -> Steps:
        """The next step of a fail-over."""
        guard = state.guards[g]
        n, epoch, is_promoted, is_planned = guard.task
        if not self._reaches(state, n):
            yield _tell(f"sentinel {g} gives up", state, g, guard._replace(task=()))
        elif not is_promoted:
            text, after = _tell(f"{n} is promoted", state, g, guard._replace(task=(n, epoch, 1, is_planned)))
            for nodes in [state.nodes] if state.nodes[n].is_primary else self._promote(state, n):
                yield text, self.settle(after._replace(nodes=nodes))
        elif state.nodes[n].is_primary:
            yield _tell(f"sentinel {g} sees that {n} is the primary", state, g, Guard(n, epoch))
        else:
            yield _tell(f"sentinel {g} gives up", state, g, guard._replace(task=()))

    def _put_right(self, state: State, g: int) -> Steps:
        """Make others replicas of the primary."""
        primary = state.guards[g].view
        if not self._reaches(state, primary) or not state.nodes[primary].is_primary:
            return
        for n in THREE:
            if n != primary and self._reaches(state, n) and state.nodes[n].follows != primary:
                nodes = self._obey(state, n, primary)
                yield f"sentinel {g} makes {n} a replica of {primary}", self.settle(state._replace(nodes=nodes))

    # --- Faults -------------------------------------------------------------------------------------------------------

    def _heal(self, state: State) -> Steps:
        for bit in (*ENDS, *WATCH):
            if state.cuts & bit:
                after = state._replace(cuts=state.cuts & ~bit)
                if bit in ENDS:
                    a, b = ENDS[bit]
                    after = self._wake(self._wake(after, a, b), b, a)
                yield f"it ends that {CUTS[bit]}", self.settle(after)

    def _wake(self, state: State, p: int, r: int) -> State:
        """A node receives what a former replica has sent it before it left: a confirmation, and the end."""
        nodes = list(state.nodes)
        primary, node = nodes[p], nodes[r]
        if primary.life != UP or primary.facks[r] == UNKNOWN or (node.follows == p and node.linked):
            return state
        if node.pending[:1] == (p,):
            nodes[r] = node._replace(pending=())
            nodes[p] = primary.with_fack(r, max(primary.facks[r], node.pending[1]))
            state = self.settle(state._replace(nodes=tuple(nodes)))
            nodes = list(state.nodes)
        nodes[p] = nodes[p].with_fack(r, UNKNOWN)
        return state._replace(nodes=tuple(nodes))

    def _break(self, state: State) -> Steps:
        after = state._replace(faults=state.faults - 1)
        for n, node in enumerate(state.nodes):
            if node.life != UP:
                continue
            if "death" in self.kinds:
                yield f"FAULT: {n} dies", self.settle(after._replace(nodes=self._kill(state, [n])))
            if "freeze" in self.kinds:
                nodes = tuple(other._replace(life=FROZEN) if m == n else other for m, other in enumerate(state.nodes))
                yield f"FAULT: {n} freezes", after._replace(nodes=nodes)
            if "order" in self.kinds:
                yield from self._order(state, after, n)
        if "power" in self.kinds:
            living = [n for n in THREE if state.nodes[n].life != DEAD]
            yield "FAULT: power fails", self.settle(after._replace(nodes=self._kill(state, living)))
        if "cut" in self.kinds:
            for bits, text in CUTS.items():
                if bits & ~state.cuts == bits:
                    yield f"FAULT: {text}", after._replace(cuts=state.cuts | bits)
        if "sentinel" in self.kinds:
            yield from self._replace_sentinel(state, after)

    def _kill(self, state: State, victims: list[int]) -> tuple[Node, ...]:
        nodes = list(state.nodes)
        for n in victims:
            self._leave(state, nodes, n)
            self._hang_up(nodes, n)
            old = nodes[n]
            promised = old.promised if self.rules.disk else NONE
            nodes[n] = Node(DEAD, old.follows, old.log, False, pending=old.pending, promised=promised)
        return tuple(nodes)

    def _order(self, state: State, after: State, n: int) -> Steps:
        for m in THREE:
            if m not in (n, state.nodes[n].follows):
                yield f"FAULT: REPLICAOF {m} at {n}", self.settle(after._replace(nodes=self._obey(state, n, m)))
        if not state.nodes[n].is_primary:
            for nodes in self._promote(state, n):
                yield f"FAULT: REPLICAOF NO ONE at {n}", self.settle(after._replace(nodes=nodes))

    def _replace_sentinel(self, state: State, after: State) -> Steps:
        nodes = state.nodes
        if not self.rules.forget:
            nodes = tuple(_miss(node, len(state.guards)) for node in nodes)
        yield "FAULT: a Sentinel is replaced", after._replace(nodes=nodes)


class Anything(Model):
    """Nodes to which anything may be said at any time, on a network that delays everything as it likes.

    No Sentinel, clock or network needs to be right: each node may be ordered to follow any other at any time. A cut, a freeze and a
    death without return are nodes that do nothing for long, which any may; a replica's death with return is an end of its link.
    `faults` counts orders: promotions, returns of primaries, and links that replicas make. What a primary knows of replicas that
    have left is never forgotten, and confirmations arrive at once: both are the worst case, for more is acknowledged.

    A replica without a link follows itself here, since it does not matter whom it does not reach.
    """

    def first(self) -> State:
        return super().first()._replace(guards=())

    def steps(self, state: State) -> Steps:
        after = state._replace(faults=state.faults - 1)
        for n, node in enumerate(state.nodes):
            if node.is_primary:
                yield from self._lead(state, n)
            elif node.follows != n:
                yield from self._follow(state, n)
            for m in THREE:
                if m not in (n, node.follows) and (state.nodes[m].is_primary or state.nodes[m].linked):
                    obedient = state._replace(nodes=self._obey(state, n, m))
                    for text, joined in self._greet(obedient, n):
                        left = state.faults - joined.nodes[n].linked
                        if left >= 0:
                            text = f"{n} is to follow {m}: {text}"
                            yield text, joined._replace(nodes=_idle(joined.nodes), faults=left)
            if state.faults:
                text = f"{n} returns" if node.is_primary else f"{n} is promoted"
                for nodes in self._promote(state, n):
                    yield f"FAULT: {text}", self.settle(after._replace(nodes=_idle(nodes)))
                if not self.rules.disk and not node.is_primary:
                    nodes = self._obey(state, n, n)
                    forgetful = tuple(x._replace(promised=NONE) if m == n else x for m, x in enumerate(nodes))
                    yield f"FAULT: {n} returns", self.settle(after._replace(nodes=_idle(forgetful)))

    def _leave(self, state: State, nodes: list[Node], r: int) -> None:
        nodes[r] = nodes[r]._replace(linked=False)

    def _promote(self, state: State, n: int) -> Iterator[tuple[Node, ...]]:
        if self.rules.disk:
            yield from super()._promote(state, n)
        else:
            nodes = list(state.nodes)
            if nodes[n].is_primary:
                nodes[n] = nodes[n]._replace(promised=NONE)
            yield from super()._promote(state._replace(nodes=tuple(nodes)), n)


def _idle(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    return tuple([
        node if node.is_primary or node.linked else node._replace(follows=n) for n, node in enumerate(nodes)
    ])  # fmt: skip


def _bits(log: Iterable[Entry]) -> int:
    """The writes in a log, as bits."""
    found = 0
    for each in log:
        if not isinstance(each, View):
            found |= 1 << each
    return found


def _miss(node: Node, guards: int) -> Node:
    """A primary waits for a Sentinel that is gone; then perhaps it hears only half of those that it knows."""
    if node.life == DEAD or not node.is_primary or node.hears == NEVER:
        return node
    gone = node.gone + 1
    return node._replace(gone=gone, hears=SILENT if gone >= guards else node.hears)


def _established(node: Node, rules: Rules) -> Node:
    standing = node.standing()
    standing.establish()
    after = node.with_standing(standing)
    return after._replace(log=(*node.log, standing.data)) if rules.mark else after


def _tell(text: str, state: State, g: int, guard: Guard) -> tuple[str, State]:
    """A step that changes what a Sentinel knows."""
    return text, state._replace(guards=tuple(guard if i == g else each for i, each in enumerate(state.guards)))


# --- One state for all that differ only in names ----------------------------------------------------------------------


def _views(nodes: Iterable[Node]) -> set[View]:
    """All views that somebody knows of."""
    found = set()
    for node in nodes:
        found.add(node.promised)
        if node.own is not None:
            found.add(node.own)
        found.update([each for each in node.log if each.__class__ is View])
    return found


PERMUTATIONS = list(itertools.permutations(THREE))


def tidy(state: State) -> State:
    """The same state, with views and epochs numbered by their places, without what no longer matters.

    A confirmation under way to a node that does not count its sender as a replica would be ignored. Before that node counts it, the
    sender asks for the stream anew, and then nothing is under way. So the confirmation is left out.
    """
    words, shift = _tidy(tuple([(node.log, node.promised, node.own) for node in state.nodes]))
    nodes = []
    for n, (node, (log, promised, own)) in enumerate(zip(state.nodes, words, strict=True)):
        facks, pending = node.facks, node.pending
        if shift:
            facks = tuple([fack if fack == UNKNOWN else max(0, fack - shift) for fack in facks])
            pending = (pending[0], max(0, pending[1] - shift)) if pending else ()
        if pending and state.nodes[pending[0]].facks[n] == UNKNOWN:
            pending = ()
        nodes.append(node._replace(log=log, promised=promised, own=own, facks=facks, pending=pending))
    acked = state.acked & _bits(entry for node in nodes for entry in node.log)
    return state._replace(nodes=tuple(nodes), guards=_inform(state), acked=acked)


def canonical(state: State) -> State:
    """The same state, with nodes and Sentinels in one order."""
    state = tidy(state)
    keys = [_key(state, n) for n in THREE]
    a, b, c = sorted(THREE, key=keys.__getitem__)
    if keys[a] == keys[b]:
        orders = PERMUTATIONS if keys[b] == keys[c] else [(a, b, c), (b, a, c)]
    elif keys[b] == keys[c]:
        orders = [(a, b, c), (a, c, b)]
    else:
        return _reorder(state, (a, b, c))
    return min((_reorder(state, order) for order in orders), key=_comparable)


def _inform(state: State) -> tuple[Guard, ...]:
    """Sentinels that lead nothing learn at once who is the primary: before that, they can do nothing."""
    guards = state.guards
    if not guards:
        return guards
    best = max(guards, key=lambda guard: guard.epoch)
    if any(node.life == UP and not state.cuts & WATCH[n] for n, node in enumerate(state.nodes)):
        guards = tuple(each if each.task or each.epoch == best.epoch else best._replace(task=()) for each in guards)
    epochs = sorted({each.epoch for each in guards} | {each.task[1] for each in guards if each.task})
    tasks = [(each.task[0], epochs.index(each.task[1]), *each.task[2:]) if each.task else () for each in guards]
    return tuple(Guard(each.view, epochs.index(each.epoch), task) for each, task in zip(guards, tasks, strict=True))


Words = tuple[tuple[Entry, ...], View, View | None]


@lru_cache(1 << 20)
def _tidy(nodes: tuple[Words, ...]) -> tuple[list[Words], int]:
    """Number the views by their places, and leave out what is before the last view that all logs have begun."""
    shift = 0
    for at, (first, *others) in enumerate(zip(*[log for log, _, _ in nodes], strict=False)):
        if any(each != first for each in others):
            break
        if first.__class__ is View:
            shift = at
    nodes = tuple([(log[shift:], promised, own) for log, promised, own in nodes])
    views = {NONE: 0}
    for log, promised, own in nodes:
        views |= dict.fromkeys([each for each in log if each.__class__ is View], 0)
        views[promised] = views[own or NONE] = 0
    names: dict[Any, Any] = {view: View(10 * at, "") for at, view in enumerate(sorted(views))}
    names[None] = None
    return [
        (tuple([names[each] if each.__class__ is View else each for each in log]), names[promised], names[own])
        for log, promised, own in nodes
    ], shift


def _comparable(state: State) -> tuple[object, ...]:
    return state.cuts, state.guards, [(n.follows, n.facks, n.pending) for n in state.nodes]


def _key(state: State, n: int) -> tuple[object, ...]:
    """What can be said of a node without naming another."""
    node = state.nodes[n]
    seen = sum((each.view == n) * 8 + (each.task[:1] == (n,)) for each in state.guards)
    return (
        node.is_primary, node.life, node.linked, node.fresh, node.hears, node.gone, node.established, seen,
        len(node.log), state.cuts & WATCH[n] != 0, node.pending[1:], sorted(node.facks), node.promised, node.own or NONE,
        [-each.number if isinstance(each, View) else each for each in node.log],
    )  # fmt: skip


def _reorder(state: State, order: tuple[int, ...]) -> State:
    """`order` lists the old names, by the new."""
    if order == (0, 1, 2):
        return state._replace(guards=tuple(sorted(state.guards)), wrong="")
    to = {old: new for new, old in enumerate(order)}
    to[PRIMARY] = PRIMARY
    nodes = []
    for old in order:
        node = state.nodes[old]
        facks = tuple(node.facks[each] for each in order)
        pending = (to[node.pending[0]], node.pending[1]) if node.pending else ()
        nodes.append(node._replace(follows=to[node.follows], facks=facks, pending=pending))
    tasks = [(to[each.task[0]], *each.task[1:]) if each.task else () for each in state.guards]
    guards = sorted(Guard(to[each.view], each.epoch, task) for each, task in zip(state.guards, tasks, strict=True))
    cuts = sum(PAIR[to[a], to[b]] for bit, (a, b) in ENDS.items() if state.cuts & bit)
    cuts += sum(WATCH[to[n]] for n in THREE if state.cuts & WATCH[n])
    return State(tuple(nodes), tuple(guards), cuts, state.acked, state.writes, state.faults)


# --- The search -------------------------------------------------------------------------------------------------------


@dataclass
class Found:
    """What a search has found.

    states  how many there are, or were until a promise was broken
    trace   the shortest way there; empty: none was broken
    """

    states: int
    trace: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return "\n".join([f"{self.states} states", *self.trace])


def search(model: Model) -> Found:
    """Go through all states that can be reached. Of those left behind, only hashes of 64 bits are kept.

    A state is gone through once, with the most faults that may still happen there: with fewer, less can follow. So those that take
    fewer faults come first, and of these those that take fewer steps.
    """
    first = canonical(model.first())
    parents: dict[int, int] = {}
    found: list[dict[int, tuple[State, int]]] = [{} for _ in range(first.faults + 1)]
    """By the faults that are left: states that wait for their turn, by name, and where each comes from."""
    found[first.faults][name_of(first)] = first, 0
    while found:
        layer = found[-1]
        found[-1] = {}
        if not layer:
            found.pop()
        for name, (state, parent) in layer.items():
            if name in parents:
                continue
            parents[name] = parent
            for _, after in model.steps(state):
                if after.wrong:
                    return Found(len(parents), retrace(model, parents, name))
                after = canonical(after)
                key = name_of(after)
                if key not in parents:
                    found[after.faults].setdefault(key, (after, name))
    return Found(len(parents))


def name_of(state: State) -> int:
    """Of a state, whatever may still happen."""
    return hash((state.nodes, state.guards, state.cuts, state.acked, state.writes))


def find_stuck(model: Model) -> Found:
    """Look for a state without faults from which nothing leads to a primary that serves."""
    first = canonical(model.first())
    parents: dict[int, int] = {hash(first): 0}
    before: dict[int, list[int]] = {}
    good: list[int] = []
    healthy: list[int] = []
    layer = [first]
    while layer:
        following = []
        for state in layer:
            name = hash(state)
            if any(model.serves(node) and model.is_complete(state, n) for n, node in enumerate(state.nodes)):
                good.append(name)
            elif not state.cuts and all(node.life == UP for node in state.nodes):
                healthy.append(name)
            for text, after in model.steps(state):
                after = canonical(after)
                key = hash(after)
                if not text.startswith("FAULT"):
                    before.setdefault(key, []).append(name)
                if key not in parents:
                    parents[key] = name
                    following.append(after)
        layer = following
    hopeful = set(good)
    while good:
        for name in before.get(good.pop(), ()):
            if name not in hopeful:
                hopeful.add(name)
                good.append(name)
    lost = next((name for name in healthy if name not in hopeful), 0)
    return Found(len(parents), retrace(model, parents, lost, hash) if lost else [])


def retrace(model: Model, parents: dict[int, int], last: int, name: Callable[[State], int] = name_of) -> list[str]:
    """The way to a state, with names that stay what they are, and the step that breaks a promise there, if one does."""
    way = [last]
    while parents[way[-1]]:
        way.append(parents[way[-1]])
    now, trace = model.first(), []
    for wanted in way[-2::-1]:
        steps = [(text, tidy(after)) for text, after in model.steps(now) if name(canonical(after)) == wanted]
        text, now = max(steps, key=lambda step: step[1].faults)
        trace.append(text)
    ends = ([text, f"WRONG: {after.wrong}"] for text, after in model.steps(now) if after.wrong)
    return trace + next(ends, ["WRONG: nothing leads to a primary that serves"])


def main(search: Callable[[Model], Found] = search) -> None:
    parser = argparse.ArgumentParser(description="Search the protocol of min-replicas-durable.")
    parser.add_argument("--durable", type=int, default=1, help="min-replicas-durable. Default: 1")
    parser.add_argument("--faults", type=int, default=2, help="Default: 2")
    parser.add_argument("--writes", type=int, default=2, help="Default: 2")
    parser.add_argument(
        "--kind", action="append", choices=sorted(FAULTS), help="only such faults; may be repeated. Default: all kinds"
    )
    parser.add_argument("--without", action="append", default=[], choices=[each.name for each in fields(Rules)],
                        help="switch a rule off; may be repeated")  # fmt: skip
    parser.add_argument("--watches", action="store_true", help="a primary waits for Sentinels")
    parser.add_argument("--anything", action="store_true", help="no Sentinels: anything may be ordered at any time")
    parser.add_argument("--calm", action="store_true", help="no fault ends while a fail-over is under way")
    options = parser.parse_args()
    kinds = frozenset(options.kind) if options.kind else FAULTS
    kind = Anything if options.anything else Model
    rules = NOW.without(*options.without)
    model = kind(options.durable, rules, options.faults, kinds, options.writes, options.watches, options.calm)
    started = time.monotonic()
    print(f"{search(model)}\n{time.monotonic() - started:.1f} s")


if __name__ == "__main__":
    main()
