"""Parts of a stream: their names and slots, the part of a key, and who reads which."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamd.clustering.shares import SLOT_COUNT, first_shares
from streamd.keyspace.hash_slot import slot_of
from streamd.partitions import PartitionError, Parts, Reader
from streamd.partitions.sharing import share


def shares_of_redis_cli(count: int) -> list[tuple[int, int]]:
    """The ranges that `redis-cli --cluster create` gives to its primaries."""
    found = []
    first, cursor, each = 0, 0.0, SLOT_COUNT / count
    for number in range(count):
        last = SLOT_COUNT - 1 if number == count - 1 else max(int(cursor + each - 1 + 0.5), first)
        found.append((first, last))
        first, cursor = last + 1, cursor + each
    return found


def loads(count: int, shares: list[tuple[int, int]]) -> list[int]:
    """How many parts each primary has."""
    slots = [slot_of(stream.encode()) for stream in Parts("orders", count).streams]
    return [sum(first <= slot <= last for slot in slots) for first, last in shares]


@pytest.mark.parametrize("primaries", range(1, 65))
@pytest.mark.parametrize("count", [64, 100, 128, 1024])
def test_parts_spread_evenly_over_any_number_of_primaries(count: int, primaries: int) -> None:
    for shares in (first_shares(primaries), shares_of_redis_cli(primaries)):
        found = loads(count, shares)
        assert sum(found) == count
        assert max(found) <= -(-count // primaries), "not more than any division has"


@pytest.mark.parametrize("primaries", [2, 3, 5, 8, 16])
def test_of_64_parts_no_primary_has_a_tenth_more_than_the_mean(primaries: int) -> None:
    for shares in (first_shares(primaries), shares_of_redis_cli(primaries)):
        assert max(loads(64, shares)) <= 1.1 * 64 / primaries


def test_the_slot_of_a_part_is_in_the_middle_of_its_share() -> None:
    for count in [*range(1, 40), 64, 1000, 1024]:
        for number, stream in enumerate(Parts("s", count).streams):
            assert abs(slot_of(stream.encode()) - (2 * number + 1) * SLOT_COUNT // (2 * count)) <= 1


def test_names_and_the_part_of_a_key_never_change() -> None:
    parts = Parts("orders", 64)
    assert parts.streams[:3] == ["orders:{0-7j1}", "orders:{1-6n4}", "orders:{2-has}"]
    assert parts.streams[63] == "orders:{63-3ff}"
    assert [parts.number_of(key) for key in ("customer-1", b"customer-1", "", "ü")] == [58, 58, 0, 24]
    assert parts.stream_of("customer-1") == parts.stream(58)
    assert Parts("orders", 1).number_of("customer-1") == 0


@pytest.mark.parametrize("form", ["customer-{}", "{}", "user:{:06}", "{:08x}"])
def test_keys_spread_evenly_over_the_parts(form: str) -> None:
    for count in (2, 3, 5, 12, 64):
        parts = Parts("orders", count)
        found = Counter(parts.number_of(form.format(number)) for number in range(20_000))
        assert 0.9 < min(found.values()) * count / 20_000 <= max(found.values()) * count / 20_000 < 1.1


@pytest.mark.parametrize(
    ("name", "count", "message"),
    [
        ("orders", 0, "orders cannot have 0 parts: use 1 to 1024"),
        ("orders", -1, "orders cannot have -1 parts: use 1 to 1024"),
        ("orders", 1025, "orders cannot have 1025 parts: use 1 to 1024"),
        ("", 4, "A partitioned stream cannot be named '': use a name without braces"),
        ("{orders}", 4, "A partitioned stream cannot be named '{orders}': use a name without braces"),
    ],
)
def test_a_count_or_name_that_cannot_be_is_refused_in_one_line(name: str, count: int, message: str) -> None:
    with pytest.raises(PartitionError) as raised:  # noqa: PT011
        Parts(name, count)
    assert str(raised.value) == message


def test_a_part_that_does_not_exist_is_refused() -> None:
    for number in (-1, 4):
        with pytest.raises(PartitionError, match=f"^orders has no part {number}: use 0 to 3$"):
            Parts("orders", 4).stream(number)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"group": ""}, "A consumer group needs a name"),
        ({"lease_s": 0.0}, "A lease of 0.0 s is too short"),
        ({"count": 0}, "A batch cannot have 0 entries: use 1 to 5000"),
        ({"count": 5001}, "A batch cannot have 5001 entries"),
    ],
)
def test_a_reader_that_cannot_be_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(PartitionError, match=message):
        Reader(None, Parts("orders", 4), handle=print, **{"group": "g", **options})  # type: ignore[arg-type]


readers = st.sets(st.text(min_size=1, max_size=5), min_size=1, max_size=20)


@given(st.integers(1, 100), readers)
def test_each_part_has_one_reader_and_none_has_two_more_than_another(count: int, names: set[str]) -> None:
    found = share(count, names)
    assert set(found) == names
    assert sorted(part for own in found.values() for part in own) == list(range(count))
    sizes = [len(own) for own in found.values()]
    assert max(sizes) - min(sizes) <= 1
    assert share(count, sorted(names, reverse=True)) == found


@settings(max_examples=30)
@given(st.sets(st.text(min_size=1, max_size=5), min_size=2, max_size=9), st.data())
def test_a_reader_that_leaves_moves_few_parts_of_the_others(names: set[str], data: st.DataObject) -> None:
    leaving = data.draw(st.sampled_from(sorted(names)))
    before, after = share(64, names), share(64, names - {leaving})
    moved = sum(len(after[name] - before[name]) for name in after)
    assert moved <= 2.5 * len(before[leaving]) + 2


def test_nobody_reads_without_readers() -> None:
    assert share(4, []) == {}
