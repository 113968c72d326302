"""Random requests of sorted sets, from small pools of keys, members, scores and bounds, so that they meet each other.

Left out is what two servers may answer differently: members at random, scans of large sets, and ranges by bytes of
members whose scores differ. Such ranges are asked of the key `lex`, whose members all have the score 0.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

__all__ = ["KEYS", "MEMBERS", "SCORES", "make_requests"]

Request = tuple[bytes, ...]

KEYS = [b"z", b"y", b"x", b"dst", b"text", b"none"]
MEMBERS = [
    b"", b"a", b"b", b"c", b"abc", b"1", b"2", b"-7", b"01", b"10", b"4611686018427387904", b"\x00\xff", b"a-longer-member",
    *(b"m%d" % number for number in range(30)),
]  # fmt: skip
SCORES = [
    b"0", b"-0", b"1", b"2", b"3", b"5", b"100", b"-3", b"1.5", b"0.1", b"1e-7", b"1e20", b"inf", b"-inf", b"12345.678901234",
    b"99999999999999990000000", b"9007199254740993", b"0x1p-3",
]  # fmt: skip
NO_SCORES = [b"nan", b"x", b"", b" 1", b"1e400"]
NUMBERS = [b"0", b"1", b"2", b"3", b"7", b"100", b"-1", b"-2", b"-5", b"-100", b"9223372036854775807", b"x"]


class Words:
    """Draws the words of requests."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.pick = chance.choice

    def some(self, *words: bytes, share: float = 0.3) -> list[bytes]:
        return list(words) if self.chance.random() < share else []

    def key(self) -> bytes:
        return self.pick(KEYS)

    def member(self) -> bytes:
        return self.pick(MEMBERS)

    def score(self) -> bytes:
        return self.pick(SCORES if self.chance.random() < 0.97 else NO_SCORES)

    def number(self) -> bytes:
        return self.pick(NUMBERS)

    def bound(self) -> bytes:
        return self.pick([b"", b"("]) + self.score()

    def edge(self) -> bytes:
        """A bound by member."""
        roll = self.chance.random()
        return (
            self.pick([b"-", b"+"])
            if roll < 0.2
            else b"foo"
            if roll < 0.22
            else self.pick([b"[", b"("]) + self.member()
        )

    def limit(self) -> list[bytes]:
        return self.some(b"LIMIT", self.number(), self.number(), share=0.4)

    def keys(self) -> list[bytes]:
        """The number of keys, mostly right, and keys."""
        count = self.pick([1, 2, 2, 3])
        said = b"%d" % count if self.chance.random() < 0.95 else self.pick([b"0", b"-1", b"5", b"x"])
        return [said, *(self.key() for _ in range(count))]

    def range(self) -> list[bytes]:
        """The bounds and options of a ZRANGE by rank or score."""
        if self.pick([True, False]):
            return [self.bound(), self.bound(), b"BYSCORE", *self.some(b"REV"), *self.limit()]
        return [self.number(), self.number(), *self.some(b"REV"), *self.some(*self.limit(), share=0.1)]

    def add(self) -> Request:
        options = [option for option in (b"NX", b"XX", b"GT", b"LT", b"CH", b"INCR") if self.chance.random() < 0.15]
        self.chance.shuffle(options)
        pairs = [word for _ in range(self.pick([1, 1, 2, 3, 6])) for word in (self.score(), self.member())]
        return (b"ZADD", self.key(), *options, *pairs[: self.pick([len(pairs)] * 30 + [1])])

    def combine(self) -> Request:
        name = self.pick([b"ZUNION", b"ZINTER", b"ZDIFF", b"ZINTERCARD"])
        stores = name != b"ZINTERCARD" and self.pick([True, False])
        keys = self.keys()
        options: list[bytes] = []
        if name in (b"ZUNION", b"ZINTER") or self.chance.random() < 0.05:
            weights = [self.pick([b"1", b"2", b"-1", b"0", b"0.5", b"inf"]) for _ in keys[1:]]
            options += self.some(b"WEIGHTS", *weights, share=0.4)
            options += self.some(b"AGGREGATE", self.pick([b"SUM", b"min", b"MAX", b"foo"]))
        options += (
            self.some(b"LIMIT", self.number())
            if name == b"ZINTERCARD"
            else self.some(b"WITHSCORES", share=0 if stores else 0.5)
        )
        return (name + b"STORE", self.key(), *keys, *options) if stores else (name, *keys, *options)

    def request(self) -> Request:
        """Any request."""
        key, lex = self.key(), b"lex"
        roll = self.chance.random()
        if roll < 0.3:
            return self.add()
        if roll < 0.4:
            return b"ZRANGE", key, *self.range(), *self.some(b"WITHSCORES", share=0.5)
        if roll < 0.5:
            return self.combine()
        return self.pick([
            (b"ZRANGESTORE", self.key(), key, *self.range()),
            (b"ZINCRBY", key, self.score(), self.member()),
            (b"ZREM", key, *(self.member() for _ in range(self.pick([1, 2, 5])))),
            (b"ZCARD", key),
            (b"ZMSCORE", key, self.member(), self.member()),
            (self.pick([b"ZRANK", b"ZREVRANK"]), key, self.member(), *self.some(self.pick([b"WITHSCORE", b"foo"]))),
            (b"ZCOUNT", key, self.bound(), self.bound()),
            (self.pick([b"ZRANGEBYSCORE", b"ZREVRANGEBYSCORE"]), key, self.bound(), self.bound(),
             *self.some(b"WITHSCORES"), *self.limit()),
            (b"ZREVRANGE", key, self.number(), self.number(), *self.some(b"WITHSCORES")),
            (b"ZREMRANGEBYRANK", key, self.number(), self.number()),
            (b"ZREMRANGEBYSCORE", key, self.bound(), self.bound()),
            (self.pick([b"ZPOPMIN", b"ZPOPMAX"]), key, *self.some(self.number())),
            (b"ZMPOP", *self.keys(), self.pick([b"MIN", b"MAX"]), *self.some(b"COUNT", self.number())),
            (self.pick([b"BZPOPMIN", b"BZPOPMAX"]), b"z", b"y", b"0.001"),
            (b"OBJECT", b"ENCODING", key),
            (b"COPY", key, self.key(), b"REPLACE"),
            (b"RENAME", key, self.key()),
            (b"SET", b"text", b"hello"),
            (b"ZADD", lex, *(word for _ in range(self.pick([1, 4])) for word in (b"0", self.member()))),
            (self.pick([b"ZRANGEBYLEX", b"ZREVRANGEBYLEX"]), lex, self.edge(), self.edge(), *self.limit()),
            (b"ZRANGE", lex, self.edge(), self.edge(), b"BYLEX", *self.some(b"REV"), *self.limit()),
            (b"ZLEXCOUNT", lex, self.edge(), self.edge()),
            self.pick([(b"ZREMRANGEBYLEX", lex, self.edge(), self.edge()), (b"ZREM", lex, self.member())]),
        ])  # fmt: skip


def make_requests(chance: random.Random, count: int) -> Iterator[Request]:
    """So many requests."""
    words = Words(chance)
    for _ in range(count):
        yield words.request()
