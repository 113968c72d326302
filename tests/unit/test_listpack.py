"""Listpacks: the bytes of every encoding, both directions, and what is said of broken bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.compiled import compiled

listpack = compiled("listpack")
convert, decode, decode_backwards = listpack.convert, listpack.decode, listpack.decode_backwards
encode, replace_int, validate = listpack.encode, listpack.replace_int, listpack.validate

INTEGERS = [
    (b"0", "00"), (b"127", "7f"),
    (b"128", "c080"), (b"-1", "dfff"), (b"4095", "cfff"), (b"-4096", "d000"),
    (b"4096", "f10010"), (b"-4097", "f1ffef"), (b"32767", "f1ff7f"), (b"-32768", "f10080"),
    (b"32768", "f2008000"), (b"-32769", "f2ff7fff"), (b"8388607", "f2ffff7f"), (b"-8388608", "f2000080"),
    (b"8388608", "f300008000"), (b"-8388609", "f3ffff7fff"),
    (b"2147483647", "f3ffffff7f"), (b"-2147483648", "f300000080"),
    (b"2147483648", "f40000008000000000"), (b"-2147483649", "f4ffffff7fffffffff"),
    (b"9223372036854775807", "f4ffffffffffffff7f"), (b"-9223372036854775808", "f40000000000000080"),
]  # fmt: skip

NO_INTEGERS = [
    b"", b"-", b"+1", b"-0", b"00", b"007", b"-01", b" 1", b"1 ", b"1.0", b"1\0", b"9223372036854775808",
    b"-9223372036854775809", b"18446744073709551616", b"99999999999999999999", b"1:", b"1/", b"\xff",
]  # fmt: skip


def only_element(listpack: bytes) -> bytes:
    """Encoding and data of the one element, without its back-length of one byte."""
    return listpack[6:-2]


@pytest.mark.parametrize(("text", "encoded"), INTEGERS)
def test_canonical_integers_take_the_shortest_encoding(text: bytes, encoded: str) -> None:
    assert only_element(encode([text])).hex() == encoded
    assert decode(encode([text])) == [text]


@pytest.mark.parametrize("text", NO_INTEGERS)
def test_anything_else_stays_a_string(text: bytes) -> None:
    assert only_element(encode([text])) == bytes([0x80 | len(text)]) + text
    assert decode(encode([text])) == [text]


def test_an_empty_listpack_has_seven_bytes() -> None:
    assert encode([]) == b"\x07\0\0\0\0\0\xff"
    assert decode(encode([])) == []


@pytest.mark.parametrize(
    ("length", "head", "back_length"),
    [
        (63, "bf", "40"), (64, "e040", "42"), (125, "e07d", "7f"), (126, "e07e", "0180"), (4095, "efff", "2081"),
        (4096, "f000100000", "2085"), (16377, "f0f93f0000", "7ffe"), (16378, "f0fa3f0000", "00ffff"),
        (2097145, "f0f9ff1f00", "7ffffe"), (2097146, "f0faff1f00", "00ffffff"),
    ],
)  # fmt: skip
def test_string_lengths_and_back_lengths(length: int, head: str, back_length: str) -> None:
    text = b"x" * length
    listpack = encode([text, b"1"])
    assert listpack[6:] == bytes.fromhex(head) + text + bytes.fromhex(back_length) + b"\x01\x01\xff"
    assert decode(listpack) == [text, b"1"]
    assert decode_backwards(listpack) == [b"1", text]


@pytest.mark.parametrize(
    ("length", "wide", "narrow"),
    [(16378, "00ffff", "7fff"), (2097146, "00ffffff", "7fffff"), (268435450, "00ffffffff", "7fffffff")],
)
def test_back_lengths_of_two_widths(length: int, wide: str, narrow: str) -> None:
    before, behind = [b"a", b"y" * 70], [b"1", b"x" * 5000]
    listpack = encode([*before, b"x" * length, *behind])
    shorter = convert(listpack, narrow=True)
    assert len(shorter) == len(listpack) - 1
    end = encode(behind)[6:]
    assert listpack.endswith(b"x" + bytes.fromhex(wide) + end)
    assert shorter.endswith(b"x" + bytes.fromhex(narrow) + end)
    assert validate(shorter) is not None
    assert convert(shorter, narrow=False) == listpack
    assert convert(shorter, narrow=True) is shorter
    assert convert(listpack, narrow=False) is listpack


def test_listpacks_of_mixed_widths_are_made_alike() -> None:
    texts = [b"x" * 16378, b"y" * 16377, b"z" * 16378, b"x" * 16379, b"z" * 16378]
    listpack = encode(texts)
    narrow = convert(listpack, narrow=True)
    at = narrow.index(b"\x7f\xff")
    mixed = narrow[:at] + b"\x00\xff\xff" + narrow[at + 2 :]
    mixed = len(mixed).to_bytes(4, "little") + mixed[4:]
    assert len(narrow) == len(listpack) - 3
    assert convert(mixed, narrow=False) == listpack
    assert convert(mixed, narrow=True) == narrow


@given(garbage=st.binary(max_size=40), narrow=st.booleans())
def test_garbage_is_left_as_it_is(garbage: bytes, narrow: bool) -> None:
    assert convert(garbage, narrow=narrow) == garbage


@given(data=st.data(), narrow=st.booleans())
def test_a_damaged_listpack_is_converted_within_its_bytes(data: st.DataObject, narrow: bool) -> None:
    broken = bytearray(convert(encode([b"1", b"x" * 16378, b"f"]), narrow=data.draw(st.booleans())))
    for at in data.draw(
        st.lists(st.sampled_from([0, 1, 6, 8, 9, 10, 11, 12, len(broken) - 6, len(broken) - 4]), max_size=3)
    ):
        broken[at] = data.draw(st.integers(0, 255))
    found = convert(bytes(broken), narrow=narrow)
    assert abs(len(found) - len(broken)) <= 1


def test_the_number_of_elements_is_unknown_from_65535_on() -> None:
    assert encode([b"1"] * 65534)[4:6] == b"\xfe\xff"
    for number in (65535, 65536, 70000):
        assert encode([b"1"] * number)[4:6] == b"\xff\xff"
        assert len(decode(encode([b"1"] * number))) == number


TEXTS = st.lists(
    st.one_of(
        st.binary(max_size=200),
        st.integers(-(2**63), 2**63 - 1).map(lambda number: b"%d" % number),
        st.integers(-5000, 5000).map(lambda number: b"%d" % number),
    ),
    max_size=30,
)


@given(TEXTS)
def test_elements_come_back_from_both_ends(texts: list[bytes]) -> None:
    listpack = encode(texts)
    assert int.from_bytes(listpack[:4], "little") == len(listpack)
    assert int.from_bytes(listpack[4:6], "little") == len(texts)
    assert validate(listpack) is None
    assert decode(listpack) == texts
    assert decode_backwards(listpack) == texts[::-1]


@given(TEXTS, st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1), st.data())
def test_an_integer_replaced_gives_the_listpack_written_again(
    texts: list[bytes], old: int, new: int, data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(texts)))
    before = encode([*texts[:at], b"%d" % old, *texts[at:]])
    assert replace_int(before, at, new) == encode([*texts[:at], b"%d" % new, *texts[at:]])


# --- Bytes that are no listpack -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("broken", "offset", "reason"),
    [
        ("", 0, "shorter than its header"),
        ("0600000000ff", 0, "shorter than its header"),
        ("08000000000000", 0, "size is not the size in its header"),
        ("07000000000000", 6, "does not end with its end byte"),
        ("090000000100" + "f501" + "ff", 6, "unknown listpack encoding"),
        ("090000000100" + "ff01" + "ff", 6, "unknown listpack encoding"),
        ("090000000100" + "8561" + "ff", 6, "goes past the end"),
        ("080000000100" + "01" + "ff", 6, "goes past the end"),
        ("080000000100" + "f0" + "ff", 6, "goes past the end"),
        ("0d0000000100" + "f0ffffffff01" + "ff", 6, "goes past the end"),
        ("0d0000000100" + "f40102030405" + "ff", 6, "goes past the end"),
        ("090000000100" + "0102" + "ff", 7, "wrong back-length"),
        ("090000000200" + "0101" + "ff", 4, "wrong number of elements"),
    ],
)
def test_a_fault_is_named_with_its_offset(broken: str, offset: int, reason: str) -> None:
    fault = validate(bytes.fromhex(broken))
    assert fault is not None
    assert fault[0] == offset
    assert reason in fault[1]
    with pytest.raises(ValueError, match=reason):
        decode(bytes.fromhex(broken))


def test_an_unknown_number_of_elements_is_no_fault() -> None:
    assert validate(bytes.fromhex("09000000ffff0101ff")) is None


def test_longer_encodings_than_needed_are_read() -> None:
    assert decode(bytes.fromhex("110000000100f4ffffffffffffffff09ff")) == [b"-1"]


@given(TEXTS, st.data())
def test_every_changed_byte_is_a_fault_or_another_listpack(texts: list[bytes], data: st.DataObject) -> None:
    broken = bytearray(encode(texts))
    broken[data.draw(st.integers(0, len(broken) - 1))] = data.draw(st.integers(0, 255))
    if validate(bytes(broken)) is None:
        assert decode(bytes(broken)) == decode_backwards(bytes(broken))[::-1]


@given(st.binary(max_size=40))
def test_garbage_is_never_walked(garbage: bytes) -> None:
    framed = (len(garbage) + 7).to_bytes(4, "little") + b"\xff\xff" + garbage + b"\xff"
    if validate(framed) is None:
        assert decode(framed) == decode_backwards(framed)[::-1]
