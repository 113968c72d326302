"""The operations whose instructions are counted, and the process that runs them: started by benchmarks.instructions
under callgrind, as `python -m benchmarks.counted LIBRARY FOLDER`.

Whole commands take the same way as in production: a real server in a real event loop reads requests from a Unix
socket and writes the replies to it. Only what is between sending a request and having its reply is counted, not the
peer; and what the loop does when nothing arrives is counted once (IDLE) and subtracted. Smaller operations are called
directly, in a loop.

Each operation is run twice: the first run, in which Python specialises code and blocks grow, is
ignored. Everything is prepared before the first is counted, because the process runs faster until then. For counts
to be repeatable, time stands still (counting.c), hashes are not random, the collector is off, and there is free memory
of every size.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import io
import json
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import hiredis

from benchmarks.load import make_request
from streamd.core.client import Client
from streamd.core.effects import Effect
from streamd.keyspace.database import Database
from streamd.persistence.aof.buffer import AofBuffer
from streamd.persistence.aof.reader import AofReader
from streamd.persistence.rdb.read import RdbReader
from streamd.persistence.rdb.write import RdbWriter
from streamd.protocol.reply import ReplyWriter
from streamd.protocol.request import RequestParser
from streamd.serve.app import Server
from streamd.settings.config import Config
from streamd.sockets.loop import ServerLoop
from streamd.values.streams.delivery import read_new
from streamd.values.streams.group import Group
from streamd.values.streams.stream import Stream

__all__ = ["IDLE", "NOTHING", "OPERATIONS", "Operation"]

SMALL = b"v" * 20
LARGE = b"v" * 1000
NOW_MS = 1_700_000_000_000
POOL_BYTES = 16384
"""What Python's allocator takes at a time for blocks of one size."""
BYTES_OVERHEAD = sys.getsizeof(b"")
TURNS = 2
"""Turns of the loop from a request to its reply: one that reads, and the end of it, which writes."""

Run = Callable[[], Awaitable[None]]


class World:
    """Three servers, one with an append-only file and one that nobody else talks to, and connections to them."""

    def __init__(self, library: ctypes.PyDLL, folder: Path) -> None:
        self.library = library
        self.toggle = library.toggle
        self.folder = folder
        self.plain = str(folder / "plain.sock")
        self.append_only = str(folder / "append-only.sock")
        self.quiet = str(folder / "quiet.sock")
        self.servers: list[Server] = []
        self.kept: list[Peer] = []
        self.brackets = 0
        self.peer: Peer

    async def start(self) -> None:
        common = {"port": 0, "dir": str(self.folder), "slowlog_log_slower_than": -1}
        for settings in (
            {"unixsocket": self.plain},
            {"unixsocket": self.append_only, "appendonly": True, "appendfsync": "no"},
            {"unixsocket": self.quiet},
        ):
            server = Server(Config.for_embedding(common | settings))
            await server.start()
            self.servers.append(server)
        self.peer = await self.connect()

    async def connect(self, path: str = "") -> Peer:
        peer = Peer(self, path or self.plain)
        await peer.call("PING")
        return peer

    async def connect_many(self, n: int, path: str = "") -> list[Peer]:
        """Connections whose requests are taken in the order in which they are sent."""
        peers = [await self.connect(path) for _ in range(n)]
        # Until the kernel looks again, the last socket that had an event is the first in its list.
        await asyncio.sleep(0)
        return peers

    async def idle(self) -> None:
        """The count of an idle turn."""
        self.brackets += 1
        self.toggle()
        for _ in range(TURNS):
            await asyncio.sleep(0)
        self.toggle()

    def count(self, function: Callable[[], object]) -> None:
        """Count one call."""
        self.brackets += 1
        self.toggle()
        function()
        self.toggle()


class Peer:
    """The other side of a connection."""

    def __init__(self, world: World, path: str) -> None:
        self.world = world
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.setblocking(False)
        self.sock.connect(path)
        self.reader = hiredis.Reader()
        self.is_counted = False

    async def call(self, *args: bytes | str | int) -> object:
        """One request and its reply, not counted."""
        return (await self.exchange([make_request(*args)]))[0]

    async def exchange(self, requests: list[bytes]) -> list[object]:
        """Requests in one piece, not counted; their replies."""
        self.sock.sendall(b"".join(requests))
        return await self.receive(len(requests))

    async def receive(self, n: int) -> list[object]:
        replies: list[object] = []
        while len(replies) < n:
            self.read(replies)
            if len(replies) < n:
                await asyncio.sleep(0)
        return replies

    def read(self, replies: list[object]) -> None:
        """Take what has come."""
        try:
            self.reader.feed(self.sock.recv(1 << 22))
        except BlockingIOError:
            return
        while (reply := self.reader.gets()) is not False:
            if isinstance(reply, hiredis.ReplyError):
                raise reply
            replies.append(reply)

    async def send(self, data: bytes, expected: int = 1, *, passing_us: int = 100) -> list[object]:
        """Requests in one piece, counted up to their replies. The clock advances before."""
        self.world.library.let_time_pass(passing_us)
        self.sock.sendall(data)
        replies: list[object] = []
        while True:
            await self.world.idle()
            self.read(replies)
            if len(replies) >= expected:
                return replies


@dataclass(frozen=True)
class Operation:
    """
    name     its name in the table
    unit     the unit that a figure is for
    count    how many units a run does
    prepare  prepares what two runs need
    has_turns  whether the turns of the loop are counted with it, not only calls
    """

    name: str
    unit: str
    count: int
    prepare: Callable[[World], Awaitable[Run]]
    has_turns: bool = True


OPERATIONS: list[Operation] = []


def operation(
    name: str, unit: str, count: int, *, has_turns: bool = True
) -> Callable[[Callable[[World], Awaitable[Run]]], None]:
    def add(prepare: Callable[[World], Awaitable[Run]]) -> None:
        OPERATIONS.append(Operation(name, unit, count, prepare, has_turns))

    return add


# --- What the counting itself costs -----------------------------------------------------------------------------------------

IDLE = "a turn without requests"
NOTHING = "nothing"


@operation(IDLE, "turn", 50)
async def _(world: World) -> Run:
    async def run() -> None:
        for _ in range(50):
            await world.idle()

    return run


@operation(NOTHING, "call", 50, has_turns=False)
async def _(world: World) -> Run:
    async def run() -> None:
        for _ in range(50):
            world.count(int)

    return run


# --- Commands: append --------------------------------------------------------------------------------------------------------


def repeated(name: str, unit: str, requests: Callable[[], Iterator[bytes]], *, pipeline: int, turns: int, of: int = 1,
             server: str = "plain", setup: Callable[[World], Awaitable[None]] | None = None) -> None:  # fmt: skip
    """An operation that is the same every time.

    requests  yields requests forever
    of        units in one request
    server    one of those of the World
    """

    async def prepare(world: World) -> Run:
        peer = await world.connect(getattr(world, server))
        if setup is not None:
            await setup(world)
        source = requests()
        pieces = iter([b"".join(next(source) for _ in range(pipeline)) for _ in range(2 * turns)])

        async def run() -> None:
            for _ in range(turns):
                await peer.send(next(pieces), pipeline)

        return run

    operation(name, unit, turns * pipeline * of)(prepare)


def always(*args: bytes | str | int) -> Callable[[], Iterator[bytes]]:
    def requests() -> Iterator[bytes]:
        while True:
            yield make_request(*args)

    return requests


def explicit_ids() -> Iterator[bytes]:
    n = 0
    while True:
        n += 1
        yield make_request("XADD", "explicit", f"{NOW_MS + n // 10}-{n % 10 + 1}", "field", SMALL)


def many_streams() -> Iterator[bytes]:
    n = 0
    while True:
        n += 1
        yield make_request("XADD", f"stream:{n * 617 % 1000:03}", "*", "field", SMALL)


async def fill_many_streams(world: World) -> None:
    for n in range(1000):
        await world.peer.call("XADD", f"stream:{n:03}", "*", "field", SMALL)


async def fill_trimmed(world: World) -> None:
    await fill(world, "trimmed", 1000)


async def fill(world: World, key: str, n: int) -> None:
    """A stream of `n` entries, IDs NOW_MS-0 to NOW_MS-n, ten for each millisecond."""
    requests = [make_request("XADD", key, f"{NOW_MS + i // 10}-{i % 10 + 1}", "field", SMALL) for i in range(n)]
    for i in range(0, n, 1000):
        await world.peer.exchange(requests[i : i + 1000])


repeated("XADD", "command", always("XADD", "one", "*", "field", SMALL), pipeline=1, turns=200)
repeated("XADD, pipeline 16", "command", always("XADD", "sixteen", "*", "field", SMALL), pipeline=16, turns=25)
repeated("XADD, pipeline 100", "command", always("XADD", "hundred", "*", "field", SMALL), pipeline=100, turns=5)
repeated("XADD with IDs given, pipeline 16", "command", explicit_ids, pipeline=16, turns=25)
repeated("XADD of 1 KB, pipeline 16", "command", always("XADD", "large", "*", "field", LARGE), pipeline=16, turns=25)
repeated("XADD to 1,000 streams, pipeline 16", "command", many_streams, pipeline=16, turns=25, setup=fill_many_streams)
repeated(
    "XADD MAXLEN ~ 1000, pipeline 16", "command",
    always("XADD", "trimmed", "MAXLEN", "~", 1000, "*", "field", SMALL), pipeline=16, turns=25, setup=fill_trimmed,
)  # fmt: skip
repeated(
    "XADD with an append-only file, pipeline 16", "command", always("XADD", "kept", "*", "field", SMALL),
    pipeline=16, turns=25, server="append_only",
)  # fmt: skip


# --- Commands: scripts -------------------------------------------------------------------------------------------------------

repeated("EVAL, a script with one command", "command", always("EVAL", "return redis.call('INCRBY', KEYS[1], ARGV[1])", 1, "counter", 1),
         pipeline=1, turns=200)  # fmt: skip


# --- Commands: ranges --------------------------------------------------------------------------------------------------------

RANGED = 2000
MIDDLE = f"{NOW_MS + RANGED // 20}-1"


async def fill_ranged(world: World) -> None:
    if not await world.peer.call("EXISTS", "ranged"):
        await fill(world, "ranged", RANGED)


for words, count in ((("XRANGE", "ranged", MIDDLE, "+"), 10), (("XRANGE", "ranged", MIDDLE, "+"), 100),
                     (("XREVRANGE", "ranged", MIDDLE, "-"), 10), (("XREVRANGE", "ranged", MIDDLE, "-"), 100)):  # fmt: skip
    repeated(
        f"{words[0]} COUNT {count}", "entry", always(*words, "COUNT", count), pipeline=1, turns=1000 // count // 2,
        of=count, setup=fill_ranged,
    )  # fmt: skip
repeated(
    "XREVRANGE, the last entry, pipeline 16", "command", always("XREVRANGE", "ranged", "+", "-", "COUNT", 1),
    pipeline=16, turns=25, setup=fill_ranged,
)  # fmt: skip
repeated(
    "XREAD COUNT 100", "entry", always("XREAD", "COUNT", 100, "STREAMS", "ranged", MIDDLE), pipeline=1, turns=5,
    of=100, setup=fill_ranged,
)  # fmt: skip


# --- Commands: groups --------------------------------------------------------------------------------------------------------


def group_operations(count: int, turns: int) -> None:
    """Reading new entries and acknowledging them; one operation for each, so that each has its figure."""
    key = f"group:{count}"

    async def read(world: World) -> Run:
        await fill(world, key, 2 * turns * count)
        await world.peer.call("XGROUP", "CREATE", key, "group", "0")
        request = make_request("XREADGROUP", "GROUP", "group", "consumer", "COUNT", count, "STREAMS", key, ">")

        async def run() -> None:
            for _ in range(turns):
                await world.peer.send(request)

        return run

    operation(f"XREADGROUP COUNT {count}", "entry", turns * count)(read)

    async def acknowledge(world: World) -> Run:
        # The entries that the operation above has read, all of them pending.
        ids = [f"{NOW_MS + i // 10}-{i % 10 + 1}" for i in range(2 * turns * count)]
        requests = iter([make_request("XACK", key, "group", *ids[i : i + count]) for i in range(0, len(ids), count)])

        async def run() -> None:
            for _ in range(turns):
                assert await world.peer.send(next(requests)) == [count]

        return run

    operation(f"XACK of {count}", "entry", turns * count)(acknowledge)


group_operations(1, 100)
group_operations(10, 30)
group_operations(100, 5)

PENDING = 2000


async def fill_pending(world: World) -> None:
    """A group with PENDING entries, in the hands of ten consumers."""
    if not await world.peer.call("EXISTS", "pending"):
        await fill(world, "pending", PENDING)
        await world.peer.call("XGROUP", "CREATE", "pending", "group", "0")
        for i in range(10):
            words = ("XREADGROUP", "GROUP", "group", f"consumer:{i}", "COUNT", PENDING // 10)
            await world.peer.call(*words, "STREAMS", "pending", ">")


def claims() -> Iterator[bytes]:
    n = 0
    while True:
        n += 1
        entry_id = f"{NOW_MS + n * 37 % PENDING // 10}-{n * 37 % 10 + 1}"
        yield make_request("XCLAIM", "pending", "group", f"consumer:{n % 10}", 0, entry_id)


def automatic_claims() -> Iterator[bytes]:
    n = 0
    while True:
        n += 1
        start = f"{NOW_MS + n * 370 % (PENDING // 2) // 10}-1"
        yield make_request("XAUTOCLAIM", "pending", "group", f"consumer:{n % 10}", 0, start, "COUNT", 100)


repeated("XCLAIM, pipeline 16", "command", claims, pipeline=16, turns=25, setup=fill_pending)
repeated("XAUTOCLAIM COUNT 100", "entry", automatic_claims, pipeline=1, turns=5, of=100, setup=fill_pending)
for name, args in (
    ("XAUTOCLAIM without a hit", ("XAUTOCLAIM", "pending", "group", "consumer:0", 3_600_000, "0", "COUNT", 100)),
    ("XPENDING, summary", ("XPENDING", "pending", "group")),
    ("XPENDING, range of 100", ("XPENDING", "pending", "group", "-", "+", 100)),
    ("XPENDING IDLE without a hit", ("XPENDING", "pending", "group", "IDLE", 3_600_000, "-", "+", 100)),
):
    repeated(name, "command", always(*args), pipeline=1, turns=30, setup=fill_pending)


# --- Commands: waiting and subscribed clients----------------------------------------------------------------------------------


@operation("message to a group with 100 waiting", "message", 50)
async def _(world: World) -> Run:
    await world.peer.call("XGROUP", "CREATE", "work", "group", "0", "MKSTREAM")
    workers = await world.connect_many(100)
    requests = [make_request("XREADGROUP", "GROUP", "group", f"worker:{i:03}", "BLOCK", 0, "STREAMS", "work", ">")
                for i in range(100)]  # fmt: skip
    for worker, request in zip(workers, requests, strict=True):
        worker.sock.sendall(request)
    message = make_request("XADD", "work", "*", "field", SMALL)
    turn = iter([*range(100)] * 2)

    async def run() -> None:
        for _ in range(50):
            i = next(turn)
            await world.peer.send(message)
            assert await workers[i].receive(1)
            # Waiting again is counted as well: once per message, however many wait.
            workers[i].sock.sendall(requests[i])
            await world.idle()

    return run


@operation("message to 100 waiting in XREAD", "delivery", 500)
async def _(world: World) -> Run:
    readers = await world.connect_many(100)
    request = make_request("XREAD", "BLOCK", 0, "STREAMS", "news", "$")
    message = make_request("XADD", "news", "*", "field", SMALL)
    for reader in readers:
        reader.sock.sendall(request)

    async def run() -> None:
        for _ in range(5):
            await world.peer.send(message)
            for reader in readers:
                assert await reader.receive(1)
                reader.sock.sendall(request)
            await world.idle()

    return run


def publishing(name: str, subscribers: int, turns: int, subscribe: Callable[[int], tuple[str, str]]) -> None:
    channel = name.replace(" ", "-")

    async def prepare(world: World) -> Run:
        listeners = await world.connect_many(subscribers)
        for i, listener in enumerate(listeners):
            word, subject = subscribe(i)
            await listener.call(word, subject.format(channel=channel))
        message = make_request("PUBLISH", channel, SMALL)

        async def run() -> None:
            for _ in range(turns):
                assert await world.peer.send(message) == [subscribers]
                for listener in listeners:
                    await listener.receive(1)

        return run

    operation(name, "delivery", turns * subscribers)(prepare)


publishing("PUBLISH to 1", 1, 100, lambda i: ("SUBSCRIBE", "{channel}"))
publishing("PUBLISH to 100", 100, 5, lambda i: ("SUBSCRIBE", "{channel}"))
publishing("PUBLISH to 100 patterns", 100, 5, lambda i: ("PSUBSCRIBE", "{channel}" + "*" * (i % 3 + 1)))


# --- Commands: what a server says about itself --------------------------------------------------------------------------------

LISTED = 200


async def store_something(world: World) -> None:
    await (await world.connect(world.quiet)).call("SET", "key", SMALL)


async def connect_listed(world: World) -> None:
    # Two are there: that of this operation, and that of XADD.
    world.kept += await world.connect_many(LISTED - 2, world.append_only)


repeated("INFO", "command", always("INFO"), pipeline=1, turns=30, server="quiet", setup=store_something)
repeated(
    "CLIENT LIST of 200", "client", always("CLIENT", "LIST"), pipeline=1, turns=5, of=LISTED, server="append_only",
    setup=connect_listed,
)  # fmt: skip


# --- Rooms by themselves -----------------------------------------------------------------------------------------------------


def direct(name: str, unit: str, count: int, make: Callable[[], Callable[[], object]]) -> None:
    """An operation without a server; `make` returns what is called, once for each run."""

    async def prepare(world: World) -> Run:
        calls = iter([make(), make()])

        async def run() -> None:
            world.count(next(calls))

        return run

    operation(name, unit, count, has_turns=False)(prepare)


def entry_of(value: bytes) -> list[tuple[bytes, bytes]]:
    return [(b"field", value)]


def filled(n: int, value: bytes = SMALL) -> Stream:
    stream = Stream()
    for i in range(n):
        stream.append(entry_of(value), (NOW_MS + i // 10, i % 10 + 1))
    return stream


def append_to_stream(value: bytes, *, is_explicit: bool) -> Callable[[], object]:
    stream, fields = filled(10, value), entry_of(value)
    append_ids = [(NOW_MS + 1 + i // 10, i % 10 + 1) if is_explicit else None for i in range(500)]

    def call() -> None:
        append = stream.append
        for entry_id in append_ids:
            append(fields, entry_id, now_ms=NOW_MS + 1)

    return call


def range_of_stream(*, reverse: bool) -> Callable[[], object]:
    stream = filled(1000)
    return lambda: stream.range(reverse=reverse, count=500)


def deliver() -> Callable[[], object]:
    stream, group = filled(1000), Group(b"group")
    return lambda: read_new(stream, group, b"consumer", now_ms=NOW_MS, count=500)


def acknowledge() -> Callable[[], object]:
    stream, group = filled(500), Group(b"group")
    read_new(stream, group, b"consumer", now_ms=NOW_MS)
    ids = [entry[0] for entry in stream.range()]
    return lambda: group.acknowledge(ids)


def parse(value: bytes) -> Callable[[], object]:
    data = b"".join(make_request("XADD", "stream", "*", "field", value) for _ in range(500))
    parser = RequestParser(authenticated=True)

    def call() -> None:
        parser.feed(data)
        take = parser.next_request
        while take() is not None:
            pass

    return call


def reply() -> Callable[[], object]:
    writer, values = ReplyWriter(), [b"field", SMALL] * 50

    def call() -> None:
        for _ in range(10):
            writer.bulk_array(values)
        writer.clear()

    call()  # a writer's first long reply is moved once
    return call


def log_effects() -> Callable[[], object]:
    buffer, effects = AofBuffer(), [Effect(0, [b"XADD", b"stream", b"1700000000000-1", b"field", SMALL])] * 500
    buffer.is_open = True
    return lambda: buffer.take_effects(effects, NOW_MS)


def database_of(stream: Stream | None = None) -> Database:
    database = Database(0)
    if stream is not None:
        database.set(b"stream", stream)
    return database


def save() -> Callable[[], object]:
    database = database_of(filled(5000))
    return lambda: RdbWriter(io.BytesIO()).write([database], now_ms=NOW_MS)


def load() -> Callable[[], object]:
    sink = io.BytesIO()
    RdbWriter(sink).write([database_of(filled(5000))], now_ms=NOW_MS)
    reader = RdbReader(sink.getvalue(), [database_of()])
    return reader.load


direct("stream: append, ID made", "entry", 500, lambda: append_to_stream(SMALL, is_explicit=False))
direct("stream: append, ID given", "entry", 500, lambda: append_to_stream(SMALL, is_explicit=True))
direct("stream: append of 1 KB", "entry", 500, lambda: append_to_stream(LARGE, is_explicit=False))
direct("stream: range", "entry", 500, lambda: range_of_stream(reverse=False))
direct("stream: range from the end", "entry", 500, lambda: range_of_stream(reverse=True))
direct("group: deliver new entries", "entry", 500, deliver)
direct("group: acknowledge", "entry", 500, acknowledge)
direct("requests: parse an XADD", "request", 500, lambda: parse(SMALL))
direct("requests: parse an XADD of 1 KB", "request", 500, lambda: parse(LARGE))
direct("replies: write bulk strings", "string", 1000, reply)
direct("append-only file: put an XADD down", "command", 500, log_effects)
direct("snapshot: save", "entry", 5000, save)
direct("snapshot: load", "entry", 5000, load)


@operation("append-only file: run again", "command", 500, has_turns=False)
async def _(world: World) -> Run:
    data = b"".join(
        make_request("XADD", "again", f"{NOW_MS + i // 10}-{i % 10 + 1}", "field", SMALL) for i in range(1000)
    )
    dispatcher = world.servers[0].dispatcher
    client = Client(dispatcher)
    reader = AofReader(io.BytesIO(data), len(data))

    async def run() -> None:
        world.count(lambda: reader.replay(lambda args: dispatcher.replay(client, args), 500))

    return run


# --- The process ---------------------------------------------------------------------------------------------------------------


def loosen_memory() -> list[object]:
    """Give Python's allocator free blocks of every size, in pools that never become empty; returns what must be kept.

    Otherwise it depends on earlier allocations whether an operation that takes and frees a block makes the allocator
    take and free a whole pool, which is two hundred instructions.
    """
    kept: list[object] = []
    for size in range(16, 513, 16):
        n = 16 * POOL_BYTES // size
        made = [object() if size == 16 else float(i) if size == 32 else bytes(size - BYTES_OVERHEAD) for i in range(n)]
        kept += made[:: POOL_BYTES // size // 2]
    return kept


async def main(library: ctypes.PyDLL, folder: Path) -> None:
    world = World(library, folder)
    await world.start()
    runs = [(operation, await operation.prepare(world)) for operation in OPERATIONS]
    gc.collect()
    gc.freeze()
    gc.disable()
    kept = loosen_memory()
    told = []
    library.start_instrumentation()
    for operation_, run in runs:
        await run()
        library.forget()
        world.brackets = 0
        await run()
        library.dump(operation_.name.encode())
        told.append({"name": operation_.name, "brackets": world.brackets})
    del kept
    (folder / "told.json").write_text(json.dumps(told))


if __name__ == "__main__":
    native = ctypes.PyDLL(sys.argv[1])
    native.dump.argtypes = [ctypes.c_char_p]
    native.let_time_pass.argtypes = [ctypes.c_int64]
    for function in (native.toggle, native.forget, native.dump, native.let_time_pass, native.start_instrumentation):
        function.restype = None
    with asyncio.Runner(loop_factory=ServerLoop) as runner:
        runner.run(main(native, Path(sys.argv[2])))
