"""Sets of slots as integers."""

from __future__ import annotations

import random

import pytest

from streamd.cluster.bus.slots import SLOT_BYTES, from_ranges, from_slots, ranges_of, slots_of, to_bytes


@pytest.mark.parametrize("members", [[], [0], [16383], [0, 1, 2], [5, 7, 8, 16382, 16383], [*range(16384)]])
def test_a_set_has_its_members_in_order(members: list[int]) -> None:
    assert slots_of(from_slots(members)) == members


def test_ranges_are_the_runs_of_members() -> None:
    slots = from_slots([0, 1, 2, 5, 7, 8, 16383])
    assert [*ranges_of(slots)] == [(0, 2), (5, 5), (7, 8), (16383, 16383)]
    assert from_ranges(ranges_of(slots)) == slots


def test_bit_n_of_a_bitmap_is_bit_n_mod_8_of_byte_n_div_8() -> None:
    bitmap = to_bytes(from_slots([0, 9, 16383]))
    assert len(bitmap) == SLOT_BYTES
    assert (bitmap[0], bitmap[1], bitmap[-1]) == (1, 2, 128)
    assert sum(bitmap) == 131


def test_random_sets_survive_all_forms() -> None:
    chance = random.Random(1)
    for _ in range(50):
        members = sorted(chance.sample(range(16384), chance.randrange(300)))
        slots = from_slots(members)
        assert slots_of(slots) == members
        assert from_ranges(ranges_of(slots)) == slots
        assert int.from_bytes(to_bytes(slots), "little") == slots
