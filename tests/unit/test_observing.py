"""The slow log, the latency monitor, graphs, and what is hidden of requests: each alone."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamd.core.redaction import SECRETS, redacted
from streamd.observe.latency import SAMPLES, LatencyMonitor
from streamd.observe.latency_commands import age
from streamd.observe.lolwut import river
from streamd.observe.slowlog import SlowLog, cut
from streamd.observe.sparkline import draw

# --- SlowLog ----------------------------------------------------------------------------------------------------------


def filled(count: int, max_len: int = 5) -> SlowLog:
    log = SlowLog(max_len=max_len)
    for number in range(count):
        log.add([b"ECHO", b"%d" % number], number, command="echo", at_s=1000 + number, address=b"a:1", name=b"")
    return log


@pytest.mark.parametrize(("count", "length"), [(0, 0), (1, 1), (5, 5), (6, 5), (100, 5)])
def test_the_log_has_a_greatest_length(count: int, length: int) -> None:
    log = filled(count)
    assert len(log) == length
    assert [entry.id for entry in log.newest(-1)] == list(range(count - 1, count - 1 - length, -1))


@pytest.mark.parametrize(("asked", "given_"), [(-1, 5), (0, 0), (3, 3), (10, 5)])
def test_as_many_as_asked_for(asked: int, given_: int) -> None:
    assert len(filled(5).newest(asked)) == given_


def test_a_log_without_room_keeps_what_it_has() -> None:
    log = filled(3)
    log.max_len = 0
    log.add([b"PING"], 1, command="ping", at_s=1, address=b"", name=b"")
    assert len(log) == 3
    log.max_len = 1
    assert len(log) == 3
    log.add([b"PING"], 1, command="ping", at_s=1, address=b"", name=b"")
    assert [entry.args for entry in log.newest(-1)] == [[b"PING"]]


def test_numbers_go_on() -> None:
    log = filled(3)
    log.clear()
    log.add([b"PING"], 1, command="ping", at_s=1, address=b"", name=b"")
    assert [entry.id for entry in log.newest(-1)] == [3]


@given(st.lists(st.binary(max_size=200), min_size=1, max_size=50))
def test_a_cut_request_is_small(args: list[bytes]) -> None:
    shown = cut(args, 32, 128)
    assert len(shown) <= 32
    assert all(len(arg) <= 128 + len(b"... (72 more bytes)") for arg in shown)
    if len(args) <= 32 and max(map(len, args)) <= 128:
        assert shown == args
    if len(args) > 32:
        assert shown[-1] == b"... (%d more arguments)" % (len(args) - 31)


# --- LatencyMonitor ---------------------------------------------------------------------------------------------------


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def monitor(clock: Clock) -> LatencyMonitor:
    monitor = LatencyMonitor(clock=clock)
    monitor.threshold_ms = 10
    return monitor


def test_only_from_the_threshold_on(monitor: LatencyMonitor) -> None:
    monitor.add("fork", 9)
    assert monitor.events == {}
    monitor.add("fork", 10)
    assert list(monitor.events["fork"].samples) == [(1000, 10)]
    monitor.threshold_ms = 0
    monitor.add("fork", 1000)
    assert monitor.events["fork"].most_ms == 10


def test_one_sample_a_second_the_longest(monitor: LatencyMonitor, clock: Clock) -> None:
    for ms in (20, 40, 30):
        monitor.add("command", ms)
    clock.now += 1
    monitor.add("command", 15)
    event = monitor.events["command"]
    assert list(event.samples) == [(1000, 40), (1001, 15)]
    assert event.most_ms == 40


def test_old_samples_go_but_the_longest_is_remembered(monitor: LatencyMonitor, clock: Clock) -> None:
    for number in range(SAMPLES + 10):
        clock.now += 1
        monitor.add("command", 1000 - number)
    event = monitor.events["command"]
    assert len(event.samples) == SAMPLES
    assert event.samples[0] == (1011, 990)
    assert event.most_ms == 1000


def test_reset_tells_how_many_there_were(monitor: LatencyMonitor) -> None:
    for name in ("a", "b", "c"):
        monitor.add(name, 50)
    assert monitor.reset(["a", "a", "x"]) == 1
    assert monitor.reset() == 2
    assert monitor.reset() == 0
    assert monitor.events == {}


# --- Graphs -----------------------------------------------------------------------------------------------------------


def test_the_graph_that_a_real_redis_draws() -> None:
    values = [10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110, 120, 25, 35, 119]
    labels = [f"{seconds}s" for seconds in (16, 15, 14, 13, 12, 11, 9, 8, 7, 6, 5, 4, 3, 2, 0)]
    labels[:6] = ["16s", "15s", "14s", "13s", "12s", "11s"]
    assert draw(values, labels) == (
        "         _o#  #\n"
        "      _o#|||  |\n"
        "   _o#||||||  |\n"
        "_o#|||||||||o#|\n"
        "               \n"
        "111111987654320\n"
        "654321sssssssss\n"
        "ssssss         \n"
    )


def test_a_single_value_lies_at_the_bottom() -> None:
    assert draw([20], ["0s"]) == " \n \n \n_\n \n0\ns\n"


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=200))
def test_graphs_have_straight_edges(values: list[int]) -> None:
    parts = draw(values, ["1s"] * len(values), columns=80).split("\n\n")
    assert len(parts) == -(-len(values) // 80)
    for part in parts:
        lines = part.rstrip("\n").split("\n")
        assert len(lines) == 4 + 1 + 2
        assert len({len(line) for line in lines}) == 1
    assert sum(len(part.split("\n")[0]) for part in parts) == len(values)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (59, "59s"), (60, "1m"), (3599, "59m"), (3600, "1h"), (86399, "23h"), (86400, "1d"), (10**7, "115d")],
)
def test_ages(seconds: int, text: str) -> None:
    assert age(seconds) == text


@pytest.mark.parametrize(("columns", "rows"), [(64, 16), (1, 1), (2, 3), (1000, 200), (16, 1)])
def test_a_river_fits_into_its_landscape(columns: int, rows: int) -> None:
    for seed in range(20):
        lines = river(columns, rows, random.Random(seed)).splitlines()
        assert len(lines) == rows
        assert all(len(line) <= columns for line in lines)
        assert all(set(line) & set("~-o>") for line in lines)


# --- Secrets ----------------------------------------------------------------------------------------------------------

HIDDEN = b"(redacted)"


def words(text: str) -> list[bytes]:
    return text.encode().split()


@pytest.mark.parametrize(
    ("command", "request_", "shown"),
    [
        ("auth", "AUTH secret", "AUTH *"),
        ("auth", "AUTH me secret", "AUTH * *"),
        ("auth", "AUTH a b c", "AUTH * * *"),
        ("hello", "HELLO", "HELLO"),
        ("hello", "HELLO 3", "HELLO 3"),
        ("hello", "HELLO 3 AUTH me secret", "HELLO 3 AUTH * *"),
        ("hello", "HELLO 9 auth me secret", "HELLO 9 auth * *"),
        ("hello", "HELLO 3 SETNAME x AUTH me secret", "HELLO 3 SETNAME x AUTH * *"),
        ("hello", "HELLO 3 AUTH me secret SETNAME AUTH", "HELLO 3 AUTH * * SETNAME AUTH"),
        ("hello", "HELLO 3 AUTH AUTH AUTH AUTH a b", "HELLO 3 AUTH * * AUTH * *"),
        ("config|set", "CONFIG SET requirepass secret", "CONFIG SET requirepass *"),
        ("config|set", "CONFIG SET hz 10 REQUIREPASS secret", "CONFIG SET hz 10 REQUIREPASS *"),
        ("config|set", "CONFIG SET requirepass secret hz", "CONFIG SET requirepass * hz"),
        ("config|set", "CONFIG SET masteruser me masterauth secret", "CONFIG SET masteruser * masterauth *"),
        ("config|set", "CONFIG SET tls-key-file-pass secret", "CONFIG SET tls-key-file-pass *"),
        ("config|get", "CONFIG GET requirepass", "CONFIG GET requirepass"),
        ("acl|setuser", "ACL SETUSER me on >secret", "ACL SETUSER * * *"),
        ("acl|getuser", "ACL GETUSER me", "ACL GETUSER *"),
        ("acl|whoami", "ACL WHOAMI", "ACL WHOAMI"),
        ("set", "SET requirepass secret", "SET requirepass secret"),
    ],
)
def test_secrets_are_hidden(command: str, request_: str, shown: str) -> None:
    expected: Iterable[bytes] = (HIDDEN if word == b"*" else word for word in words(shown))
    assert redacted(command, words(request_)) == list(expected)


def test_the_request_itself_is_left_alone() -> None:
    request = words("AUTH secret")
    redacted("auth", request)
    assert request == words("AUTH secret")


@pytest.mark.parametrize("command", SECRETS)
@pytest.mark.parametrize("length", range(2, 8))
def test_any_length_can_be_shown(command: str, length: int) -> None:
    assert len(redacted(command, [b"AUTH"] * length)) == length
