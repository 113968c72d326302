"""Which reader gets which parts. Every reader computes it alone, and all get the same result from the same names."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

__all__ = ["share"]


def share(count: int, readers: Iterable[str]) -> dict[str, frozenset[int]]:
    """The parts of each reader: each part once, and no reader two more than another.

    Parts and readers are matched by the hash of both, the greatest first, up to the number that a reader may get. So a reader that
    joins or leaves moves few of the others' parts. O(count * readers).
    """
    names = sorted(set(readers))
    if not names:
        return {}
    least, greater = divmod(count, len(names))
    left = set(range(count))
    found: dict[str, set[int]] = {name: set() for name in names}
    for _, number, name in sorted(
        ((weight(number, name), number, name) for number in left for name in names), reverse=True
    ):
        own = found[name]
        if number in left and (len(own) < least or (len(own) == least and greater)):
            greater -= len(own) == least
            left.remove(number)
            own.add(number)
    return {name: frozenset(own) for name, own in found.items()}


def weight(number: int, name: str) -> bytes:
    return blake2b(f"{number} {name}".encode(), digest_size=8).digest()
