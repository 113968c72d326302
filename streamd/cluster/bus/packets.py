"""The packets of the cluster bus: bytes in, packets out, and back. Layouts: Redis 8.6, as recorded.

Every packet begins with the same 2256 bytes, which describe the sender; integers are big-endian, texts padded with zeros:

       0  "RCmb"             8  version, 1        16  current epoch    2128  id of the primary, zeros for a primary
       4  length of all     10  port              24  config epoch     2168  announced ip, zeros: as the socket says
                            12  type              32  offset           2214  number of extensions
                            14  gossip entries    40  id of the sender 2246  the other port
                                                  80  slots: bit n%8   2248  port of the bus     2252  0: cluster ok, 1: not
                                                      of byte n/8      2250  flags               2253  flags of the message

`port` is for clients with TLS where the bus uses TLS, else without; `the other port` is the one of the two that `port` is not.

After it come: gossip entries of 104 bytes and extensions (PING, PONG, MEET); an id (FAIL); an epoch, an id and slots (UPDATE); two
lengths and two strings (PUBLISH). An extension is a length, which counts itself and is a multiple of eight, a type, and a payload.

`Reader` cuts a stream of bytes into packets. `decode` checks one of them completely: what it returns can be relied upon, and texts in
it are safe to be written into nodes.conf. Both raise PacketError.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from streamd.errors import StreamdError

from .slots import SLOT_BYTES

__all__ = [
    "FORCE_ACK",
    "HEADER_LENGTH",
    "KNOWS_EXTENSIONS",
    "NO_ID",
    "PAUSED",
    "Extensions",
    "Gossip",
    "Header",
    "Packet",
    "PacketError",
    "PacketType",
    "Reader",
    "Update",
    "decode",
    "decode_gossip",
    "description_of",
    "encode",
    "encode_again",
    "encode_extensions",
    "encode_gossip",
    "encode_message",
    "encode_update",
    "is_hostname",
    "is_human_name",
    "is_id",
    "parse_ip",
]


class PacketError(StreamdError):
    """Bytes that are not a packet, or a packet that contradicts itself."""


class PacketType:
    """Numbers of the types. `NAMES` has the words by which CLUSTER INFO counts them."""

    PING = 0
    PONG = 1
    MEET = 2
    FAIL = 3
    PUBLISH = 4
    VOTE_REQUEST = 5
    VOTE = 6
    UPDATE = 7
    MFSTART = 8
    MODULE = 9
    PUBLISHSHARD = 10

    NAMES = (
        "ping", "pong", "meet", "fail", "publish", "auth-req", "auth-ack", "update", "mfstart", "module", "publishshard",
    )  # fmt: skip


PAUSED = 1  # flags of a message: writes are paused for a fail-over
FORCE_ACK = 2  # vote although the primary works
KNOWS_EXTENSIONS = 4

NO_ID = bytes(40)

_GREATEST_EPOCH = 2**62  # epochs are counted up by ones, and must always have a next one

_SIGNATURE = b"RCmb"
_VERSION = 1
_HEADER = struct.Struct(f">4sIHHHHQQQ40s{SLOT_BYTES}s40s46sH30xHHHB3s")
_GOSSIP = struct.Struct(">40sII46sHHHHxx")
_UPDATE = struct.Struct(f">Q40s{SLOT_BYTES}s")
_LENGTHS = struct.Struct(">II")
_COUNTS = struct.Struct(">HH")
_EXTENSION = struct.Struct(">IHxx")
_FORGOTTEN = struct.Struct(">40sQ")
_MODULE = struct.Struct(">8sIB")

HEADER_LENGTH = _HEADER.size

_HOSTNAME, _HUMAN_NAME, _FORGOTTEN_NODE, _SHARD_ID, _SECRET = range(5)

_IDS = re.compile(rb"(?:[0-9a-z]{40})*")
_IP = re.compile(rb"[0-9A-Za-z.:%_-]*")
_HOSTNAME_TEXT = re.compile(rb"[0-9A-Za-z.-]{0,255}")
_HUMAN_NAME_TEXT = re.compile(rb"""[^\x00-\x20\x7f-\xff!#$%&()*+:;<>?@\[\]^{|}~,="'\\]*""")


# --- Texts --------------------------------------------------------------------------------------------------------------


def is_id(text: bytes) -> bool:
    return len(text) == 40 and _IDS.fullmatch(text) is not None


def is_hostname(text: bytes) -> bool:
    """Whether a text may be an announced hostname, or the empty one."""
    return _HOSTNAME_TEXT.fullmatch(text) is not None


def is_human_name(text: bytes) -> bool:
    """Whether a text may be an announced human name of a node, or the empty one."""
    return _HUMAN_NAME_TEXT.fullmatch(text) is not None


def parse_ip(field: bytes) -> str | None:
    """The address in a padded field, "" for none; None when it contains characters of no address or name of a host."""
    text = field.partition(b"\0")[0]
    return text.decode() if _IP.fullmatch(text) else None


# --- Decoded packets ------------------------------------------------------------------------------------------------------


class Header(NamedTuple):
    """The sender of a packet, as it describes itself."""

    port: int
    type: int
    current_epoch: int
    config_epoch: int  # of its primary, for a replica; so are the slots
    offset: int
    sender: bytes
    slot_bytes: bytes
    primary_id: bytes  # b"": a primary
    ip: str  # "": as the socket says
    other_port: int
    bus_port: int
    flags: int
    is_ok: bool
    message_flags: int


class Gossip(NamedTuple):
    """Another node, as the sender of a PING, PONG or MEET describes it."""

    id: bytes
    ping_sent_s: int
    pong_received_s: int
    ip: bytes  # as it came, to be read with `parse_ip`
    port: int
    bus_port: int
    flags: int
    other_port: int


@dataclass(slots=True)
class Extensions:
    """The extensions of a PING, PONG or MEET; empty for those that it does not have."""

    hostname: str = ""
    human_name: str = ""
    forgotten: tuple[tuple[bytes, int], ...] = ()  # ids, and for how many seconds more they must not come back
    shard_id: bytes = b""
    secret: bytes = b""


class Update(NamedTuple):
    """The content of an UPDATE: who owns slots, by which epoch."""

    config_epoch: int
    owner: bytes
    slot_bytes: bytes


@dataclass(slots=True)
class Packet:
    """A packet: its header, and what its type has besides."""

    header: Header
    gossip: list[Gossip]
    extensions: Extensions
    failed: bytes = b""
    update: Update | None = None
    channel: bytes = b""
    message: bytes = b""


# --- Bytes in --------------------------------------------------------------------------------------------------------------


class Reader:
    """Cuts bytes, which come in pieces of any size, into packets. Holds no more than what was fed and not yet returned."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def next_packet(self) -> bytes | None:
        """The next packet, or None when more bytes are needed. After a PacketError it must not be called again."""
        buffer = self._buffer
        if len(buffer) < 8:
            return None
        if buffer[:4] != _SIGNATURE:
            raise PacketError("the signature is wrong")
        length = int.from_bytes(buffer[4:8], "big")
        if length < HEADER_LENGTH:
            raise PacketError(f"a length of {length} is too small")
        if len(buffer) < length:
            return None
        packet = bytes(memoryview(buffer)[:length])
        del buffer[:length]
        return packet


def decode(packet: bytes) -> Packet:
    """Read a packet that a Reader has cut. Raises PacketError for every one that is not as its type demands."""
    (signature, length, version, port, type_, count, current_epoch, config_epoch, offset, sender, slot_bytes, primary_id,
     ip_field, extension_count, other_port, bus_port, flags, state, message_flags) = _HEADER.unpack_from(packet)  # fmt: skip
    if signature != _SIGNATURE or length != len(packet):
        raise PacketError("the signature or the length is wrong")
    if version != _VERSION:
        raise PacketError(f"version {version} is not supported")
    ip = parse_ip(ip_field)
    if ip is None or not is_id(sender) or primary_id == sender or (primary_id != NO_ID and not is_id(primary_id)):
        raise PacketError("the sender is not described as a node should be")
    if max(current_epoch, config_epoch) > _GREATEST_EPOCH:
        raise PacketError("no cluster comes to such an epoch")
    header = Header(
        port, type_, current_epoch, config_epoch, offset, sender, slot_bytes, b"" if primary_id == NO_ID else primary_id, ip,
        other_port, bus_port, flags, state == 0, message_flags[0],
    )  # fmt: skip
    decoded = Packet(header, [], Extensions())
    if type_ <= PacketType.MEET:
        end = HEADER_LENGTH + count * _GOSSIP.size
        if end > length:
            raise PacketError(f"{count} gossip entries do not fit")
        decoded.gossip = decode_gossip(packet)
        decoded.extensions = _decode_extensions(packet, end, extension_count)
    else:
        _decode_body(decoded, packet)
    return decoded


def description_of(packet: bytes) -> bytes:
    """What a PING or PONG says about its sender: all of it but the offset and the gossip."""
    end = HEADER_LENGTH + int.from_bytes(packet[14:16], "big") * _GOSSIP.size
    return (
        b"".join((packet[8:14], packet[16:32], packet[40:HEADER_LENGTH], packet[end:])) if end <= len(packet) else b""
    )


def decode_gossip(packet: bytes) -> list[Gossip]:
    """The gossip of a packet that has a description; none if one of its entries is damaged."""
    end = HEADER_LENGTH + int.from_bytes(packet[14:16], "big") * _GOSSIP.size
    gossip = [Gossip._make(each) for each in _GOSSIP.iter_unpack(memoryview(packet)[HEADER_LENGTH:end])]
    return gossip if _IDS.fullmatch(b"".join([each.id for each in gossip])) is not None else []


def _decode_body(decoded: Packet, packet: bytes) -> None:
    """Read what follows the header of a packet that has no gossip."""
    type_, body = decoded.header.type, memoryview(packet)[HEADER_LENGTH:]
    expected = 0
    if type_ == PacketType.FAIL:
        expected = 40
        decoded.failed = bytes(body[:40])
    elif type_ in (PacketType.PUBLISH, PacketType.PUBLISHSHARD):
        expected = _LENGTHS.size
        if len(body) >= expected:
            channel_length, message_length = _LENGTHS.unpack_from(body)
            expected += channel_length + message_length
            decoded.channel = bytes(body[8 : 8 + channel_length])
            decoded.message = bytes(body[8 + channel_length :])
    elif type_ == PacketType.UPDATE:
        expected = _UPDATE.size
        if len(body) == expected:
            decoded.update = Update._make(_UPDATE.unpack(body))
            if decoded.update.config_epoch > _GREATEST_EPOCH:
                raise PacketError("no cluster comes to such an epoch")
    elif type_ == PacketType.MODULE:
        expected = _MODULE.size
        if len(body) >= expected:
            expected += _MODULE.unpack_from(body)[1]
    elif type_ > PacketType.PUBLISHSHARD:
        raise PacketError(f"type {type_} is unknown")
    if len(body) != expected:
        raise PacketError(f"a packet of type {type_} has {len(body)} bytes after its header, not {expected}")


def _decode_extensions(packet: bytes, position: int, count: int) -> Extensions:
    """Read the extensions from a position to the end. Unknown ones are skipped."""
    found = Extensions()
    for _ in range(count):
        if len(packet) - position < _EXTENSION.size:
            raise PacketError("an extension is cut off")
        length, type_ = _EXTENSION.unpack_from(packet, position)
        if length < _EXTENSION.size or length % 8 or position + length > len(packet):
            raise PacketError(f"an extension has a length of {length}")
        _decode_extension(found, type_, packet[position + _EXTENSION.size : position + length])
        position += length
    if position != len(packet):
        raise PacketError("bytes follow the last extension")
    return found


def _decode_extension(found: Extensions, type_: int, payload: bytes) -> None:
    text = payload.partition(b"\0")[0]
    if type_ == _HOSTNAME and is_hostname(text):
        found.hostname = text.decode()
    elif type_ == _HUMAN_NAME and is_human_name(text):
        found.human_name = text.decode()
    elif type_ == _FORGOTTEN_NODE and len(payload) == _FORGOTTEN.size and is_id(payload[:40]):
        found.forgotten += (_FORGOTTEN.unpack(payload),)
    elif type_ == _SHARD_ID and is_id(payload):
        found.shard_id = payload
    elif type_ == _SECRET and len(payload) == 40:
        found.secret = payload
    elif type_ <= _SECRET:
        raise PacketError(f"the extension of type {type_} is damaged")


# --- Bytes out ---------------------------------------------------------------------------------------------------------------


def encode(header: Header, body: bytes = b"", *, count: int = 0, extension_count: int = 0) -> bytes:
    """A packet. body: all that follows the header, `count` gossip entries and `extension_count` extensions among it."""
    return (
        _HEADER.pack(
            _SIGNATURE, HEADER_LENGTH + len(body), _VERSION, header.port, header.type, count, header.current_epoch,
            header.config_epoch, header.offset, header.sender, header.slot_bytes, header.primary_id, header.ip.encode(),
            extension_count, header.other_port, header.bus_port, header.flags, not header.is_ok,
            bytes((header.message_flags, 0, 0)),
        )
        + body
    )  # fmt: skip


def encode_again(packet: bytes, type_: int, offset: int, body: bytes, *, count: int, extension_count: int) -> bytes:
    """Another packet of the same sender: its header may differ in these fields only."""
    return b"".join(
        (
            packet[:4], _LENGTHS.pack(HEADER_LENGTH + len(body), _VERSION << 16 | int.from_bytes(packet[10:12], "big")),
            _COUNTS.pack(type_, count), packet[16:32], offset.to_bytes(8, "big"), packet[40:2214],
            extension_count.to_bytes(2, "big"), packet[2216:HEADER_LENGTH], body,
        )
    )  # fmt: skip


def encode_gossip(entries: Iterable[Gossip]) -> bytes:
    return b"".join([_GOSSIP.pack(*each) for each in entries])


def encode_update(update: Update) -> bytes:
    return _UPDATE.pack(*update)


def encode_message(channel: bytes, message: bytes) -> bytes:
    return _LENGTHS.pack(len(channel), len(message)) + channel + message


def encode_extensions(extensions: Extensions) -> tuple[int, bytes]:
    """The number of extensions and their bytes. Hostname and human name only if they are set."""
    parts = [
        *([_extension(_HOSTNAME, extensions.hostname.encode() + b"\0")] if extensions.hostname else []),
        *([_extension(_HUMAN_NAME, extensions.human_name.encode() + b"\0")] if extensions.human_name else []),
        *(_extension(_FORGOTTEN_NODE, _FORGOTTEN.pack(*each)) for each in extensions.forgotten),
        _extension(_SHARD_ID, extensions.shard_id),
        _extension(_SECRET, extensions.secret),
    ]
    return len(parts), b"".join(parts)


def _extension(type_: int, payload: bytes) -> bytes:
    payload += bytes(-len(payload) % 8)
    return _EXTENSION.pack(_EXTENSION.size + len(payload), type_) + payload
