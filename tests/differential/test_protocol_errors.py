"""The request parser beside a real Redis: the same raw bytes, the same requests, error texts and closed connections.

The parser is asked what the requests are; the server shows it by the number of its replies, by what COMMAND GETKEYS gives
back of a request's words, by its error line, and by hanging up.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.request_cases import CASES, PREFIX, Outcome, Request, encode, name_of, run
from support.servers import Server, eventually
from support.wire import Reply, Wire

from streamd.protocol.request import RequestParser

pytestmark = pytest.mark.real

# Redis 8.6.3 reports no fault of a bulk header that comes in another read than the start of its request; a header as long
# as this error needs always does. The text is Redis 7.0's.
NEVER_SAID = PREFIX + "too big bulk count string"


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


@pytest.mark.parametrize("case", [case for case in CASES if case[2] != NEVER_SAID], ids=lambda case: name_of(case))
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
            with pytest.raises(TimeoutError):
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
    if outcome.error == NEVER_SAID:
        return
    replies = answers_of(redis_server, data, outcome)
    for request, reply in zip(filter(None, outcome.requests), replies, strict=True):
        if [word.upper() for word in request[:3]] == [b"COMMAND", b"GETKEYS", b"DEL"] and len(request) > 3:
            assert [key.value for key in reply.value] == request[3:]
