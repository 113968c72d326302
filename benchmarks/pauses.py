"""How long one command blocks all clients: each command with the widest arguments that it accepts, beside Redis.

    python -m benchmarks.pauses [--rounds N] [--only PATTERN] [--servers NAMES]

While one client sends a wide request (many keys, many patterns, many IDs, long strings ...), another sends PING after PING.
The output is the command's time by the server's own count (`commandstats`) and the longest PING, both the minimum of the
rounds, and their ratios to Redis, the worst first. For a few microseconds a ratio means nothing: less than a millisecond
blocks nobody.

`WIDE` has a request for every command that takes arguments without a bound, or walks what may be large; `NARROW` names the
others. A test compares both with the table of commands.
"""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import click

from benchmarks.load import make_request
from benchmarks.servers import BASE, Server, describe_machine, end_in_order, find_servers, pin_load, start_server

__all__ = ["NARROW", "WIDE", "Wide", "main"]

Request = tuple[bytes | str | int, ...]

KEYS = 100_000
ENTRIES = 200_000
WORDS = 20_000
"""Names, patterns or IDs in one request."""
GROUPS = 1000
USERS = 2000
CLIENTS = 2000
CHANNELS = 10_000
LONG = b"x" * (8 << 20)


def words(prefix: str, count: int = WORDS) -> tuple[str, ...]:
    return tuple(f"{prefix}{number}" for number in range(count))


def pairs(prefix: str, count: int = WORDS) -> tuple[str, ...]:
    return tuple(word for number in range(count) for word in (f"{prefix}{number}", "v"))


def entry_ids(count: int = WORDS) -> tuple[str, ...]:
    return tuple(f"{number + 1}-1" for number in range(count))


@dataclass(frozen=True)
class Wide:
    """A wide request.

    request  what is measured
    before   requests that make what it needs, for each round
    stat     the name in `commandstats`; empty: as in the request
    after    requests that undo what it did
    """

    request: Request
    before: tuple[Request, ...] = ()
    stat: str = ""
    after: tuple[Request, ...] = ()


ELEMENTS = words("m")
HASH: tuple[Request, ...] = (("DEL", "h"), ("HSET", "h", *pairs("m")))
LIST: tuple[Request, ...] = (("DEL", "l"), ("RPUSH", "l", *ELEMENTS))
SETS: tuple[Request, ...] = (("DEL", "set", "other"), ("SADD", "set", *ELEMENTS), ("SADD", "other", *ELEMENTS))
SCORES = tuple(word for number in range(WORDS) for word in (number, f"m{number}"))
SORTED: tuple[Request, ...] = (("DEL", "z", "y"), ("ZADD", "z", *SCORES), ("ZADD", "y", *SCORES))

STREAM_COPY: tuple[Request, ...] = (("DEL", "t"), ("COPY", "s", "t"))
PENDING: tuple[Request, ...] = (*STREAM_COPY, ("XREADGROUP", "GROUP", "g", "c", "COUNT", WORDS, "STREAMS", "t", ">"))

WIDE: dict[str, Wide] = {
    # Streams
    "XACK": Wide(("XACK", "t", "g", *entry_ids()), PENDING),
    "XACKDEL": Wide(("XACKDEL", "t", "g", "IDS", WORDS, *entry_ids()), PENDING),
    "XADD": Wide(("XADD", "x", "*", *pairs("f")), (("DEL", "x"),)),
    "XAUTOCLAIM": Wide(("XAUTOCLAIM", "t", "g", "d", 0, 0, "COUNT", WORDS), PENDING),
    "XCLAIM": Wide(("XCLAIM", "t", "g", "d", 0, *entry_ids()), PENDING),
    "XDEL": Wide(("XDEL", "t", *entry_ids()), STREAM_COPY),
    "XDELEX": Wide(("XDELEX", "t", "DELREF", "IDS", WORDS, *entry_ids()), PENDING),
    "XGROUP DELCONSUMER": Wide(("XGROUP", "DELCONSUMER", "t", "g", "c"), PENDING),
    "XGROUP DESTROY": Wide(("XGROUP", "DESTROY", "t", "g"), PENDING),
    "XINFO CONSUMERS": Wide(("XINFO", "CONSUMERS", "groups", "g0")),
    "XINFO GROUPS": Wide(("XINFO", "GROUPS", "groups")),
    "XINFO STREAM": Wide(("XINFO", "STREAM", "t", "FULL", "COUNT", WORDS), PENDING),
    "XPENDING": Wide(("XPENDING", "t", "g", "-", "+", WORDS), PENDING),
    "XRANGE": Wide(("XRANGE", "s", "-", "+")),
    "XREAD": Wide(("XREAD", "STREAMS", *words("k", WORDS), *["$"] * WORDS), (("DEL", *words("k", WORDS)),),
                  after=(("MSET", *pairs("k", WORDS)),)),
    "XREADGROUP": Wide(("XREADGROUP", "GROUP", "g", "c", "STREAMS", "t", ">"), STREAM_COPY),
    "XREVRANGE": Wide(("XREVRANGE", "s", "+", "-")),
    "XTRIM": Wide(("XTRIM", "t", "MAXLEN", "1"), STREAM_COPY),
    # Keys
    "COPY": Wide(("COPY", "s", "t"), (("DEL", "t"),)),
    "DEL": Wide(("DEL", *words("d")), (("MSET", *pairs("d")),)),
    "DUMP": Wide(("DUMP", "s")),
    "EXISTS": Wide(("EXISTS", *words("k"))),
    "KEYS": Wide(("KEYS", "*")),
    "RANDOMKEY": Wide(("RANDOMKEY",)),
    "RENAME": Wide(("RENAME", "r", "t"), (("DEL", "t"), ("COPY", "s", "t"), ("SET", "r", "v"))),
    "SCAN": Wide(("SCAN", 0, "COUNT", KEYS)),
    "TOUCH": Wide(("TOUCH", *words("k"))),
    "UNLINK": Wide(("UNLINK", *words("d")), (("MSET", *pairs("d")),)),
    # Strings
    "APPEND": Wide(("APPEND", "long", LONG), (("SET", "long", LONG),)),
    "BITCOUNT": Wide(("BITCOUNT", "long"), (("SET", "long", LONG),)),
    "BITFIELD": Wide(("BITFIELD", "bits", *("INCRBY", "u8", "#1", "1") * 5000)),
    "BITFIELD_RO": Wide(("BITFIELD_RO", "bits", *("GET", "u8", "#1") * 5000)),
    "BITOP": Wide(("BITOP", "XOR", "t", "long", "long"), (("SET", "long", LONG),)),
    "BITPOS": Wide(("BITPOS", "zeros", 1), (("SET", "zeros", bytes(len(LONG))),)),
    "PFADD": Wide(("PFADD", "hll", *words("k"))),
    "PFCOUNT": Wide(("PFCOUNT", *("hll",) * 100), (("PFADD", "hll", *words("k")),)),
    "PFMERGE": Wide(("PFMERGE", "t", *("hll",) * 100), (("DEL", "t"), ("PFADD", "hll", *words("k")))),
    "DELEX": Wide(("DELEX", "long", "IFEQ", LONG), (("SET", "long", LONG),)),
    "DIGEST": Wide(("DIGEST", "long"), (("SET", "long", LONG),)),
    "GET": Wide(("GET", "long"), (("SET", "long", LONG),)),
    "GETRANGE": Wide(("GETRANGE", "long", 1, -1), (("SET", "long", LONG),)),
    "LCS": Wide(("LCS", "l1", "l2"), (("SET", "l1", "ab" * 1000), ("SET", "l2", "ba" * 1000))),
    "MGET": Wide(("MGET", *words("k"))),
    "MSET": Wide(("MSET", *pairs("k"))),
    "MSETEX": Wide(("MSETEX", WORDS, *pairs("k"), "EX", 1000)),
    "MSETNX": Wide(("MSETNX", *pairs("d")), (("DEL", *words("d")),), after=(("DEL", *words("d")),)),
    "SET": Wide(("SET", "long", LONG)),
    "SETRANGE": Wide(("SETRANGE", "long", 5, LONG), (("SET", "long", LONG),)),
    # Connections
    "CLIENT KILL": Wide(("CLIENT", "KILL", "USER", "default", "TYPE", "replica")),
    "CLIENT LIST": Wide(("CLIENT", "LIST")),
    "CLIENT LIST ID": Wide(("CLIENT", "LIST", "ID", *words("", 2000)), stat="client|list"),
    "CLIENT TRACKING": Wide(("CLIENT", "TRACKING", "ON", "BCAST", *(w for p in words("p:", 2000) for w in ("PREFIX", p + ":"))),
                            after=(("CLIENT", "TRACKING", "OFF"),)),
    "CLIENT TRACKINGINFO": Wide(
        ("CLIENT", "TRACKINGINFO"),
        (("CLIENT", "TRACKING", "ON", "BCAST", *(w for p in words("p:", 2000) for w in ("PREFIX", p + ":"))),),
        after=(("CLIENT", "TRACKING", "OFF"),),
    ),
    "ECHO": Wide(("ECHO", LONG)),
    "PING": Wide(("PING", LONG)),
    "unknown command": Wide((LONG, LONG), stat="none"),
    # Publish/subscribe
    "PSUBSCRIBE": Wide(("PSUBSCRIBE", *words("p", CHANNELS)), after=(("PUNSUBSCRIBE", *words("p", CHANNELS)),)),
    "PUBLISH": Wide(("PUBLISH", "c", LONG)),
    "PUBSUB CHANNELS": Wide(("PUBSUB", "CHANNELS", "*")),
    "PUBSUB NUMSUB": Wide(("PUBSUB", "NUMSUB", *words("c", CHANNELS))),
    "PUBSUB SHARDCHANNELS": Wide(("PUBSUB", "SHARDCHANNELS", "*")),
    "PUBSUB SHARDNUMSUB": Wide(("PUBSUB", "SHARDNUMSUB", *words("c", CHANNELS))),
    "PUNSUBSCRIBE": Wide(("PUNSUBSCRIBE", *words("p", CHANNELS))),
    "SSUBSCRIBE": Wide(("SSUBSCRIBE", *words("p", CHANNELS)), after=(("SUNSUBSCRIBE", *words("p", CHANNELS)),)),
    "SUBSCRIBE": Wide(("SUBSCRIBE", *words("p", CHANNELS)), after=(("UNSUBSCRIBE", *words("p", CHANNELS)),)),
    "SUNSUBSCRIBE": Wide(("SUNSUBSCRIBE", *words("p", CHANNELS))),
    "UNSUBSCRIBE": Wide(("UNSUBSCRIBE", *words("p", CHANNELS))),
    # Transactions
    "UNWATCH": Wide(("UNWATCH",), (("WATCH", *words("k")),)),
    "WATCH": Wide(("WATCH", *words("k")), after=(("UNWATCH",),)),
    # Users
    "ACL CAT": Wide(("ACL", "CAT", "slow")),
    "ACL DELUSER": Wide(("ACL", "DELUSER", *words("nobody", WORDS))),
    "ACL DRYRUN": Wide(("ACL", "DRYRUN", "default", "MGET", *words("k"))),
    "ACL GETUSER": Wide(("ACL", "GETUSER", "wide"), (("ACL", "SETUSER", "wide", *words("~k", 2000)),), after=(("ACL", "DELUSER", "wide"),)),
    "ACL LIST": Wide(("ACL", "LIST")),
    "ACL LOG": Wide(("ACL", "LOG")),
    "ACL SETUSER": Wide(("ACL", "SETUSER", "wide", *words("~k", 2000)), after=(("ACL", "DELUSER", "wide"),)),
    "ACL SETUSER, many commands": Wide(("ACL", "SETUSER", "wide", *["+@all", "-@write", "+get", "-xadd"] * 500), stat="acl|setuser",
                                       after=(("ACL", "DELUSER", "wide"),)),
    "ACL USERS": Wide(("ACL", "USERS")),
    # The server
    "COMMAND": Wide(("COMMAND",)),
    "COMMAND DOCS": Wide(("COMMAND", "DOCS")),
    "COMMAND DOCS of many": Wide(("COMMAND", "DOCS", *["get"] * 2000), stat="command|docs"),
    "COMMAND GETKEYS": Wide(("COMMAND", "GETKEYS", "MGET", *words("k"))),
    "COMMAND GETKEYSANDFLAGS": Wide(("COMMAND", "GETKEYSANDFLAGS", "MGET", *words("k"))),
    "COMMAND INFO": Wide(("COMMAND", "INFO", *["get", "set", "xadd", "nothing"] * 1000)),
    "COMMAND LIST": Wide(("COMMAND", "LIST", "FILTERBY", "PATTERN", "*")),
    "CONFIG GET": Wide(("CONFIG", "GET", *words("*a*b", 2000))),
    "CONFIG GET of names": Wide(("CONFIG", "GET", *["maxmemory", "save", "nothing", "hz"] * 2000), stat="config|get"),
    "CONFIG SET": Wide(("CONFIG", "SET", "hz", 10, *(w for _ in range(2000) for w in ("maxmemory", 0)))),
    "FLUSHALL": Wide(("FLUSHALL",), tuple(("MSET", *pairs(f"x{n}:")) for n in range(5))),
    "FLUSHDB": Wide(("FLUSHDB",), tuple(("MSET", *pairs(f"x{n}:")) for n in range(5))),
    "INFO": Wide(("INFO", "everything")),
    "INFO of many sections": Wide(("INFO", *words("nothing", 2000)), stat="info"),
    "LATENCY DOCTOR": Wide(("LATENCY", "DOCTOR")),
    "LATENCY HISTOGRAM": Wide(("LATENCY", "HISTOGRAM")),
    "LATENCY HISTOGRAM of many": Wide(("LATENCY", "HISTOGRAM", *["get", "client", "xadd", "nothing"] * 500), stat="latency|histogram"),
    "LATENCY RESET": Wide(("LATENCY", "RESET", *words("event", 2000))),
    "MEMORY DOCTOR": Wide(("MEMORY", "DOCTOR")),
    "MEMORY MALLOC-STATS": Wide(("MEMORY", "MALLOC-STATS")),
    "MEMORY PURGE": Wide(("MEMORY", "PURGE")),
    "MEMORY STATS": Wide(("MEMORY", "STATS")),
    "MEMORY USAGE": Wide(("MEMORY", "USAGE", "s", "SAMPLES", 0)),
    "SCRIPT EXISTS": Wide(("SCRIPT", "EXISTS", *words("0" * 30, 2000))),
    "SLOWLOG GET": Wide(("SLOWLOG", "GET", -1)),
    "SWAPDB": Wide(("SWAPDB", 0, 1), after=(("SWAPDB", 0, 1),)),
    # Hashes
    "HSET": Wide(("HSET", "h", *pairs("m")), (("DEL", "h"),)),
    "HMSET": Wide(("HMSET", "h", *pairs("m")), (("DEL", "h"),)),
    "HSETEX": Wide(("HSETEX", "h", "EX", 1000, "FIELDS", WORDS, *pairs("m")), (("DEL", "h"),)),
    **{name: Wide((name, "h", *ELEMENTS), HASH) for name in ("HDEL", "HMGET")},
    **{name: Wide((name, "h"), HASH) for name in ("HGETALL", "HKEYS", "HVALS")},
    "HRANDFIELD": Wide(("HRANDFIELD", "h", WORDS // 2), HASH),
    "HSCAN": Wide(("HSCAN", "h", 0, "COUNT", WORDS), HASH),
    **{
        name: Wide((name, "h", *time, "FIELDS", WORDS, *ELEMENTS), HASH)
        for name, *time in (
            ("HEXPIRE", 1000), ("HPEXPIRE", 1_000_000), ("HEXPIREAT", 4_000_000_000), ("HPEXPIREAT", 4_000_000_000_000),
            ("HGETEX", "EX", 1000), ("HGETDEL",), ("HPERSIST",), ("HTTL",), ("HPTTL",), ("HEXPIRETIME",), ("HPEXPIRETIME",),
        )
    },
    # Lists
    **{name: Wide((name, "l", *ELEMENTS), (("DEL", "l"), ("RPUSH", "l", "m"))) for name in ("LPUSH", "LPUSHX", "RPUSH", "RPUSHX")},
    **{name: Wide((name, "l", WORDS), LIST) for name in ("LPOP", "RPOP")},
    "LRANGE": Wide(("LRANGE", "l", 0, -1), LIST),
    "LINDEX": Wide(("LINDEX", "l", WORDS // 2), LIST),
    "LINSERT": Wide(("LINSERT", "l", "BEFORE", f"m{WORDS - 1}", "x"), LIST),
    "LSET": Wide(("LSET", "l", WORDS // 2, "x"), LIST),
    "LPOS": Wide(("LPOS", "l", "none"), LIST),
    "LREM": Wide(("LREM", "l", 0, "none"), LIST),
    "LTRIM": Wide(("LTRIM", "l", 1, 1), LIST),
    "LMPOP": Wide(("LMPOP", 1, "l", "LEFT", "COUNT", WORDS), LIST),
    "BLMPOP": Wide(("BLMPOP", 0, 1, "l", "LEFT", "COUNT", WORDS), LIST),
    **{name: Wide((name, *words("none"), "l", 0), LIST) for name in ("BLPOP", "BRPOP")},
    # Sets
    "SADD": Wide(("SADD", "set", *ELEMENTS), (("DEL", "set"),)),
    **{name: Wide((name, "set", *ELEMENTS), SETS) for name in ("SREM", "SMISMEMBER")},
    "SMEMBERS": Wide(("SMEMBERS", "set"), SETS),
    **{name: Wide((name, "set", WORDS // 2), SETS) for name in ("SPOP", "SRANDMEMBER")},
    "SSCAN": Wide(("SSCAN", "set", 0, "COUNT", WORDS), SETS),
    **{name: Wide((name, "set", "other"), SETS) for name in ("SDIFF", "SINTER", "SUNION")},
    **{name: Wide((name, "to", "set", "other"), SETS) for name in ("SDIFFSTORE", "SINTERSTORE", "SUNIONSTORE")},
    "SINTERCARD": Wide(("SINTERCARD", 2, "set", "other"), SETS),
    # Sorted sets
    "ZADD": Wide(("ZADD", "z", *SCORES), (("DEL", "z"),)),
    **{name: Wide((name, "z", *ELEMENTS), SORTED) for name in ("ZREM", "ZMSCORE")},
    **{name: Wide((name, "z", WORDS), SORTED) for name in ("ZPOPMAX", "ZPOPMIN")},
    "ZRANDMEMBER": Wide(("ZRANDMEMBER", "z", WORDS // 2), SORTED),
    "ZSCAN": Wide(("ZSCAN", "z", 0, "COUNT", WORDS), SORTED),
    **{name: Wide((name, "z", 0, -1), SORTED) for name in ("ZRANGE", "ZREVRANGE", "ZREMRANGEBYRANK")},
    **{name: Wide((name, "z", "-inf", "+inf"), SORTED) for name in ("ZRANGEBYSCORE", "ZREMRANGEBYSCORE", "ZCOUNT")},
    **{name: Wide((name, "z", "-", "+"), SORTED) for name in ("ZRANGEBYLEX", "ZREMRANGEBYLEX", "ZLEXCOUNT")},
    "ZREVRANGEBYSCORE": Wide(("ZREVRANGEBYSCORE", "z", "+inf", "-inf"), SORTED),
    "ZREVRANGEBYLEX": Wide(("ZREVRANGEBYLEX", "z", "+", "-"), SORTED),
    "ZRANGESTORE": Wide(("ZRANGESTORE", "to", "z", 0, -1), SORTED),
    **{name: Wide((name, 2, "z", "y"), SORTED) for name in ("ZDIFF", "ZINTER", "ZUNION", "ZINTERCARD")},
    **{name: Wide((name, "to", 2, "z", "y"), SORTED) for name in ("ZDIFFSTORE", "ZINTERSTORE", "ZUNIONSTORE")},
    "ZMPOP": Wide(("ZMPOP", 1, "z", "MIN", "COUNT", WORDS), SORTED),
    "BZMPOP": Wide(("BZMPOP", 0, 1, "z", "MIN", "COUNT", WORDS), SORTED),
    **{name: Wide((name, *words("none"), "z", 0), SORTED) for name in ("BZPOPMAX", "BZPOPMIN")},
}  # fmt: skip
"""By name; what follows the name of a command tells its forms apart."""

NARROW: frozenset[str] = frozenset({
    "STREAMD.COUNT", "STREAMD.GROUP GET", "STREAMD.GROUP SET", "STREAMD.GROUP UNSET", "STREAMD.HISTORY", "STREAMD.LAG",
    "STREAMD.NOARCHIVE", "STREAMD.REDRIVE", "STREAMD.SPLIT", "STREAMD.STREAM GET", "STREAMD.STREAM SET", "STREAMD.STREAM UNSET",
    "XCFGSET", "XGROUP CREATE", "XGROUP CREATECONSUMER", "XGROUP SETID", "XIDMPRECORD", "XLEN", "XSETID",
    "EXPIRE", "EXPIREAT", "EXPIRETIME", "MOVE", "OBJECT ENCODING", "OBJECT FREQ", "OBJECT IDLETIME", "OBJECT REFCOUNT", "PERSIST",
    "PEXPIRE", "PEXPIREAT", "PEXPIRETIME", "PTTL", "RENAMENX", "TTL", "TYPE", "WAIT", "DECR", "DECRBY", "GETDEL", "GETEX",
    "GETBIT", "GETSET", "INCR", "INCRBY", "INCRBYFLOAT", "INCREX", "PSETEX", "SETBIT", "SETEX", "SETNX", "STRLEN", "SUBSTR",
    "HEXISTS", "HGET", "HINCRBY", "HINCRBYFLOAT", "HLEN", "HSETNX", "HSTRLEN", "LLEN", "BLMOVE", "BRPOPLPUSH", "LMOVE", "RPOPLPUSH",
    "SCARD", "SISMEMBER", "SMOVE", "ZCARD", "ZINCRBY", "ZRANK", "ZREVRANK", "ZSCORE",
    "TRIMSLOTS",    # refused without a cluster
    "RESTORE", "RESTORE-ASKING",    # depend on their payload, which benchmarks.persistence measures
    "MIGRATE",      # depends on the other server
    "AUTH", "CLIENT CACHING", "CLIENT GETNAME", "CLIENT GETREDIR", "CLIENT ID", "CLIENT INFO", "CLIENT NO-EVICT",
    "CLIENT NO-TOUCH", "CLIENT PAUSE", "CLIENT REPLY", "CLIENT SETINFO", "CLIENT SETNAME", "CLIENT UNBLOCK", "CLIENT UNPAUSE",
    "HELLO", "QUIT", "RESET", "SELECT", "ASKING", "READONLY", "READWRITE", "PUBSUB NUMPAT", "SPUBLISH", "DISCARD",
    "EXEC",         # depends on what is queued
    "MULTI", "ACL GENPASS", "ACL LOAD", "ACL SAVE", "ACL WHOAMI", "BGREWRITEAOF", "BGSAVE", "COMMAND COUNT",
    "CONFIG RESETSTAT", "CONFIG REWRITE", "DBSIZE", "DEBUG", "LASTSAVE", "LATENCY GRAPH", "LATENCY HISTORY", "LATENCY LATEST",
    "LOLWUT", "MONITOR", "ROLE", "SAVE", "SHUTDOWN", "SLOWLOG LEN", "SLOWLOG RESET", "TIME", "SCRIPT DEBUG", "SCRIPT FLUSH", "SCRIPT KILL", "SCRIPT LOAD",
    "EVAL", "EVAL_RO", "EVALSHA", "EVALSHA_RO", "FCALL", "FCALL_RO",      # depend on the script
    "FUNCTION DELETE", "FUNCTION DUMP", "FUNCTION FLUSH", "FUNCTION KILL", "FUNCTION LIST", "FUNCTION LOAD", "FUNCTION RESTORE",
    "FUNCTION STATS",
    "MODULE LIST", "MODULE LOAD", "MODULE LOADEX", "MODULE UNLOAD", "HOTKEYS GET", "HOTKEYS RESET", "HOTKEYS START",
    "HOTKEYS STOP", "FAILOVER", "PSYNC", "REPLCONF", "REPLICAOF", "SLAVEOF", "SYNC", "WAITAOF",
    "BACKUP ABORT", "BACKUP CLEANUP", "BACKUP LIST", "BACKUP SEAL", "BACKUP START", "BACKUP STATUS",
})  # fmt: skip
"""Commands whose arguments and work have a bound, and those that are measured elsewhere. HELP and CLUSTER are among them."""


# --- A client -----------------------------------------------------------------------------------------------------------


class Connection:
    """A client that reads replies without parsing them."""

    def __init__(self, server: Server) -> None:
        self.sock = server.connect()
        self.sock.settimeout(60)

    def call(self, *requests: Request) -> bytes:
        """Send requests and wait for all of their replies, which an ECHO ends."""
        end = b"the end %d" % time.monotonic_ns()
        self.sock.sendall(b"".join(make_request(*request) for request in (*requests, ("ECHO", end))))
        return self.read_to(end + b"\r\n")

    def read_to(self, end: bytes) -> bytes:
        pieces: list[bytes] = []
        tail = b""
        while not tail.endswith(end):
            piece = self.sock.recv(1 << 20)
            if not piece:
                raise ConnectionError("closed")
            pieces.append(piece)
            tail = (tail + piece)[-len(end) :]
        return b"".join(pieces)

    def close(self) -> None:
        self.sock.close()


def ping_until(stop: Callable[[], bool], sock: socket.socket) -> float:
    """The longest PING in seconds, until `stop()` says so."""
    longest = 0.0
    while not stop():
        began = time.perf_counter()
        sock.sendall(b"PING\r\n")
        sock.recv(64)
        longest = max(longest, time.perf_counter() - began)
    return longest


@dataclass
class Pause:
    """What a wide request costs: microseconds by the server's count, and of the longest PING meanwhile."""

    command_us: float
    ping_us: float


def measure(server: Server, name: str, wide: Wide, rounds: int) -> Pause:
    """The minimum of some rounds."""
    stat = wide.stat or name.replace(" ", "|").lower()
    found: list[Pause] = []
    client, pinger = Connection(server), Connection(server)
    client.call(("HELLO", 3))  # so that a subscriber may do everything
    try:
        for _ in range(rounds):
            if wide.before:
                client.call(*wide.before)
            request = make_request(*wide.request)
            before = stat_us(client, stat)
            is_done = threading.Event()
            longest = [0.0]

            def ping(is_done: threading.Event = is_done, longest: list[float] = longest) -> None:
                longest[0] = ping_until(is_done.is_set, pinger.sock)

            thread = threading.Thread(target=ping)
            thread.start()
            end = b"the end of it"
            client.sock.sendall(request + make_request("ECHO", end))
            if wide.stat == "none":
                client.sock.sendall(make_request("ECHO", end))
            client.read_to(end + b"\r\n")
            is_done.set()
            thread.join()
            found.append(Pause(stat_us(client, stat) - before, longest[0] * 1e6))
            if wide.after:
                client.call(*wide.after)
    finally:
        client.close()
        pinger.close()
    return Pause(min(each.command_us for each in found), min(each.ping_us for each in found))


def stat_us(client: Connection, stat: str) -> float:
    match = re.search(
        rb"cmdstat_%s:calls=\d+,usec=(\d+)" % re.escape(stat.encode()), client.call(("INFO", "commandstats"))
    )
    return float(match[1]) if match else 0.0


# --- The data set ---------------------------------------------------------------------------------------------------------


@contextmanager
def prepared(name: str) -> Iterator[Server]:
    """A server with many keys, entries, groups, users, subscriptions and clients."""
    with start_server(name, "--maxclients", str(2 * CLIENTS)) as server:
        client = Connection(server)
        for start in range(0, KEYS, WORDS):
            client.call(("MSET", *(w for n in range(start, start + WORDS) for w in (f"k{n}", "v"))))
        for start in range(0, ENTRIES, 10_000):
            client.call(*(("XADD", "s", f"{n + 1}-1", "f", "v") for n in range(start, start + 10_000)))
        client.call(("XGROUP", "CREATE", "s", "g", 0))
        client.call(*(("XGROUP", "CREATE", "groups", f"g{n}", 0, "MKSTREAM") for n in range(GROUPS)))
        client.call(*(("XGROUP", "CREATECONSUMER", "groups", "g0", f"c{n}") for n in range(GROUPS)))
        client.call(*(("ACL", "SETUSER", f"user{n}", "on", ">secret", "~k*", "+@read") for n in range(USERS)))
        subscriber = Connection(server)
        subscriber.sock.sendall(
            make_request("SUBSCRIBE", *words("c", CHANNELS)) + make_request("SSUBSCRIBE", *words("c", CHANNELS))
        )
        subscriber.sock.sendall(make_request("PING", "subscribed"))
        subscriber.read_to(b"subscribed\r\n")
        many = [Connection(server) for _ in range(CLIENTS)]
        for each in many[:: CLIENTS // 10]:
            each.call(("CLIENT", "SETNAME", "somebody"))
        yield server
        for each in (client, subscriber, *many):
            each.close()


def show(us: float) -> str:
    return f"{us / 1000:.2f}"


@click.command()
@click.option("--rounds", default=3, show_default=True, help="Rounds of each request.")
@click.option("--only", default="", help="A regular expression of names.")
@click.option("--servers", default=f"streamd,{BASE}", show_default=True, help="The servers, separated by commas.")
def main(rounds: int, only: str, servers: str) -> None:
    """Print how long each command blocks all clients, beside Redis."""
    names, absent = find_servers(servers.split(","))
    pin_load()
    end_in_order()
    chosen = {name: wide for name, wide in WIDE.items() if re.search(only, name)}
    results: dict[str, dict[str, Pause]] = {}
    about = ""
    for server_name in names:
        with prepared(server_name) as server:
            about = about or describe_machine(server, rounds=rounds)
            results[server_name] = {name: measure(server, name, wide, rounds) for name, wide in chosen.items()}
    click.echo(about + (f"\nleft out  {', '.join(absent)}" if absent else ""))
    ours, theirs = results["streamd"], results.get(BASE, {})

    def worst(name: str) -> float:
        """How much longer than Redis, in us: small differences come last."""
        if name not in theirs:
            return ours[name].command_us
        return max(ours[name].command_us - theirs[name].command_us, 0)

    click.echo(f"{'':34}{'command, ms':^22}{'ratio':>7}   {'longest PING, ms':^22}{'ratio':>7}")
    for name in sorted(chosen, key=worst, reverse=True):
        mine, other = ours[name], theirs.get(name)
        line = f"{name:34}{show(mine.command_us):>10}"
        if other is not None:
            line += f" {show(other.command_us):>10} {mine.command_us / max(other.command_us, 1):>7.2f}"
            line += (
                f"   {show(mine.ping_us):>10} {show(other.ping_us):>10} {mine.ping_us / max(other.ping_us, 1):>7.2f}"
            )
        click.echo(line)


if __name__ == "__main__":
    main()
