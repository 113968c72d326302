"""The request parser beside a real Redis: the same raw bytes, the same requests, error texts and closed connections.

The parser is asked what the requests are; the server shows it by the number of its replies, by what COMMAND GETKEYS gives
back of a request's words, by its error line, and by hanging up.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.commands.request_cases import CASES, Outcome, Request, encode, name_of, run
from support.compare.differential import Pair
from support.servers import Server, eventually
from support.wire import Reply, Wire

from streamd.protocol.request import RequestParser

pytestmark = pytest.mark.real


def parse(data: bytes, *, authenticated: bool = True) -> Outcome:
    return run(RequestParser(authenticated), [data])


def answers_of(server: Server, data: bytes, outcome: Outcome) -> list[Reply]:
    """Send `data` on a new connection; return the replies to the requests. Fails when it ends otherwise than `outcome`."""
    with server.connect() as wire:
        if outcome.error is not None:
            wire.send_bytes(data)
            if outcome.error == "":
                assert wire.read_to_end() == b""
                return []
            replies = [wire.read() for _ in range(count_replies(outcome) + 1)]
            assert wire.read_to_end() == b""
            assert replies.pop() == Reply("-", outcome.error.encode("latin-1"))
        else:
            send_and_wait(server, wire, data)
            replies = [wire.read() for _ in range(count_replies(outcome))]
            wire.drain()
            assert not wire.reader.buffer
    return replies


def count_replies(outcome: Outcome) -> int:
    return sum(bool(request) for request in outcome.requests)


def send_and_wait(server: Server, wire: Wire, data: bytes) -> None:
    """Send bytes, and wait until the server has read all of them."""
    with server.connect() as control:
        who = wire.client_id()
        before = received(control, who)
        wire.send_bytes(data)
        eventually(lambda: received(control, who) == before + len(data), what="the server's reading")
        control.call("PING")  # whatever the data was answered with has been written by now


def received(control: Wire, who: int) -> int:
    listed = control.call("CLIENT", "LIST", "ID", who).value
    match = re.search(rb"tot-net-in=([0-9]+)", listed)
    assert match is not None, listed
    return int(match[1])


@pytest.mark.parametrize("case", CASES, ids=lambda case: name_of(case))
def test_every_documented_case_ends_as_documented(
    redis_server: Server, case: tuple[bytes, list[Request], str | None]
) -> None:
    data, requests, error = case
    answers_of(redis_server, data, Outcome(requests, error))


@pytest.mark.parametrize(
    "data",
    [b"*11\r\n", b"*10\r\n", b"*2147483648\r\n", b"*1\r\n$16384\r\n", b"*1\r\n$16385\r\n", b"*1\r\n$999999999\r\n"],
)
def test_strangers_have_the_same_limits(new_redis: Callable[..., Server], data: bytes) -> None:
    server = new_redis(requirepass="secret")
    outcome = parse(data, authenticated=False)
    with server.connect() as wire:
        wire.send_bytes(data)
        if outcome.error is None:
            with pytest.raises(TimeoutError, match="no reply in time"):
                wire.read(timeout_s=0.2)
        else:
            assert wire.read_to_end() == b"-" + outcome.error.encode() + b"\r\n"


# --- By chance --------------------------------------------------------------------------------------------------------

_line_text = st.text("ab \t\v\f\"'\\xnrtq4f\r\xe9", min_size=1, max_size=30)


@settings(max_examples=300, deadline=None)
@given(text=_line_text)
def test_inline_commands_are_split_into_the_same_words(redis_server: Server, text: str) -> None:
    data = b"COMMAND GETKEYS DEL x " + text.encode("latin-1") + b"\n"
    outcome = parse(data)
    replies = answers_of(redis_server, data, outcome)
    if outcome.requests:
        words = outcome.requests[0][3:]
        assert [key.value for key in replies[0].value] == words


_base = st.lists(
    st.one_of(
        st.lists(st.binary(max_size=6), max_size=4).map(
            lambda args: encode(b"COMMAND", b"GETKEYS", b"DEL", b"x", *args)
        ),
        st.sampled_from([b"*0\r\n", b"\r\n", b"PING\r\n", b"*-1\r\n", b"GET 'a b'\n"]),
    ),
    min_size=1,
    max_size=4,
).map(b"".join)


@settings(max_examples=400, deadline=None)
@given(
    data=_base,
    at=st.integers(0, 10**6),
    removed=st.integers(0, 2),
    added=st.text("*$-0123456789\r\n\0 \"'xP\xff", max_size=3),
)
def test_damaged_requests_have_the_same_outcome(
    redis_server: Server, data: bytes, at: int, removed: int, added: str
) -> None:
    at %= len(data)
    data = data[:at] + added.encode("latin-1") + data[at + removed :]
    outcome = parse(data)
    replies = answers_of(redis_server, data, outcome)
    for request, reply in zip(filter(None, outcome.requests), replies, strict=True):
        if [word.upper() for word in request[:3]] == [b"COMMAND", b"GETKEYS", b"DEL"] and len(request) > 3:
            assert [key.value for key in reply.value] == request[3:]


QUOTING = [
    (b"fo%so",),
    (b"%sfoo", b"x"),
    (b"nosuch", b"a%sb", b"x"),
    (b"x" * 126 + b"%syyy", b"z" * 126 + b"%sz", b"a"),
    (b"client", b"fo%so"),
    (b"config", b"set", b"fo%so", b"1"),
    (b"acl", b"cat", b"a%sb"),
    (b"acl", b"setuser", b"u", b"+f%s"),
    (b"acl", b"dryrun", b"u%s", b"get"),
    (b"acl", b"dryrun", b"default", b"ge%s"),
    (b"hello", b"2", b"F%sO"),
    (b"client", b"setinfo", b"l%s", b"v"),
    (b"client", b"list", b"type", b"l%s"),
    (b"xreadgroup", b"group", b"g%s", b"c", b"streams", b"k%s", b">"),
    (b"debug", b"error", b"a%sb"),
]


@pytest.mark.parametrize("words", QUOTING, ids=lambda words: b" ".join(words).decode()[:40])
def test_any_byte_is_quoted_in_errors_as_redis_quotes_it(pair: Pair, words: tuple[bytes, ...]) -> None:
    pair.run([tuple(word.replace(b"%s", bytes([byte])) for word in words) for byte in range(256)])


@pytest.mark.parametrize("name", ["new_streamd", "new_redis"])
def test_a_stranger_may_not_send_more_than_a_mebibyte(name: str, request: pytest.FixtureRequest) -> None:
    server: Server = request.getfixturevalue(name)(requirepass="secret")
    with server.connect() as wire, suppress(ConnectionError):
        wire.send_bytes(b"*1\r\n$" + b"1" * 2_000_000)
        assert wire.read_to_end() == b""
