"""Ziplists: small collections in files of Redis before 7.0.

total bytes, 4 | offset of the last entry, 4 | number of entries, 2 (65535: count them) | entries | ff
entry     size of the entry before (1 byte, or fe and 4 bytes from 254 on) | encoding | bytes
encoding  00nnnnnn | 01nnnnnn n (high bits first) | 80 nnnn (high bytes first): a string of n bytes
          c0, d0, e0: integer of 2, 4, 8 bytes; f0: of 3; fe: of 1; f1 .. fd: 0 .. 12
Numbers are little endian, unless stated otherwise.
"""

from __future__ import annotations

__all__ = ["read_ziplist"]

HEAD = 10
END = 0xFF
LONG = 0xFE
UNKNOWN_COUNT = 65535
INTEGER_SIZES = {0xC0: 2, 0xD0: 4, 0xE0: 8, 0xF0: 3, 0xFE: 1}


def read_ziplist(data: bytes) -> list[bytes]:
    """The elements as text. ValueError with the reason if anything is not as it must be."""
    if len(data) <= HEAD or int.from_bytes(data[:4], "little") != len(data) or data[-1] != END:
        raise ValueError("its size is wrong")
    last, at, before = HEAD, HEAD, 0
    found = []
    while at < len(data) - 1:
        start = at
        before_size = 5 if data[at] == LONG else 1
        size = int.from_bytes(data[at + 1 : at + 5], "little") if before_size == 5 else data[at]
        if size != before:
            raise ValueError(f"the size of an entry is {size} in the next one, but {before}")
        element, at = _read_element(data, at + before_size)
        found.append(element)
        last, before = start, at - start
    count = int.from_bytes(data[8:10], "little")
    if at != len(data) - 1:
        raise ValueError("an entry goes past the end")
    if int.from_bytes(data[4:8], "little") != last:
        raise ValueError("the offset of its last entry is wrong")
    if count not in (len(found), UNKNOWN_COUNT):
        raise ValueError(f"it has {len(found)} entries, not {count}")
    return found


def _read_element(data: bytes, at: int) -> tuple[bytes, int]:
    """The element whose encoding is at `at`, and its end."""
    kind = data[at] if at < len(data) else END
    if kind < 0x40:
        start, size = at + 1, kind
    elif kind < 0x80:
        start, size = at + 2, (kind & 0x3F) << 8 | int.from_bytes(data[at + 1 : at + 2], "big")
    elif kind == 0x80:
        start, size = at + 5, int.from_bytes(data[at + 1 : at + 5], "big")
    elif 0xF1 <= kind <= 0xFD:
        return b"%d" % (kind - 0xF1), at + 1
    elif kind in INTEGER_SIZES:
        start, size = at + 1, INTEGER_SIZES[kind]
    else:
        raise ValueError(f"unknown encoding {kind:#x}")
    if start + size >= len(data):
        raise ValueError("an entry goes past the end")
    content = data[start : start + size]
    if kind in INTEGER_SIZES:
        content = b"%d" % int.from_bytes(content, "little", signed=True)
    return content, start + size
