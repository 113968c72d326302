"""Packets of the cluster bus: read, written, and damaged in every way."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from streamd.cluster.bus.packets import (
    FORCE_ACK,
    HEADER_LENGTH,
    KNOWS_EXTENSIONS,
    NO_ID,
    Extensions,
    Gossip,
    Header,
    PacketError,
    PacketType,
    Reader,
    Update,
    decode,
    encode,
    encode_extensions,
    encode_gossip,
    encode_message,
    encode_update,
)

A, B, C = (letter * 40 for letter in (b"a", b"b", b"c"))

HEADER = Header(
    port=7000, type=PacketType.PING, current_epoch=1 << 40, config_epoch=7, offset=1 << 50, sender=A, slot_bytes=bytes(range(256)) * 8,
    primary_id=B, ip="10.0.0.1", other_port=7001, bus_port=17000, flags=0x112, is_ok=False, message_flags=KNOWS_EXTENSIONS | FORCE_ACK,
)  # fmt: skip

ENTRY = Gossip(C, 1_800_000_000, 1_800_000_001, b"10.0.0.2", 7002, 17002, 0x401, 0)

EXTENSIONS = Extensions("node-a.example", "first", ((B, 60), (C, 1)), B, C)


def of_type(type_: int) -> Header:
    return HEADER._replace(type=type_)


def greeting(extensions: Extensions = EXTENSIONS, entries: tuple[Gossip, ...] = (ENTRY, ENTRY)) -> bytes:
    count, payload = encode_extensions(extensions)
    body = encode_gossip(entries) + payload
    return encode(HEADER, body, count=len(entries), extension_count=count)


def samples() -> Iterator[bytes]:
    yield greeting()
    yield encode(of_type(PacketType.MEET))
    yield encode(of_type(PacketType.FAIL), B)
    yield encode(of_type(PacketType.PUBLISH), encode_message(b"channel", b"message"))
    yield encode(of_type(PacketType.PUBLISHSHARD), encode_message(b"", b""))
    yield encode(of_type(PacketType.VOTE_REQUEST))
    yield encode(of_type(PacketType.VOTE))
    yield encode(of_type(PacketType.UPDATE), encode_update(Update(9, B, bytes(2048))))
    yield encode(of_type(PacketType.MFSTART))
    yield encode(of_type(PacketType.MODULE), bytes(8) + (3).to_bytes(4, "big") + b"\1abc")


def test_a_header_comes_back_as_it_was() -> None:
    assert decode(encode(HEADER)).header == HEADER
    primary = HEADER._replace(primary_id=NO_ID, ip="", is_ok=True)
    assert decode(encode(primary)).header == primary._replace(primary_id=b"")


def test_fields_are_where_redis_has_them() -> None:
    packet = greeting()
    assert packet[:4] == b"RCmb"
    assert int.from_bytes(packet[4:8], "big") == len(packet) == 2256 + 2 * 104 + 24 + 16 + 2 * 56 + 48 + 48
    assert packet[8:16] == bytes((0, 1, 0x1B, 0x58, 0, 0, 0, 2))
    assert packet[40:80] == A
    assert packet[80:2128] == HEADER.slot_bytes
    assert packet[2128:2168] == B
    assert packet[2168:2214] == b"10.0.0.1".ljust(46, b"\0")
    assert packet[2214:2216] == bytes((0, 6))
    assert packet[2246:2256] == bytes((0x1B, 0x59, 0x42, 0x68, 1, 0x12, 1, 6, 0, 0))


def test_gossip_and_extensions_come_back_as_they_were() -> None:
    packet = decode(greeting())
    assert [entry._replace(ip=entry.ip.rstrip(b"\0")) for entry in packet.gossip] == [ENTRY, ENTRY]
    assert packet.extensions == EXTENSIONS


def test_names_that_are_not_set_are_not_sent() -> None:
    count, payload = encode_extensions(Extensions(shard_id=B, secret=C))
    assert (count, len(payload)) == (2, 96)


def test_an_entry_with_an_invalid_id_voids_all_entries() -> None:
    assert decode(greeting(entries=(ENTRY, ENTRY._replace(id=b"A" * 40)))).gossip == []


def test_unknown_extensions_are_skipped() -> None:
    unknown = (16).to_bytes(4, "big") + bytes((0, 99, 0, 0)) + bytes(8)
    count, payload = encode_extensions(EXTENSIONS)
    packet = decode(encode(HEADER, unknown + payload, extension_count=count + 1))
    assert packet.extensions == EXTENSIONS


def test_bodies_come_back_as_they_were() -> None:
    decoded = [decode(packet) for packet in samples()]
    assert decoded[2].failed == B
    assert (decoded[3].channel, decoded[3].message) == (b"channel", b"message")
    assert (decoded[4].channel, decoded[4].message) == (b"", b"")
    assert decoded[7].update == Update(9, B, bytes(2048))


@pytest.mark.parametrize("packet", [*samples()], ids=range(10))
def test_a_packet_of_another_length_is_refused(packet: bytes) -> None:
    for change in (-8, -1, 1, 8):
        damaged = (packet + bytes(max(0, change)))[: len(packet) + change]
        if len(damaged) >= HEADER_LENGTH:
            damaged = damaged[:4] + len(damaged).to_bytes(4, "big") + damaged[8:]
            with pytest.raises(PacketError, match=r"bytes|fit|cut off|length"):
                decode(damaged)


@pytest.mark.parametrize(
    ("position", "value", "reason"),
    [
        (9, 2, "version 2 is not supported"),
        (13, 11, "type 11 is unknown"),
        (40, ord("A"), "the sender"),
        (2128, 0, "the sender"),
        (2168, ord("\n"), "the sender"),
        (2168, ord(" "), "the sender"),
        (16, 0xFF, "epoch"),
        (24, 0xFF, "epoch"),
    ],
)
def test_a_damaged_header_is_refused(position: int, value: int, reason: str) -> None:
    packet = bytearray(encode(HEADER))
    packet[position] = value
    with pytest.raises(PacketError, match=reason):
        decode(bytes(packet))


@pytest.mark.parametrize(
    "extensions",
    [
        replace(EXTENSIONS, hostname="a b"),
        replace(EXTENSIONS, hostname="a\nb"),
        replace(EXTENSIONS, human_name="a,b"),
        replace(EXTENSIONS, shard_id=b"\n" * 40),
        replace(EXTENSIONS, forgotten=((b"X" * 40, 1),)),
    ],
)
def test_texts_that_would_damage_the_file_are_refused(extensions: Extensions) -> None:
    with pytest.raises(PacketError, match="is damaged"):
        decode(greeting(extensions))


def test_a_reader_finds_packets_however_they_are_cut() -> None:
    packets = [*samples()]
    stream = b"".join(packets)
    chance = random.Random(1)
    for _ in range(20):
        reader, found, position = Reader(), [], 0
        while position < len(stream):
            size = chance.choice((1, 7, 8, 1000, 2256, 5000))
            reader.feed(stream[position : position + size])
            position += size
            while (packet := reader.next_packet()) is not None:
                found.append(packet)
        assert found == packets


@pytest.mark.parametrize("start", [b"RCmc", b"\r\nPI", b"RCmb\0\0\0\0", b"RCmb" + (2255).to_bytes(4, "big")])
def test_a_reader_refuses_what_is_no_packet(start: bytes) -> None:
    reader = Reader()
    reader.feed(start + bytes(4))
    with pytest.raises(PacketError, match=r"signature|length"):
        reader.next_packet()
