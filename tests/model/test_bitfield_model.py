"""BITFIELD against Python's integers: wrapping, saturating and failing numbers of every width, at every offset."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from support.commands.handler import make_context, run

import streamd.values.strings.bitfield
import streamd.values.strings.bitmaps  # noqa: F401

widths = st.one_of(st.tuples(st.just("i"), st.integers(1, 64)), st.tuples(st.just("u"), st.integers(1, 63)))
numbers = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-3, 3),
    st.integers(0, 62).flatmap(lambda n: st.integers(-(2**n) - 2, 2**n + 2)),
)
steps = st.tuples(
    st.sampled_from(["GET", "SET", "INCRBY"]),
    widths,
    st.integers(0, 130),
    numbers,
    st.sampled_from(["WRAP", "SAT", "FAIL"]),
)


class Bits:
    """A string as one number, of which the highest bit is bit 0."""

    LENGTH = 1000

    def __init__(self) -> None:
        self.value = 0

    def read(self, kind: str, width: int, at: int) -> int:
        number = self.value >> (self.LENGTH - at - width) & ((1 << width) - 1)
        return number - (1 << width) if kind == "i" and number >> (width - 1) else number

    def write(self, width: int, at: int, number: int) -> None:
        shift = self.LENGTH - at - width
        mask = (1 << width) - 1
        self.value = self.value & ~(mask << shift) | (number & mask) << shift

    def step(self, action: str, kind: str, width: int, at: int, operand: int, overflow: str) -> int | None:
        old = self.read(kind, width, at)
        if action == "GET":
            return old
        low, high = (-(1 << width - 1), (1 << width - 1) - 1) if kind == "i" else (0, (1 << width) - 1)
        total = old + operand if action == "INCRBY" else operand
        is_high = total > high
        if action == "SET" and total < low:
            # Redis takes a negative number for an unsigned field, and one that is too far away, for a high one.
            is_high = kind == "u" or high - total > 2**63 - 1
        if not low <= total <= high:
            if overflow == "FAIL":
                return None
            if overflow == "SAT":
                total = high if is_high else low
        self.write(width, at, total)
        new = self.read(kind, width, at)
        return old if action == "SET" else new


@given(st.lists(st.lists(steps, min_size=1, max_size=5), min_size=1, max_size=5))
@settings(max_examples=400, deadline=None)
def test_fields_are_numbers_of_some_bits(requests: list[list[tuple[str, tuple[str, int], int, int, str]]]) -> None:
    ctx, oracle = make_context(), Bits()
    for request in requests:
        words: list[str | int] = []
        wanted = []
        for action, (kind, width), at, operand, overflow in request:
            words += ["OVERFLOW", overflow, action, f"{kind}{width}", at, *([operand] if action != "GET" else [])]
            wanted.append(oracle.step(action, kind, width, at, operand, overflow))
        assert run(ctx, "BITFIELD", "k", *words) == wanted
        text = ctx.db.peek(b"k") or b""
        assert int.from_bytes(text.ljust(Bits.LENGTH // 8, b"\0"), "big") == oracle.value


@given(st.binary(max_size=600), st.integers(-5000, 5000), st.integers(-5000, 5000))
@settings(max_examples=400, deadline=None)
def test_bits_are_counted_and_found(text: bytes, start: int, end: int) -> None:
    ctx = make_context()
    ctx.db.add(b"k", text)
    bits = "".join(f"{byte:08b}" for byte in text)
    first = max(0, start + len(bits)) if start < 0 else start
    last = max(0, end + len(bits)) if end < 0 else end
    part = bits[first : last + 1]
    if start < 0 and end < 0 and start > end:
        part = ""  # as in Redis, though both may be before the first bit
    assert run(ctx, "BITCOUNT", "k", start, end, "BIT") == part.count("1")
    assert run(ctx, "BITCOUNT", "k") == bits.count("1")
    if part:
        for bit in "01":
            found = part.find(bit)
            assert run(ctx, "BITPOS", "k", bit, start, end, "BIT") == (first + found if found >= 0 else -1)


@given(st.lists(st.binary(max_size=80), min_size=2, max_size=5))
@settings(max_examples=300, deadline=None)
def test_operations_are_those_of_sets_of_bits(texts: list[bytes]) -> None:
    ctx = make_context()
    keys = [b"%d" % at for at in range(len(texts))]
    for key, text in zip(keys, texts, strict=True):
        ctx.db.add(key, text)
    length = max(map(len, texts))
    first, *others = (int.from_bytes(text.ljust(length, b"\0"), "big") for text in texts)
    every, any_other, once, more = first, 0, first, 0
    for other in others:
        every &= other
        any_other |= other
        once, more = (once | other) & ~(once & other) & ~more, more | once & other
    odd = first
    for other in others:
        odd ^= other
    full = (1 << 8 * length) - 1
    wanted = {
        "AND": every, "OR": first | any_other, "XOR": odd, "DIFF": first & ~any_other, "DIFF1": any_other & ~first,
        "ANDOR": first & any_other, "ONE": once,
    }  # fmt: skip
    for operation, number in wanted.items():
        assert run(ctx, "BITOP", operation, "dst", *keys) == length
        assert int.from_bytes(ctx.db.peek(b"dst") or b"", "big") == number, operation
    run(ctx, "BITOP", "NOT", "dst", keys[0])
    inverted = int.from_bytes((ctx.db.peek(b"dst") or b"").ljust(length, b"\xff"), "big")
    assert inverted == full & ~first
