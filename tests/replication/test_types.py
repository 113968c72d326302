"""Every type of value, replicated: streamd and Redis in both roles, after random scripts. Marked `real`."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator

import pytest
from support.replicas.nodes import Node, wait_in_sync, wait_until
from support.wire import Wire

pytestmark = pytest.mark.real

PAIRS = [("streamd", "redis"), ("redis", "streamd"), ("streamd", "streamd")]
LENGTH = 400


class Requests:
    """Random writes to a few keys, which mostly hold a type of their own."""

    def __init__(self, seed: str) -> None:
        self.chance = random.Random(seed)

    def words(self, most: int = 4) -> list[str]:
        pool = [*map(str, range(40)), *(f"word{at}" for at in range(150)), "", "x" * 70]
        return self.chance.choices(pool, k=self.chance.randint(1, most))

    def pairs(self, *firsts: str) -> list[str]:
        return [word for each in self.words() for word in (self.chance.choice(firsts), each)]

    def number(self, most: int = 9) -> str:
        return str(self.chance.randint(-2, most))

    def key(self, kind: str) -> str:
        return self.chance.choice([f"{kind}1", f"{kind}1", f"{kind}2", f"{kind}3", "any"])

    def some(self, kind: str) -> list[str]:
        return [self.key(kind) for _ in range(self.chance.randint(1, 3))]

    def sets(self) -> list[str]:
        key, words = self.key("set"), self.words()
        return self.chance.choice([
            ["SADD", key, *words], ["SADD", key, *map(str, range(200))], ["SREM", key, *words], ["SPOP", key],
            ["SPOP", key, "3"], ["SMOVE", key, self.key("set"), words[0]], ["SINTERSTORE", key, *self.some("set")],
            ["SUNIONSTORE", key, *self.some("set")], ["SDIFFSTORE", key, *self.some("set")],
        ])  # fmt: skip

    def sorted_sets(self) -> list[str]:
        key, words = self.key("zset"), self.words()
        scored = self.pairs("1", "-2.5", "3e10", "inf", "0.1", "7")
        options = self.chance.choice([[], ["NX"], ["XX"], ["GT"], ["LT", "CH"]])
        return self.chance.choice([
            ["ZADD", key, *options, *scored], ["ZINCRBY", key, "0.1", words[0]], ["ZREM", key, *words],
            ["ZADD", key, *(word for at in range(140) for word in (str(at / 7), f"word{at}"))],
            ["ZPOPMIN", key], ["ZPOPMAX", key, "3"], ["ZMPOP", "1", key, "MIN"], ["BZPOPMIN", key, "0.001"],
            ["ZREMRANGEBYRANK", key, "0", self.number()], ["ZREMRANGEBYSCORE", key, "-inf", "(1"],
            ["ZREMRANGEBYLEX", key, "[word1", "[word12"], ["ZRANGESTORE", key, self.key("zset"), "0", self.number()],
            ["ZUNIONSTORE", key, "2", self.key("zset"), self.key("set"), "AGGREGATE", "MAX"],
            ["ZINTERSTORE", key, "2", self.key("zset"), self.key("zset")],
            ["ZDIFFSTORE", key, "2", self.key("zset"), self.key("zset")],
        ])  # fmt: skip

    def lists(self) -> list[str]:
        key, words = self.key("list"), self.words()
        ends = self.chance.choices(["LEFT", "RIGHT"], k=2)
        return self.chance.choice([
            ["RPUSH", key, *words], ["LPUSH", key, *words], ["RPUSHX", key, *words], ["RPUSH", key, *map(str, range(300))],
            ["LPOP", key], ["RPOP", key, self.number(3).lstrip("-")], ["LREM", key, self.number(), words[0]],
            ["LSET", key, self.number(), words[0]], ["LINSERT", key, "BEFORE", words[0], "new"],
            ["LTRIM", key, "1", "-2"], ["LMOVE", key, self.key("list"), *ends], ["RPOPLPUSH", key, self.key("list")],
            ["LMPOP", "1", key, "LEFT"], ["BLPOP", key, "0.001"], ["BLMOVE", key, self.key("list"), *ends, "0.001"],
        ])  # fmt: skip

    def hashes(self) -> list[str]:
        key, words = self.key("hash"), self.words()
        pairs = [word for each in words for word in (each, self.number(10**6))]
        return self.chance.choice([
            ["HSET", key, *pairs], ["HDEL", key, *words], ["HINCRBY", key, words[0], "7"],
            ["HINCRBYFLOAT", key, words[0], "0.1"], ["HSETNX", key, *pairs[:2]], ["HMSET", key, *pairs],
            ["HPEXPIREAT", key, "70000000000000", "FIELDS", str(len(words)), *words],
            ["HPERSIST", key, "FIELDS", str(len(words)), *words], ["HGETDEL", key, "FIELDS", str(len(words)), *words],
        ])  # fmt: skip

    def bitmaps(self) -> list[str]:
        key = self.key("bits")
        operation = self.chance.choice(["AND", "OR", "XOR", "DIFF", "DIFF1", "ANDOR", "ONE"])
        overflow = self.chance.choice(["WRAP", "SAT"])
        return self.chance.choice([
            ["SETBIT", key, str(self.chance.randint(0, 3000)), self.chance.choice("01")],
            ["BITOP", operation, key, *self.some("bits"), self.key("bits")], ["BITOP", "NOT", key, self.key("bits")],
            ["BITFIELD", key, "SET", "u9", f"#{self.chance.randint(0, 50)}", self.number(600)],
            ["BITFIELD", key, "OVERFLOW", overflow, "INCRBY", "i5", "100", "7", "INCRBY", "u63", "3", "-9"],
            ["BITFIELD", key, "OVERFLOW", "FAIL", "INCRBY", "u2", "0", "3", "GET", "u8", "0"],
            ["APPEND", key, "more"],
        ])  # fmt: skip

    def hyperloglogs(self) -> list[str]:
        key, words = self.key("hll"), self.words()
        return self.chance.choice([
            ["PFADD", key, *words], ["PFADD", key], ["PFCOUNT", key], ["PFCOUNT", *self.some("hll")],
            ["PFMERGE", key, *self.some("hll")], ["PFADD", key, *(f"{words[0]} {at}" for at in range(900))],
        ])  # fmt: skip

    def whole_keys(self) -> list[str]:
        kind = self.chance.choice(["set", "zset", "list", "hash", "bits", "hll"])
        key = self.key(kind)
        return self.chance.choice([
            ["DEL", key], ["RENAME", key, self.key(kind)], ["COPY", key, self.key(kind), "REPLACE"],
            ["PEXPIREAT", key, "70000000000000"], ["PERSIST", key], ["UNLINK", "any"],
        ])  # fmt: skip

    def next(self) -> list[str]:
        kinds = [self.sets, self.sorted_sets, self.lists, self.hashes, self.bitmaps, self.hyperloglogs]
        request = self.chance.choice(kinds * 3 + [self.whole_keys])
        return request()


def change(node: Node, requests: Requests) -> None:
    """Random writes, alone, in transactions, and in scripts."""
    with node.connect() as wire:
        for _ in range(LENGTH // 10):
            some = [requests.next() for _ in range(10)]
            if requests.chance.random() < 0.3:
                some = [["MULTI"], *some, ["EXEC"]]
            wire.pipeline([tuple(request) for request in some])


def look(wire: Wire, key: bytes) -> object:
    """What a key holds, in short."""
    return wire.call("DEBUG", "DIGEST-VALUE", key).plain(), wire.call("PEXPIRETIME", key).value


def assert_same(*nodes: Node) -> None:
    """They have the same keys with the same values."""
    wait_in_sync(*nodes)
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(node.connect()) for node in nodes]
        keys, *others = [sorted(wire.call("KEYS", "*").plain()) for wire in wires]
        assert others == [keys]
        assert len(keys) > 10
        for key in keys:
            ours, theirs = (look(wire, key) for wire in wires)
            assert ours == theirs, key


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("primary_kind", "replica_kind"), PAIRS)
def test_replicas_have_the_same_values(
    new_node: Callable[..., Node], primary_kind: str, replica_kind: str, seed: int
) -> None:
    requests = Requests(f"{primary_kind} {replica_kind} {seed}")
    primary, replica = new_node(primary_kind), new_node(replica_kind)
    change(primary, requests)
    replica.follow(primary)
    assert_same(primary, replica)  # a full synchronization
    change(primary, requests)
    assert_same(primary, replica)  # the stream
    replica.follow(None)
    primary.follow(replica)
    change(replica, requests)
    assert_same(replica, primary)


WAITS = [
    ("BLPOP", "none", "0"), ("BRPOP", "none", "other", "0"), ("BLMOVE", "none", "other", "LEFT", "RIGHT", "0"),
    ("BRPOPLPUSH", "none", "other", "0"), ("BLMPOP", "0", "1", "none", "LEFT"), ("BZPOPMIN", "none", "0"),
    ("BZPOPMAX", "none", "0"), ("BZMPOP", "0", "1", "none", "MIN"),
]  # fmt: skip


@pytest.fixture
def stack() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as stack:
        yield stack


@pytest.mark.parametrize("kind", ["streamd", "redis"])
def test_a_change_of_role_ends_every_wait(
    new_node: Callable[..., Node], stack: contextlib.ExitStack, kind: str
) -> None:
    node, primary = new_node(kind), new_node("streamd")
    waiting = [stack.enter_context(node.connect()) for _ in WAITS]
    for wire, request in zip(waiting, WAITS, strict=True):
        wire.send(*request)
    with node.connect() as observer:
        waits = b"blocked_clients:%d\r\n" % len(WAITS)
        wait_until(lambda: waits in observer.call("INFO", "clients").value, "all waiting")
    node.follow(primary)
    for wire, request in zip(waiting, WAITS, strict=True):
        reply = wire.read()
        assert reply.kind == "-", request
        assert reply.value == (
            b"UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)"
        ), request
