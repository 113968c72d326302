"""RESTORE payloads from somebody who means harm: refused, or taken whole and sound; never a crash.

`-m slow` does it a hundred thousand times; tests/asan/run does that under AddressSanitizer.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

import pytest
from support.compiled import compiled
from support.files.rdb import NOW_MS, STRINGS, make_length, make_payload, make_stream, make_string, see, use

from streamd.core.context import Context
from streamd.errors import CorruptFileError
from streamd.persistence.rdb.format import FORMS, LoadOptions, WriteOptions
from streamd.persistence.rdb.read import PayloadError, PayloadReader, restore_value
from streamd.persistence.rdb.write import RdbWriter, dump_value
from streamd.values.streams.stream import Stream

validate_node = compiled("nodes").validate_node

encode, validate = compiled("listpack").encode, compiled("listpack").validate

# --- Payloads that come back --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("form", ["8.10", "8.8", "8.6"])
def test_a_stream_comes_back(seed: int, form: str) -> None:
    stream = make_stream(seed)
    for compression in (True, False):
        found = restore_value(dump_value(stream, WriteOptions(form, compression=compression)))
        assert see(found) == see(stream)
        use(found)  # type: ignore[arg-type]


@pytest.mark.parametrize("number", range(len(STRINGS)))
def test_a_string_comes_back(number: int) -> None:
    assert restore_value(dump_value(STRINGS[number])) == STRINGS[number]


def test_strings_that_no_writer_makes_come_back_too() -> None:
    for body, wanted in (
        (b"\x80\x00\x00\x00\x02hi", b"hi"),
        (b"\x81" + bytes(7) + b"\x02hi", b"hi"),
        (b"\xc2\x07\x00\x00\x00", b"7"),
        (b"\xc3\x02\x01\x00x", b"x"),
    ):
        assert restore_value(make_payload(b"\x00" + body)) == wanted


def test_a_large_group_comes_back() -> None:
    stream = make_stream(1, entries=20_000)
    assert see(restore_value(dump_value(stream))) == see(stream)


# --- Versions and checksums -----------------------------------------------------------------------------------------------


def test_version_and_checksum() -> None:
    payload = dump_value(b"hello")
    assert restore_value(payload[:-8] + bytes(8)) == b"hello"
    for damaged in (
        b"", b"\x01" + payload[1:], payload[:9], payload[:-1], payload[:-1] + bytes([payload[-1] ^ 1]),
        make_payload(payload[:-10], 16), make_payload(payload[:-10], 0xFFFF),
    ):  # fmt: skip
        with pytest.raises(PayloadError, match=r"format version|shorter than its footer|wrong checksum"):
            restore_value(damaged)
    assert restore_value(make_payload(payload[:-10], 0)) == b"hello"


def test_one_reader_and_one_writer_serve_many_payloads() -> None:
    plain = WriteOptions(compression=False, checksum=False)
    writer, reader = RdbWriter(None, plain), PayloadReader()
    for seed in range(6):
        value = make_stream(seed, entries=20_000 if seed == 3 else 50)
        payload = writer.payload(value)
        assert payload == dump_value(value, plain)
        assert payload[-8:] == bytes(8)
        found = reader.read(payload)
        assert see(found) == see(value)
        for cut in (1, len(payload) // 2, len(payload) - 11):  # in the middle of a value
            with pytest.raises(CorruptFileError, match="cut off"):
                reader.read(payload[:cut] + payload[-10:])
        assert see(found) == see(value)
        assert reader.read(dump_value(b"hello")) == b"hello"


# --- Payloads made by hand ------------------------------------------------------------------------------------------------

NODE = encode([b"1", b"0", b"1", b"f", b"0", b"2", b"0", b"0", b"v", b"4"])
FIRST = make_string((1).to_bytes(8, "big") + (1).to_bytes(8, "big"))
COUNTERS = make_length(1) + b"\x01\x01" + b"\x01\x01" + b"\x00\x00" + b"\x01"
DELETED = make_string((2).to_bytes(8, "big") + (1).to_bytes(8, "big")) + make_string(
    encode([b"0", b"1", b"1", b"f", b"0", b"3", b"0", b"0", b"v", b"4"])
)
IDMP = b"\x40\x64\x40\x64\x00\x00\x00"


def node(*elements: int | str) -> bytes:
    return make_string(encode([str(element).encode() for element in elements]))


def raw_id(ms: int, seq: int) -> bytes:
    return ms.to_bytes(8, "big") + seq.to_bytes(8, "big")


def time(ms: int = 5) -> bytes:
    return (ms & (2**64 - 1)).to_bytes(8, "little")


def stream(groups: bytes = b"\x00", nodes: bytes = b"\x01" + FIRST + make_string(NODE), counters: bytes = COUNTERS,
           idmp: bytes = IDMP) -> bytes:  # fmt: skip
    return b"\x1a" + nodes + counters + groups + idmp


def group(pending: bytes = b"\x01" + raw_id(1, 1) + time() + b"\x03", consumers: bytes | None = None, *,
          name: bytes = b"g", read: bytes = b"\x01") -> bytes:  # fmt: skip
    if consumers is None:
        consumers = b"\x01" + consumer()
    return make_string(name) + b"\x01\x01" + read + pending + consumers


def consumer(name: bytes = b"c", mine: bytes = b"\x01" + raw_id(1, 1), seen: int = 5, active: int = -1) -> bytes:
    return make_string(name) + time(seen) + time(active) + mine


def test_the_payload_made_by_hand_is_sound() -> None:
    found = restore_value(make_payload(stream(b"\x01" + group())))
    assert isinstance(found, Stream)
    assert found.range() == [((1, 1), [(b"f", b"v")])]
    assert found.groups[b"g"].pending() == [((1, 1), b"c", 5, 3)]
    use(found)


def stream_27(groups: bytes = b"\x00", **parts: bytes) -> bytes:
    """The same as Redis 8.8 has it; behind the consumers of each group stands what nobody owns."""
    return b"\x1b" + stream(groups, **parts)[1:]


def test_what_nobody_owns_in_a_payload_made_by_hand() -> None:
    found = restore_value(make_payload(stream_27(b"\x01" + group(consumers=b"\x00") + b"\x01" + raw_id(1, 1)), 14))
    assert isinstance(found, Stream)
    assert found.groups[b"g"].pending() == [((1, 1), None, 0, 3)]
    assert found.groups[b"g"].unowned() == [(1, 1)]
    use(found)


def test_the_consumer_who_stands_for_nobody() -> None:
    pending = b"\x02" + raw_id(1, 1) + time(7) + b"\x03" + raw_id(1, 2) + time(6) + b"\x04"
    for name in (b"", b"\0\0"):
        nobody = consumer(name, b"\x02" + raw_id(1, 1) + raw_id(1, 2), seen=0)
        found = restore_value(make_payload(stream(b"\x01" + group(pending, b"\x01" + nobody))))
        assert isinstance(found, Stream)
        assert found.groups[b"g"].unowned() == [(1, 2), (1, 1)]
        assert not found.groups[b"g"].consumers
        use(found)


@pytest.mark.parametrize(("name", "seen", "active"), [(b"c", 0, -1), (b"", 1, -1), (b"", 0, 1), (b"\0c", 0, -1)])
def test_others_stand_for_themselves(name: bytes, seen: int, active: int) -> None:
    one = consumer(name, seen=seen, active=active)
    found = restore_value(make_payload(stream(b"\x01" + group(consumers=b"\x01" + one))))
    assert isinstance(found, Stream)
    assert found.groups[b"g"].pending() == [((1, 1), name, 5, 3)]


def test_deliveries_beyond_what_can_be_counted_are_as_many_as_can_be() -> None:
    """Redis 8.6 counts on, and shows a negative number."""
    pending = b"\x01" + raw_id(1, 1) + time() + b"\x81\x80" + bytes(7)
    found = restore_value(make_payload(stream(b"\x01" + group(pending))))
    assert isinstance(found, Stream)
    assert found.groups[b"g"].pending() == [((1, 1), b"c", 5, 2**63 - 1)]


def test_what_redis_8_8_refuses_is_not_written_for_it() -> None:
    stream = restore_value(make_payload(stream_of_8_6()))
    assert isinstance(stream, Stream)
    assert stream.groups[b"g"].entries_read == 9
    again = restore_value(dump_value(stream, WriteOptions("8.8")))
    assert isinstance(again, Stream)
    assert again.groups[b"g"].entries_read == 2
    assert [master for master, _ in again.list_nodes()] == [(1, 1)]


def stream_of_8_6() -> bytes:
    """A node whose entries are all deleted, and a group that has read more than was added: 8.6 makes both."""
    return stream(
        b"\x01" + group(read=b"\x09"), nodes=b"\x02" + FIRST + make_string(NODE) + DELETED,
        counters=b"\x01\x02\x01\x01\x01\x02\x01\x02",
    )  # fmt: skip


HUGE = b"\x81" + b"\xff" * 8
UNSOUND = {
    "no type": b"",
    "another type": b"\x01\x00",
    "an opcode": b"\xff",
    "nothing behind the type": b"\x1a",
    "more nodes than there are": stream(nodes=b"\x02" + FIRST + make_string(NODE)),
    "2^64 nodes": stream(nodes=HUGE + FIRST + make_string(NODE)),
    "a node's ID of 15 bytes": stream(nodes=b"\x01" + make_string(bytes(15)) + make_string(NODE)),
    "a node's ID of 0-0": stream(nodes=b"\x01" + make_string(bytes(16)) + make_string(NODE)),
    "a node's ID that is a number": stream(nodes=b"\x01\xc0\x01" + make_string(NODE)),
    "a node that is a number": stream(nodes=b"\x01" + FIRST + b"\xc0\x01"),
    "a node of no bytes": stream(nodes=b"\x01" + FIRST + b"\x00"),
    "a node of 6 bytes": stream(nodes=b"\x01" + FIRST + make_string(b"\x06\0\0\0\0\0")),
    "an empty listpack": stream(nodes=b"\x01" + FIRST + make_string(encode([])), counters=b"\0\1\1\0\0\0\0\0"),
    "a node without entries": stream(
        nodes=b"\x01" + FIRST + node(0, 0, 1, "f", 0), counters=b"\0\1\1\0\0\0\0\0"
    ),
    "the same node twice": stream(nodes=b"\x02" + (FIRST + make_string(NODE)) * 2, counters=b"\2" + COUNTERS[1:]),
    "nodes in the wrong order": stream(
        nodes=b"\x02" + make_string(raw_id(9, 1)) + make_string(NODE) + FIRST + make_string(NODE),
        counters=b"\x02\x09\x01" + COUNTERS[3:-1] + b"\x02",
    ),
    "a node that begins inside the one before": stream(
        nodes=b"\x02" + FIRST + node(2, 0, 1, "f", 0, 2, 0, 0, "v", 4, 2, 5, 0, "w", 4)
        + make_string(raw_id(3, 0)) + make_string(NODE),
        counters=b"\x03\x09\x09\x01\x01\0\0\x03",
    ),
    "entries in the wrong order": stream(
        nodes=b"\x01" + FIRST + node(2, 0, 1, "f", 0, 2, 5, 0, "v", 4, 2, 4, 0, "w", 4), counters=b"\2\x09\x09\1\1\0\0\2"
    ),
    "an entry below its node": stream(nodes=b"\x01" + FIRST + node(1, 0, 1, "f", 0, 2, 0, -1, "v", 4)),
    "a wrong number of live entries": stream(nodes=b"\x01" + FIRST + node(2, 0, 1, "f", 0, 2, 0, 0, "v", 4)),
    "a wrong number of tombstones": stream(nodes=b"\x01" + FIRST + node(1, 1, 1, "f", 0, 2, 0, 0, "v", 4)),
    "negative tombstones": stream(nodes=b"\x01" + FIRST + node(1, -1, 1, "f", 0, 2, 0, 0, "v", 4)),
    "no field names": stream(nodes=b"\x01" + FIRST + node(1, 0, 0, 0, 2, 0, 0, 3)),
    "2^62 field names": stream(nodes=b"\x01" + FIRST + node(1, 0, 2**62, "f", 0, 2, 0, 0, "v", 4)),
    "unknown flags": stream(nodes=b"\x01" + FIRST + node(1, 0, 1, "f", 0, 6, 0, 0, "v", 4)),
    "negative flags": stream(nodes=b"\x01" + FIRST + node(1, 0, 1, "f", 0, -1, 0, 0, "v", 4)),
    "flags that are text": stream(nodes=b"\x01" + FIRST + node(1, 0, 1, "f", 0, "x", 0, 0, "v", 4)),
    "a wrong number of elements": stream(nodes=b"\x01" + FIRST + node(1, 0, 1, "f", 0, 2, 0, 0, "v", 5)),
    "an entry of 2^62 pairs": stream(nodes=b"\x01" + FIRST + node(1, 0, 1, "f", 0, 0, 0, 0, 2**62, "a", "v", 6)),
    "a master entry without its 0": stream(nodes=b"\x01" + FIRST + node(1, 0, 1, "f", 1, 2, 0, 0, "v", 4)),
    "an entry cut off": stream(nodes=b"\x01" + FIRST + node(1, 0, 1, "f", 0, 2, 0, 0)),
    "another length": stream(counters=b"\x02" + COUNTERS[1:]),
    "length without nodes": stream(nodes=b"\x00"),
    "a last ID below the entries": stream(counters=b"\x01\x01\x00" + COUNTERS[3:]),
    "a deleted ID above the last": stream(counters=COUNTERS[:5] + b"\x02\x00\x01"),
    "fewer added than there are": stream(counters=COUNTERS[:-1] + b"\x00"),
    "2^63 added": stream(counters=COUNTERS[:-1] + b"\x81\x80" + bytes(7)),
    "more groups than there are": stream(b"\x02" + group()),
    "a group twice": stream(b"\x02" + group() * 2),
    "a group that has read 2^63": stream(b"\x01" + group(read=b"\x81\x80" + bytes(7))),
    "a group that has read -2": stream(b"\x01" + group(read=b"\x81" + b"\xff" * 7 + b"\xfe")),
    "2^64 pending": stream(b"\x01" + group(pending=HUGE)),
    "a pending entry twice": stream(
        b"\x01" + group(b"\x02" + (raw_id(1, 1) + time() + b"\x01") * 2)
    ),
    "pending entries in the wrong order": stream(
        b"\x01" + group(b"\x02" + raw_id(2, 1) + time() + b"\x01" + raw_id(1, 1) + time() + b"\x01",
                        b"\x01" + consumer(mine=b"\x02" + raw_id(2, 1) + raw_id(1, 1)))
    ),
    "a negative delivery time": stream(b"\x01" + group(b"\x01" + raw_id(1, 1) + time(-5) + b"\x03")),
    "a pending entry of nobody": stream(b"\x01" + group(consumers=b"\x01" + consumer(mine=b"\x00"))),
    "a pending entry of two": stream(b"\x01" + group(consumers=b"\x02" + consumer() + consumer(b"d"))),
    "a consumer's entry that is not pending": stream(
        b"\x01" + group(consumers=b"\x01" + consumer(mine=b"\x02" + raw_id(1, 1) + raw_id(1, 2)))
    ),
    "a consumer's entry twice": stream(b"\x01" + group(consumers=b"\x01" + consumer(mine=b"\x02" + raw_id(1, 1) * 2))),
    "a consumer's entries in the wrong order": stream(
        b"\x01" + group(b"\x02" + raw_id(1, 1) + time() + b"\x01" + raw_id(2, 1) + time() + b"\x01",
                        b"\x01" + consumer(mine=b"\x02" + raw_id(2, 1) + raw_id(1, 1)))
    ),
    "2^64 entries of a consumer": stream(b"\x01" + group(consumers=b"\x01" + consumer(mine=HUGE + raw_id(1, 1)))),
    "a consumer twice": stream(b"\x01" + group(consumers=b"\x02" + consumer() + consumer(mine=b"\x00"))),
    "a consumer seen before time began": stream(b"\x01" + group(consumers=b"\x01" + consumer(seen=-1))),
    "a consumer active before never": stream(b"\x01" + group(consumers=b"\x01" + consumer(active=-2))),
    "2^64 consumers": stream(b"\x01" + group(consumers=HUGE + consumer())),
    "no idempotency": stream(idmp=b""),
    "a duration of 0": stream(idmp=b"\x00\x40\x64\x00\x00\x00"),
    "a duration of 86401": stream(idmp=b"\x80\x00\x01\x51\x81\x40\x64\x00\x00\x00"),
    "0 IIDs": stream(idmp=b"\x40\x64\x00\x00\x00\x00"),
    "10001 IIDs": stream(idmp=b"\x40\x64\x67\x11\x00\x00\x00"),
    "a producer without IIDs": stream(idmp=b"\x40\x64\x40\x64\x01\x01p\x00\x00\x00"),
    "a producer twice": stream(idmp=b"\x40\x64\x40\x64\x02" + b"\x01p\x01\x01i\x01\x01" * 2 + b"\x00\x00"),
    "an IID twice": stream(idmp=b"\x40\x64\x40\x64\x01\x01p\x02" + b"\x01i\x01\x01" * 2 + b"\x00\x00"),
    "more IIDs than the most": stream(idmp=b"\x40\x64\x01\x01\x01p\x02\x01i\x01\x01\x01j\x01\x01\x00\x00"),
    "2^64 producers": stream(idmp=b"\x40\x64\x40\x64" + HUGE),
    "2^63 duplicates": stream(idmp=b"\x40\x64\x40\x64\x00\x00\x81\x80" + bytes(7)),
    "a compressed string whose parts point nowhere": b"\x00\xc3\x03\x0a\x00a\xe5",
    "a compressed string that would be 2^50 bytes": b"\x00\xc3\x03\x81\x00\x04" + bytes(6) + b"\x00a\x00",
    "a string of 2^32 - 1 bytes": b"\x00\x80\xff\xff\xff\xff",
    "no number of entries that nobody owns": stream_27(b"\x01" + group()),
    "nobody has an entry that is not pending": stream_27(b"\x01" + group() + b"\x01" + raw_id(1, 2)),
    "nobody has an entry that a consumer has": stream_27(b"\x01" + group() + b"\x01" + raw_id(1, 1)),
    "nobody has an entry twice": stream_27(b"\x01" + group(consumers=b"\x00") + b"\x02" + raw_id(1, 1) * 2),
    "a pending entry that not even nobody has": stream_27(b"\x01" + group(consumers=b"\x00") + b"\x00"),
    "nobody has 2^64 entries": stream_27(b"\x01" + group(consumers=b"\x00") + HUGE + raw_id(1, 1)),
    "more entries read than were added": stream_27(b"\x01" + group(read=b"\x02") + b"\x00"),
    "a node whose entries are all deleted": stream_27(
        nodes=b"\x02" + FIRST + make_string(NODE) + DELETED, counters=b"\x01\x02\x01\x01\x01\x02\x01\x02"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", UNSOUND)
def test_an_unsound_payload_is_refused(name: str) -> None:
    with pytest.raises(CorruptFileError, match="at byte"):
        restore_value(make_payload(UNSOUND[name]))


@pytest.mark.parametrize("form", FORMS)
def test_a_payload_cut_off_anywhere_is_refused(form: str) -> None:
    for compression in (True, False):
        body = dump_value(make_stream(3, entries=10), WriteOptions(form=form, compression=compression))[:-10]
        for size in range(len(body)):
            with pytest.raises(CorruptFileError, match="at byte"):
                restore_value(make_payload(body[:size]))


# --- Damaged at random ----------------------------------------------------------------------------------------------------


def damaged(number: int, seed: int, forms: Iterable[str] = FORMS) -> Iterator[bytes]:
    """Payloads with a right checksum around bytes that were changed, moved, taken out or put in."""
    chance = random.Random(seed)
    whole = [
        dump_value(value, WriteOptions(form=form, compression=compression))[:-10]
        for value in (*(make_stream(i, entries=[0, 3, 12, 30][i % 4]) for i in range(12)), b"text" * 30, b"77")
        for form in forms
        for compression in (True, False)
    ]
    whole += [b"\x0f" + each[1:] for each in whole if each[0] == 19]
    for _ in range(number):
        body = bytearray(chance.choice(whole))
        for _ in range(chance.choice((1, 1, 1, 2, 4))):
            at = chance.randrange(len(body))
            kind = chance.randrange(6)
            if kind == 0:
                body[at] ^= 1 << chance.randrange(8)
            elif kind == 1:
                body[at] = chance.choice(
                    (0, 1, 2, 3, 0x10, 0x40, 0x7F, 0x80, 0x81, 0xC0, 0xC3, 0xE0, 0xF0, 0xF1, 0xF4, 0xFF)
                )
            elif kind == 2 and len(body) > 20:
                del body[at : at + chance.choice((1, 2, 8, 16))]
            elif kind == 3:
                body[at:at] = chance.randbytes(chance.choice((1, 2, 8)))
            elif kind == 4:
                size = chance.choice((1, 2, 4, 16, 40))
                source = chance.randrange(len(body))
                body[at : at + size] = body[source : source + size]
            else:
                body[at : at + 9] = HUGE
        yield make_payload(bytes(body))


def hold(payloads: Iterator[bytes]) -> tuple[int, int]:
    """Each is refused, or is a sound value; how many were either."""
    refused = taken = 0
    context = Context()
    context.stream_node_max_bytes, context.stream_node_max_entries = 4096, 7
    context.stream_idmp_duration = context.stream_idmp_maxsize = 100
    options = LoadOptions(now_ms=NOW_MS, context=context)
    for payload in payloads:
        try:
            value = restore_value(payload, options)
        except CorruptFileError:
            refused += 1
            continue
        try:
            if isinstance(value, Stream):
                seen = see(value)
                again = restore_value(dump_value(value))
                assert see(again) == seen
                restore_value(dump_value(value, WriteOptions("8.8")))  # as strict as Redis 8.8 is
                use(value)
        except BaseException:
            print("payload:", payload.hex())
            raise
        taken += 1
    return refused, taken


def test_damaged_payloads_are_refused_or_sound() -> None:
    refused, taken = hold(damaged(2000, seed=1))
    assert refused > 1000
    assert taken > 100


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("forms", [tuple(FORMS), ("8.8",)], ids=["of_all_forms", "of_8_8"])
def test_a_hundred_thousand_damaged_payloads(forms: tuple[str, ...]) -> None:
    refused, taken = hold(damaged(100_000, random.randrange(2**32), forms))
    assert refused + taken == 100_000


def read_elements(listpack: bytes) -> Iterator[int | bytes]:
    """The elements of a listpack that is in order, integers as integers."""
    at = 6
    while (first := listpack[at]) != 0xFF:
        if first < 0x80:
            size = 1
            yield first
        elif first < 0xC0:
            size = 1 + (first & 0x3F)
            yield listpack[at + 1 : at + size]
        elif first < 0xE0:
            size = 2
            number = (first & 0x1F) << 8 | listpack[at + 1]
            yield number - 8192 if number >= 4096 else number
        elif first < 0xF0:
            size = 2 + ((first & 0x0F) << 8 | listpack[at + 1])
            yield listpack[at + 2 : at + size]
        elif first == 0xF0:
            size = 5 + int.from_bytes(listpack[at + 1 : at + 5], "little")
            yield listpack[at + 5 : at + size]
        else:
            size = 1 + {0xF1: 2, 0xF2: 3, 0xF3: 4, 0xF4: 8}[first]
            yield int.from_bytes(listpack[at + 1 : at + size], "little", signed=True)
        at += size + (1 if size <= 127 else 2 if size < 16383 else 3)


def is_node(master: tuple[int, int], listpack: bytes) -> bool:
    """Whether bytes are a node: the rule once more, slowly, over values that have been read."""
    if validate(listpack) is not None:
        return False
    left = list(read_elements(listpack))[::-1]

    def integer() -> int:
        if not isinstance(left[-1], int):
            raise TypeError
        return left.pop()  # type: ignore[return-value]

    def skip(count: int) -> None:
        if count > len(left):
            raise IndexError
        del left[len(left) - count :]

    counts = [0, 0]
    last = (-1, -1)
    try:
        promised, names = [integer(), integer()], integer()
        if names < 1:
            return False
        skip(names)
        if integer() != 0:
            return False
        while left:
            before = len(left)
            flags = integer()
            if not 0 <= flags <= 3:
                return False
            id = ((master[0] + integer()) % 2**64, (master[1] + integer()) % 2**64)
            if id < master or id <= last:
                return False
            last = id
            if flags & 2:
                skip(names)
            else:
                pairs = integer()
                if pairs < 1:
                    return False
                skip(2 * pairs)
            if before - len(left) != integer():
                return False
            counts[flags & 1] += 1
    except (IndexError, TypeError):
        return False
    return counts == promised and sum(counts) > 0


def test_a_node_is_judged_as_by_the_twin() -> None:
    chance = random.Random(5)
    nodes = [each for seed in range(6) for each in make_stream(seed, entries=40).list_nodes()]
    nodes += [((1, 1), encode([str(e).encode() for e in each])) for each in (
        (1, 0, 1, "f", 0, 2, 0, 0, "v" * 70, 4), (1, 0, 1, "f" * 5000, 0, 2, 0, 0, "v", 4),
        (0, 1, 2, "f", "g", 0, 3, 0, 0, "v", 2**40, 5), (1, 0, 1, "f", 0, 0, 0, 0, 2, "a", "b", "c", "d", 8),
    )]  # fmt: skip
    for master, listpack in nodes:
        assert validate_node(master, listpack) is None
        assert is_node(master, listpack)
    for _ in range(20_000):
        master, listpack = chance.choice(nodes)
        body = bytearray(listpack)
        for _ in range(chance.choice((1, 1, 2))):
            at = chance.randrange(len(body))
            body[at] = chance.choice((body[at] ^ (1 << chance.randrange(8)), 0, 1, 0x80, 0xE0, 0xF0, 0xF1, 0xFF))
        if chance.random() < 0.1:
            del body[chance.randrange(len(body)) :]
        fault = validate_node(master, bytes(body))
        assert (fault is None) == is_node(master, bytes(body)), (master, bytes(body).hex(), fault)
        assert fault is None or 0 <= fault[0] <= len(body)
