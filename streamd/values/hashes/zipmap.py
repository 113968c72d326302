"""Zipmaps: small hashes in files of Redis before 2.6.

number of pairs, 1 byte (254 or more: count them) | pairs | ff
pair    length (1 byte, or fe and 4 bytes little endian) | field | length | unused bytes, 1 byte | value | unused bytes
"""

from __future__ import annotations

__all__ = ["read_zipmap"]

END = 0xFF
LONG = 0xFE


def read_zipmap(data: bytes) -> list[bytes]:
    """Fields and values in turn. ValueError with the reason if anything is not as it must be."""
    found: list[bytes] = []
    at = 1
    while at < len(data) and data[at] != END:
        size, at = _read_length(data, at)
        found.append(data[at : at + size])
        size, at = _read_length(data, at + size)
        if at >= len(data):
            raise ValueError("it has no end")
        unused = data[at]
        found.append(data[at + 1 : at + 1 + size])
        at += 1 + size + unused
    if at != len(data) - 1:
        raise ValueError("its size is wrong")
    if data[0] < LONG and data[0] != len(found) // 2:
        raise ValueError(f"it has {len(found) // 2} pairs, not {data[0]}")
    return found


def _read_length(data: bytes, at: int) -> tuple[int, int]:
    """The length at `at`, and its end."""
    if at >= len(data) or data[at] == END:
        raise ValueError("it has no end")
    if data[at] == LONG:
        return int.from_bytes(data[at + 1 : at + 5], "little"), at + 5
    return data[at], at + 1
