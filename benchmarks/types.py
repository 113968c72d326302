"""Hashes, lists, sets and sorted sets: CPU per request, clients that wait, bytes of memory, files, and stalls.

    python -m benchmarks.types [--rounds N] [--only WORD] [--quick] [--servers NAMES]

Fifty connections send 16 requests at a time; values and members have 16 bytes, and `of 10` is a key with ten of them, which every
server stores packed. Members and fields of large keys are chosen at random. A waiting client gets one element, and waits again
immediately: the cost of an element is its LPUSH or ZADD, the reply to the client that was woken, and its next request.

Memory is the growth of the resident set of a server that was just started, divided by keys or by elements; the names of
keys have 10 bytes, and small sets of integers hold small ones. In a large hash, a field and its value have 16 bytes together.
What a deleted key leaves is the same growth, after keys have been added and deleted again, one by one, in another order.

A snapshot of hashes is made by Redis, and both load the same file; saving and loading are timed as by benchmarks.persistence.
A stall is the longest PING of another client while one hash grows to five million fields; the cost of expiry to others is
the 99th percentile of their PINGs while a million fields of a thousand hashes expire within a second, minus that of a second before.
"""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path

from benchmarks.cases import SEED, Case, Sample, measure, measuring, remove, send_all
from benchmarks.load import Histogram, Outcome, Requests, make_request, open_connections, run_loop
from benchmarks.memory import settled_bytes
from benchmarks.persistence import LOADED, maker_for, own_folder, said_seconds, workplace
from benchmarks.persistence import start as start_over
from benchmarks.script import command
from benchmarks.servers import Server
from benchmarks.waiting import times_as_much, to_waiting

DEPTH = 16
SMALL = 10
LARGE = 100_000
HUGE = 1_000_000
RING = 20_000
"""Different requests that are prepared for a run that repeats them."""
AT_ONCE = 100
"""Elements per request when a large key is filled."""
SMALL_KEYS = 100_000
MEASURED = 200_000
"""Elements of the large keys whose memory is measured."""
DELETED = 1_000_000
SAVED = 1_000_000
"""Hashes of ten fields in a snapshot."""
GROWN = 5_000_000
"""Fields of the hash whose growth is watched."""
EXPIRING = 1000
"""Hashes whose fields expire, and fields of each."""
FIELDS_PER_REQUEST = 10
CHUNK = 10_000
"""Requests that are prepared at a time."""
PINGS = 1000
"""PINGs between two looks at whether what is watched has ended."""
PREPARED_S = 1.0
"""The time before fields begin to expire during which others are measured."""

Make = Callable[[random.Random], Iterable[bytes]]
Ways = Callable[[int], list[str]]
"""The words of an element, by its number: member, field and value, or score and member."""


def member(at: int) -> str:
    """Sixteen bytes, different for each number, not in its order."""
    return f"m:{at * 2_654_435_761 % (1 << 32):014x}"


def pair(at: int) -> list[str]:
    return [f"f:{at:06}", member(at)]


def short_pair(at: int) -> list[str]:
    return [f"f:{at:06}", f"{at * 2_654_435_761 % (1 << 32):08x}"]


def scored(at: int) -> list[str]:
    return [str(at * 7919 % 1_000_003), member(at)]


def only(at: int) -> list[str]:
    return [member(at)]


def integer(at: int) -> list[str]:
    return [str(at)]


def filling(name: str, key: str, number: int, words: Ways) -> Iterator[bytes]:
    """Requests that add elements to one key."""
    for start in range(0, number, AT_ONCE):
        yield make_request(name, key, *(w for at in range(start, min(start + AT_ONCE, number)) for w in words(at)))


# --- Requests ----------------------------------------------------------------------------------------------------------


def repeat(number: int, make: Make, fill: Iterable[bytes] | None = None, key: str = "") -> Callable[[Server, float], Sample]:  # fmt: skip
    """The same requests over and over, each run on a key that has been removed, and filled again."""
    filled = list(fill or ())

    def run(server: Server, scale: float) -> Sample:
        if key:
            remove(server, [key])
            send_all(server, filled)
        return measure(server, Requests(make(random.Random(SEED))), int(number * scale), depth=DEPTH)

    return run


def once(number: int, make: Callable[[int], Iterable[bytes]], fill: Callable[[int], Iterable[bytes]] | None = None) -> Callable[[Server, float], Sample]:  # fmt: skip
    """Requests each of which is sent once, since it uses up or adds an element or a key, on an empty server."""

    def run(server: Server, scale: float) -> Sample:
        total = int(number * scale)
        send_all(server, [make_request("FLUSHALL", "SYNC"), *(() if fill is None else fill(total))])
        sample = measure(server, Requests(make(total)), depth=DEPTH)
        send_all(server, [make_request("FLUSHALL", "SYNC")])
        return sample

    return run


def one(*request: object) -> Make:
    return lambda chance: [make_request(*map(str, request))]


def any_of(size: int, words: Callable[[int, random.Random], list[str]]) -> Make:
    """Requests for elements chosen at random from `size`."""
    return lambda chance: (make_request(*words(chance.randrange(size), chance)) for _ in range(RING))


def fill_huge(server: Server, scale: float) -> None:
    send_all(server, filling("ZADD", "huge", int(HUGE * scale), scored), depth=10)


def rank_in_huge(server: Server, scale: float) -> Sample:
    ranks = any_of(int(HUGE * scale), lambda at, _: ["ZRANK", "huge", member(at)])
    return measure(server, Requests(ranks(random.Random(SEED))), int(200_000 * scale), depth=DEPTH)


def ten(key: str, name: str, words: Ways) -> list[bytes]:
    return list(filling(name, key, SMALL, words))


# --- Waiting -----------------------------------------------------------------------------------------------------------


def waiting_cases(name: str, push: Callable[[str], bytes], wait: Callable[[str, int], bytes]) -> list[Case]:
    few, many = (partial(to_waiting, push=push, wait=wait)(*each) for each in ((1, 20_000), (1000, 10_000)))
    return [
        Case(f"{name}, 1 waits", to_waiting(1, 60_000, push, wait)),
        Case(f"{name}, 100 wait", to_waiting(100, 40_000, push, wait)),
        Case(f"{name}, 1,000 wait", to_waiting(1000, 20_000, push, wait)),
        Case(f"{name}: cost with 1,000 over cost with 1", times_as_much(few, many), by="times", limit=1.2),
    ]


# --- Memory ------------------------------------------------------------------------------------------------------------


def small_keys(name: str, words: Ways) -> Callable[[Server, float], Sample]:
    """Bytes of a key of ten elements."""

    def run(server: Server, scale: float) -> Sample:
        number = int(SMALL_KEYS * scale)
        some = [w for at in range(SMALL) for w in words(at)]
        send_all(server, (make_request(name, f"warm:{at:05}", *some) for at in range(1000)))
        before = settled_bytes(server)
        send_all(server, (make_request(name, f"keys:{at:05}", *some) for at in range(number)))
        return Sample(number, figure=(settled_bytes(server) - before) / number)

    return run


def large_key(name: str, words: Ways) -> Callable[[Server, float], Sample]:
    """Bytes of an element of a large key."""

    def run(server: Server, scale: float) -> Sample:
        number = int(MEASURED * scale)
        send_all(server, filling(name, "warm", 10_000, words), depth=10)
        before = settled_bytes(server)
        send_all(server, filling(name, "large", number, words), depth=10)
        return Sample(number, figure=(settled_bytes(server) - before) / number)

    return run


def deleted_keys(name: str, words: Ways) -> Callable[[Server, float], Sample]:
    """Bytes that a key of ten elements leaves when it and all others have been deleted."""

    def run(server: Server, scale: float) -> Sample:
        number = int(DELETED * scale)
        some = [w for at in range(SMALL) for w in words(at)]
        send_all(server, (make_request(name, f"warm:{at:07}", *some) for at in range(1000)))
        before = settled_bytes(server)
        pieces = [range(first, min(first + CHUNK, number)) for first in range(0, number, CHUNK)]
        for piece in pieces:
            send_all(server, (make_request(name, f"keys:{at:07}", *some) for at in piece))
        for piece in pieces:  # 7919 is a prime number, so that each key has its turn
            send_all(server, (make_request("DEL", f"keys:{at * 7919 % number:07}") for at in piece))
        return Sample(number, figure=(settled_bytes(server) - before) / number)

    return run


def bytes_case(name: str, run: Callable[[Server, float], Sample], limit: float | None = None) -> Case:
    return Case(name, run, 1.0 if limit is None else None, "bytes", limit=limit, is_alone=True, rounds=1)


# --- Files -------------------------------------------------------------------------------------------------------------


def fill_hashes(server: Server, number: int) -> None:
    """Hashes of ten fields each."""
    some = [w for at in range(SMALL) for w in pair(at)]
    for first in range(0, number, CHUNK):
        keys = range(first, min(first + CHUNK, number))
        send_all(server, (make_request("HSET", f"hash:{at}", *some) for at in keys))


@cache
def file_of_hashes(maker: str, number: int) -> Path:
    """A snapshot of hashes."""
    folder = workplace() / f"{maker}-hashes"
    folder.mkdir()
    with start_over(maker, folder) as server:
        fill_hashes(server, number)
        send_all(server, [make_request("SAVE")])
    return folder / "dump.rdb"


def with_hashes(server: Server, number: int, use: str) -> Path:
    """A folder with the snapshot that a server is to load."""
    folder = own_folder(server.name, use)
    shutil.copy(file_of_hashes(maker_for(server.name), number), folder / "dump.rdb")
    return folder


def load_hashes(server: Server, scale: float) -> Sample:
    number = int(SAVED * scale)
    folder = with_hashes(server, number, "loading-hashes")
    with start_over(server.name, folder) as loaded:
        if loaded.send("DBSIZE") != b":%d\r\n" % number:
            raise RuntimeError(f"{server.name} has not loaded the snapshot")
    return Sample(number, figure=said_seconds(folder, LOADED))


def save_hashes(server: Server, scale: float) -> Sample:
    number = int(SAVED * scale)
    with start_over(server.name, with_hashes(server, number, "saving-hashes")) as saving:
        with measuring(saving, number) as sample:
            send_all(saving, [make_request("SAVE")])
        sample.figure = sample.seconds
    return sample


# --- Others' requests --------------------------------------------------------------------------------------------------


def pings_while(port: int, work: Callable[[], object]) -> Iterator[Outcome]:
    """The times of a client that sends one PING after the other until the work has been done."""
    ping = Requests([make_request("PING")])
    with open_connections(port) as socks, ThreadPoolExecutor(1) as pool:
        doing = pool.submit(work)
        while not doing.done():
            yield run_loop(socks, ping, PINGS, is_timed=True)
        doing.result()


def grow(server: Server, number: int) -> None:
    """Add fields to one hash."""
    for first in range(0, number, CHUNK * FIELDS_PER_REQUEST):
        starts = range(first, min(first + CHUNK * FIELDS_PER_REQUEST, number), FIELDS_PER_REQUEST)
        send_all(server, (
            make_request("HSET", "grows", *(w for at in range(at, at + FIELDS_PER_REQUEST) for w in short_pair(at)))
            for at in starts
        ), depth=5)  # fmt: skip


def stall_of_growth(server: Server, scale: float) -> Sample:
    number = int(GROWN * scale)
    longest_us = max(
        outcome.times.percentile_us(1.0) for outcome in pings_while(server.port, partial(grow, server, number))
    )
    return Sample(number, figure=longest_us / 1000)


def wait_for_expiry(server: Server) -> None:
    """Wait until nothing is left of the hashes whose fields expire."""
    while server.send("DBSIZE") != b":0\r\n":
        time.sleep(0.05)


def cost_of_expiry(server: Server, scale: float) -> Sample:
    """The 99th percentile of PINGs while fields expire, minus that of those before, in ms."""
    each = int(EXPIRING * scale)
    fields = [f"f{at}" for at in range(each)]
    send_all(
        server, (make_request("HSET", f"hash:{key}", *(w for f in fields for w in (f, "v"))) for key in range(EXPIRING))
    )
    first_ms = int((time.time() + PREPARED_S + 5 + 30 * scale) * 1000)
    moments = min(each, 100)
    for key in range(EXPIRING):
        send_all(server, (
            make_request("HPEXPIREAT", f"hash:{key}", first_ms + at * 1000 // moments, "FIELDS", len(some), *some)
            for at in range(moments) for some in (fields[at::moments],)
        ))  # fmt: skip
    ping = Requests([make_request("PING")])
    quiet, busy = Histogram(), Histogram()
    with open_connections(server.port) as socks:
        while time.time() * 1000 < first_ms - 1000 * PREPARED_S:
            run_loop(socks, ping, PINGS)
        while time.time() * 1000 < first_ms:
            quiet.add(run_loop(socks, ping, PINGS, is_timed=True).times)
    if not quiet.total:
        raise RuntimeError(f"fields of {server.name} began to expire before all of them were there")
    for outcome in pings_while(server.port, partial(wait_for_expiry, server)):
        busy.add(outcome.times)
    return Sample(EXPIRING * each, figure=(busy.percentile_us(0.99) - quiet.percentile_us(0.99)) / 1000)


# --- All ---------------------------------------------------------------------------------------------------------------

HASH, LIST, SET, ZSET = ("HSET", pair), ("RPUSH", only), ("SADD", only), ("ZADD", scored)
LARGE_HASH = list(filling("HSET", "hash", LARGE, pair))
LARGE_SET = list(filling("SADD", "set", LARGE, only))
LARGE_ZSET = list(filling("ZADD", "zset", LARGE, scored))
HUNDRED = list(filling("RPUSH", "list", 100, only))

CASES = [
    Case("HGET", repeat(600_000, any_of(SMALL, lambda at, _: ["HGET", "hash", pair(at)[0]]), ten("hash", *HASH), "hash"), 1.1),
    Case("HINCRBY", repeat(600_000, one("HINCRBY", "hash", "n", 1), ten("hash", *HASH), "hash"), 1.1),
    Case("HSET", repeat(600_000, any_of(SMALL, lambda at, _: ["HSET", "hash", *pair(at)]), ten("hash", *HASH), "hash"), 1.2),
    Case("HSET of a new key", once(200_000, lambda n: (make_request("HSET", f"h:{i}", *pair(i)) for i in range(n))), 1.0),
    Case("HGET in 100k", repeat(400_000, any_of(LARGE, lambda at, _: ["HGET", "hash", pair(at)[0]]), LARGE_HASH, "hash"), 1.3),
    Case("HSET in 100k", repeat(400_000, any_of(LARGE, lambda at, _: ["HSET", "hash", *pair(at)]), LARGE_HASH, "hash"), 1.3),
    Case("HGETALL of 10", repeat(300_000, one("HGETALL", "hash"), ten("hash", *HASH), "hash"), 1.5),
    Case("LPUSH", repeat(600_000, one("LPUSH", "list", member(1)), (), "list"), 1.1),
    Case("LPOP", once(400_000, lambda n: [make_request("LPOP", "list")] * n, lambda n: filling("RPUSH", "list", n, only)), 1.1),
    Case("LRANGE 100", repeat(100_000, one("LRANGE", "list", 0, 99), HUNDRED, "list"), 2.0),
    Case("SADD in 100k", repeat(400_000, any_of(LARGE, lambda at, _: ["SADD", "set", member(at)]), (), "set"), 1.2),
    Case("SADD of a new key", once(200_000, lambda n: (make_request("SADD", f"s:{i}", member(i)) for i in range(n))), 1.0),
    Case("SISMEMBER in 100k", repeat(400_000, any_of(LARGE, lambda at, _: ["SISMEMBER", "set", member(at)]), LARGE_SET, "set"), 1.2),
    Case("ZADD of new members", once(200_000, lambda n: (make_request("ZADD", "zset", *scored(i)) for i in range(n))), 1.2),
    Case("ZADD moving one in 100k", repeat(300_000, any_of(LARGE, lambda at, chance: ["ZADD", "zset", str(chance.randrange(1_000_003)), member(at)]), LARGE_ZSET, "zset"), 1.5),
    Case("ZRANGEBYSCORE LIMIT 10", repeat(200_000, any_of(990_000, lambda at, _: ["ZRANGEBYSCORE", "zset", str(at), "+inf", "LIMIT", "0", "10"]), LARGE_ZSET, "zset"), 1.5),
    Case("ZRANGE 100", repeat(60_000, any_of(LARGE - 100, lambda at, _: ["ZRANGE", "zset", str(at), str(at + 99)]), LARGE_ZSET, "zset"), 1.5),
    Case("ZRANGE 100 WITHSCORES", repeat(40_000, any_of(LARGE - 100, lambda at, _: ["ZRANGE", "zset", str(at), str(at + 99), "WITHSCORES"]), LARGE_ZSET, "zset"), 1.5),
    Case("ZPOPMIN", once(200_000, lambda n: [make_request("ZPOPMIN", "zset")] * n, lambda n: filling("ZADD", "zset", n, scored)), 1.2),
    Case("ZRANK in 1M", rank_in_huge, 1.5, prepare=fill_huge),
    *waiting_cases("BLPOP", lambda key: make_request("LPUSH", key, member(1)), lambda key, _: make_request("BLPOP", key, 0)),
    *waiting_cases("BZPOPMIN", lambda key: make_request("ZADD", key, 1, member(1)), lambda key, _: make_request("BZPOPMIN", key, 0)),
    bytes_case("bytes of a hash of 10", small_keys(*HASH)),
    bytes_case("bytes of a list of 10", small_keys(*LIST)),
    bytes_case("bytes of a set of 10", small_keys(*SET)),
    bytes_case("bytes of a set of 10 integers", small_keys("SADD", integer)),
    bytes_case("bytes of a sorted set of 10", small_keys(*ZSET)),
    bytes_case("bytes of a field, 200,000", large_key("HSET", short_pair), 30),
    bytes_case("bytes of an element of a list, 200,000", large_key(*LIST), 18),
    bytes_case("bytes of a member of a set, 200,000", large_key(*SET), 30),
    bytes_case("bytes of an integer of a set, 200,000", large_key("SADD", integer), 29),
    bytes_case("bytes of a member of a sorted set, 200,000", large_key(*ZSET), 45),
    *(bytes_case(f"bytes left of a deleted {name}", deleted_keys(*kind)) for name, kind in (("hash", HASH), ("list", LIST))),
    Case("load 1M hashes of 10", load_hashes, 1.0, "seconds"),
    Case("save 1M hashes of 10", save_hashes, 1.0, "seconds"),
    Case("longest PING while a hash grows to 5M fields", stall_of_growth, 1.0, "ms", is_alone=True),
    Case("p99 of PINGs while 1M fields expire, over that before", cost_of_expiry, None, "ms", limit=2.0, is_alone=True, rounds=2),
]  # fmt: skip

main = command(CASES, __doc__, "types")

if __name__ == "__main__":
    main()
