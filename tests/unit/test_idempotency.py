"""Idempotent producers: what is remembered, for how long, and the IID that is made of an entry."""

from __future__ import annotations

import gc

import pytest

from streamd.values.streams.idempotency import Idempotency, IdempotencyRegistry, automatic_iid


@pytest.fixture
def registry() -> IdempotencyRegistry:
    return IdempotencyRegistry()


def test_an_iid_belongs_to_its_producer(registry: IdempotencyRegistry) -> None:
    tracked = Idempotency(registry, 100, 10)
    tracked.record(b"p", b"i", (1, 1))
    assert tracked.find(b"p", b"i") == (1, 1)
    assert tracked.find(b"q", b"i") is None
    assert tracked.find(b"p", b"j") is None
    assert (tracked.producer_count, tracked.iid_count) == (1, 1)


def test_the_oldest_iid_of_a_producer_makes_room(registry: IdempotencyRegistry) -> None:
    tracked = Idempotency(registry, 100, 2)
    for seq, iid in enumerate([b"a", b"b", b"c"]):
        tracked.record(b"p", iid, (1, seq))
    tracked.record(b"q", b"a", (1, 9))
    tracked.check_invariants()
    assert list(tracked.producers()) == [(b"p", [(b"b", (1, 1)), (b"c", (1, 2))]), (b"q", [(b"a", (1, 9))])]


def test_expiry_is_by_the_time_of_the_entry(registry: IdempotencyRegistry) -> None:
    tracked = Idempotency(registry, 2, 10)
    tracked.record(b"p", b"a", (1000, 0))
    tracked.record(b"q", b"a", (1500, 0))
    tracked.record(b"p", b"b", (2000, 0))
    assert registry.expire(2999) == 0
    assert registry.expire(3000) == 1
    tracked.check_invariants()
    assert (tracked.find(b"p", b"a"), tracked.find(b"p", b"b")) == (None, (2000, 0))
    assert registry.expire(3999) == 1
    tracked.check_invariants()
    assert tracked.producer_count == 1
    assert registry.expire(10_000) == 1
    tracked.check_invariants()
    assert (tracked.producer_count, tracked.iid_count) == (0, 0)


def test_expiry_continues_after_iids_made_room(registry: IdempotencyRegistry) -> None:
    tracked = Idempotency(registry, 1, 2)
    for ms in range(10):
        tracked.record(b"p", b"%d" % ms, (ms, 0))
        tracked.check_invariants()
    assert tracked.expire(1008) == 1
    tracked.check_invariants()
    assert tracked.expire(1009) == 1
    tracked.check_invariants()


def test_what_no_stream_holds_is_not_expired(registry: IdempotencyRegistry) -> None:
    tracked = Idempotency(registry, 1, 2)
    twin = tracked.copy()
    assert len(registry) == 2
    del tracked
    gc.collect()
    assert len(registry) == 1
    twin.record(b"p", b"i", (1, 1))
    assert registry.expire(5000) == 1


def test_a_copy_is_another(registry: IdempotencyRegistry) -> None:
    tracked = Idempotency(registry, 1, 2)
    tracked.record(b"p", b"i", (1, 1))
    twin = tracked.copy()
    tracked.record(b"p", b"j", (2, 1))
    twin.check_invariants()
    assert (twin.find(b"p", b"i"), twin.find(b"p", b"j")) == ((1, 1), None)


def test_the_automatic_iid_does_not_depend_on_the_order_of_fields() -> None:
    assert automatic_iid([(b"f", b"v")]).hex() == "6e95729ee727f0814aedffba55730079"
    both = "845d09935adce8c49c7b239550de2bcd"
    assert automatic_iid([(b"f", b"v"), (b"g", b"w")]).hex() == both
    assert automatic_iid([(b"g", b"w"), (b"f", b"v")]).hex() == both
    assert automatic_iid([(b"fv", b"")]) != automatic_iid([(b"f", b"v")])
