"""Hypothesis strategies for scripts of all kinds of writes: streams, strings, whole keys, expiry, messages, transactions.

What servers do with them may depend on the clock (keys expire in the middle of a script): they are for tests that compare
a primary with its replicas, not two servers with each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from ..compare.differential import Request
from .scripts import Script, is_propagated_in_full, scripts

__all__ = ["known_to_7_0", "mixed_scripts", "without_divergences_of_redis"]

keys = st.sampled_from([b"text", b"s", b"a", b"b", b"n"])
values = st.sampled_from([b"v", b"", b"12", b"-5", b"1.5", b"x" * 600, b"\r\n\x00\xff", b"9223372036854775807"])
soon = st.sampled_from([b"1", b"2", b"5", b"20"])
expiries = st.one_of(
    st.tuples(st.just(b"PX"), soon),
    st.tuples(st.just(b"EX"), st.sampled_from([b"1", b"1000"])),
    st.tuples(st.just(b"PXAT"), st.sampled_from([b"1", b"99999999999999"])),
    st.tuples(st.just(b"EXAT"), st.sampled_from([b"1", b"99999999999"])),
)
numbers = st.sampled_from([b"0", b"1", b"-1", b"7", b"1000"])
databases = st.sampled_from([b"0", b"1", b"1", b"15"])


def _request(*parts: bytes | SearchStrategy[Any]) -> SearchStrategy[Request]:
    """The parts in sequence; a strategy makes a word or a tuple of words."""

    def flat(drawn: Iterable[Any]) -> Request:
        return tuple(word for each in drawn for word in (each if isinstance(each, tuple) else (each,)))

    return st.tuples(*(part if isinstance(part, SearchStrategy) else st.just(part) for part in parts)).map(flat)


def _words(*choices: str) -> SearchStrategy[tuple[bytes, ...]]:
    return st.sampled_from([tuple(choice.encode().split()) for choice in choices])


strings = st.one_of(
    _request(b"SET", keys, values, _words("", "NX", "XX", "GET", "KEEPTTL", "XX GET")),
    _request(b"SET", keys, values, expiries, _words("", "NX", "GET")),
    _request(st.sampled_from([b"SETNX", b"GETSET", b"APPEND"]), keys, values),
    _request(b"SETEX", keys, st.sampled_from([b"1", b"1000"]), values),
    _request(b"PSETEX", keys, soon, values),
    _request(st.sampled_from([b"MSET", b"MSETNX"]), keys, values, keys, values),
    _request(st.sampled_from([b"INCR", b"DECR", b"GETDEL", b"GET"]), keys),
    _request(st.sampled_from([b"INCRBY", b"DECRBY"]), keys, numbers),
    _request(b"INCRBYFLOAT", keys, st.sampled_from([b"0.1", b"-3e2", b"x"])),
    _request(b"SETRANGE", keys, st.sampled_from([b"0", b"3", b"700"]), values),
    _request(b"GETEX", keys, st.one_of(expiries, st.just((b"PERSIST",)), st.just(()))),
    _request(b"DELEX", keys, _words("", "IFEQ v", "IFNE v")),
    _request(b"SET", keys, values, _words("IFEQ v", "IFNE v", "IFEQ 12 PX 5", "IFNE x GET")),
    _request(b"MSETEX", b"2", keys, values, keys, values, _words("", "NX", "XX", "EX 1000", "PX 3", "KEEPTTL")),
)
whole_keys = st.one_of(
    _request(st.sampled_from([b"PEXPIRE"]), keys, soon),
    _request(b"EXPIRE", keys, numbers, _words("", "NX", "XX", "GT", "LT")),
    _request(st.sampled_from([b"PERSIST", b"DEL", b"UNLINK", b"TYPE"]), keys),
    _request(st.sampled_from([b"RENAME", b"RENAMENX"]), keys, keys),
    _request(b"COPY", keys, keys, _words("", "REPLACE", "DB 1", "DB 1 REPLACE")),
    _request(b"MOVE", keys, databases),
    _request(b"SELECT", databases),
    _request(b"SWAPDB", databases, databases),
    _words("FLUSHDB", "FLUSHALL", "FLUSHDB ASYNC", "FLUSHALL SYNC"),
    _words("DEBUG SLEEP 0.002", "DEBUG SLEEP 0.006"),
)
messages = _request(st.sampled_from([b"PUBLISH", b"SPUBLISH"]), keys, values)
brackets = _words("MULTI", "EXEC", "EXEC", "DISCARD", "WATCH a text s", "UNWATCH")
others = st.one_of(strings, strings, strings, whole_keys, messages, brackets)


def mixed_scripts(lengths: Sequence[int] = (10, 20, 30)) -> SearchStrategy[list[Request]]:
    """Scripts of stream commands with others between them, and the settings that they start with."""
    inserted = st.lists(st.tuples(st.integers(0, 40), others), max_size=max(lengths))
    return st.tuples(scripts(lengths), inserted).map(lambda both: _mixed(*both))


def _mixed(script: Script, inserted: Sequence[tuple[int, Request]]) -> list[Request]:
    settings, *requests = script.with_settings()
    for at, request in inserted:
        requests.insert(at % (len(requests) + 1), request)
    return [settings, *filter(is_propagated_in_full, requests), (b"EXEC",)]


def without_divergences_of_redis(requests: Iterable[Request]) -> list[Request]:
    """Without what leaves a replica of Redis 8.6.3 in another state; see docs/differences.md.

    These are approximate trims with a policy, and the deletion of entries that had been trimmed and were pending.
    """
    return [request for request in requests if not _diverges(request)]


def _diverges(request: Request) -> bool:
    has_policy = not {b"DELREF", b"ACKED"}.isdisjoint(request)
    return has_policy and (request[0] == b"XDELEX" or (request[0] in (b"XADD", b"XTRIM") and b"~" in request))


UNKNOWN_TO_7_0 = frozenset({b"XDELEX", b"XACKDEL", b"XCFGSET", b"MSETEX", b"DELEX"})
OPTIONS_UNKNOWN_TO_7_0 = frozenset({b"KEEPREF", b"DELREF", b"ACKED", b"IDMP", b"IDMPAUTO", b"IFEQ", b"IFNE"})


def known_to_7_0(requests: Iterable[Request]) -> list[Request]:
    """Without commands that a Redis 7.0 could not execute as a replica."""
    return [
        request
        for request in requests
        if request[0] not in UNKNOWN_TO_7_0 and not OPTIONS_UNKNOWN_TO_7_0 & set(request)
    ]
