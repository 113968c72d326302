"""The pending entries list through PelProbe: shapes with a story; the rest is in model/test_pel_model.py."""

from __future__ import annotations

import pytest
from support.compiled import compiled

pel_probe = compiled("pel_probe")
PelProbe, PelWalk = pel_probe.PelProbe, pel_probe.PelWalk

MAX = 2**64 - 1


def filled(count: int, owners: int = 1, per_ms: int = 100) -> PelProbe:
    """Entries (1, 0), (2, 0) ... in turns for each owner, delivered `per_ms` to the millisecond."""
    pel = PelProbe()
    numbers = [pel.add_owner() for _ in range(owners)]
    for n in range(count):
        pel.insert((n + 1, 0), numbers[n % owners], 1000 + n // per_ms)
    pel.check_invariants()
    return pel


def ids(walk: PelWalk) -> list[tuple[int, int]]:
    return [record[0] for record in walk]


def test_an_empty_pel_costs_nothing_and_finds_nothing() -> None:
    pel = PelProbe()
    assert pel.memory == 0
    assert len(pel) == 0
    assert pel.first() is pel.last() is pel.oldest() is pel.find((1, 1)) is None
    assert ids(pel.walk()) == ids(pel.walk_oldest()) == []
    pel.check_invariants()


def test_a_record_keeps_what_it_was_given() -> None:
    pel = PelProbe()
    pel.add_owner()
    owner = pel.add_owner()
    pel.insert((MAX, MAX), owner, 5, MAX)
    assert pel.find((MAX, MAX)) == ((MAX, MAX), owner, 5, MAX)
    assert pel.find((MAX, MAX - 1)) is None
    assert (pel.owner_size(0), pel.owner_size(owner)) == (0, 1)


def test_the_same_entry_is_not_pending_twice() -> None:
    pel = filled(3)
    with pytest.raises(KeyError, match=r"\(2, 0\)"):
        pel.insert((2, 0), 0, 1)
    with pytest.raises(KeyError, match=r"\(4, 0\)"):
        pel.remove((4, 0))
    pel.check_invariants()


def test_the_oldest_delivery_comes_first() -> None:
    pel = PelProbe()
    pel.add_owner()
    for number, delivery_ms in ((1, 50), (2, 0), (3, 51), (4, 2**63 - 1), (5, 1)):
        pel.insert((number, 0), 0, delivery_ms)
    assert ids(pel.walk_oldest()) == [(2, 0), (5, 0), (1, 0), (3, 0), (4, 0)]
    pel.set_time((2, 0), 52)
    assert pel.oldest() == ((5, 0), 0, 1, 1)
    assert ids(pel.walk_oldest()) == [(5, 0), (1, 0), (3, 0), (2, 0), (4, 0)]
    pel.check_invariants()


def test_of_one_delivery_time_that_comes_first_which_got_it_first() -> None:
    pel = PelProbe()
    pel.add_owner()
    for number, delivery_ms in ((3, 50), (1, 50), (4, 60), (2, 50)):
        pel.insert((number, 0), 0, delivery_ms)
    assert ids(pel.walk_oldest()) == [(3, 0), (1, 0), (2, 0), (4, 0)]
    pel.set_time((3, 0), 50)
    assert ids(pel.walk_oldest()) == [(1, 0), (2, 0), (3, 0), (4, 0)]
    pel.set_time((4, 0), 50)
    pel.set_time((1, 0), 60)
    pel.set_time((1, 0), 50)
    assert pel.oldest() == ((2, 0), 0, 50, 1)
    assert ids(pel.walk_oldest()) == [(2, 0), (3, 0), (4, 0), (1, 0)]
    pel.check_invariants()


def test_turns_that_restart_log_lose_no_record() -> None:
    pel = PelProbe()
    pel.add_owner()
    pel.turn = 2**32 - 151
    for number in range(300):
        pel.insert((number, 0), 0, 7)
    assert pel.turn == 149
    pel.check_invariants()
    assert ids(pel.walk_oldest()) == [(n, 0) for n in (*range(150, 300), *range(150))]
    for _ in range(2):  # every other record gets the turn of the one beside it: those two are told apart by ID
        for number in range(0, 300, 2):
            pel.turn = (2**32 - 151 + number + 1) % 2**32
            pel.set_time((number, 0), 7)
    pel.check_invariants()
    assert ids(pel.walk_oldest()) == [(n, 0) for n in (*range(150, 300), *range(150))]
    for number in range(300):
        pel.remove((number, 0))
    assert len(pel) == 0
    pel.check_invariants()


def test_a_clock_that_runs_backwards() -> None:
    pel = filled(1000)
    for number in range(1, 1001):
        pel.set_time((number, 0), 1000 - number)
    pel.check_invariants()
    assert ids(pel.walk_oldest()) == [(number, 0) for number in range(1000, 0, -1)]


def test_ids_that_come_in_descending_order() -> None:
    pel = PelProbe()
    pel.add_owner()
    for number in range(2000, 0, -1):
        pel.insert((7, number), 0, number)
    pel.check_invariants()
    assert ids(pel.walk()) == [(7, number) for number in range(1, 2001)]
    assert pel.memory < 75 * 2000  # chunks split in the middle are half full


def test_assigning_moves_a_record_between_consumers() -> None:
    pel = filled(300, owners=2)
    for number in range(1, 301, 2):
        pel.assign((number, 0), 1)
        pel.assign((number, 0), 1)
    pel.check_invariants()
    assert (pel.owner_size(0), pel.owner_size(1)) == (0, 300)
    assert ids(pel.walk(1, (100, 1))) == [(number, 0) for number in range(101, 301)]


def test_dropping_a_consumer_takes_its_records_and_frees_its_number() -> None:
    pel = filled(3000, owners=3)
    pel.drop_owner(1)
    pel.check_invariants()
    assert len(pel) == 2000
    assert pel.find((2, 0)) is None
    assert pel.owner_size(1) == 0
    with pytest.raises(ValueError, match="no consumer has the number 1"):
        pel.drop_owner(1)
    assert pel.add_owner() == 1
    assert ids(pel.walk(1)) == []
    pel.check_invariants()


def test_many_consumers_come_and_go() -> None:
    pel = PelProbe()
    numbers = [pel.add_owner() for _ in range(100)]
    assert numbers == list(range(100))
    for number in numbers[::3]:
        pel.drop_owner(number)
    assert sorted(pel.add_owner() for _ in numbers[::3]) == numbers[::3]
    assert pel.add_owner() == 100
    pel.check_invariants()


@pytest.mark.parametrize("owners", [1, 10])
def test_a_pending_entry_takes_at_most_60_bytes(owners: int) -> None:
    count = 100_000
    assert filled(count, owners).memory <= 60 * count


def test_a_single_pending_entry_takes_little() -> None:
    assert filled(1).memory < 700


def test_all_memory_comes_back_whatever_the_order_of_acknowledgements() -> None:
    for step in (1, 7, 4999):
        pel = filled(5000, owners=2)
        for n in range(5000):
            pel.remove((n * step % 5000 + 1, 0))
        pel.check_invariants()
        assert len(pel) == 0
        assert pel.memory == empty_with_owners(2)


def empty_with_owners(owners: int) -> int:
    return filled(0, owners).memory


def test_holes_everywhere_do_not_keep_the_indexes_large() -> None:
    # Records cannot move, so their blocks stay while one of them is there; the chunks must not. One in 20 is left.
    pel = filled(20_000)
    blocks = 44 * 20_000
    for number in range(1, 20_001):
        if number % 20:
            pel.remove((number, 0))
    pel.check_invariants()
    assert len(pel) == 1000
    assert pel.memory < blocks * 1.02 + 1000 * 3 * 12


def test_a_walk_continues_after_the_record_it_returned_is_removed() -> None:
    pel = filled(1000)
    met = []
    for record in pel.walk():
        met.append(record[0])
        pel.remove(record[0])
    assert met == [(number, 0) for number in range(1, 1001)]
    assert len(pel) == 0


def test_a_walk_continues_at_what_follows_when_everything_around_it_goes() -> None:
    pel = filled(1000)
    walk = pel.walk()
    for _ in range(500):
        next(walk)
    for number in range(300, 701):
        pel.remove((number, 0))
    assert next(walk)[0] == (701, 0)
    pel.insert((701, 1), 0, 1)
    assert next(walk)[0] == (701, 1)


def test_a_walk_by_delivery_time_may_renew_the_deliveries_it_meets() -> None:
    pel = filled(300, per_ms=10)
    met = []
    for record in pel.walk_oldest():
        if record[2] == 9999:
            break
        met.append(record[0])
        pel.set_time(record[0], 9999)
    assert met == [(number, 0) for number in range(1, 301)]
    pel.check_invariants()


def test_a_walk_by_delivery_time_meets_a_renewed_record_behind_the_others_of_its_time() -> None:
    pel = filled(300, per_ms=300)
    walk = pel.walk_oldest()
    for number in range(1, 101):
        assert next(walk)[0] == (number, 0)
        if number % 3 == 1:
            pel.set_time((number, 0), 1000)
        elif number % 3 == 2:
            pel.remove((number, 0))
    assert ids(walk) == [(number, 0) for number in (*range(101, 301), *range(1, 101, 3))]
    pel.check_invariants()


def test_a_walk_at_its_end_sees_what_comes_later() -> None:
    pel = filled(3)
    walk = pel.walk(0)
    assert len(list(walk)) == 3
    assert list(walk) == []
    pel.insert((9, 0), 0, 1)
    assert ids(walk) == [(9, 0)]


def test_a_walk_does_not_outlive_its_records() -> None:
    pel = filled(10, owners=2)
    walks = [pel.walk(1), pel.walk()]
    pel.drop_owner(1)
    for walk in walks:
        with pytest.raises(RuntimeError, match="the records walked may be gone"):
            next(walk)
    with pytest.raises(TypeError, match="walks come from PelProbe"):
        PelWalk()


def test_clear_leaves_a_pel_that_can_be_filled_again() -> None:
    pel = filled(2000, owners=3)
    pel.clear()
    assert (len(pel), pel.memory) == (0, 0)
    with pytest.raises(ValueError, match="no consumer"):
        pel.insert((1, 1), 0, 1)
    assert pel.add_owner() == 0
    pel.insert((1, 1), 0, 1)
    pel.check_invariants()


# --- The NACK zone --------------------------------------------------------------------------------------------------


def test_records_without_an_owner_come_first_in_the_order_in_which_they_were_disowned() -> None:
    pel = filled(5)
    pel.set_time((5, 0), 0)
    for number in (4, 2):
        pel.disown((number, 0))
    pel.insert_unowned((9, 0), 7)
    assert ids(pel.walk_oldest()) == [(4, 0), (2, 0), (9, 0), (5, 0), (1, 0), (3, 0)]
    assert pel.find((4, 0)) == ((4, 0), None, 0, 1)
    assert (pel.unowned, pel.owner_size(0)) == (3, 3)
    pel.disown((4, 0))
    assert ids(pel.walk_oldest())[:3] == [(2, 0), (9, 0), (4, 0)]
    pel.check_invariants()


def test_an_adopted_record_is_as_any_other() -> None:
    pel = filled(3)
    pel.disown((2, 0))
    pel.adopt((2, 0), 0, 0)
    assert pel.unowned == 0
    assert ids(pel.walk(0)) == [(1, 0), (2, 0), (3, 0)]
    assert pel.oldest() == ((2, 0), 0, 0, 1)
    pel.assign((2, 0), pel.add_owner())
    pel.set_time((2, 0), 5000)
    assert ids(pel.walk_oldest()) == [(1, 0), (3, 0), (2, 0)]
    pel.check_invariants()


def test_records_without_an_owner_outlive_the_consumer_who_had_them() -> None:
    pel = filled(4)
    pel.disown((3, 0))
    pel.drop_owner(0)
    assert list(pel.walk()) == [((3, 0), None, 0, 1)]
    pel.check_invariants()
    pel.remove((3, 0))
    assert (len(pel), pel.unowned) == (0, 0)
    pel.check_invariants()


def test_what_needs_an_owner_refuses_a_record_without_one() -> None:
    pel = filled(2)
    pel.disown((1, 0))
    with pytest.raises(ValueError, match="NACK zone"):
        pel.assign((1, 0), 0)
    with pytest.raises(ValueError, match="NACK zone"):
        pel.set_time((1, 0), 5)
    with pytest.raises(ValueError, match="has an owner"):
        pel.adopt((2, 0), 0, 5)
    with pytest.raises(ValueError, match="not negative"):
        pel.insert((3, 0), 0, -1)
    pel.check_invariants()


def test_a_pending_entry_without_an_owner_takes_at_most_60_bytes() -> None:
    pel = filled(20_000)
    for number in range(1, 20_001):
        pel.disown((number, 0))
    pel.check_invariants()
    assert pel.memory / 20_000 <= 60


def test_ids_too_great_for_a_double_are_kept_apart() -> None:
    # Where a place among them is guessed, their differences may round to 0.
    pel = PelProbe()
    owner = pel.add_owner()
    for number in (0, 5, 3, 1, 4, 2):
        pel.insert((2**63, 2**64 - 10 + number), owner, 2**55 + number, 1)
    pel.check_invariants()
