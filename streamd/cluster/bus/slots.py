"""Sets of slots, as Python integers: bit n is slot n. Their bytes, lowest first, are the bitmaps of the bus.

Sets of two nodes are compared and subtracted as a whole, so that a packet costs no loop over 16384 slots.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["ALL_SLOTS", "SLOT_BYTES", "SLOT_COUNT", "from_ranges", "from_slots", "ranges_of", "slots_of", "to_bytes"]

SLOT_COUNT = 16384
SLOT_BYTES = SLOT_COUNT // 8
ALL_SLOTS = (1 << SLOT_COUNT) - 1

_FEW_RUNS = 8


def slots_of(slots: int) -> list[int]:
    """The members, ascending."""
    return [slot for first, last in ranges_of(slots) for slot in range(first, last + 1)]


def ranges_of(slots: int) -> list[tuple[int, int]]:
    """The runs of members, ascending: first and last slot of each. O(bits up to the highest member), by machine code, plus O(runs)."""
    runs: list[tuple[int, int]] = []
    while slots and len(runs) < _FEW_RUNS:  # the usual case, without a digit for each slot
        lowest = slots & -slots
        behind = slots + lowest  # the lowest run has become the bit behind it
        runs.append((lowest.bit_length() - 1, (behind & ~slots).bit_length() - 2))
        slots &= behind
    digits = bin(slots)[:1:-1]
    first = digits.find("1")
    while first >= 0:
        end = digits.find("0", first)
        end = len(digits) if end < 0 else end
        runs.append((first, end - 1))
        first = digits.find("1", end)
    return runs


def from_slots(members: Iterable[int]) -> int:
    slots = 0
    for slot in members:
        slots |= 1 << slot
    return slots


def from_ranges(ranges: Iterable[tuple[int, int]]) -> int:
    """The set of all slots between the bounds, both included."""
    slots = 0
    for first, last in ranges:
        slots |= (1 << (last + 1)) - (1 << first)
    return slots


def to_bytes(slots: int) -> bytes:
    return slots.to_bytes(SLOT_BYTES, "little")
