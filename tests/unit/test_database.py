"""Database and LazyFree, by example: what the model test cannot see, or would need many keys for."""

from __future__ import annotations

import random
import threading
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable

import pytest
from support.commands.values import Big

from streamd.keyspace.database import Database, has_due
from streamd.keyspace.lazyfree import THRESHOLD, LazyFree
from streamd.values.strings.stored import append_string, change_string
from streamd.values.strings.string_type import ENCODING_BY_LENGTH, ENCODING_RAW


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline, "it did not happen within a minute"
        time.sleep(0.001)


@pytest.fixture
def db() -> Database:
    db = Database()
    db.now_ms = 1000
    return db


# --- Strings that grow -----------------------------------------------------------------------------------------------


def test_a_long_string_is_not_copied_to_add_a_little(db: Database) -> None:
    tracemalloc.start()
    try:
        db.add(b"k", bytes(1 << 20))
        before = db.object_bytes
        tracemalloc.reset_peak()
        append_string(db, b"k", b"more" * 8)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert db.find(b"k") == bytes(1 << 20) + b"more" * 8
    assert peak < 1.5 * (1 << 20)
    assert before < db.object_bytes < before + 64
    db.check_invariants()


def test_a_string_that_others_have_does_not_change_when_the_one_of_a_key_grows(db: Database) -> None:
    value = b"x" * 1000
    db.add(b"k", value)
    append_string(db, b"k", b"y")
    assert value == b"x" * 1000
    assert db.find(b"k") == value + b"y"


def test_a_string_that_has_grown_has_another_hash(db: Database) -> None:
    value = bytes([1, 2, 3]) * 10
    assert hash(value)  # it is kept in the object
    db.add(b"k", value)
    del value
    for _ in range(100):
        append_string(db, b"k", b"abc")
    assert hash(db.find(b"k")) == hash(bytes(bytearray([1, 2, 3] * 10)) + b"abc" * 100)
    db.check_invariants()


def test_nothing_is_added_to_a_key_that_is_missing_or_no_string(db: Database) -> None:
    db.add(b"v", Big(0))
    for name in (b"v", b"missing"):
        with pytest.raises(KeyError, match=name.decode()):
            append_string(db, name, b"more")


# --- Many keys -------------------------------------------------------------------------------------------------------


def test_structures_agree_across_shards(db: Database) -> None:
    chance = random.Random(1)
    names = [b"k%d" % number for number in range(10_000)]
    for name in names:
        db.add(name, b"v")
    for name in chance.sample(names, 5000):
        db.set_expiry(name, chance.randrange(1000, 3000))
    db.check_invariants()
    for name in chance.sample(names, 5000):  # places in the middle of the heap are filled from its end
        db.delete(name)
    db.check_invariants()
    for name in chance.sample(names, 5000):
        db.set_expiry(name, chance.randrange(1000, 3000))
    db.check_invariants()
    left = set(db.keys())
    assert len(left) == len(db)
    gone = {name for name in left if 0 <= db.expiry(name) < 2000}
    assert len(gone) > 1000
    db.now_ms = 2000
    while db.expire_due(100) == 100:
        db.check_invariants()
    assert set(db.keys()) == left - gone
    assert all(db.expiry(name) == -1 or db.expiry(name) >= 2000 for name in db.keys())  # noqa: SIM118
    db.now_ms = 3001
    db.expire_due(10_000)
    assert (db.expiring, db.next_expiry_ms, db.avg_ttl) == (0, -1, 0)
    db.check_invariants()


def test_keys_are_spread_over_shards_and_every_random_key_is_as_likely(db: Database) -> None:
    for number in range(10):
        db.add(b"%d" % number, b"")
    drawn = Counter(db.random_key() for _ in range(5000))
    assert len(drawn) == 10
    assert min(drawn.values()) > 350


def test_a_scan_of_many_keys_returns_each_once_when_nothing_changes(db: Database) -> None:
    names = {b"k%d" % number for number in range(9000)}
    for name in names:
        db.add(name, b"")
    cursor, records = db.scan(0, 1000)
    found = [record.key for record in records]
    while cursor:
        cursor, records = db.scan(cursor, 1000)
        found += [record.key for record in records]
    assert len(found) == len(names)
    assert set(found) == names


@pytest.mark.parametrize("is_by_slot", [False, True])
def test_a_scan_returns_what_stays_once_while_tables_grow_and_shrink(db: Database, is_by_slot: bool) -> None:
    chance = random.Random(3)
    tag = b"{t}" if is_by_slot else b""
    if is_by_slot:
        db.keep_by_slot()  # one table
    staying = {tag + b"s%d" % number for number in range(3000)}
    passing = [tag + b"p%d" % number for number in range(30_000)]
    for name in staying:
        db.add(name, b"")
    cursor, found, there = 0, [], set[bytes]()
    for step in range(10_000):
        cursor, records = db.scan(cursor, 20)
        found += [record.key for record in records]
        if not cursor:
            break
        for name in chance.sample(passing, 3000) if step % 50 < 10 else list(there)[:800]:
            if name in there:
                there.remove(name)
                db.delete(name)
            else:
                there.add(name)
                db.add(name, b"")
        if step % 25 == 0:
            db.check_invariants()
    assert cursor == 0
    assert sorted(name for name in found if name in staying) == sorted(staying)


def test_a_table_grows_when_keys_come_in_the_order_of_a_scan_and_crowd_one_end() -> None:
    whole, ordered, mixed = (Database() for _ in range(3))
    for each in (whole, ordered, mixed):
        each.keep_by_slot()  # one table
    for number in range(20_000):
        whole.add(b"{t}%d" % number, b"")
    cursor = 0
    while len(ordered) < 5000:
        cursor, records = whole.scan(cursor, 100)
        for record in records:
            ordered.add(record.key, b"")
    for number in range(len(ordered)):
        mixed.add(b"{t}%d" % number, b"")
    ordered.check_invariants()
    empty = Database()
    empty.keep_by_slot()
    empty.add(b"k", b"")
    head = empty.lookup_bytes()
    assert mixed.lookup_bytes() - head < ordered.lookup_bytes() - head < 6 * (mixed.lookup_bytes() - head)


def test_tables_of_every_small_size_have_room_for_the_end_of_a_search(db: Database) -> None:
    chance = random.Random(5)
    db.keep_by_slot()
    names = [b"{t}%d" % number for number in range(200)]
    for most in (2, 5, 12, 30, 60, 200, 10, 100, 3):
        for _ in range(300):
            name = chance.choice(names[:most])
            if not db.delete(name):
                db.add(name, b"")
            assert db.find(b"{t}missing") is None
        for name in names[most // 4 :]:
            db.delete(name)
            assert db.find(b"{t}missing") is None
        db.check_invariants()


def test_random_keys_of_many_are_equally_likely(db: Database) -> None:
    for number in range(2000):
        db.add(b"%d" % number, b"")
    drawn = Counter(db.random_key() for _ in range(100_000))
    assert len(drawn) == 2000
    assert min(drawn.values()) > 15
    assert max(drawn.values()) < 100


def test_random_keys_of_uneven_slots_are_equally_likely(db: Database) -> None:
    db.keep_by_slot()
    names = [b"{many}%d" % number for number in range(40)] + [b"few%d" % number for number in range(10)]
    for name in names:
        db.add(name, b"")
    drawn = Counter(db.random_key() for _ in range(20_000))
    assert len(drawn) == 50
    assert min(drawn.values()) > 280
    assert max(drawn.values()) < 540


@pytest.mark.parametrize("is_by_slot", [False, True])
@pytest.mark.parametrize("number", [0, 1, 300, 20_000])
def test_a_scan_goes_on_and_ends_after_a_flush_and_a_refill(db: Database, number: int, is_by_slot: bool) -> None:
    if is_by_slot:
        db.keep_by_slot()
    for at in range(3000):
        db.add(b"old:%d" % at, b"")
    started, records = db.scan(0, 1000)
    assert started
    held = records[0]
    db.flush()
    new = {b"new:%d" % at for at in range(number)}
    for name in new:
        db.add(name, b"")
    found, cursor = [], started
    while cursor:
        before = cursor
        cursor, records = db.scan(cursor, 10)
        assert cursor < before
        found += [record.key for record in records]
    assert len(set(found)) == len(found)
    assert set(found) <= new
    assert len(found) >= number // 2, "the places that had not been visited"
    with pytest.raises(KeyError, match="old:"):
        held.value  # noqa: B018
    while db.trash.pending_objects():
        db.trash.step(1000)
    db.check_invariants()


def test_a_scan_takes_any_cursor(db: Database) -> None:
    db.add(b"k", b"")
    for cursor in (2, 10**6, 2**64 - 1):
        assert db.scan(cursor, 2**63 - 1)[0] == 0
    with pytest.raises(ValueError, match="positive"):
        db.scan(0, 0)


def test_a_look_at_all_slots_leaves_what_has_expired(db: Database) -> None:
    for number in range(25):
        db.add(b"k%d" % number, b"")
    db.set_expiry(b"k7", 1)
    db.now_ms = 1000
    found, cursor = [], 2**64 - 1
    while cursor:
        cursor, records = db.records(cursor, 10)
        found += [record.key for record in records]
    assert sorted(found) == sorted(b"k%d" % number for number in range(25))
    assert (len(db), db.expired_keys) == (25, 0)
    with pytest.raises(ValueError, match="positive"):
        db.records(0, 0)


def test_times_whose_sum_has_more_than_64_bits_have_an_average(db: Database) -> None:
    for number in range(7):
        db.add(b"%d" % number, b"")
        db.set_expiry(b"%d" % number, 2**62 + number)
    db.check_invariants()
    assert db.avg_ttl == 2**62 + 3 - db.now_ms
    db.set_expiry(b"6", 2**62 + 13)
    assert db.avg_ttl == 2**62 + 4 - db.now_ms
    db.delete(b"6")
    assert db.avg_ttl == 2**62 + 2 - db.now_ms
    db.check_invariants()


# --- One key ---------------------------------------------------------------------------------------------------------


def test_adding_a_key_that_is_there_is_refused(db: Database) -> None:
    db.add(b"k", b"1")
    with pytest.raises(KeyError, match="b'k'"):
        db.add(b"k", b"2")
    assert db.find(b"k") == b"1"
    db.check_invariants()


def test_none_is_no_key_and_no_database(db: Database) -> None:
    db.add(b"k", b"")
    for call in (
        lambda: db.find(None),  # type: ignore[arg-type]
        lambda: db.add(None, b""),  # type: ignore[arg-type]
        lambda: db.rename(b"k", None),  # type: ignore[arg-type]
        lambda: db.move(b"k", None),  # type: ignore[arg-type]
        lambda: db.copy(b"k", None, b"x"),  # type: ignore[arg-type]
        lambda: db.swap_with(None),  # type: ignore[arg-type]
    ):
        with pytest.raises(TypeError, match=r"not None|there is no database"):
            call()
        assert db.keys() == [b"k"]


def test_time_comes_to_all_databases_and_tells_whether_a_key_has_expired(db: Database) -> None:
    other = Database()
    other.add(b"k", b"")
    other.set_expiry(b"k", 1000)
    assert not has_due([], 5)
    assert not has_due([db, other], 1000)
    assert has_due([other, db], 1001)
    assert (db.now_ms, other.now_ms) == (1001, 1001)
    assert other.expire_due(10) == 1
    assert not has_due([other, db], 5000)


def test_a_key_lives_until_its_time_has_passed(db: Database) -> None:
    db.add(b"k", b"")
    assert db.set_expiry(b"k", 1000)
    assert db.find(b"k") == b""
    assert db.expire_due(1) == 0
    db.now_ms = 1001
    assert len(db) == 1, "nobody has met it"
    assert db.find(b"k") is None
    assert (len(db), db.expired_keys, db.hits, db.misses) == (0, 1, 1, 1)


def test_what_reads_counts_and_what_writes_does_not(db: Database) -> None:
    db.add(b"k", b"")
    for look in (db.find_for_write, db.peek, db.record, db.expiry, db.__contains__):
        look(b"k"), look(b"none")
    assert (db.hits, db.misses) == (0, 0)
    for look in (db.find, db.find_untouched, db.touch):
        look(b"k"), look(b"none")
    assert (db.hits, db.misses) == (3, 3)


@pytest.mark.parametrize(
    ("look", "is_access", "is_access_untouched"),
    [("find", True, False), ("find_for_write", True, False), ("touch", True, True), ("find_untouched", False, False),
     ("peek", False, False), ("record", False, False), ("expiry", False, False)],
)  # fmt: skip
def test_access_times(db: Database, look: str, is_access: bool, is_access_untouched: bool) -> None:
    db.add(b"k", b"")
    record = db.record(b"k")
    assert record is not None
    assert record.accessed_ms == 1000
    db.now_ms = 2000
    db.touch_on_access = False
    getattr(db, look)(b"k")
    assert record.accessed_ms == (2000 if is_access_untouched else 1000)
    db.now_ms = 3000
    db.touch_on_access = True
    before = record.accessed_ms
    getattr(db, look)(b"k")
    assert record.accessed_ms == (3000 if is_access else before)


def test_renaming_takes_everything_along(db: Database) -> None:
    db.add(b"k", b"v")
    db.set_expiry(b"k", 5000)
    db.now_ms = 2000
    db.add(b"other", b"w")
    db.set_expiry(b"other", 9000)
    assert db.rename(b"k", b"other")
    record = db.record(b"other")
    assert record is not None
    assert (record.value, db.expiry(record.key), record.accessed_ms) == (b"v", 5000, 2000), "it counts as used now"
    assert len(db) == db.expiring == 1
    assert db.rename(b"other", b"other")
    assert not db.rename(b"k", b"x")
    db.check_invariants()


def test_an_expiry_before_the_epoch_is_refused(db: Database) -> None:
    db.add(b"k", b"v")
    with pytest.raises(ValueError, match="Unix time"):
        db.set_expiry(b"k", -1)


def test_the_latest_expiry_there_is(db: Database) -> None:
    for name in (b"a", b"b", b"c"):
        db.add(name, b"")
        db.set_expiry(name, 2**63 - 1)
    assert db.avg_ttl == 2**63 - 1 - 1000
    db.check_invariants()


@pytest.mark.parametrize(
    ("name", "value", "encoding"),
    [
        (b"k", b"12", b"int"), (b"k", b"-12", b"int"), (b"k", b"0", b"int"), (b"k", b"-0", b"embstr"),
        (b"k", b"", b"embstr"), (b"k", b"-", b"embstr"), (b"k", b"+1", b"embstr"), (b"k", b"01", b"embstr"),
        (b"k", b"1a", b"embstr"), (b"k", b"9223372036854775807", b"int"), (b"k", b"9223372036854775808", b"embstr"),
        (b"k", b"-9223372036854775808", b"int"), (b"k", b"-9223372036854775809", b"embstr"),
        (b"k", b"12345678901234567890", b"embstr"), (b"k" * 90, b"7", b"int"),
        (b"k", b"x" * 40, b"embstr"), (b"k", b"x" * 41, b"raw"), (b"k" * 41, b"", b"embstr"), (b"k" * 42, b"", b"raw"),
    ],
)  # fmt: skip
def test_encodings(db: Database, name: bytes, value: bytes, encoding: bytes) -> None:
    db.add(name, value)
    record = db.record(name)
    assert record is not None
    assert record.encoding == encoding


def test_an_encoding_belongs_to_the_value_not_to_the_key(db: Database) -> None:
    db.add(b"k", b"1")
    change_string(db, b"k", b"1", b"append", ENCODING_RAW)
    db.copy(b"k", db, b"copy")
    db.rename(b"k", b"renamed")
    assert [db.record(name).encoding for name in (b"copy", b"renamed")] == [b"raw", b"raw"]  # type: ignore[union-attr]
    db.set(b"renamed", b"1")
    assert db.record(b"renamed").encoding == b"int"  # type: ignore[union-attr]
    change_string(db, b"renamed", b"1", b"incrbyfloat", ENCODING_BY_LENGTH)
    assert db.record(b"renamed").encoding == b"embstr"  # type: ignore[union-attr]


def test_only_bytes_are_appended(db: Database) -> None:
    db.add(b"k", bytes(100))
    with pytest.raises(TypeError, match="not None"):
        append_string(db, b"k", None)  # type: ignore[arg-type]
    assert db.peek(b"k") == bytes(100)


def test_a_string_too_long_for_its_key_stays_raw_under_a_shorter_one(db: Database) -> None:
    db.add(b"k" * 40, b"long")
    db.rename(b"k" * 40, b"k")
    assert db.record(b"k").encoding == b"raw"  # type: ignore[union-attr]


# --- Clients that wait -----------------------------------------------------------------------------------------------


def test_who_waits_is_reported_when_a_key_expires(db: Database) -> None:
    db.waiters = {b"a": object(), b"b": object()}
    for name in (b"a", b"b", b"c"):
        db.add(name, b"")
        db.set_expiry(name, 1000)
    db.ready.clear()
    db.now_ms = 2000
    db.find(b"a")
    assert list(db.ready) == [(db, b"a")]
    db.expire_due(10)
    assert list(db.ready) == [(db, b"a"), (db, b"b")], "in the order of what happened"


def test_swapping_leaves_waiters_where_they_are() -> None:
    ready: dict[tuple[Database, bytes], None] = {}
    one, two = Database(1, ready), Database(2, ready)
    one.waiters, two.waiters = {b"x": 1}, {b"y": 2}
    one.add(b"y", b"v")
    two.swap_with(one)
    assert one.waiters == {b"x": 1}
    assert two.waiters == {b"y": 2}
    assert two.find(b"y") == b"v"
    assert len(one) == 0
    assert set(ready) == {(one, b"x"), (two, b"y")}
    one.check_invariants(), two.check_invariants()


# --- Freeing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("remove", [
    lambda db: db.delete(b"k"),
    lambda db: db.set(b"k", b""),
    lambda db: db.rename(b"other", b"k"),
    lambda db: (setattr(db, "now_ms", 9999), db.find(b"k")),
    lambda db: (db.flush(), db.trash.step(100)),
])  # fmt: skip
def test_large_values_are_freed_by_another_thread(db: Database, remove: Callable[[Database], object]) -> None:
    value = Big(THRESHOLD + 1)
    db.add(b"k", value)
    db.set_expiry(b"k", 5000)
    db.add(b"other", b"")
    remove(db)
    assert value.is_freed.wait(10)
    assert value.freed_by is not threading.current_thread()
    wait_until(lambda: db.trash.pending_objects() == 0)
    assert db.trash.freed_objects() >= 1


def test_small_values_are_not_worth_a_thread(db: Database) -> None:
    value = Big(THRESHOLD)
    db.add(b"k", value)
    db.delete(b"k")
    assert not value.is_freed.is_set()
    assert db.trash.pending_objects() == db.trash.freed_objects() == 0


def test_storing_the_same_value_again_does_not_free_it(db: Database) -> None:
    value = Big(THRESHOLD + 1)
    db.add(b"k", value)
    db.set(b"k", value)
    assert db.trash.pending_objects() == db.trash.freed_objects() == 0
    assert not value.is_freed.is_set()


def test_a_flush_is_released_in_slices(db: Database) -> None:
    trash = db.trash
    for number in range(10_000):
        db.add(b"%d" % number, b"")
    db.flush()
    db.check_invariants()
    db.add(b"0", b"new")
    assert (len(db), trash.pending_objects(), trash.has_slices) == (1, 10_000, True)
    assert trash.step(3000) == 3000
    assert (trash.pending_objects(), trash.freed_objects()) == (7000, 3000)
    assert trash.step(10**6) == 7000
    assert trash.step(10) == 0
    assert (trash.pending_objects(), trash.freed_objects(), trash.has_slices) == (0, 10_000, False)
    trash.reset_statistics()
    assert trash.freed_objects() == 0
    assert db.keys() == [b"0"]


def test_the_heap_of_a_large_flush_is_no_object(db: Database) -> None:
    for number in range(20_000):
        name = b"%d" % number
        db.add(name, b"")
        db.set_expiry(name, 10**6 - number)
    db.flush()
    db.trash.step(20_000)
    wait_until(lambda: db.trash.pending_objects() == 0)
    assert db.trash.freed_objects() == 20_000
    db.check_invariants()


def test_flushing_nothing_leaves_nothing_to_do(db: Database) -> None:
    db.flush()
    assert not db.trash.has_slices
    assert isinstance(db.trash, LazyFree)


# --- While removing expired keys waits ---------------------------------------------------------------------------------


def test_expired_keys_that_are_held_are_missing_and_there() -> None:
    db = Database(0)
    db.now_ms = 1000
    for name in (b"a", b"b"):
        db.add(name, b"v")
        db.set_expiry(name, 1500)
    db.holds_expired = True
    db.now_ms = 2000
    assert db.find(b"a") is None
    assert db.keys() == []
    assert db.scan(0, 10)[1] == []
    assert db.random_key() in (b"a", b"b")
    assert len(db) == 2
    db.add(b"a", b"new")
    assert (db.find(b"a"), db.expiry(b"a"), len(db), db.expired_keys) == (b"new", -1, 2, 1)
    assert db.random_key() == b"a"
    with pytest.raises(KeyError, match="b'a'"):
        db.add(b"a", b"again")
    db.check_invariants()
    db.holds_expired = False
    assert db.find(b"b") is None
    assert (len(db), db.expired_keys) == (1, 2)
    db.check_invariants()


def test_keys_of_any_length_are_found_while_others_come_and_go(db: Database) -> None:
    chance = random.Random(1)
    expected: dict[bytes, bytes] = {}
    for at in range(30_000):
        number = chance.randrange(6000)
        key = b"%d" % number * (100 if number % 50 == 0 else 1)
        if chance.random() < 0.55:
            db.set(key, b"%d" % at)
            expected[key] = b"%d" % at
        else:
            assert db.delete(key) == (expected.pop(key, None) is not None)
    db.check_invariants()
    found = db.keys()
    assert {key: db.find(key) for key in found} == expected
    for key in list(expected):
        assert db.delete(key)
    db.check_invariants()
    assert len(db) == 0


def test_a_short_key_with_an_empty_value_takes_150_bytes_at_most(db: Database) -> None:
    before = db.memory()
    for at in range(100_000):
        db.set(b"key:%06d" % at, b"")
    assert (db.memory() - before) / 100_000 < 150
