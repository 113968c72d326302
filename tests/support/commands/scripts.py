"""Hypothesis strategies for random scripts of commands about a few keys, groups and consumers.

The pools are small, so that commands interact: IDs are those that were added, their neighbours, and the bounds of the
ID space; options have valid and invalid values. Anything that would make a script depend on the clock is avoided, not
masked: minimum idle times are 0 or a million milliseconds, and entries get old by XCLAIM IDLE only; every command that
orders pending entries by time is kept apart from the next by a wait inside the server.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from ..compare.differential import Request
from ..wire import join_line

__all__ = ["GROUPS", "KEYS", "SCRIPT_SETTINGS", "Script", "is_propagated_in_full", "scripts"]

IN_CI = bool(os.environ.get("CI"))
SCRIPT_SETTINGS = settings(
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
    # Plain random choices: the default way of varying one script a few times would leave the budget to few scripts.
    backend="hypothesis" if IN_CI else "hypothesis-urandom",
    derandomize=IN_CI,
    print_blob=True,
    report_multiple_bugs=False,
)
"""How tests draw scripts: settings to derive theirs from."""

KEYS = (b"s", b"t", b"u", b"text")
GROUPS = (b"g", b"h", b"")
CONSUMERS = (b"alice", b"bob", b"")
MAX_ID = b"18446744073709551615-18446744073709551615"

NODE_ENTRIES = (1, 2, 3, 5, 100, 0)
NODE_BYTES = (4096, 4096, 4096, 64, 200, 0)

Words = SearchStrategy[list[bytes]]
Command = SearchStrategy[tuple[bytes, ...]]


@dataclass(frozen=True, slots=True)
class NextId:
    """A placeholder for an ID above all that the script has added to any key: the next number, or the next millisecond."""

    in_same_ms: bool


@dataclass(frozen=True, slots=True)
class OldId:
    """A placeholder for one of the IDs that the script has added so far, to any key, after `prefix`."""

    number: int
    prefix: bytes = b""


@dataclass(frozen=True)
class Script:
    """A random script and the settings that it runs under."""

    protocol: int
    node_entries: int
    node_bytes: int
    requests: tuple[Request, ...]

    @property
    def has_clock_ids(self) -> bool:
        return any(request[0] == b"XADD" and b"*" in request for request in self.requests)

    def with_settings(self) -> list[Request]:
        # How many bytes an entry takes follows from its ID, so nodes must not be cut by size when IDs are from the clock.
        node_bytes = 4096 if self.has_clock_ids else self.node_bytes
        sizes = (b"stream-node-max-entries", b"%d" % self.node_entries, b"stream-node-max-bytes", b"%d" % node_bytes)
        return [(b"CONFIG", b"SET", *sizes), *self.requests]

    def __repr__(self) -> str:
        lines = "".join("\n    " + join_line(request) for request in self.with_settings())
        return f"Script in RESP{self.protocol}:{lines}"


# --- Words ----------------------------------------------------------------------------------------------------------


def weighted(*choices: tuple[int, Any]) -> SearchStrategy[Any]:
    """One of the values or strategies, each with a weight; the first is the simplest."""
    strategies = [c if isinstance(c, SearchStrategy) else st.just(c) for _, c in choices]
    marks = [at for at, (weight, _) in enumerate(choices) for _ in range(weight)]
    return st.sampled_from(marks).flatmap(lambda at: strategies[at])


keys = weighted((24, KEYS[0]), (6, KEYS[1]), (1, KEYS[2]), (1, KEYS[3]))
groups = weighted((24, GROUPS[0]), (8, GROUPS[1]), (1, GROUPS[2]), (1, b"nogroup"))
consumers = weighted((6, CONSUMERS[0]), (4, CONSUMERS[1]), (1, CONSUMERS[2]))

near_ids = st.builds(lambda ms, seq: b"%d-%d" % (ms, seq), st.integers(0, 9), st.integers(0, 3))
old_ids = st.builds(OldId, st.integers(0, 11))
plain_ids = weighted((2, old_ids), (1, near_ids))
bounds = st.sampled_from(
    [b"0-0", b"0-1", b"0", b"5", MAX_ID, MAX_ID[:-1] + b"4", b"18446744073709551615", b"18446744073709551615-0"]
)
bad_ids = st.sampled_from(
    [b"", b"x", b"1-", b"-1", b"1-x", b"1--1", b"18446744073709551616", b"1-1-1", b"(1", b"<", b" 1"]
)
ids = weighted((30, plain_ids), (2, bounds), (1, bad_ids))
range_ids = weighted(
    (8, plain_ids),
    (2, st.sampled_from([b"-", b"+"])),
    (2, st.builds(OldId, st.integers(0, 11), st.just(b"("))),
    (1, near_ids.map(lambda i: b"(" + i)),
    (2, bounds),
    (1, bad_ids),
)
starts = weighted((6, b"-"), (6, range_ids))
ends = weighted((6, b"+"), (6, range_ids))
add_ids = weighted(
    (12, NextId(False)),
    (8, NextId(True)),
    (2, st.sampled_from([b"1-*", b"3-*", b"5-*", b"9-*", b"0-*"])),
    (2, plain_ids),
    (1, st.sampled_from([b"0-0", b"-", b"+", b"1-", b"x", b"18446744073709551615-*", MAX_ID])),
)
bad_integers = st.sampled_from([b"x", b"", b"1.5", b"9223372036854775808", b" 1", b"01"])
min_idles = weighted((6, b"0"), (5, b"1000000"), (1, b"-1"), (1, bad_integers))
fields = st.lists(
    st.tuples(
        st.sampled_from([b"f", b"field", b"g"]), st.sampled_from([b"v", b"1", b"-5", b"", b"x" * 30, b"4096", b"\r\n"])
    ),
    min_size=1,
    max_size=3,
).map(lambda pairs: [word for pair in pairs for word in pair])


def counts(low: int = -1, high: int = 6) -> SearchStrategy[bytes]:
    return weighted((12, st.integers(low, high).map(lambda n: b"%d" % n)), (1, bad_integers))


def words(*parts: bytes | SearchStrategy[Any]) -> Words:
    """The parts in sequence; strategies produce a word or a list of words."""
    return st.tuples(*(p if isinstance(p, SearchStrategy) else st.just(p) for p in parts)).map(_flat)


def _flat(parts: Sequence[Any]) -> list[Any]:
    return [word for part in parts for word in (part if isinstance(part, list) else [part])]


def maybe(part: Words | SearchStrategy[bytes], one_in: int = 3) -> Words:
    return weighted((one_in - 1, st.just([])), (1, part.map(lambda p: p if isinstance(p, list) else [p])))


def several(part: SearchStrategy[bytes], most: int = 3) -> Words:
    return st.lists(part, min_size=1, max_size=most)


def shuffled(*parts: Words) -> Words:
    return st.permutations(parts).flatmap(lambda order: words(*order))


policies = st.sampled_from([b"KEEPREF", b"DELREF", b"ACKED"])
limits = words(b"LIMIT", weighted((8, st.integers(0, 7).map(lambda n: b"%d" % n)), (1, b"-1"), (1, bad_integers)))
maxlen = words(b"MAXLEN", maybe(st.sampled_from([b"~", b"="]), 2), counts(-1, 9))
minid = words(b"MINID", maybe(st.sampled_from([b"~", b"="]), 2), ids)
trimming = words(st.one_of(maxlen, minid), maybe(limits, 4))
count_option = words(b"COUNT", counts())
quotas = st.one_of(
    words(b"MAXCOUNT", st.sampled_from([b"1", b"2", b"3", b"7", b"0"])),
    words(b"MAXSIZE", st.sampled_from([b"1", b"40", b"60", b"100", b"-1"])),
)
blocking = words(b"BLOCK", st.sampled_from([b"1", b"1", b"1", b"-1", b"x"]))


# --- Commands -------------------------------------------------------------------------------------------------------

xadd = words(b"XADD", keys, maybe(st.just(b"NOMKSTREAM"), 8), maybe(trimming, 5), maybe(policies, 8), add_ids, fields)
xadd_plain = words(b"XADD", keys, weighted((3, NextId(False)), (2, NextId(True))), fields)
producers = st.sampled_from([b"p", b"q", b""])
xadd_once = words(
    b"XADD",
    keys,
    st.one_of(words(b"IDMP", producers, st.sampled_from([b"i", b"j", b"k", b""])), words(b"IDMPAUTO", producers)),
    weighted((6, b"*"), (1, add_ids)),
    fields,
)
xcfgset = words(
    b"XCFGSET",
    keys,
    maybe(words(b"IDMP-DURATION", st.sampled_from([b"100", b"200", b"0", b"86400", b"86401", b"x"])), 2),
    maybe(words(b"IDMP-MAXSIZE", st.sampled_from([b"1", b"2", b"100", b"0", b"10001", b"x"])), 2),
)
xtrim = words(b"XTRIM", keys, shuffled(trimming, maybe(policies)))
xdel = words(b"XDEL", keys, several(ids))
ids_block = several(ids).flatmap(
    lambda some: weighted((8, b"%d" % len(some)), (1, counts(-1, 4))).map(lambda n: [b"IDS", n, *some])
)
xdelex = words(b"XDELEX", keys, shuffled(maybe(policies, 2), ids_block))
xack = words(b"XACK", keys, groups, several(ids))
xnack = words(
    b"XNACK",
    keys,
    groups,
    weighted((12, st.sampled_from([b"SILENT", b"FAIL", b"FATAL"])), (1, b"what")),
    shuffled(
        ids_block,
        maybe(words(b"RETRYCOUNT", weighted((6, counts(-1, 5)), (1, b"9223372036854775807"))), 4),
        maybe(st.just(b"FORCE"), 2),
    ),
)
xackdel = words(b"XACKDEL", keys, groups, shuffled(maybe(policies, 2), ids_block))
xlen = words(b"XLEN", keys)
xrange = words(b"XRANGE", keys, starts, ends, maybe(count_option))
xrevrange = words(b"XREVRANGE", keys, ends, starts, maybe(count_option))


def _streams(id_words: SearchStrategy[bytes]) -> Words:
    pairs = st.lists(st.tuples(keys, id_words), min_size=1, max_size=3)
    return pairs.map(lambda some: [b"STREAMS", *(k for k, _ in some), *(i for _, i in some)])


xread = words(
    b"XREAD",
    shuffled(maybe(count_option), maybe(blocking, 8), maybe(quotas, 6)),
    _streams(weighted((8, ids), (2, b"$"), (2, b"+"), (1, b">"))),
)
claim_option = words(b"CLAIM", min_idles)
group_option = words(b"GROUP", groups, consumers)
xreadgroup = words(
    b"XREADGROUP",
    shuffled(
        group_option,
        maybe(count_option),
        maybe(st.just(b"NOACK"), 6),
        maybe(blocking, 10),
        maybe(claim_option, 5),
        maybe(quotas, 6),
    ),
    _streams(weighted((10, b">"), (4, ids), (1, b"$"), (1, b"+"))),
)
xreadgroup_plain = words(
    b"XREADGROUP", group_option, maybe(words(b"COUNT", st.sampled_from([b"1", b"2"]))), _streams(st.just(b">"))
)
xpending = words(
    b"XPENDING",
    keys,
    groups,
    maybe(words(maybe(words(b"IDLE", min_idles)), starts, ends, counts(-1, 9), maybe(consumers)), 2),
)
claim_options = shuffled(
    maybe(
        st.one_of(
            words(b"IDLE", st.sampled_from([b"0", b"2000000", b"-1", b"x"])),
            words(b"TIME", st.sampled_from([b"1", b"1000", b"-1", b"x"])),
        )
    ),
    maybe(words(b"RETRYCOUNT", counts(-1, 5)), 4),
    maybe(st.just(b"FORCE"), 3),
    maybe(st.just(b"JUSTID"), 3),
    maybe(words(b"LASTID", ids), 6),
    maybe(st.just(b"WHAT"), 20),
)
xclaim = words(b"XCLAIM", keys, groups, consumers, min_idles, several(ids), claim_options)
xautoclaim = words(
    b"XAUTOCLAIM", keys, groups, consumers, min_idles, starts, shuffled(maybe(count_option), maybe(st.just(b"JUSTID")))
)
entries_read = words(b"ENTRIESREAD", st.sampled_from([b"0", b"2", b"100", b"-1", b"-2", b"x"]))
xgroup_create = words(
    b"XGROUP",
    b"CREATE",
    keys,
    groups,
    weighted((4, b"0"), (3, b"$"), (3, ids)),
    maybe(st.just(b"MKSTREAM"), 2),
    maybe(entries_read, 5),
)
xgroup_setid = words(
    b"XGROUP", b"SETID", keys, groups, weighted((6, ids), (2, b"$"), (1, b"-"), (1, b"+")), maybe(entries_read)
)
xgroup_destroy = words(b"XGROUP", b"DESTROY", keys, groups)
xgroup_consumer = words(b"XGROUP", st.sampled_from([b"CREATECONSUMER", b"DELCONSUMER"]), keys, groups, consumers)
xgroup_other = words(b"XGROUP", st.sampled_from([b"CREATE", b"SETID", b"what", b"DESTROY"]), st.lists(keys, max_size=4))
xinfo = st.one_of(
    words(b"XINFO", b"STREAM", keys, maybe(words(b"FULL", maybe(count_option, 2)), 2)),
    words(b"XINFO", b"GROUPS", keys),
    words(b"XINFO", b"CONSUMERS", keys, groups),
    words(b"XINFO", st.sampled_from([b"STREAM", b"GROUPS", b"what"]), st.lists(keys, max_size=3)),
)
xsetid = words(
    b"XSETID",
    keys,
    weighted((6, ids), (3, NextId(False))),
    maybe(words(b"ENTRIESADDED", counts(-1, 20)), 3),
    maybe(words(b"MAXDELETEDID", ids), 3),
)

databases = weighted((6, b"0"), (4, b"1"), (1, b"16"), (1, b"x"))
expiries = st.sampled_from([b"NX", b"XX", b"GT", b"LT"])
away = st.one_of(
    words(b"DEL", several(keys)),
    words(b"UNLINK", several(keys)),
    words(st.sampled_from([b"RENAME", b"RENAMENX"]), keys, keys),
    words(b"MOVE", keys, databases),
    words(b"SELECT", databases),
    words(b"SWAPDB", databases, databases),
    words(st.sampled_from([b"FLUSHDB", b"FLUSHALL"]), maybe(st.sampled_from([b"ASYNC", b"SYNC", b"what"]), 2)),
    words(b"SET", keys, b"value"),
    words(b"EXPIRE", keys, st.sampled_from([b"-1", b"0"])),
    words(st.sampled_from([b"EXPIREAT", b"PEXPIREAT"]), keys, st.sampled_from([b"1", b"0", b"-1"])),
)
generic = st.one_of(
    words(b"SET", KEYS[3], st.sampled_from([b"value", b""])),
    words(b"GET", keys),
    words(st.sampled_from([b"EXISTS", b"TOUCH"]), several(keys)),
    words(b"TYPE", keys),
    words(b"OBJECT", b"ENCODING", keys),
    words(b"COPY", keys, keys, maybe(words(b"DB", databases)), maybe(st.just(b"REPLACE"), 2)),
    words(b"EXPIRE", keys, st.sampled_from([b"1000", b"2000", b"x", b"9223372036854775807"])),
    words(b"PEXPIRE", keys, st.sampled_from([b"1000000", b"x"]), maybe(st.sampled_from([b"NX", b"XX"]))),
    words(
        st.sampled_from([b"EXPIREAT", b"PEXPIREAT"]),
        keys,
        st.sampled_from([b"99999999999", b"99999999999999", b"x"]),
        maybe(expiries, 2),
        maybe(expiries, 5),
    ),
    words(st.sampled_from([b"TTL", b"PTTL", b"EXPIRETIME", b"PEXPIRETIME", b"PERSIST"]), keys),
    words(b"KEYS", st.sampled_from([b"*", b"s*", b"[st]", b"?", b"\\*", b"[^s]*"])),
    words(b"SCAN", b"0", b"COUNT", b"1000", maybe(words(b"TYPE", st.sampled_from([b"stream", b"STRING", b"what"])))),
    words(st.sampled_from([b"DBSIZE", b"RANDOMKEY"])),
)

# Those that record a delivery time: each must have a millisecond of its own, see `_paced`.
TIMED_COMMANDS = frozenset({b"XREADGROUP", b"XCLAIM", b"XAUTOCLAIM"})

command = weighted(
    (20, xadd_plain),
    (12, xadd),
    (2, xadd_once),
    (1, xcfgset),
    (6, xtrim),
    (6, xdel),
    (5, xdelex),
    (6, xack),
    (5, xackdel),
    (1, xlen),
    (5, xrange),
    (4, xrevrange),
    (6, xread),
    (10, xreadgroup_plain),
    (10, xreadgroup),
    (6, xpending),
    (8, xclaim),
    (7, xautoclaim),
    (8, xgroup_create),
    (4, xgroup_setid),
    (1, xgroup_destroy),
    (4, xgroup_consumer),
    (1, xgroup_other),
    (5, xinfo),
    (4, xsetid),
    (9, generic),
    (3, away),
)

PRELUDE: tuple[tuple[Any, ...], ...] = (
    *((b"XADD", b"s", NextId(at % 2 == 1), b"f", b"%d" % at) for at in range(5)),
    (b"XGROUP", b"CREATE", b"s", b"g", b"0"),
    (b"XGROUP", b"CREATE", b"s", b"h", b"0"),
    (b"XADD", b"t", NextId(False), b"f", b"v"),
    (b"XGROUP", b"CREATE", b"t", b"g", b"0"),
    (b"XREADGROUP", b"GROUP", b"g", b"alice", b"COUNT", b"3", b"STREAMS", b"s", b">"),
    (b"XREADGROUP", b"GROUP", b"g", b"bob", b"COUNT", b"1", b"STREAMS", b"s", b"t", b">", b">"),
    (b"XREADGROUP", b"GROUP", b"h", b"bob", b"COUNT", b"2", b"STREAMS", b"s", b">"),
    (b"SET", b"text", b"value"),
)


# Each command of the prelude is there or not by a choice of its own, so that shrinking can drop those that a failure
# does not need.
kept = weighted((1, False), (40, True))
whole_prelude = st.tuples(*(kept for _ in PRELUDE)).map(
    lambda flags: tuple(each for each, is_kept in zip(PRELUDE, flags, strict=True) if is_kept)
)
preludes = weighted((1, st.just(())), (5, whole_prelude))


def scripts(lengths: Sequence[int] = (1, 10, 20, 30), *, with_xnack: bool = False) -> SearchStrategy[Script]:
    """Scripts of about this number of commands, most of them with a prelude that creates streams and groups.

    with_xnack  XNACK is among them, which Redis 8.6 does not have
    """
    # The length is drawn first: lists of free length tend to be short, and short scripts find little.
    one = weighted((9, command), (2, xnack)) if with_xnack else command
    bodies = st.sampled_from(lengths).flatmap(lambda n: st.lists(one, min_size=n, max_size=n + n // 2))
    requests = st.tuples(preludes, bodies).map(lambda both: _resolved([*both[0], *both[1]]))
    return st.builds(
        Script, st.sampled_from([2, 3]), st.sampled_from(NODE_ENTRIES), st.sampled_from(NODE_BYTES), requests
    )


def _resolved(commands: Sequence[Sequence[Any]]) -> tuple[Request, ...]:
    """Replace NextId and OldId by real IDs; keep timed commands in milliseconds of their own."""
    added = [(0, 0)]
    requests = [tuple(_real_word(word, added) for word in command) for command in commands]
    return tuple(_paced(requests))


def _real_word(word: bytes | NextId | OldId, added: list[tuple[int, int]]) -> bytes:
    if isinstance(word, NextId):
        ms, seq = added[-1]
        added.append((ms, seq + 1) if word.in_same_ms else (ms + 1, 0))
        return b"%d-%d" % added[-1]
    if isinstance(word, OldId):
        return word.prefix + b"%d-%d" % added[word.number % len(added)]
    return word


def _paced(requests: Sequence[Request]) -> Sequence[Request]:
    """With a wait after each timed command, when the script asks for pending entries in the order of their times."""
    if not any(request[0] == b"XREADGROUP" and b"CLAIM" in request for request in requests):
        return requests
    pause = (b"DEBUG", b"SLEEP", b"0.002")
    return [each for request in requests for each in ((request, pause) if request[0] in TIMED_COMMANDS else (request,))]


def is_propagated_in_full(request: Request) -> bool:
    """Not what Redis propagates in part only.

    Reading what is pending counts as a delivery, but is not propagated. And a group that has read more than was added,
    because somebody said so, counts on from there, while a receiver of that count takes no more than was added.
    """
    words = [word.upper() for word in request]
    if words[0] == b"XREADGROUP" and b"STREAMS" in words:
        names = words[words.index(b"STREAMS") + 1 :]
        return all(word == b">" for word in names[len(names) // 2 :])
    return b"ENTRIESADDED" not in words and (b"ENTRIESREAD" not in words or words[-1] in (b"0", b"-1"))
