"""The request parser: every rule of the protocol, however the bytes are cut, against a slow and obvious twin."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.commands.request_cases import CASES, PING, PREFIX, Outcome, Request, encode, name_of, run

from streamd.errors import ProtocolError
from streamd.protocol.inline import split_line
from streamd.protocol.request import DEFAULT_MAX_BULK_LEN, RequestParser

MAX_LINE = 65536


# --- The twin ---------------------------------------------------------------------------------------------------------


class SlowParser:
    """The same contract; keeps everything that came and reads it again from the start of the request each time."""

    def __init__(self, authenticated: bool = False, max_bulk_len: int = DEFAULT_MAX_BULK_LEN) -> None:
        self.authenticated = authenticated
        self.max_bulk_len = max_bulk_len
        self.data = b""

    def feed(self, data: bytes) -> None:
        self.data += data

    def next_request(self) -> Request | None:
        if not self.data:
            return None
        found = self.multibulk() if self.data[:1] == b"*" else self.inline()
        if found is None:
            return None
        request, end = found
        self.data = self.data[end:]
        if request and request[0].partition(b"\0")[0].lower() in (b"post", b"host:"):
            raise ProtocolError("")
        return request

    def inline(self) -> tuple[Request, int] | None:
        end = self.data.partition(b"\0")[0].find(b"\n")
        if end < 0:
            if len(self.data) > MAX_LINE:
                raise ProtocolError("ERR Protocol error: too big inline request")
            return None
        words = slow_split_line(self.data[:end].removesuffix(b"\r"))
        if words is None:
            raise ProtocolError("ERR Protocol error: unbalanced quotes in request")
        return words, end + 1

    def multibulk(self) -> tuple[Request, int] | None:
        line = self.line(0, "too big mbulk count string", self.data.partition(b"\0")[0])
        if line is None:
            return None
        count = canonical(line[1:])
        if count is None or count >= 2**31:
            raise ProtocolError("ERR Protocol error: invalid multibulk length")
        if count > 10 and not self.authenticated:
            raise ProtocolError("ERR Protocol error: unauthenticated multibulk length")
        at = len(line) + 2
        request: Request = []
        while len(request) < count:
            line = self.line(at)
            if line is None:
                return None
            if line[:1] != b"$":
                got = self.data[at : at + 1].replace(b"\r", b" ").replace(b"\n", b" ").decode("latin-1")
                raise ProtocolError(f"ERR Protocol error: expected '$', got '{got}'")
            length = canonical(line[1:])
            if length is None or not 0 <= length <= self.max_bulk_len:
                raise ProtocolError("ERR Protocol error: invalid bulk length")
            if length > 16384 and not self.authenticated:
                raise ProtocolError("ERR Protocol error: unauthenticated bulk length")
            at += len(line) + 2
            if len(self.data) < at + length + 2:
                return None
            request.append(self.data[at : at + length])
            at += length + 2
        return request, at

    def line(self, at: int, too_big: str = "", visible: bytes | None = None) -> bytes | None:
        end = (self.data if visible is None else visible).find(b"\r", at)
        if end < 0 and too_big and len(self.data) - at > MAX_LINE:
            raise ProtocolError(f"ERR Protocol error: {too_big}")
        return None if end < 0 or end + 1 == len(self.data) else self.data[at:end]


def canonical(text: bytes) -> int | None:
    try:
        number = int(text)
    except ValueError:
        return None
    return number if b"%d" % number == text and -(2**63) <= number < 2**63 else None


def slow_split_line(line: bytes) -> list[bytes] | None:
    """Byte by byte; None for unbalanced quotes."""
    text = line.partition(b"\0")[0].decode("latin-1")
    words: list[str] = []
    i = 0
    while True:
        while i < len(text) and text[i] in " \t\n\v\f\r":
            i += 1
        if i == len(text):
            return [word.encode("latin-1") for word in words]
        word = ""
        while i < len(text) and text[i] not in " \t\n\r":
            quote = text[i]
            i += 1
            if quote not in "\"'":
                word += quote
                continue
            while True:
                if i == len(text):
                    return None
                if text[i] == quote:
                    break
                if quote == '"' and text[i] == "\\" and i + 1 < len(text):
                    digits = text[i + 2 : i + 4]
                    if text[i + 1] == "x" and len(digits) == 2 and all(d in "0123456789abcdefABCDEF" for d in digits):
                        word += chr(int(digits, 16))
                        i += 4
                        continue
                    word += {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "a": "\a"}.get(text[i + 1], text[i + 1])
                    i += 2
                elif quote == "'" and text[i : i + 2] == "\\'":
                    word += "'"
                    i += 2
                else:
                    word += text[i]
                    i += 1
            i += 1
            if i < len(text) and text[i] not in " \t\n\v\f\r":
                return None
            break
        words.append(word)


# --- Running a parser -------------------------------------------------------------------------------------------------


class CheckedParser:
    """The parser, its invariants checked whenever it has read all it can."""

    def __init__(self, parser: RequestParser) -> None:
        self.parser = parser
        self.feed = parser.feed

    def next_request(self) -> Request | None:
        try:
            request = self.parser.next_request()
        except ProtocolError:
            self.parser.check_invariants()
            assert self.parser.allocated == 0
            raise
        self.parser.check_invariants()
        return request


def run_checked(parser: RequestParser, pieces: Iterable[bytes]) -> Outcome:
    return run(CheckedParser(parser), pieces)


def cut_in_two(data: bytes) -> Iterator[list[bytes]]:
    """Cut anywhere; long data only near its ends and its seams."""
    places = range(1, len(data)) if len(data) < 2000 else [1, 2, 3, len(data) // 2, len(data) - 2, len(data) - 1]
    for i in places:
        yield [data[:i], data[i:]]


def byte_by_byte(data: bytes) -> list[bytes]:
    return [data[i : i + 1] for i in range(len(data))]


every_case = pytest.mark.parametrize(("data", "requests", "error"), CASES, ids=map(name_of, CASES))


@every_case
def test_an_input_fed_whole_has_the_documented_outcome(data: bytes, requests: list[Request], error: str | None) -> None:
    assert run_checked(RequestParser(authenticated=True), [data]) == Outcome(requests, error)


@every_case
def test_the_twin_agrees(data: bytes, requests: list[Request], error: str | None) -> None:
    assert run(SlowParser(authenticated=True), [data]) == Outcome(requests, error)


@every_case
def test_an_input_cut_in_two_has_the_same_outcome(data: bytes, requests: list[Request], error: str | None) -> None:
    for pieces in cut_in_two(data):
        assert run_checked(RequestParser(authenticated=True), pieces) == Outcome(requests, error), pieces


@every_case
def test_an_input_fed_byte_by_byte_has_the_same_outcome(
    data: bytes, requests: list[Request], error: str | None
) -> None:
    assert run_checked(RequestParser(authenticated=True), byte_by_byte(data)) == Outcome(requests, error)


@every_case
def test_bytes_fed_without_asking_for_requests_are_kept(
    data: bytes, requests: list[Request], error: str | None
) -> None:
    parser = RequestParser(authenticated=True)
    for i in range(0, len(data), 7):
        parser.feed(data[i : i + 7])
        parser.check_invariants()
    assert parser.buffered == len(data)
    assert run_checked(parser, [b""]) == Outcome(requests, error)


def test_a_complete_line_may_be_longer_than_the_limit() -> None:
    assert run_checked(RequestParser(), [b"PING " + b"a" * 70_000 + b"\r\n"]).requests == [[b"PING", b"a" * 70_000]]


# --- Limits -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"*10\r\n", None),
        (b"*11\r\n", "unauthenticated multibulk length"),
        (b"*2147483648\r\n", "invalid multibulk length"),
        (b"*1\r\n$16384\r\n", None),
        (b"*1\r\n$16385\r\n", "unauthenticated bulk length"),
        (b"*1\r\n$999999999\r\n", "invalid bulk length"),
        (b"PING " + b"a " * 30_000 + b"\n", None),
    ],
)
def test_strangers_have_smaller_limits(data: bytes, error: str | None) -> None:
    want = None if error is None else PREFIX + error
    assert run_checked(RequestParser(), [data]).error == want
    assert run_checked(RequestParser(), byte_by_byte(data)).error == want
    assert run(SlowParser(), [data]).error == want


def test_authentication_counts_for_the_next_request_of_the_same_bytes() -> None:
    parser = RequestParser()
    many = [b"a"] * 11
    parser.feed(encode(b"AUTH", b"secret") + encode(*many) + encode(*many))
    assert parser.next_request() == [b"AUTH", b"secret"]
    parser.authenticated = True
    assert parser.next_request() == many
    parser.authenticated = False
    with pytest.raises(ProtocolError, match="unauthenticated multibulk length"):
        parser.next_request()


def test_max_bulk_len_can_be_set() -> None:
    parser = RequestParser(authenticated=True, max_bulk_len=5)
    parser.feed(b"*2\r\n$5\r\nabcde\r\n")
    assert parser.next_request() is None
    parser.max_bulk_len = 2**63 - 1
    parser.feed(b"$9223372036854775807\r\nx")
    assert parser.next_request() is None
    parser.check_invariants()
    parser.clear()
    parser.max_bulk_len = 5
    parser.feed(b"*1\r\n$6\r\n")
    with pytest.raises(ProtocolError, match="invalid bulk length"):
        parser.next_request()


# --- Memory -----------------------------------------------------------------------------------------------------------


def test_an_idle_parser_holds_no_memory() -> None:
    parser = RequestParser(authenticated=True)
    assert parser.allocated == 0
    for pieces in (
        [PING],
        [b"PING\n"],
        byte_by_byte(PING),
        [b"*0\r\n"],
        [encode(b"x" * 100_000)],
        cut_up(1_000_000, 777),
    ):
        assert run_checked(parser, pieces).error is None
        assert parser.allocated == 0
        assert parser.buffered == 0


def cut_up(size: int, step: int) -> list[bytes]:
    data = encode(b"SET", b"k", b"v" * size)
    return [data[i : i + step] for i in range(0, len(data), step)]


@pytest.mark.parametrize("announced", [b"*2147483647\r\n", b"*1000000\r\n$500000000\r\n", b"*3\r\n$500000000\r\nx"])
def test_announced_sizes_reserve_nothing(announced: bytes) -> None:
    parser = RequestParser(authenticated=True)
    parser.feed(announced)
    assert parser.next_request() is None
    assert parser.allocated <= 1024


@pytest.mark.parametrize("step", [100, 4096, 65536])
def test_a_long_argument_takes_at_most_twice_what_was_received(step: int) -> None:
    parser = RequestParser(authenticated=True)
    received = 0
    requests = []
    for piece in cut_up(3_000_000, step):
        received += len(piece)
        parser.feed(piece)
        while (request := parser.next_request()) is not None:
            requests.append(request)
        assert parser.allocated <= 2 * received + 1024
    assert requests == [[b"SET", b"k", b"v" * 3_000_000]]


def test_a_long_argument_in_small_pieces_takes_linear_time() -> None:
    # Quadratic work would copy more than 10**13 bytes here, and end in the time-out of the test.
    size = 48 << 20
    parser = RequestParser(authenticated=True)
    parser.feed(b"*1\r\n$%d\r\n" % size)
    piece = b"x" * 512
    for _ in range(size // len(piece)):
        parser.feed(piece)
        assert parser.next_request() is None
    parser.feed(b"\r\n")
    assert parser.next_request() == [b"x" * size]


def test_bytes_fed_while_nobody_reads_take_linear_time() -> None:
    parser = RequestParser()
    for _ in range(500_000):
        parser.feed(PING)
    assert parser.buffered == 500_000 * len(PING)
    assert parser.allocated <= 2 * parser.buffered
    for _ in range(500_000):
        assert parser.next_request() == [b"PING"]
    assert parser.next_request() is None


def test_a_backlog_that_is_read_as_fast_as_it_grows_takes_linear_time() -> None:
    # Were the unread bytes moved for every piece, 10**12 bytes would be copied here.
    parser = RequestParser()
    parser.feed(PING * 300_000)
    parser.feed(PING)
    for _ in range(300_000):
        parser.feed(PING)
        assert parser.next_request() == [b"PING"]
    parser.check_invariants()
    assert parser.buffered == 300_001 * len(PING)


def test_a_short_rest_does_not_keep_a_long_buffer() -> None:
    parser = RequestParser()
    parser.feed(b"*1\r\n$4\r\nPI")
    assert parser.next_request() is None
    parser.feed(b"NG\r\n" + PING * 5000 + b"*1\r\n$4\r\nPI")
    while parser.next_request() is not None:
        pass
    assert parser.buffered == 2
    assert parser.allocated <= 512


def test_what_is_buffered_is_counted() -> None:
    parser = RequestParser(authenticated=True)
    parser.feed(b"*3\r\n$3\r\nSET\r\n$2\r\nke\r\n$40000\r\n" + b"x" * 30_000)
    assert parser.next_request() is None
    assert parser.buffered == 30_000
    assert parser.pending_args_size == 5


# --- Handing the rest over --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [encode(b"SET", b"k\r", b"v" * 50_000) + PING, b"a 'b\n", b"*0\r\n" * 3 + b"PING"])
def test_drained_bytes_go_on_in_another_parser(data: bytes) -> None:
    want = run_checked(RequestParser(authenticated=True), [data])
    for cut in [*range(min(100, len(data))), *range(100, len(data), 997)]:
        first = RequestParser(authenticated=True)
        before = run_checked(first, [data[:cut]])
        if before.error is not None:
            continue
        rest = first.drain()
        first.check_invariants()
        assert first.allocated == 0
        after = run_checked(RequestParser(authenticated=True), [rest, data[cut:]])
        assert Outcome(before.requests + after.requests, after.error) == want


def test_drained_bytes_between_requests_are_those_that_were_fed() -> None:
    parser = RequestParser()
    parser.feed(PING + b"\0anything")
    assert parser.next_request() == [b"PING"]
    assert parser.drain() == b"\0anything"
    assert parser.drain() == b""


# --- Against the twin -------------------------------------------------------------------------------------------------

_argument = st.one_of(
    st.sampled_from([b"XADD", b"key", b"*", b"", b"post", b"temperature", b"temperaturf", b"12345678", b"12345679"]),
    st.binary(max_size=40),
    st.integers(30_000, 70_000).map(lambda n: b"v" * n),
)
_request = st.lists(_argument, min_size=1, max_size=12).map(lambda args: encode(*args))
_line = st.text("ab \t\v\"'\\xn4\0\r", max_size=20).map(lambda text: text.encode() + b"\r\n")
_garbage = st.one_of(
    st.binary(max_size=20),
    st.text("*$-0123456789\r\n", max_size=20).map(str.encode),
    st.sampled_from([b"*0\r\n", b"*-1\r\n", b"\r\n", b"*1\r\n$3\r\n", b"*1000\r\n", b"$1\r\n"]),
)


@st.composite
def _cut_input(draw: st.DrawFn) -> list[bytes]:
    data = b"".join(draw(st.lists(st.one_of(_request, _request, _line, _garbage), max_size=6)))
    if data and draw(st.booleans()):
        at = draw(st.integers(0, len(data) - 1))
        data = data[:at] + draw(st.binary(max_size=2)) + data[at + draw(st.integers(0, 2)) :]
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=8)))
    return [data[i:j] for i, j in zip([0, *cuts], [*cuts, len(data)], strict=True)]


@pytest.mark.parametrize("at", range(1, 20))
def test_an_empty_line_is_found_behind_a_header_that_came_in_two_pieces(at: int) -> None:
    data = b"*1\r\n$4\r\nXADD\r\n\r\n*1\r\n$4\r\nPING\r\n"
    parser = RequestParser(authenticated=True)
    found = []
    for piece in (data[:at], data[at:]):
        parser.feed(piece)
        while (request := parser.next_request()) is not None:
            found.append(request)
    assert found == [[b"XADD"], [], [b"PING"]]


@settings(max_examples=400, deadline=None)
@given(pieces=_cut_input(), authenticated=st.booleans())
def test_any_input_cut_anywhere_is_read_as_by_the_twin(pieces: list[bytes], authenticated: bool) -> None:
    assert run_checked(RequestParser(authenticated), pieces) == run(SlowParser(authenticated), pieces)


@settings(max_examples=300, deadline=None)
@given(data=st.binary(max_size=200), step=st.integers(1, 50))
def test_garbage_raises_a_protocol_error_or_nothing(data: bytes, step: int) -> None:
    pieces = [data[i : i + step] for i in range(0, len(data), step)]
    assert run_checked(RequestParser(), pieces) == run(SlowParser(), pieces)


def test_arguments_shared_with_earlier_requests_are_equal_only_when_their_bytes_are() -> None:
    parser = RequestParser(authenticated=True)
    words = [b"%0*d" % (size, i) for size in range(1, 20) for i in range(150)] * 2
    for word in words:
        parser.feed(encode(word, word + b"\0"))
        assert parser.next_request() == [word, word + b"\0"]


# --- Lines ------------------------------------------------------------------------------------------------------------


@settings(max_examples=400, deadline=None)
@given(text=st.text("ab \t\v\f\"'\\xnrf4\0\r\xff", max_size=30))
def test_lines_are_split_as_by_the_twin(text: str) -> None:
    line = text.encode("latin-1")
    want = slow_split_line(line)
    if want is None:
        with pytest.raises(ValueError, match="unbalanced quotes"):
            split_line(line)
    else:
        assert split_line(line) == want


@pytest.mark.parametrize("unit", [b'"', b"'", b'"a" ', b'\\"', b"'\\", b'"\\', b" ", b"a", b"\0"])
def test_a_hostile_line_is_split_in_linear_time(unit: bytes) -> None:
    for line in (unit * 200_000, b'"' + unit * 200_000, b"'" + unit * 200_000):
        with contextlib.suppress(ValueError):
            split_line(line)
