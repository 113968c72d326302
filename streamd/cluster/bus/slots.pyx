# cython: language_level=3, boundscheck=False, wraparound=False
"""Sets of slots, as Python integers: bit n is slot n. Their bytes, lowest first, are the bitmaps of the bus.

Sets of two nodes are compared and subtracted as a whole, so that a packet costs no loop over 16384 slots.
"""

from libc.stdint cimport uint64_t
from libc.string cimport memcpy

__all__ = ["ALL_SLOTS", "SLOT_BYTES", "SLOT_COUNT", "from_ranges", "from_slots", "ranges_of", "slots_of", "to_bytes"]

cdef enum:
    COUNT = 16384
    BYTES = 2048

SLOT_COUNT = COUNT
SLOT_BYTES = BYTES
ALL_SLOTS = (1 << SLOT_COUNT) - 1


def slots_of(slots):
    """The members, ascending."""
    return [slot for first, last in ranges_of(slots) for slot in range(first, last + 1)]


def ranges_of(slots):
    """The runs of members, ascending: first and last slot of each."""
    cdef list runs = []
    cdef bytes bitmap
    cdef const unsigned char *bits
    cdef int at = 0, first
    if slots:
        bitmap = to_bytes(slots)
        bits = bitmap
        while (first := find_bit(bits, at, True)) < COUNT:
            at = find_bit(bits, first, False)
            runs.append((first, at - 1))
    return runs


cdef int find_bit(const unsigned char *bits, int at, bint value) noexcept nogil:
    """The first bit from `at` on that has a value; COUNT: none."""
    cdef uint64_t word
    cdef uint64_t skipped = 0 if value else ~<uint64_t>0
    while at < COUNT:
        if at & 63 == 0:
            memcpy(&word, bits + (at >> 3), 8)
            if word == skipped:
                at += 64
                continue
        if (bits[at >> 3] >> (at & 7) & 1) == value:
            return at
        at += 1
    return COUNT


def from_slots(members):
    slots = 0
    for slot in members:
        slots |= 1 << slot
    return slots


def from_ranges(ranges):
    """The set of all slots between the bounds, both included."""
    slots = 0
    for first, last in ranges:
        slots |= (1 << (last + 1)) - (1 << first)
    return slots


def to_bytes(slots):
    return slots.to_bytes(BYTES, "little")
