"""The reader of replies gives the same values however the bytes are cut, and refuses what is not a reply."""

from __future__ import annotations

from typing import Any

import pytest

from streamd.client.client_errors import ServerError
from streamd.client.reply_reader import ReplyReader
from streamd.client.reply_types import UNREAD, Push, SetReply, Status, Verbatim
from streamd.errors import ProtocolError

REPLIES: list[tuple[bytes, Any]] = [
    (b"+OK\r\n", Status(b"OK")),
    (b"$2\r\nOK\r\n", b"OK"),
    (b"$0\r\n\r\n", b""),
    (b"$3\r\n\r\n\r\r\n", b"\r\n\r"),
    (b"$-1\r\n", None),
    (b"*-1\r\n", None),
    (b"_\r\n", None),
    (b":-7\r\n", -7),
    (b":9223372036854775807\r\n", 2**63 - 1),
    (b"(-340282366920938463463374607431768211456\r\n", -(2**128)),
    (b",1.5\r\n", 1.5),
    (b",-inf\r\n", float("-inf")),
    (b"#t\r\n", True),
    (b"#f\r\n", False),
    (b"=7\r\ntxt:abc\r\n", Verbatim(b"abc")),
    (b"*0\r\n", []),
    (b"*2\r\n*1\r\n:1\r\n*0\r\n", [[1], []]),
    (b"%2\r\n+a\r\n*0\r\n*1\r\n:1\r\n:2\r\n", {b"a": [], (1,): 2}),
    (b"~2\r\n:1\r\n*0\r\n", SetReply([1, []])),
    (b">2\r\n$7\r\nmessage\r\n:1\r\n", Push([b"message", 1])),
    (b"|1\r\n+ttl\r\n:5\r\n*2\r\n|0\r\n:1\r\n|1\r\n+a\r\n+b\r\n:2\r\n", [1, 2]),
]
ERRORS = [b"-ERR no\r\n", b"!6\r\nERR no\r\n"]


def read(data: bytes, cut: int) -> list[Any]:
    reader, found = ReplyReader(), []
    for at in range(0, len(data), cut):
        reader.feed(data[at : at + cut])
        while (reply := reader.next()) is not UNREAD:
            found.append(reply)
    return found


@pytest.mark.parametrize("cut", [1, 2, 3, 5, 7, 64, 10_000])
def test_replies_are_the_same_however_they_are_cut(cut: int) -> None:
    found = read(b"".join(data for data, _ in REPLIES), cut)
    assert found == [value for _, value in REPLIES]
    assert [type(each) for each in found] == [type(value) for _, value in REPLIES]


@pytest.mark.parametrize("data", ERRORS)
def test_an_error_is_a_value(data: bytes) -> None:
    alone, [inside] = read(data + b"*1\r\n" + data, 4)
    assert isinstance(alone, ServerError)
    assert isinstance(inside, ServerError)
    assert (alone.code, str(inside)) == ("ERR", "ERR no")


@pytest.mark.parametrize(
    "data", [b"HTTP/1.1 400 Bad Request", b"$x\r\n", b"*\r\n", b":1 \r\n", b"+a\rb", b"$" + b"1" * 30 + b"\r\n"]
)
def test_what_is_not_a_reply_is_refused(data: bytes) -> None:
    reader = ReplyReader()
    reader.feed(data)
    with pytest.raises(ProtocolError, match=r"^b'"):
        reader.next()


def test_large_strings_arrive_in_pieces_and_leave_no_large_buffer() -> None:
    reader, value = ReplyReader(), bytes(3_000_000)
    for _ in range(3):
        reader.feed(b"*2\r\n$%d\r\n" % len(value))
        for at in range(0, len(value), 100_000):
            assert reader.next() is UNREAD
            reader.feed(value[at : at + 100_000])
        reader.feed(b"\r\n:1\r\n")
        assert reader.next() == [value, 1]


def test_nesting_has_a_limit() -> None:
    reply = read(b"*1\r\n" * 1_000 + b":1\r\n", 700)[0]
    for _ in range(1_000):
        [reply] = reply
    assert reply == 1
    with pytest.raises(ProtocolError, match="1000 deep"):
        read(b"*1\r\n" * 100_000, 700)
