"""Slots of keys, for clients of a cluster; the server's own are in keyspace/hash_slot.pyx."""

from __future__ import annotations

from binascii import crc_hqx
from functools import lru_cache
from itertools import count

__all__ = ["SLOT_COUNT", "slot_of", "tag_beside"]

SLOT_COUNT = 16384


def hashed_part(key: bytes) -> bytes:
    """What the slot of a key is computed of: what stands between the first `{` and the next `}`, or all of it."""
    start = key.find(b"{")
    end = key.find(b"}", start + 1)
    return key[start + 1 : end] if 0 <= start < end - 1 else key


def slot_of(key: bytes) -> int:
    """The slot of a key."""
    return crc_hqx(hashed_part(key), 0) % SLOT_COUNT


@lru_cache(maxsize=4096)
def tag_beside(key: bytes) -> str:
    """A hash tag: names that contain it, in braces, after a prefix without braces, are in the slot of a key.

    It is what the slot of the key is computed of, where that can be written between braces as printable ASCII; otherwise a number.
    """
    part = hashed_part(key)
    if part and b"{" not in part and b"}" not in part and part.isascii() and part.decode().isprintable():
        return part.decode()
    slot = slot_of(key)
    return next(text for number in count() if slot_of((text := str(number)).encode()) == slot)
