"""Inputs of the request parser with expected results, for its unit tests and for the comparison with a real Redis."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from streamd.errors import ProtocolError

__all__ = ["CASES", "PING", "PREFIX", "Outcome", "Parser", "Request", "encode", "name_of", "run"]

Request = list[bytes]
Case = tuple[bytes, list[Request], str | None]


class Parser(Protocol):
    """Bytes in, requests out."""

    def feed(self, data: bytes, /) -> object: ...
    def next_request(self) -> Request | None: ...


@dataclass
class Outcome:
    """The result of some input: the requests, and the error that ended it (None: none; "": closed silently)."""

    requests: list[Request]
    error: str | None = None


def run(parser: Parser, pieces: Iterable[bytes]) -> Outcome:
    requests = []
    try:
        for piece in pieces:
            parser.feed(piece)
            while (request := parser.next_request()) is not None:
                requests.append(request)
    except ProtocolError as error:
        return Outcome(requests, str(error))
    return Outcome(requests)


def encode(*args: bytes) -> bytes:
    return b"*%d\r\n" % len(args) + b"".join(b"$%d\r\n%b\r\n" % (len(arg), arg) for arg in args)


PREFIX = "ERR Protocol error: "
COUNT = PREFIX + "invalid multibulk length"
LENGTH = PREFIX + "invalid bulk length"
QUOTES = PREFIX + "unbalanced quotes in request"
PING = encode(b"PING")

# Input, resulting requests, the error that ends it.
MULTIBULK: list[Case] = [
    (b"", [], None),
    (PING, [[b"PING"]], None),
    (PING * 3, [[b"PING"]] * 3, None),
    (b"*1\r\n$4\r\nPINGxx" + PING, [[b"PING"], [b"PING"]], None),
    (b"*1\rX$4\rXPINGxx", [[b"PING"]], None),
    (b"*1\r\n$0\r\n\r\n", [[b""]], None),
    (encode(b"SET", b"k\r\n", b"*1\r\n$4\r\n\0"), [[b"SET", b"k\r\n", b"*1\r\n$4\r\n\0"]], None),
    (b"*0\r\n" + PING, [[], [b"PING"]], None),
    (b"*-1\r\n" + PING, [[], [b"PING"]], None),
    (b"*-5\r\n", [[]], None),
    (b"*-9223372036854775808\r\n", [[]], None),
    (b"*-9223372036854775809\r\n", [], COUNT),
    (b"*\r\n", [], COUNT),
    (b"*-\r\n", [], COUNT),
    (b"*-0\r\n", [], COUNT),
    (b"*01\r\n", [], COUNT),
    (b"*00\r\n", [], COUNT),
    (b"* 1\r\n", [], COUNT),
    (b"*1 \r\n", [], COUNT),
    (b"*+1\r\n", [], COUNT),
    (b"*1\n\r\n", [], COUNT),
    (b"*1\0\r\n", [], None),
    (b"*\0\r\n" + PING, [], None),
    (b"*1\r\0" + PING[4:], [[b"PING"]], None),
    (b"*1\0\r\n" + b"1" * 65532, [], PREFIX + "too big mbulk count string"),
    (b"*1\r\n$4\0\r\nPING\r\n", [], LENGTH),
    (b"*abc\r\n", [], COUNT),
    (b"*2147483647\r\n", [], None),
    (b"*2147483648\r\n", [], COUNT),
    (b"*99999999999999999999\r\n", [], COUNT),
    (b"*18446744073709551617\r\n", [], COUNT),
    (b"*1\n$4\nPING\n", [], None),
    (b"*1\r\nPING", [], None),
    (b"*1\r\nPING\r", [], None),
    (b"*1\r\nPING\r\n", [], PREFIX + "expected '$', got 'P'"),
    (b"*2\r\n$4\r\nECHO\r\n:1\r\n", [], PREFIX + "expected '$', got ':'"),
    (b"*1\r\n\r\n\r\n", [], PREFIX + "expected '$', got ' '"),
    (b"*1\r\n\n\r\n", [], PREFIX + "expected '$', got ' '"),
    (b"*1\r\n\0\r\n", [], PREFIX + "expected '$', got '\0'"),
    (b"*1\r\n\xff\r\n", [], PREFIX + "expected '$', got '\xff'"),
    (PING + b"*1\r\nxx\r\n" + PING, [[b"PING"]], PREFIX + "expected '$', got 'x'"),
    (b"*1\r\n$-1\r\n", [], LENGTH),
    (b"*1\r\n$-0\r\n", [], LENGTH),
    (b"*1\r\n$\r\n", [], LENGTH),
    (b"*1\r\n$04\r\nPING\r\n", [], LENGTH),
    (b"*1\r\n$4 \r\nPING\r\n", [], LENGTH),
    (b"*1\r\n$+4\r\nPING\r\n", [], LENGTH),
    (b"*1\r\n$4x\r\nPING\r\n", [], LENGTH),
    (b"*1\r\n$536870912\r\n", [], None),
    (b"*1\r\n$536870913\r\n", [], LENGTH),
    (b"*1\r\n$9223372036854775807\r\n", [], LENGTH),
    (b"*1\r\n$18446744073709551620\r\n", [], LENGTH),
    (encode(*[b"%d" % i for i in range(200)]), [[b"%d" % i for i in range(200)]], None),
    (encode(b"SET", b"k", b"x" * 100_000), [[b"SET", b"k", b"x" * 100_000]], None),
    (b"*" + b"1" * 65535, [], None),
    (b"*" + b"1" * 65536, [], PREFIX + "too big mbulk count string"),
    (b"*1\r\n$" + b"1" * 200_000, [], None),
    (b"*1\r\n" + b"x" * 200_000, [], None),
]

INLINE: list[Case] = [
    (b"\n", [[]], None),
    (b"\r\n \t\r\n\v\r\n", [[], [], []], None),
    (b"PING\r\n", [[b"PING"]], None),
    (b"PING\n", [[b"PING"]], None),
    (b"PING\r\r\n", [[b"PING"]], None),
    (b"PING", [], None),
    (b"  SET  a\tb \r\n", [[b"SET", b"a", b"b"]], None),
    (b"ECHO a\rb\r\n", [[b"ECHO", b"a", b"b"]], None),
    (b"ECHO a\vb \vc\f\n", [[b"ECHO", b"a\vb", b"c\f"]], None),
    (b"ECHO \"a b\" 'c d'\r\n", [[b"ECHO", b"a b", b"c d"]], None),
    (b'ECHO "\\n\\r\\t\\b\\a\\\\\\"\\q\\x41\\xfF\\x4g"\r\n', [[b"ECHO", b'\n\r\t\b\a\\"qA\xffx4g']], None),
    (b"ECHO 'it\\'s \\n \\\\ '\r\n", [[b"ECHO", b"it's \\n \\\\ "]], None),
    (b"ECHO \\n\r\n", [[b"ECHO", b"\\n"]], None),
    (b'ECHO a"b c"\r\n', [[b"ECHO", b"ab c"]], None),
    (b'ECHO "a"\v\r\n', [[b"ECHO", b"a"]], None),
    (b'""\r\n', [[b""]], None),
    (b"'' ''\r\n", [[b"", b""]], None),
    (b'ECHO a"b"c\r\n', [], QUOTES),
    (b"ECHO \"a\"'b'\r\n", [], QUOTES),
    (b'ECHO "a\r\n', [], QUOTES),
    (b"ECHO 'a\r\n", [], QUOTES),
    (b'ECHO "a\\"\r\n', [], QUOTES),
    (b"ECHO '\\\\'\r\n", [], QUOTES),
    (PING + b'x"\n' + PING, [[b"PING"]], QUOTES),
    (b"PING\0\r\nPING\r\n", [], None),
    (b"PING\r\n\0PING\r\n", [[b"PING"]], None),
    (b"PING " + b"a" * 65531, [], None),
    (b"PING " + b"a" * 65532, [], PREFIX + "too big inline request"),
    (b"PING\0\n" + b"a" * 65530, [], None),
    (b"PING\0\n" + b"a" * 65531, [], PREFIX + "too big inline request"),
    (b"$4\r\nPING\r\n", [[b"$4"], [b"PING"]], None),
]

HTTP: list[Case] = [
    (b"POST / HTTP/1.1\r\nPING\r\n", [], ""),
    (b"Host: example.com\r\n", [], ""),
    (b"host:\n", [], ""),
    (PING + b"post\r\n", [[b"PING"]], ""),
    (encode(b"HoSt:", b"x"), [], ""),
    (encode(b"POST"), [], ""),
    (encode(b"post\0more"), [], ""),
    (encode(b"POSTS") + encode(b"HOST") + encode(b"POS"), [[b"POSTS"], [b"HOST"], [b"POS"]], None),
]


CASES = MULTIBULK + INLINE + HTTP


def name_of(case: Case) -> str:
    return f"{case[0][:30]!r}:{len(case[0])}"
