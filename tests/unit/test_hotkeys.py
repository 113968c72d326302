"""The keys with most load: what is remembered of many, and what a command is charged with."""

from __future__ import annotations

import pytest

from streamd.observe.hotkeys import Session, SessionOptions, Weights, request_size


def test_heavy_keys_are_remembered_among_many_light_ones() -> None:
    weights = Weights(most_keys=64)
    for n in range(10_000):
        weights.add(b"light:%d" % n, 1)
        weights.add(b"heavy:%d" % (n % 3), 10)
    assert [key for key, _ in weights.heaviest(3)] == [b"heavy:0", b"heavy:1", b"heavy:2"]
    assert sum(weight for _, weight in weights.heaviest(3)) == 100_000
    assert len(weights) <= 64
    assert weights.total == 110_000


def test_long_names_are_forgotten_sooner() -> None:
    weights = Weights(most_bytes=1000)
    weights.add(b"heavy", 100)
    for n in range(100):
        weights.add(b"%0400d" % n, 1)
        assert len(weights) <= 3
    assert weights.heaviest(1) == [(b"heavy", 100)]
    weights.add(b"x" * 2000, 1)
    assert len(weights) <= 3


def test_a_command_is_charged_to_its_keys_in_equal_parts() -> None:
    session = Session(SessionOptions(has_cpu=True, has_net=True), started_ms=0)
    session.note([b"a", b"a", b"b"], took_us=10, net_bytes=100)
    assert session.time is not None
    assert session.bytes is not None
    assert session.time.heaviest(10) == [(b"a", 6), (b"b", 3)]
    assert session.bytes.heaviest(10) == [(b"a", 66), (b"b", 33)]
    assert (session.time_us, session.net_bytes) == (10, 100)
    assert (session.time.total, session.bytes.total) == (9, 99)


@pytest.mark.parametrize("request_", [[b"GET", b"k"], [b"SET", b"", b"x" * 12_345], [b"%d" % n for n in range(1234)]])
def test_the_size_of_a_request_is_that_of_its_array(request_: list[bytes]) -> None:
    encoded = b"*%d\r\n" % len(request_) + b"".join(b"$%d\r\n%s\r\n" % (len(arg), arg) for arg in request_)
    assert request_size(request_) == len(encoded)
