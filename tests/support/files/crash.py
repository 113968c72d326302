"""Servers that die under load, and what must exist when they are restarted.

    trial = Trial(folder, seed=7, appendonly="yes", appendfsync="always")
    for _ in range(100):
        with trial.load() as load:            a server is started, several clients work
            load.wait_for(500)                so many requests acknowledged since the start
            trial.server.kill()
    trial.check()                             `load` also checks, before it starts; this is for the last death

Each client has keys of its own and a stream that all share, with one group.

Keys of its own: a client's replies come in the order of its requests, so everything that was acknowledged is
replayed on the engine, without a server. What is found after the death must be that state, or the one after
some of the requests in flight, in their order; of a transaction all or nothing.

The shared stream: the order of what different clients did is not known, but replies say enough: which consumer got which
entry, which claims and acknowledgements took effect. See SharedModel.
"""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from ..servers import Server, eventually, free_port, python_environment, server_arguments, wait_for_start
from ..wire import ConnectionClosed, Reply, Wire
from .aof import Store

__all__ = ["Load", "Trial", "start_in"]

Request = list[bytes]

SHARED, GROUP = b"shared", b"g"
FAR = 4_000_000_000_000
"""An expiry in the far future, Unix ms."""
TRIM_AT, TRIM_TO = 2000, 300
"""Length beyond which the shared stream is trimmed between two deaths, and its length then."""


def start_in(
    folder: Path, directives: Mapping[str, str], environment: Mapping[str, str] | None = None, name: str = "streamd"
) -> Server:
    """A server whose files are in `folder`; its output goes to a folder beside it."""
    return wait_for_start(launch_in(folder, directives, environment, name))


def launch_in(
    folder: Path, directives: Mapping[str, str], environment: Mapping[str, str] | None = None, name: str = "streamd"
) -> Server:
    """As `start_in`, without waiting until it answers."""
    folder.mkdir(exist_ok=True)
    output = folder.with_name(folder.name + "-output")
    output.mkdir(exist_ok=True)
    port = free_port()
    argv = server_arguments(port, {"dir": str(folder), **directives})
    return Server(name, argv, port, output, python_environment() | dict(environment or {}))


# --- Requests of clients ------------------------------------------------------------------------------------------------


class OwnKeys:
    """Generates requests about the keys of one client: streams, groups in all their states, strings."""

    def __init__(self, name: bytes, chance: random.Random) -> None:
        self.streams = [b"%s:s%d" % (name, n) for n in range(3)]
        self.strings = [b"%s:k%d" % (name, n) for n in range(4)]
        self.chance = chance
        self.serial = 0
        self._makers: list[tuple[int, Callable[[], Request]]] = [
            (30, self.xadd), (16, self.xreadgroup), (8, self.xack), (6, self.xclaim), (2, self.xautoclaim),
            (6, self.xdel), (3, self.xtrim), (7, self.xgroup), (6, self.set), (2, self.delete), (2, self.expire),
            (2, self.append),
        ]  # fmt: skip

    def request(self) -> Request:
        weights = [weight for weight, _ in self._makers]
        return self.chance.choices([maker for _, maker in self._makers], weights)[0]()

    def unit(self) -> list[Request]:
        """One request, or those of a transaction."""
        if self.chance.random() < 0.9:
            return [self.request()]
        return [[b"MULTI"], *(self.request() for _ in range(self.chance.randint(1, 4))), [b"EXEC"]]

    def _stream(self) -> bytes:
        return self.chance.choice(self.streams)

    def _group(self) -> bytes:
        return self.chance.choice([b"g0", b"g1"])

    def _consumer(self) -> bytes:
        return self.chance.choice([b"alice", b"bob", b"carol"])

    def _ids(self) -> Request:
        first = max(1, self.serial - 60)
        return [b"%d-0" % self.chance.randint(first, self.serial + 1) for _ in range(self.chance.randint(1, 4))]

    def xadd(self) -> Request:
        self.serial += 1
        options = self.chance.choice([[], [], [], [b"MAXLEN", b"=", b"30"], [b"NOMKSTREAM"]])
        size = self.chance.choice([3, 10, 200])
        return [
            b"XADD",
            self._stream(),
            *options,
            b"%d-0" % self.serial,
            b"n",
            b"%d" % self.serial,
            b"text",
            b"x" * size,
        ]

    def xreadgroup(self) -> Request:
        noack = [b"NOACK"] if self.chance.random() < 0.1 else []
        count = b"%d" % self.chance.randint(1, 6)
        return [
            b"XREADGROUP", b"GROUP", self._group(), self._consumer(), b"COUNT", count, *noack, b"STREAMS",
            self._stream(), b">",
        ]  # fmt: skip

    def xack(self) -> Request:
        return [b"XACK", self._stream(), self._group(), *self._ids()]

    def xclaim(self) -> Request:
        options = self.chance.choice([[], [], [b"JUSTID"], [b"RETRYCOUNT", b"7"], [b"FORCE"]])
        return [b"XCLAIM", self._stream(), self._group(), self._consumer(), b"0", *self._ids(), *options]

    def xautoclaim(self) -> Request:
        return [b"XAUTOCLAIM", self._stream(), self._group(), self._consumer(), b"0", b"-", b"COUNT", b"4"]

    def xdel(self) -> Request:
        return [b"XDEL", self._stream(), *self._ids()]

    def xtrim(self) -> Request:
        how = self.chance.choice([[b"MAXLEN", b"20"], [b"MINID", b"%d" % max(0, self.serial - 80)]])
        return [b"XTRIM", self._stream(), *how]

    def xgroup(self) -> Request:
        key, group, consumer = self._stream(), self._group(), self._consumer()
        start = self.chance.choice([b"0", b"$", *self._ids()])
        return self.chance.choice([
            [b"XGROUP", b"CREATE", key, group, start, b"MKSTREAM"],
            [b"XGROUP", b"CREATE", key, group, start, b"MKSTREAM"],
            [b"XGROUP", b"CREATE", key, group, start, b"MKSTREAM"],
            [b"XGROUP", b"SETID", key, group, start],
            [b"XGROUP", b"CREATECONSUMER", key, group, consumer],
            [b"XGROUP", b"DELCONSUMER", key, group, consumer],
            [b"XGROUP", b"DESTROY", key, group],
        ])  # fmt: skip

    def set(self) -> Request:
        self.serial += 1
        options = self.chance.choice([[], [], [b"PXAT", b"%d" % (FAR + self.serial)], [b"KEEPTTL"]])
        return [b"SET", self.chance.choice(self.strings), b"value %d" % self.serial, *options]

    def delete(self) -> Request:
        # Occasionally a stream, so that files contain deletion and recreation.
        return [b"DEL", self.chance.choice([*self.strings, *self.strings, *self.streams])]

    def expire(self) -> Request:
        self.serial += 1
        key = self.chance.choice(self.strings)
        return self.chance.choice([[b"PEXPIREAT", key, b"%d" % (FAR + self.serial)], [b"PERSIST", key]])

    def append(self) -> Request:
        return [b"APPEND", self.chance.choice(self.strings), b"+"]


Ask = Callable[[Sequence[Request]], list[Any]]
"""Runs requests and returns their replies, as plain values."""


def brief_state(keys: OwnKeys, ask: Ask) -> Any:
    """A part of `own_state` that is cheap to compute and nearly always distinguishes two states."""
    requests = [[b"XINFO", b"STREAM", key] for key in keys.streams] + [[b"GET", key] for key in keys.strings]
    return [_without_times(request, reply) for request, reply in zip(requests, ask(requests), strict=True)]


def own_state(keys: OwnKeys, ask: Ask) -> Any:
    """What of a client's keys must survive: everything except times, and how entries are spread over nodes."""
    requests: list[Request] = []
    for key in keys.streams:
        requests += [[b"XRANGE", key, b"-", b"+"], [b"XINFO", b"STREAM", key], [b"XINFO", b"GROUPS", key]]
        for group in (b"g0", b"g1"):
            requests += [[b"XPENDING", key, group, b"-", b"+", b"10000"], [b"XINFO", b"CONSUMERS", key, group]]
    requests += [words for key in keys.strings for words in ([b"GET", key], [b"PEXPIRETIME", key])]
    return [_without_times(request, reply) for request, reply in zip(requests, ask(requests), strict=True)]


def _without_times(request: Request, reply: Any) -> Any:
    what = (request[0], request[1]) if request[0] == b"XINFO" else request[0]
    if not isinstance(reply, list):
        return what, request[-1], str(reply.value if isinstance(reply, Reply) else reply)
    if what == b"XPENDING":
        reply = [[entry_id, consumer, count] for entry_id, consumer, _, count in reply]
    elif what == (b"XINFO", b"CONSUMERS"):
        reply = [row[:4] for row in reply]  # name and pending
    elif what == (b"XINFO", b"STREAM"):
        reply = [pair for pair in zip(reply[::2], reply[1::2], strict=True) if not pair[0].startswith(b"radix-tree")]
    return what, request[1:], reply


def store_replies(store: Store, requests: Sequence[Request]) -> list[Any]:
    return [store.run(*request) for request in requests]


def server_replies(wire: Wire, requests: Sequence[Request]) -> list[Any]:
    replies = wire.pipeline(requests)
    return [reply.value.decode() if reply.is_error else reply.plain() for reply in replies]


# --- The shared stream ------------------------------------------------------------------------------------------------------


@dataclass
class SharedModel:
    """What all clients together know about the shared stream; see the head of the module.

    entries      ID -> content, of those whose XADD was acknowledged
    ids          all IDs ever returned; none may be used again
    deleted      IDs whose XDEL was acknowledged
    maybe_deleted, maybe_acked   ... was in flight
    maybe_added  contents in flight
    readers      consumers whose XREADGROUP was in flight
    pending      ID -> possible owners, and how often it was delivered, at least and at most
    acked        IDs whose XACK took effect
    given        IDs that XREADGROUP has ever delivered; none may be delivered as new again
    """

    entries: dict[bytes, list[bytes]] = field(default_factory=dict)
    ids: set[bytes] = field(default_factory=set)
    deleted: set[bytes] = field(default_factory=set)
    maybe_deleted: set[bytes] = field(default_factory=set)
    maybe_acked: set[bytes] = field(default_factory=set)
    maybe_added: list[list[bytes]] = field(default_factory=list)
    readers: set[bytes] = field(default_factory=set)
    pending: dict[bytes, tuple[set[bytes], int, int]] = field(default_factory=dict)
    acked: set[bytes] = field(default_factory=set)
    given: set[bytes] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def acknowledged(self, request: Request, reply: Reply) -> None:
        """Take in an acknowledged request."""
        name = request[0]
        with self.lock:
            if name == b"XADD":
                assert reply.value not in self.ids, f"the ID {reply.value!r} came twice"
                self.ids.add(reply.value)
                self.entries[reply.value] = request[3:]
            elif name == b"XREADGROUP":
                for entry_id, _ in reply.plain()[0][1] if reply.kind == "*" else []:
                    assert entry_id not in self.given, f"{entry_id!r} was delivered twice"
                    self.given.add(entry_id)
                    owners, least, most = self.pending.get(entry_id, (set(), 0, 0))
                    self.pending[entry_id] = (owners | {request[3]}, least + 1, most + 1)
            elif name == b"XACK" and reply.value == 1:
                self.acked.add(request[3])
            elif name == b"XDEL":
                self.deleted.add(request[2])
            elif name == b"XCLAIM":
                for entry_id in reply.plain():
                    # Another client may have received it without having reported it yet.
                    owners, least, most = self.pending.get(entry_id, (set(), 0, 0))
                    self.pending[entry_id] = (owners | {request[3]}, least, most)

    def on_its_way(self, request: Request) -> None:
        """Take in a request that was not acknowledged."""
        name = request[0]
        with self.lock:
            if name == b"XADD":
                self.maybe_added.append(request[3:])
            elif name == b"XREADGROUP":
                self.readers.add(request[3])
            elif name == b"XACK":
                self.maybe_acked.add(request[3])
            elif name == b"XDEL":
                self.maybe_deleted.add(request[2])
            elif name == b"XCLAIM":
                for entry_id in request[5:-1]:
                    owners, least, most = self.pending.get(entry_id, (set(), 0, 0))
                    self.pending[entry_id] = (owners | {request[3]}, least, most)

    def check(self, entries: dict[bytes, list[bytes]], pending: dict[bytes, tuple[bytes, int]]) -> list[str]:
        """What is wrong with the state found: IDs -> contents, and IDs -> owner and count."""
        wrong = []
        for entry_id, content in self.entries.items():
            if entry_id in self.deleted:
                if entry_id in entries:
                    wrong.append(f"{entry_id!r} was deleted")
            elif entry_id not in self.maybe_deleted and entries.get(entry_id) != content:
                wrong.append(f"{entry_id!r} was added")
        unknown = [content for entry_id, content in entries.items() if entry_id not in self.entries]
        for content in unknown:
            if content not in self.maybe_added:
                wrong.append(f"nobody added {content!r}")
        contents = [tuple(content) for content in entries.values()]
        if len(contents) != len(set(contents)):
            wrong.append("an entry exists twice")
        gone = self.deleted | self.maybe_deleted
        for entry_id, (owners, least, most) in self.pending.items():
            if entry_id in self.acked:
                if entry_id in pending:
                    wrong.append(f"{entry_id!r} was acknowledged and is pending")
            elif not least or entry_id in self.maybe_acked or entry_id in gone:
                continue  # claimed from a consumer that does not know it owned it; or an XACK or XDEL was in flight
            elif entry_id not in pending:
                wrong.append(f"{entry_id!r} is not pending")
            elif pending[entry_id][0] not in owners:
                wrong.append(f"{entry_id!r} belongs to {pending[entry_id][0]!r}, not one of {owners}")
            elif not least <= pending[entry_id][1] <= most:
                wrong.append(f"{entry_id!r} was delivered {pending[entry_id][1]} times, not {least} to {most}")
        for entry_id, (owner, _) in pending.items():
            if entry_id not in self.pending and owner not in self.readers:
                wrong.append(f"{entry_id!r} is pending for {owner!r}, who did not receive it")
        return wrong

    def adopt(self, entries: dict[bytes, list[bytes]], pending: dict[bytes, tuple[bytes, int]]) -> None:
        """Take the state found as the new baseline."""
        self.entries = dict(entries)
        self.ids |= set(entries)
        self.pending = {entry_id: ({owner}, count, count) for entry_id, (owner, count) in pending.items()}
        self.given |= set(pending)
        for each in (self.deleted, self.maybe_deleted, self.maybe_acked, self.acked, self.readers):
            each.clear()
        self.maybe_deleted |= set(pending) - set(entries)  # a claim removes these from the list
        self.maybe_added.clear()


# --- The load ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Unit:
    """Requests that take effect together: one, or a transaction.

    shared  about the shared stream
    """

    requests: list[Request]
    shared: bool = False


class Worker:
    """A client that works until it is stopped or its connection is closed.

    shares     how many of its requests are about the shared stream, 0 to 1
    done       what was acknowledged since the last check, in order
    told_at    times of these, in monotonic seconds
    open       requests that were not acknowledged
    failures   unexpected replies
    """

    def __init__(self, number: int, seed: int, model: SharedModel, *, shares: float = 0.4) -> None:
        self.name = b"w%d" % number
        self.shares = shares
        self.chance = random.Random(f"{seed}-{number}")
        self.keys = OwnKeys(self.name, self.chance)
        self.model = model
        self.done: list[Unit] = []
        self.told_at: list[float] = []
        self.open: list[Unit] = []
        self.failures: list[str] = []
        self.refused = 0
        self.told = 0
        self._mine: list[bytes] = []  # entries of the shared stream that were delivered to it

    def work(self, port: int, stopped: threading.Event) -> None:
        try:
            with Wire(port) as wire:
                while not stopped.is_set():
                    self.open = [self._unit() for _ in range(self.chance.choice([1, 1, 2, 4, 8, 16]))]
                    wire.send_bytes(b"".join(map(_encode, self.open)))
                    while self.open:
                        replies = [wire.read() for _ in self.open[0].requests]
                        self._take(self.open[0], replies)
                        del self.open[0]
        except (ConnectionClosed, OSError):
            pass
        except BaseException as error:
            self.failures.append(repr(error))
            raise
        for unit in self.open:
            if unit.shared:
                self.model.on_its_way(unit.requests[0])

    def _take(self, unit: Unit, replies: list[Reply]) -> None:
        """The replies to a unit have come."""
        refusals = [
            reply for reply in replies if reply.is_error and reply.value.split()[0] in (b"MISCONF", b"EXECABORT")
        ]
        if refusals:
            self.refused += 1  # none of it was executed
            return
        if unit.shared:
            request, reply = unit.requests[0], replies[0]
            if reply.is_error:
                self.failures.append(f"{request!r}: {reply!r}")
                return
            self.model.acknowledged(request, reply)
            if request[0] == b"XREADGROUP" and reply.kind == "*":
                self._mine += [entry_id for entry_id, _ in reply.plain()[0][1]]
        else:
            self.done.append(unit)
            self.told_at.append(time.monotonic())
        self.told += 1

    def _unit(self) -> Unit:
        if self.chance.random() < self.shares:
            return Unit([self._shared_request()], shared=True)
        return Unit(self.keys.unit())

    def _shared_request(self) -> Request:
        what = self.chance.random()
        if what < 0.5 or not self._mine:
            self.keys.serial += 1
            if what < 0.3 or self._mine:
                return [b"XADD", SHARED, b"*", b"who", self.name, b"n", b"%d" % self.keys.serial]
        if what < 0.7 or not self._mine:
            return [b"XREADGROUP", b"GROUP", GROUP, self.name, b"COUNT", b"3", b"STREAMS", SHARED, b">"]
        some = self.chance.choice(self._mine[-50:])
        if what < 0.85:
            return [b"XACK", SHARED, GROUP, some]
        if what < 0.95:
            with self.model.lock:
                known = list(self.model.pending)[-50:]
            return [b"XCLAIM", SHARED, GROUP, self.name, b"0", self.chance.choice(known or [some]), b"JUSTID"]
        return [b"XDEL", SHARED, some]


def _encode(unit: Unit) -> bytes:
    return b"".join(
        b"*%d\r\n%s" % (len(request), b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in request))
        for request in unit.requests
    )


class Load:
    """Running workers. Ends with its `with` block, or when the server dies."""

    def __init__(self, server: Server, workers: Sequence[Worker]) -> None:
        self._server = server
        self._workers = workers
        self._stopped = threading.Event()
        self._before = sum(worker.told for worker in workers)
        self._threads = [
            threading.Thread(target=worker.work, args=(server.port, self._stopped), daemon=True) for worker in workers
        ]
        for thread in self._threads:
            thread.start()

    @property
    def acknowledged(self) -> int:
        """Units acknowledged since it started."""
        return sum(worker.told for worker in self._workers) - self._before

    def wait_for(self, units: int) -> None:
        """Return when this number of units have been acknowledged, or the server has died."""
        eventually(
            lambda: self.acknowledged >= units or not self._server.is_running or not self._is_at_work,
            60, f"{units} acknowledgements",
        )  # fmt: skip

    @property
    def _is_at_work(self) -> bool:
        return any(thread.is_alive() for thread in self._threads)

    def stop(self) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()


class Trial:
    """A data directory, its successive servers, and clients that remember what was acknowledged.

    server       the one that runs, or ran last
    environment  of servers started from now on, on top of their own
    started      all of them
    acknowledged units about clients' own keys that were acknowledged, and found
    grace_s      an acknowledgement may be lost if it is younger than this at the death, in seconds
    applied      units that were not acknowledged but took effect
    lost         units that were acknowledged but lost, as far as `grace_s` allows
    """

    def __init__(self, folder: Path, *, seed: int, workers: int = 4, shares: float = 0.4, **directives: str) -> None:
        self.folder = folder
        self.directives = directives
        self.environment: dict[str, str] = {}
        self.model = SharedModel()
        self.workers = [Worker(number, seed, self.model, shares=shares) for number in range(workers)]
        self.store = Store()
        self.server: Server | None = None
        self.started: list[Server] = []
        self._died_at = 0.0
        self.grace_s = 0.0
        self.lost = 0
        self.applied = 0
        self.acknowledged = 0

    def start(self) -> Server:
        """Start a server, wait until it answers."""
        self.server = start_in(self.folder, self.directives, self.environment)
        self.started.append(self.server)
        return self.server

    @contextmanager
    def load(self) -> Iterator[Load]:
        """Start a server, check what is there, and have the clients work until the block is left."""
        server = self.server if self.server is not None and self.server.is_running else self.start()
        self.check()
        with server.connect() as wire:
            wire.call("XGROUP", "CREATE", SHARED, GROUP, "0", "MKSTREAM")
        with self.more_load() as load:
            yield load

    @contextmanager
    def more_load(self) -> Iterator[Load]:
        """As `load`, with the running server, and without checking first."""
        assert self.server is not None
        load = Load(self.server, self.workers)
        try:
            yield load
        finally:
            load.stop()
            assert not [failure for worker in self.workers for failure in worker.failures]

    def kill(self) -> None:
        """End the server at once."""
        assert self.server is not None
        self.died()  # before it does: what is acknowledged in between is younger
        self.server.kill()

    def order(self, *command: str) -> Reply | None:
        """Run a command on the server; None when that killed it."""
        assert self.server is not None
        try:
            with self.server.connect(timeout_s=120) as wire:
                return wire.call(*command)
        except (ConnectionClosed, OSError):
            return None

    def ordered(self, *command: str) -> Reply | None:
        """As `order`, for what must not fail."""
        reply = self.order(*command)
        assert reply is None or not reply.is_error, reply
        return reply

    def info(self, field: str) -> str:
        """A field of INFO; empty when the server is dead."""
        reply = self.order("INFO", "everything")
        found = re.search(rf"^{field}:(.*?)\r?$", "" if reply is None else reply.value.decode(), re.MULTILINE)
        return "" if found is None else found[1]

    def wait_for_child(self) -> None:
        """Return when no child is running, or the server has died."""
        eventually(
            lambda: (self.info("rdb_bgsave_in_progress"), self.info("aof_rewrite_in_progress")) in (("0", "0"), ("", "")),
            60,
        )  # fmt: skip

    def check(self) -> None:
        """Check everything, starting a server if there is none; raises AssertionError."""
        server = self.server if self.server is not None and self.server.is_running else self.start()
        with server.connect(timeout_s=60) as wire:
            for worker in self.workers:
                self._check_own(worker, wire)
            self._check_shared(wire)

    def died(self) -> None:
        """Note that the server has just died, or is about to: what was acknowledged `grace_s` ago or earlier must have survived."""
        self._died_at = time.monotonic()

    def _check_own(self, worker: Worker, wire: Wire) -> None:
        ask_server, ask_store = partial(server_replies, wire), partial(store_replies, self.store)
        found, brief = own_state(worker.keys, ask_server), brief_state(worker.keys, ask_server)
        certain = len(worker.done)
        if self.grace_s:
            certain = sum(told_at < self._died_at - self.grace_s for told_at in worker.told_at)
        candidates = worker.done[certain:] + [unit for unit in worker.open if not unit.shared]
        for unit in worker.done[:certain]:
            self._run(unit)
        first, ran = own_state(worker.keys, ask_store), certain
        is_found = first == found
        for unit in [] if is_found else candidates:
            self._run(unit)
            ran += 1
            if brief_state(worker.keys, ask_store) == brief and own_state(worker.keys, ask_store) == found:
                is_found = True
                break
        self.acknowledged += min(ran, len(worker.done))
        self.lost += max(0, len(worker.done) - ran)
        self.applied += max(0, ran - len(worker.done))
        if not is_found:
            raise AssertionError(
                f"{worker.name!r}: what is there is none of {len(candidates) + 1} states;"
                f" {_differences(first, found)}; in flight: {worker.open}"
            )
        worker.done.clear()
        worker.told_at.clear()
        worker.open = []

    def _run(self, unit: Unit) -> None:
        for request in unit.requests:
            if request[0] not in (b"MULTI", b"EXEC"):
                self.store.run(*request)

    def _check_shared(self, wire: Wire) -> None:
        entries, pending = self._read_shared(wire)
        wrong = self.model.check(entries, pending)
        assert not wrong, wrong[:20]
        if len(entries) > TRIM_AT:
            wire.call("XTRIM", SHARED, "MAXLEN", TRIM_TO)
            entries, pending = self._read_shared(wire)
        self.model.adopt(entries, pending)

    def _read_shared(self, wire: Wire) -> tuple[dict[bytes, list[bytes]], dict[bytes, tuple[bytes, int]]]:
        rows = wire.call("XRANGE", SHARED, "-", "+").plain()
        entries = dict(rows)
        assert len(entries) == len(rows), "an ID exists twice"
        reply = wire.call("XPENDING", SHARED, GROUP, "-", "+", 1_000_000)
        pending = {} if reply.is_error else {row[0]: (row[1], row[3]) for row in reply.plain()}
        return entries, pending

    def close(self) -> None:
        for server in self.started:
            if server.is_running:
                server.kill()
            server.end()  # and its children


def _differences(expected: Any, found: Any) -> str:
    pairs = [(a, b) for a, b in zip(expected, found, strict=True) if a != b]
    return "; ".join(f"expected {a!r:.600}, found {b!r:.600}" for a, b in pairs[:3])
