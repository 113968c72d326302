"""Fail-overs on purpose: data nodes, three Sentinels, clients at work, a fault, and what is left afterwards.

    with Cluster(folder, ["streamd", "redis"], mode=LOSS_FREE) as cluster:
        result = play(cluster, KILL, seed=1)
    assert not result.wrong

    python -m tests.support.failover.rounds --rounds 300 --seed 1        one line per round, a table at the end

A *round* has a stream with a group of its own. Producers add entries, consumers read and acknowledge them, an observer looks at
lengths; all find the primary by redis-py's `Sentinel`, and all write down what they asked, what they were told, and when. A
fault strikes the primary, a replica or a Sentinel; when service is back (or was never away), the fault is healed, the old primary
comes back as a replica, and the clients go on for a while. Then everything acknowledged is compared with what is there, on every
node, and the history is checked for linearizability (support.failover.linearizability).

Modes:

    PLAIN       replication is asynchronous: what was acknowledged just before the fault may be lost, and is counted
    LOSS_FREE   min-replicas-durable, appendfsync always: nothing may be lost, and the history must be linearizable
    WAITAOF     the same without help of the server: clients send WAITAOF after each write and believe only what it confirms;
                Redis can do that as well, which proves the harness (except if a primary that works is replaced and not all
                replicas are asked for: see `Result.exemption`)

Some clients do not ask the Sentinels while the fault lasts: they have been told once where the primary is (`Cluster.told`), and go on
there for as long as they are answered. Most requests are sent in transactions, by scripts or by functions.

What is compared is all that docs/replication.md promises. A round in which something is not promised says so, with the sentence of
that page (`Result.exemption`), and the table of exemptions is printed at the end. Results that change nothing (a length, a read that
found nothing) are checked separately: clients of a primary that is cut off may get old ones.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import random
import shutil
import signal
import statistics
import sys
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import redis
from redis.exceptions import (
    AskError,
    ClusterDownError,
    ConnectionError,
    NoScriptError,
    ReadOnlyError,
    ResponseError,
    TimeoutError,
    TryAgainError,
)
from redis.sentinel import MasterNotFoundError

from ..replicas.nodes import DEADLINE_S, wait_until
from .clients import SILENCE_S, sent
from .cluster import LOSS_FREE, MODES, NO_ANSWER, PLAIN, SERVICE, WAITAOF, Cluster, Member, Mode
from .faults import FAULTS, Fault
from .linearizability import Ack, Add, Deliver, Entry, EntryId, Length, Operation, Pending, Range, Undecided, check

__all__ = ["LOSS_FREE", "MODES", "PLAIN", "SERVICE", "WAITAOF", "Cluster", "Member", "Mode", "Result", "Worker", "play"]

GROUP = b"group"
PAUSE_S = 0.002
"""Between two requests of a client, so that a round has thousands of them, not tens of thousands."""
RETRY_S = 0.02


# --- Clients ------------------------------------------------------------------------------------------------------------

REFUSALS = ("READONLY", "LOADING", "MASTERDOWN", "UNBLOCKED", "The previous master is now a slave")
"""Beginnings of errors after which the request has certainly done nothing. Not NOREPLICAS: it may come after the fact."""
REDIRECTIONS = (AskError, TryAgainError, ClusterDownError)
"""Errors of a cluster, MOVED included, after which the request has done nothing, and another node is to be looked for."""
EMPTY = ("Function not found", "NOGROUP")
"""The same of a server without files that was killed: it comes back with nothing. In other modes nobody should get them."""


class NotConfirmed(Exception):
    """WAITAOF did not confirm a write."""


SCRIPT = b"return redis.call(unpack(ARGV))"
LIBRARY = (
    b"#!lua name=calls\nredis.register_function('call', function(keys, words) return redis.call(unpack(words)) end)"
)
Words = Sequence[Any]
WAYS: Sequence[Callable[[bytes, Words], list[Words]]] = (
    lambda key, words: [words],
    lambda key, words: [words],
    lambda key, words: [["MULTI"], words, ["EXEC"]],
    lambda key, words: [["EVAL", SCRIPT, 1, key, *words]],
    lambda key, words: [["EVALSHA", hashlib.sha1(SCRIPT).hexdigest(), 1, key, *words]],
    lambda key, words: [["FCALL", "call", 1, key, *words]],
    lambda key, words: [["MULTI"], ["EVAL", SCRIPT, 1, key, *words], ["EXEC"]],
)
"""How a command is sent: plain, in a transaction, by a script or a function."""


@dataclass
class Worker(ABC):
    """A client in a thread of its own, and what it has seen.

    is_told    it goes where the operator says
    history    operations that happened, or may have
    refused    how often it was certain that nothing had happened
    failures   replies that nobody should get
    """

    name: str
    cluster: Cluster
    key: bytes
    stopped: threading.Event
    seed: int
    is_told: bool
    history: list[Operation] = field(default_factory=list)
    refused: int = 0
    failures: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.chance = random.Random(f"{self.seed}-{self.name}")
        self.thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        self.mode = self.cluster.mode

    def _run(self) -> None:
        try:
            with self.cluster.client(is_told=self.is_told) as client:
                while not self.stopped.is_set():
                    self.stopped.wait(PAUSE_S if self.work(client) else RETRY_S)
        except BaseException as error:
            self.failures.append(repr(error))
            raise

    @abstractmethod
    def work(self, client: redis.Redis) -> bool:
        """Ask for something; whether there was an answer."""

    def ask(
        self, client: redis.Redis, operation: Operation, words: Sequence[Any], read: Callable[[Any], Any]
    ) -> Operation | None:
        """Send a request; write down what came of it; return the operation when it was answered.

        operation   without times and result
        read        makes the result from the reply
        """
        sent.value = False
        invoked = time.monotonic()
        try:
            result = read(self._send(client, words))
        except MasterNotFoundError:
            self.refused += 1
            return None
        except (ConnectionError, TimeoutError, ResponseError, NotConfirmed) as error:
            refusals = REFUSALS if self.mode.has_files else (*REFUSALS, *EMPTY)
            if isinstance(error, REDIRECTIONS):
                client.connection_pool.disconnect()
                self.refused += 1
            elif not sent.value or isinstance(error, NoScriptError | ReadOnlyError) or str(error).startswith(refusals):
                self.refused += 1
            else:
                self.history.append(replace(operation, invoked=invoked, returned=None))
                if isinstance(error, NotConfirmed) or str(error).startswith("NOREPLICAS"):
                    client.connection_pool.disconnect()  # there may be another primary: ask a Sentinel
                elif isinstance(error, ResponseError):
                    self.failures.append(f"{words}: {error}")
            return None
        changes: Any = {"invoked": invoked, "returned": time.monotonic(), "result": result}
        answered = replace(operation, **changes)
        self.history.append(answered)
        return answered

    def _send(self, client: redis.Redis, words: Words) -> Any:
        requests = self.chance.choice(WAYS)(self.key, words)
        if self.mode.asks and words[0] not in ("XLEN", "XRANGE"):
            requests.append(["WAITAOF", 1, self.mode.durable, int(SILENCE_S * 500)])
        with client.pipeline(transaction=False) as pipeline:
            for request in requests:
                pipeline.execute_command(*request, NEVER_DECODE=True)
            replies = pipeline.execute(raise_on_error=False)
        confirmation = replies.pop() if requests[-1][0] == "WAITAOF" else None
        reply = replies[-1][0] if isinstance(replies[-1], list) and requests[0][0] == "MULTI" else replies[-1]
        for each in (*replies, reply):
            if isinstance(each, Exception):
                raise each
        if isinstance(confirmation, Exception):  # the server has become a replica in the meantime
            raise NotConfirmed(str(confirmation))
        if confirmation is not None and (confirmation[0] < 1 or confirmation[1] < self.mode.durable):
            raise NotConfirmed(str(confirmation))
        return reply


def to_id(text: bytes) -> EntryId:
    ms, _, serial = text.partition(b"-")
    return int(ms), int(serial)


def to_entries(rows: Iterable[Sequence[Any]]) -> tuple[Entry, ...]:
    return tuple((to_id(entry_id), fields[1]) for entry_id, fields in rows)


def _read_delivery(reply: Any) -> tuple[Entry, ...]:
    """The entries of a reply to XREADGROUP of one stream: pairs of key and entries, which are a map if not from a script."""
    pairs = list(reply.items() if isinstance(reply, dict) else reply or ())
    return to_entries(pairs[0][1]) if pairs else ()


class Producer(Worker):
    """Adds entries, each with a value of its own."""

    def work(self, client: redis.Redis) -> bool:
        value = f"{self.name}-{len(self.history) + self.refused}".encode()
        operation = Add(self.name, self.key, 0, None, value=value)
        return self.ask(client, operation, ["XADD", self.key, "*", "v", value], to_id) is not None


class Consumer(Worker):
    """Reads new entries and acknowledges those that it has received, once more if it heard nothing about that."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.mine: list[EntryId] = []
        self.asked: tuple[EntryId, ...] = ()

    def work(self, client: redis.Redis) -> bool:
        if self.asked or (self.mine and self.chance.random() < 0.6):
            return self._acknowledge(client)
        count = self.chance.choice([1, 3, 10])
        words = ["XREADGROUP", "GROUP", GROUP, self.name, "COUNT", count, "STREAMS", self.key, ">"]
        operation = Deliver(self.name, self.key, 0, None, consumer=self.name.encode(), count=count)
        answered = self.ask(client, operation, words, _read_delivery)
        if isinstance(answered, Deliver):
            self.mine += [entry_id for entry_id, _ in answered.result]
        return answered is not None

    def _acknowledge(self, client: redis.Redis) -> bool:
        some = self.chance.choice([1, 1, 4])
        ids = self.asked = self.asked or tuple(self.chance.sample(self.mine, min(len(self.mine), some)))
        words = ["XACK", self.key, GROUP, *(f"{ms}-{serial}" for ms, serial in ids)]
        answered = self.ask(client, Ack(self.name, self.key, 0, None, ids=ids), words, int)
        if answered is not None:
            self.mine = [entry_id for entry_id in self.mine if entry_id not in ids]
            self.asked = ()
        return answered is not None


class Observer(Worker):
    """Looks at the length and at the newest entries."""

    def work(self, client: redis.Redis) -> bool:
        self.stopped.wait(10 * PAUSE_S)
        return self.ask(client, Length(self.name, self.key, 0, None), ["XLEN", self.key], int) is not None


class Load:
    """Clients at work on a stream, until the block is left."""

    def __init__(self, cluster: Cluster, key: bytes, seed: int) -> None:
        self._stopped = threading.Event()
        kinds: list[tuple[type[Worker], int]] = [(Producer, 3), (Consumer, 3), (Observer, 1)]
        self.workers = [
            kind(f"{kind.__name__.lower()}{number}", cluster, key, self._stopped, seed, is_told=number == 2)
            for kind, many in kinds
            for number in range(many)
        ]

    def __enter__(self) -> Self:
        for worker in self.workers:
            worker.thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stopped.set()
        for worker in self.workers:
            worker.thread.join(DEADLINE_S)
            assert not worker.thread.is_alive(), f"{worker.name} does not end"

    @property
    def history(self) -> list[Operation]:
        return [operation for worker in self.workers for operation in list(worker.history)]

    def wait_for_adds(self, count: int) -> None:
        """Wait until so many XADDs that are sent from now on have been acknowledged."""
        now = time.monotonic()
        begin = [len(worker.history) for worker in self.workers]

        def is_enough() -> bool:
            since = [each for worker, at in zip(self.workers, begin, strict=True) for each in worker.history[at:]]
            adds = [each for each in since if isinstance(each, Add) and each.returned is not None]
            return sum(each.invoked >= now for each in adds) >= count or bool(self.failures)

        wait_until(is_enough, f"{count} acknowledged XADDs")

    @property
    def failures(self) -> list[str]:
        return [failure for worker in self.workers for failure in worker.failures]


# --- Rounds -------------------------------------------------------------------------------------------------------------


ASYNCHRONOUS = "Replication is asynchronous: a write is answered before replicas have it."
ASKED = "A write that some of the replicas have confirmed to WAITAOF is lost when another replica is promoted."
READS_ASKED = "Reads do not wait for it."
WITH_REDIS = "they confirm, but they overwrite data that is ahead of theirs."
CUT_OFF = "A primary that is cut off from everything but its clients cannot detect that"
EXEMPTIONS = (ASYNCHRONOUS, ASKED, READS_ASKED, WITH_REDIS, CUT_OFF)
"""Sentences of docs/replication.md, word for word."""


@dataclass
class Result:
    """What a round showed.

    pairing          kinds of the primary before and after
    acknowledged     writes that were answered
    unknown          requests whose outcome nobody knows
    refused          requests that certainly did nothing
    lost             entries whose XADD was acknowledged and that are not there
    delivered_twice  entries that two reads returned as new
    acked_twice      entries that two XACKs counted
    undone           entries whose XACK was acknowledged and that are pending nevertheless
    outage_s         the longest time without an acknowledged XADD
    away_s           from the fault until all Sentinels had another primary; None without a fail-over
    order            why no order explains the writes; empty if one does
    looks            why no order explains writes and looks; empty if one does
    unplanned        fail-overs that the Sentinels began without a fault, as they do when the machine is too busy
    failures         replies that nobody should get, and differences between nodes
    history          all that clients asked and were told, if something is wrong
    """

    fault: Fault
    seed: int
    pairing: str
    mode: Mode
    replicas: int
    has_redis: bool = False
    acknowledged: int = 0
    unknown: int = 0
    refused: int = 0
    lost: int = 0
    delivered_twice: int = 0
    acked_twice: int = 0
    undone: int = 0
    outage_s: float = 0.0
    away_s: float | None = None
    order: str = ""
    looks: str = ""
    unplanned: int = 0
    failures: list[str] = field(default_factory=list)
    wall_s: float = 0.0
    history: Sequence[Operation] = field(default=(), repr=False)

    @property
    def exemption(self) -> str:
        """The sentence of docs/replication.md because of which acknowledged writes may be lost; empty: none may."""
        if not self.mode.durable:
            return ASYNCHRONOUS
        if self.mode.asks:
            is_simple = self.fault.is_simple and not self.unplanned
            return "" if is_simple or self.mode.durable >= self.replicas else ASKED
        return WITH_REDIS if self.has_redis else ""

    @property
    def looks_exemption(self) -> str:
        """The same for reads that found nothing, and lengths."""
        if self.exemption or not self.mode.durable:
            return self.exemption
        if self.mode.asks:
            return READS_ASKED
        return CUT_OFF if self.fault.is_cut_off else ""

    @property
    def wrong(self) -> str:
        """What must not happen in this mode and happened; empty when nothing did."""
        found = list(self.failures)
        if not self.exemption:
            counts = {"lost": self.lost, "delivered twice": self.delivered_twice, "undone": self.undone}
            found += [f"{count} entries {what}" for what, count in counts.items() if count]
            found += [self.order] if self.order else []
        if not self.looks_exemption and self.looks != self.order:
            found += [self.looks]
        return "\n".join(found)

    def __str__(self) -> str:
        away = "" if self.away_s is None else f" new primary after {self.away_s:.1f} s,"
        order = "linearizable" if not self.order else "not linearizable"
        unplanned = f" {self.unplanned} unplanned fail-overs;" if self.unplanned else ""
        looks = "" if not self.looks or self.order else ", but stale or dirty looks"
        return (
            f"seed {self.seed} {self.mode.name} {self.pairing}, {self.fault.name}: {self.acknowledged} acknowledged,"
            f" {self.unknown} unknown, {self.refused} refused; lost {self.lost}, delivered twice {self.delivered_twice},"
            f" acked twice {self.acked_twice}, undone {self.undone};{unplanned}{away} outage {self.outage_s:.1f} s;"
            f" {order}{looks}; {self.wall_s:.1f} s" + (f"\n  WRONG: {self.wrong}" if self.wrong else "")
        )


def play(
    cluster: Cluster, fault: Fault, seed: int, *, before: int = 150, after: int = 100, is_patient: bool = False
) -> Result:
    """A round; see the head of the module.

    before, after   acknowledged XADDs to wait for before the fault, and after it was healed
    is_patient      leave it to the Sentinels to turn the old primary into a replica, which takes them 10 s and more
    """
    chance = random.Random(seed)
    started = time.monotonic()
    primary = cluster.primary()
    victim = _choose_victim(cluster, fault, chance)
    key = b"stream%d" % next(cluster.rounds)
    primary.node.must("FUNCTION", "LOAD", "REPLACE", LIBRARY)
    primary.node.must("XGROUP", "CREATE", key, GROUP, "0", "MKSTREAM")
    cluster.wait_until_in_sync()
    result = Result(fault, seed, "", cluster.mode, replicas=len(cluster.members) - 1)
    result.has_redis = any(member.kind != "streamd" for member in cluster.members)
    epoch = cluster.epoch()
    with Load(cluster, key, seed) as load:
        load.wait_for_adds(before + chance.randint(0, 30))
        struck = time.monotonic()
        cluster.told = primary.gate
        replaced = fault.strike(cluster, victim, chance) or primary
        if fault.failovers:
            result.away_s = cluster.wait_until_primary_is_not(replaced) - struck
        needed = cluster.mode.needed_among(result.replicas) if fault.failovers else cluster.mode.durable
        if result.replicas - fault.absent >= needed:
            load.wait_for_adds(after)
        fault.heal(cluster, victim, chance)
        if fault.is_patient or is_patient:
            load.wait_for_adds(after)
            cluster.wait_until_turned()
        else:
            cluster.turn()
        cluster.told = None
        cluster.wait_until_known()
        load.wait_for_adds(after)
    cluster.wait_until_in_sync()
    result.unplanned = max(0, cluster.epoch() - epoch - fault.failovers)
    result.pairing = f"{primary.kind} -> {cluster.primary().kind}"
    examine(cluster, load, key, result)
    result.wall_s = time.monotonic() - started
    return result


def _choose_victim(cluster: Cluster, fault: Fault, chance: random.Random) -> Any:
    if fault.target == "primary":
        return cluster.primary()
    return chance.choice(cluster.replicas() if fault.target == "replica" else cluster.sentinels)


def examine(cluster: Cluster, load: Load, key: bytes, result: Result) -> None:
    """Compare what the clients were told with what is there."""
    history = load.history
    result.failures += load.failures
    result.failures += [f"{each} logged:\n{each.node.traceback()}" for each in cluster.members if each.node.traceback()]
    result.refused = sum(worker.refused for worker in load.workers)
    result.unknown = sum(each.returned is None for each in history)
    last = _final_looks(cluster.primary(), key)
    for member in cluster.members:
        if [each.result for each in _final_looks(member, key)] != [each.result for each in last]:  # type: ignore[attr-defined]
            result.failures.append(f"{member} does not have what {cluster.primary()} has")
    _count(history, last, result)
    writes = [each for each in history if not _is_look(each)]
    result.acknowledged = sum(each.returned is not None for each in writes)
    result.order = _check([*writes, *last], result)
    result.looks = result.order or _check([*history, *last], result)
    if result.wrong:
        result.history = sorted([*history, *last], key=lambda each: each.invoked)


def _check(history: Sequence[Operation], result: Result) -> str:
    try:
        return check(history, most=2_000_000).reason
    except Undecided as undecided:
        result.failures.append(f"undecided: {undecided}")
        return ""


def _is_look(operation: Operation) -> bool:
    """Whether it was answered and has changed nothing."""
    if isinstance(operation, Length | Range):
        return True
    return operation.returned is not None and isinstance(operation, Deliver | Ack) and not operation.result


def _final_looks(member: Member, key: bytes) -> list[Operation]:
    """All pending entries and all entries of a node, as the last operations of a history."""
    rows = member.node.must("XPENDING", key, GROUP, "-", "+", "1000000").plain()
    pending = tuple((to_id(row[0]), row[1]) for row in rows)
    entries = to_entries(member.node.must("XRANGE", key, "-", "+").plain())
    now = time.monotonic()
    return [
        Pending("end", key, now, now, result=pending),
        Range("end", key, now + 1, now + 1, result=entries),
    ]


def _count(history: Sequence[Operation], last: Sequence[Operation], result: Result) -> None:
    there: set[EntryId] = set()
    pending: set[EntryId] = set()
    values: dict[EntryId, bytes] = {}
    for each in last:
        if isinstance(each, Range):
            values = dict(each.result)
            there = set(values)
        elif isinstance(each, Pending):
            pending = {entry_id for entry_id, _ in each.result}
    adds = [each for each in history if isinstance(each, Add) and each.returned is not None]
    result.lost = sum(each.result not in there or values[each.result] != each.value for each in adds if each.result)
    result.outage_s = _longest_gap(sorted(each.deadline for each in adds))
    deliveries = Counter(entry_id for each in history if isinstance(each, Deliver) for entry_id, _ in each.result)
    result.delivered_twice = sum(count > 1 for count in deliveries.values())
    whole = [each for each in history if isinstance(each, Ack) and each.result == len(each.ids)]
    acks = Counter(entry_id for each in whole for entry_id in each.ids)
    result.acked_twice = sum(count > 1 for count in acks.values())
    result.undone = len(acks.keys() & pending)


def _longest_gap(moments: Sequence[float]) -> float:
    return max((after - before for before, after in itertools.pairwise(moments)), default=0.0)


# --- The long run ---------------------------------------------------------------------------------------------------------


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.support.failover.rounds", description="Fail-overs, many of them."
    )
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1, help="of the first round; each round has the next")
    parser.add_argument("--nodes", default="streamd,streamd,streamd", help="kinds, the first is the first primary")
    parser.add_argument("--mode", choices=MODES, default=LOSS_FREE.name)
    parser.add_argument(
        "--durable", type=int, help="how many replicas must have a write (min-replicas-durable, WAITAOF)"
    )
    parser.add_argument("--fault", action="append", choices=FAULTS, help="only these; may be repeated")
    parser.add_argument("--fresh", type=int, default=25, help="rounds after which everything is started anew")
    parser.add_argument("--keep", action="store_true", help="keep the folder with all logs")
    options = parser.parse_args()
    # Sentinels that are left behind would disturb those who get their ports.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    mode = MODES[options.mode] if options.durable is None else MODES[options.mode].with_durable(options.durable)
    faults = [FAULTS[name] for name in options.fault or FAULTS]
    folder = Path(tempfile.mkdtemp(prefix="streamd-failover-"))
    results: list[Result] = []
    try:
        for result in _play_many(folder, options.nodes.split(","), mode, faults, options):
            print(result, flush=True)
            results.append(result)
            if result.wrong:
                trace = "\n".join(map(str, result.history))
                (folder / f"history-{result.seed}.txt").write_text(f"{result}\n{trace}\n")
    finally:
        print(_table(results), _exempted(results), sep="\n")
        if options.keep or any(result.wrong for result in results):
            print(f"logs and histories are in {folder}")
        else:
            shutil.rmtree(folder)
    return 1 if any(result.wrong for result in results) else 0


def _play_many(
    folder: Path, kinds: Sequence[str], mode: Mode, faults: Sequence[Fault], options: argparse.Namespace
) -> Iterator[Result]:
    cluster: Cluster | None = None
    try:
        for number in range(options.rounds):
            seed = options.seed + number
            if cluster is None or number % options.fresh == 0:
                if cluster is not None:
                    cluster.close()
                    cluster = None
                own = folder / str(seed)
                own.mkdir()
                cluster = Cluster(own, kinds, mode=mode)
            fault = faults[random.Random(seed).randrange(len(faults))]
            try:
                yield play(cluster, fault, seed)
            except NO_ANSWER as error:
                yield Result(fault, seed, "?", mode, len(kinds) - 1, failures=[repr(error), cluster.logs()])
                cluster.close()
                cluster = None
    finally:
        if cluster is not None:
            cluster.close()


def _table(results: Sequence[Result]) -> str:
    """Sums by fault and pairing."""
    rows: dict[tuple[str, str], list[Result]] = defaultdict(list)
    for result in results:
        rows[result.fault.name, result.pairing].append(result)
    head = f"{'fault':30}{'primaries':22}{'rounds':>7}{'acked':>9}{'unknown':>9}{'lost':>6}{'twice':>6}{'undone':>7}"
    lines = [head + f"{'not lin.':>9}{'stale':>6}{'away s':>8}{'pause s':>8}{'longest':>8}{'wrong':>6}"]
    for (fault, pairing), some in sorted(rows.items()):
        away = [each.away_s for each in some if each.away_s is not None]
        lines.append(
            f"{fault:30}{pairing:22}{len(some):7}{sum(each.acknowledged for each in some):9}"
            f"{sum(each.unknown for each in some):9}{sum(each.lost for each in some):6}"
            f"{sum(each.delivered_twice for each in some):6}{sum(each.undone for each in some):7}"
            f"{sum(bool(each.order) for each in some):9}{sum(bool(each.looks) and not each.order for each in some):6}"
            f"{statistics.median(away) if away else 0:8.1f}{statistics.median(each.outage_s for each in some):8.1f}"
            f"{max(each.outage_s for each in some):8.1f}"
            f"{sum(bool(each.wrong) for each in some):6}"
        )
    lines.append(
        f"{len(results)} rounds, {sum(each.acknowledged for each in results)} acknowledged,"
        f" {sum(each.lost for each in results)} lost, {sum(bool(each.wrong) for each in results)} wrong"
    )
    return "\n".join(lines)


def _exempted(results: Sequence[Result]) -> str:
    """What was not promised, by fault, with the sentence of docs/replication.md."""
    rows: dict[tuple[str, str, str, str], list[Result]] = defaultdict(list)
    for result in results:
        for what, why in (("writes", result.exemption), ("reads", result.looks_exemption)):
            if why and not (what == "reads" and why == result.exemption):
                rows[result.fault.name, result.pairing, what, why].append(result)
    lines = ["Not promised:" if rows else "Not promised: none of this"]
    for (fault, pairing, what, why), some in sorted(rows.items()):
        lines.append(
            f"{fault:30}{pairing:22}{what:7}{len(some):5} rounds, {sum(each.lost for each in some)} lost: {why}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        sys.exit(main())
