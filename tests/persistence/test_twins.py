"""Elements that a payload has twice: refused in hashes, sets and sorted sets, however they are written and how many there are."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from support.compiled import compiled
from support.files.rdb import make_payload, make_string

from streamd.errors import CorruptFileError
from streamd.persistence.rdb.read import restore_value

encode = compiled("listpack").encode


def widened(elements: Sequence[bytes], each: Callable[[int], list[bytes]]) -> list[bytes]:
    return [word for at, element in enumerate(elements) for word in (element, *each(at))]


KINDS = {
    "hash": (b"\x10", lambda at: [b"v"]),
    "hash with expiries": (b"\x19" + bytes(8), lambda at: [b"v", b"0"]),
    "set": (b"\x14", lambda at: []),
    "sorted set": (b"\x11", lambda at: [b"%d" % at]),
}
COUNTS = [2, 10, 31, 32, 33, 400]


def payload(kind: str, elements: Sequence[bytes]) -> bytes:
    head, each = KINDS[kind]
    return make_payload(head + make_string(encode(widened(elements, each))))


def alike(count: int) -> list[bytes]:
    """Different texts of one length with the same beginning and the same end."""
    return [b"beginning%03dending..." % at for at in range(count)]


TEXTS = {
    "alike": alike,
    "short": lambda count: [b"%c%d" % (97 + at % 26, at) for at in range(count)],
    "zeros": lambda count: [bytes(at) for at in range(count)],
    "numbers": lambda count: [b"%d" % (at * at * 1_000_003) for at in range(count)],
}


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("kind", KINDS)
def test_different_elements_are_no_twins(kind: str, text: str, count: int) -> None:
    value = restore_value(payload(kind, TEXTS[text](count)))
    value.check_invariants()


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("kind", KINDS)
def test_twins_are_refused_wherever_they_are(kind: str, text: str, count: int) -> None:
    for first, second in ((0, count - 1), (count // 2 - 1, count // 2)):
        elements = TEXTS[text](count)
        elements[second] = elements[first]
        with pytest.raises(CorruptFileError, match="twice"):
            restore_value(payload(kind, elements))


@pytest.mark.parametrize("kind", KINDS)
def test_a_number_has_a_twin_that_is_stored_as_text(kind: str) -> None:
    body = bytearray(encode(widened([b"12", b"ab"], KINDS[kind][1])))
    at = body.index(b"\x82ab\x03")
    body[at + 1 : at + 3] = b"12"
    with pytest.raises(CorruptFileError, match="twice"):
        restore_value(make_payload(KINDS[kind][0] + make_string(bytes(body))))
