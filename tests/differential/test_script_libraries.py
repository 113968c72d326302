"""The libraries of scripts (cjson, cmsgpack, struct, bit, math.random): the same values and errors as Redis's, to the byte.

Each expression is evaluated by EVAL on a real Redis and here, and, unless it is one of cjson, by the libraries in an interpreter of
their own. Those that someone thought of stand in script_expressions; the others are drawn.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.scripting.lua_libraries import Libraries, quoted, showing
from support.servers import Server
from support.wire import Wire

pytestmark = [pytest.mark.long, pytest.mark.real]

EXPRESSIONS = Path(__file__).parent / "script_expressions"
STATEMENTS_END = b" ==> "

DRAWN = settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


class Sides:
    """Redis, this server, and the libraries alone. All begin with default settings."""

    def __init__(self, theirs: Wire, ours: Wire) -> None:
        self.theirs = theirs
        self.ours = ours
        self.libraries = Libraries()
        for wire in (theirs, ours):
            wire.call("SCRIPT", "FLUSH")

    def compare(self, expression: bytes, before: bytes = b"") -> None:
        script = showing(expression, before)
        what = f"{before.decode('latin1')} {expression.decode('latin1')}"
        expected = self.theirs.call("EVAL", script, "0").value
        if b"cjson." not in before + expression:
            assert self.libraries.run(script) == expected, what
        assert self.ours.call("EVAL", script, "0").value == expected, what


@pytest.fixture
def sides(redis_server: Server, streamd_server: Server) -> Iterator[Sides]:
    with redis_server.connect() as theirs, streamd_server.connect() as ours:
        yield Sides(theirs, ours)


@pytest.mark.parametrize("library", ["cjson", "cmsgpack", "struct", "bit", "random"])
def test_expressions(sides: Sides, library: str) -> None:
    if library == "random":
        sides.compare(b"1", b"math.randomseed(1)")
    for line in EXPRESSIONS.joinpath(f"{library}.txt").read_bytes().splitlines():
        if not line.startswith(b"#"):
            before, _, expression = line.rpartition(STATEMENTS_END)
            sides.compare(expression, before)


# --- Drawn values ---------------------------------------------------------------------------------------------------

numbers = st.one_of(
    st.integers(-300, 300),
    st.integers(-(2**64), 2**64),
    st.sampled_from([2**n + d for n in (7, 8, 15, 16, 24, 31, 32, 51, 52, 53, 62, 63, 64) for d in (-1, 0, 1)]),
    st.floats(),
    st.floats(width=32),
    st.builds(lambda f: f + 2**-30, st.floats(-1000, 1000)),
)


@st.composite
def number_literals(draw: st.DrawFn) -> bytes:
    value = float(draw(numbers)) * draw(st.sampled_from([1, -1]))
    if value != value:
        return b"(0/0)" if struct.pack(">d", value)[0] & 128 else b"-(0/0)"
    if value in (float("inf"), float("-inf")):
        return b"(1/0)" if value > 0 else b"(-1/0)"
    return b"(%s)" % repr(value).encode()


keys = st.one_of(
    st.sampled_from([b"a", b"b", b"cc", b"key", b'"', b"1", b"-1", b"\x80\xff"]).map(quoted), number_literals()
)
leaves = st.one_of(
    number_literals(),
    st.binary(max_size=40).map(quoted),
    st.text(max_size=10).map(lambda text: quoted(text.encode())),
    st.sampled_from([b"true", b"false", b"cjson.null", b"''", b"{}", b"type"]),
)


def table_of(members: list[tuple[bytes | None, bytes]]) -> bytes:
    """A table constructor: members without a key are given the next integer."""
    usable = [
        (key, value) for key, value in members if key not in (b"(0/0)", b"-(0/0)")
    ]  # a table has no such key: an error of its own
    return b"{" + b",".join(value if key is None else b"[" + key + b"]=" + value for key, value in usable) + b"}"


values = st.recursive(
    leaves,
    lambda inner: st.lists(st.tuples(st.one_of(st.none(), keys), inner), max_size=6).map(table_of),
    max_leaves=20,
)
arguments = st.lists(values, max_size=4).map(b",".join)


@DRAWN
@given(value=values, precision=st.integers(1, 14), invalid=st.sampled_from([b"true", b"false", b"'null'"]))
def test_cjson_encodes_a_drawn_value(sides: Sides, value: bytes, precision: int, invalid: bytes) -> None:
    sides.compare(b"cjson.encode(" + value + b")")
    before = b"cjson.encode_number_precision(%d) cjson.encode_invalid_numbers(%s)" % (precision, invalid)
    sides.compare(b"cjson.encode(" + value + b")", before)
    sides.compare(b"cjson.decode(cjson.encode(" + value + b"))")
    sides.compare(b"1", b"cjson.encode_number_precision(14) cjson.encode_invalid_numbers(false)")


FRAGMENTS = [bytes([code]) for code in b"[]{},:\"\\ \n\t\0-+.0123456789eExXpPinfNaIN()tu"] + [
    b"true", b"false", b"null", b"nan", b"infinity", b"NaN", b"-inf", b"0x1", b"\\u00e9", b"\\ud83d\\ude00", b"\\n", b"\\/", b"\\x",
]  # fmt: skip
fragments = st.lists(st.sampled_from(FRAGMENTS), max_size=12).map(b"".join)
documents = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8)),
    lambda inner: st.one_of(st.lists(inner, max_size=5), st.dictionaries(st.text(max_size=5), inner, max_size=5)),
    max_leaves=12,
)


@st.composite
def damaged(draw: st.DrawFn, sources: st.SearchStrategy[bytes]) -> bytes:
    """Bytes with a few of them cut out, put in or changed."""
    whole = draw(sources)
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(whole)))
        cut = draw(st.integers(0, 2))
        whole = whole[:at] + draw(st.one_of(st.just(b""), fragments, st.binary(max_size=2))) + whole[at + cut :]
    return whole


texts = damaged(
    st.builds(
        lambda document, indent: json.dumps(document, indent=indent).encode(), documents, st.sampled_from([None, 1])
    )
)


@DRAWN
@given(text=st.one_of(texts, fragments, numbers.map(lambda n: repr(n).encode())), irregular=st.booleans())
def test_cjson_decodes_a_drawn_text(sides: Sides, text: bytes, irregular: bool) -> None:
    before = b"cjson.decode_invalid_numbers(%s)" % (b"true" if irregular else b"false")
    sides.compare(b"cjson.decode(" + quoted(text) + b")", before)
    sides.compare(b"cjson.decode(" + quoted(b"[" + text + b" ]") + b")", before)


@DRAWN
@given(given=arguments)
def test_cmsgpack_packs_drawn_values(sides: Sides, given: bytes) -> None:
    sides.compare(b"cmsgpack.pack(" + given + b")")
    sides.compare(b"cmsgpack.unpack(cmsgpack.pack(" + given + b"))")


@st.composite
def packed(draw: st.DrawFn) -> bytes:
    """Something like MessagePack: types with the bytes that they need, and too few or too many."""
    parts = []
    for _ in range(draw(st.integers(0, 6))):
        kind = draw(st.one_of(st.integers(0, 255), st.integers(0xC0, 0xDF)))
        few = draw(st.binary(min_size=0, max_size=9))
        parts.append(
            bytes([kind]) + draw(st.sampled_from([few, b"", b"\x00\x01", b"\x00\x00\x00\x02\x01\x02", bytes(9)]))
        )
    return b"".join(parts)


@DRAWN
@given(text=st.one_of(packed(), st.binary(max_size=30)), limit=st.integers(-1, 5), offset=st.integers(-1, 6))
def test_cmsgpack_unpacks_drawn_bytes(sides: Sides, text: bytes, limit: int, offset: int) -> None:
    literal = quoted(text)
    sides.compare(b"cmsgpack.unpack(" + literal + b")")
    sides.compare(b"cmsgpack.unpack_one(%s, %d)" % (literal, offset))
    sides.compare(b"cmsgpack.unpack_limit(%s, %d, %d)" % (literal, limit, offset))


formats = st.lists(
    st.sampled_from(
        [
            b"<",
            b">",
            b"!",
            b"!1",
            b"!2",
            b"!4",
            b"!16",
            b"!3",
            b" ",
            b"x",
            b"b",
            b"B",
            b"h",
            b"H",
            b"l",
            b"L",
            b"T",
            b"i",
            b"I",
            b"f",
            b"d",
        ]
        + [b"s", b"c", b"c0", b"c2", b"c5", b"z", b"i33", b"Bc0", b"Hc0"]
        + [b"%c%d" % (letter, size) for letter in b"iI" for size in (0, 1, 2, 3, 4, 5, 7, 8, 9, 12, 16, 17, 32)]
    ),
    max_size=6,
).map(b"".join)


@DRAWN
@given(
    form=formats,
    given=st.lists(st.one_of(number_literals(), leaves), max_size=6),
    data=st.binary(max_size=60),
    at=st.integers(-2, 9),
)
def test_struct_with_drawn_formats(sides: Sides, form: bytes, given: list[bytes], data: bytes, at: int) -> None:
    literal = quoted(form)
    sides.compare(b"struct.size(" + literal + b")")
    sides.compare(b"struct.pack(" + b",".join([literal, *given]) + b")")
    sides.compare(b"struct.unpack(%s, %s, %d)" % (literal, quoted(data), at))
    sides.compare(b"struct.unpack(%s, %s)" % (literal, quoted(data)))


UNARY = [b"tobit", b"bnot", b"bswap", b"tohex"]
OTHERS = [b"band", b"bor", b"bxor", b"lshift", b"rshift", b"arshift", b"rol", b"ror", b"tohex"]


@DRAWN
@given(name=st.sampled_from(UNARY + OTHERS), given=st.lists(st.one_of(number_literals(), leaves), max_size=4))
def test_bit_of_drawn_numbers(sides: Sides, name: bytes, given: list[bytes]) -> None:
    sides.compare(b"bit." + name + b"(" + b",".join(given) + b")")


@DRAWN
@given(seed=number_literals(), given=st.lists(number_literals(), max_size=3))
def test_random_numbers_of_a_drawn_seed(sides: Sides, seed: bytes, given: list[bytes]) -> None:
    call = b"math.random(" + b",".join(given) + b")"
    sides.compare(b"math.random(), " + call + b", " + call, b"math.randomseed(" + seed + b")")
