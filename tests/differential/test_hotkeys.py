"""HOTKEYS: what is refused, and what is counted, as a real Redis does. Marked `real`.

Bytes are compared exactly; times only by what must hold of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from support.compare.differential import Pair, parse_script
from support.servers import eventually
from support.wire import Reply, Wire

pytestmark = pytest.mark.real

STARTS = """
    START
    START FOO
    START FOO 1
    START COUNT 5 METRICS 1 CPU
    START METRICS
    START METRICS 1
    START METRICS 0 CPU
    START METRICS 3 CPU NET CPU
    START METRICS -1 CPU
    START METRICS x CPU
    START METRICS 01 CPU
    START METRICS 9999999999999999999 CPU
    START METRICS 1 FOO
    START METRICS 2 FOO BAR
    START METRICS 2 CPU FOO
    START METRICS 2 FOO net
    START METRICS 2 CPU
    START METRICS 2 CPU COUNT
    START METRICS 2 CPU COUNT 5
    START METRICS 2 NET net
    START METRICS 1 CPU NET
    START METRICS 1 CPU FOO
    START METRICS 1 CPU FOO COUNT 0
    START METRICS 1 CPU METRICS 1 CPU
    START METRICS 1 CPU COUNT
    START METRICS 1 CPU COUNT x
    START METRICS 1 CPU COUNT 0
    START METRICS 1 CPU COUNT 65
    START METRICS 1 CPU COUNT 0 FOO
    START METRICS 1 CPU COUNT 5 COUNT 64
    START METRICS 1 CPU DURATION
    START METRICS 1 CPU DURATION x
    START METRICS 1 CPU DURATION 0
    START METRICS 1 CPU DURATION -1
    START METRICS 1 CPU DURATION 1000000
    START METRICS 1 CPU DURATION 1000001
    START METRICS 1 CPU SAMPLE
    START METRICS 1 CPU SAMPLE 0
    START METRICS 1 CPU SAMPLE x
    START METRICS 1 CPU SAMPLE 2147483647
    START METRICS 1 CPU SAMPLE 2147483648
    START METRICS 1 CPU SLOTS
    START METRICS 1 CPU SLOTS x
    START METRICS 1 CPU SLOTS 1 5
    START metrics 2 net cpu sample 1 duration 9 count 1
"""


@pytest.fixture(autouse=True)
def no_session(pair: Pair) -> Iterator[None]:
    """The servers are shared: no session is left behind, whatever fails."""
    yield
    for wire in pair.wires:
        wire.pipeline([("RESET",), ("HOTKEYS", "STOP"), ("HOTKEYS", "RESET")])


def test_options_are_taken_and_refused_alike(pair: Pair) -> None:
    lines = (line.strip() for line in STARTS.splitlines() if line.strip())
    pair.run_text("\n".join(f"HOTKEYS {line}\nHOTKEYS STOP\nHOTKEYS RESET" for line in lines))


def test_the_states_of_a_session_are_those_of_redis(pair: Pair) -> None:
    pair.run_text("""
        HOTKEYS
        HOTKEYS FOO
        HOTKEYS GET
        HOTKEYS STOP
        HOTKEYS RESET
        INFO hotkeys
        HOTKEYS START METRICS 1 CPU
        INFO hotkeys
        HOTKEYS START METRICS 1 CPU
        HOTKEYS START FOO
        HOTKEYS RESET
        HOTKEYS STOP
        INFO hotkeys
        HOTKEYS STOP
        HOTKEYS START METRICS 1 NET
        HOTKEYS STOP
        HOTKEYS RESET
        HOTKEYS GET
        INFO hotkeys
        HOTKEYS GET x
        HOTKEYS STOP x
        HOTKEYS RESET x
        HOTKEYS HELP x
        MULTI
        HOTKEYS START METRICS 1 NET
        SET s v
        HOTKEYS STOP
        HOTKEYS RESET
        EXEC
    """)


COUNTED = """
    SET text v
    GET text
    GET none
    PING
    GET
    NOSUCH text
    XLEN text
    XADD s 1-1 f v
    XREAD STREAMS s text 0 0
    XREAD STREAMS s none 0 0
    XREADGROUP GROUP g c STREAMS s >
    XGROUP CREATE s g 0
    XREADGROUP GROUP g c STREAMS s >
    MSET text 1 t 2 other 3
    MSETEX 2 text 1 t 2 EX 100
    EXISTS text text t
    DEL text t
    RENAME none t
    RENAME other t
    OBJECT ENCODING none
    SCAN 0
    WATCH w
    COMMAND GETKEYS GET text
    MULTI
    SET m v
    PING
    GET m
    EXEC
    MULTI
    MSET m v n v
    DISCARD
    SPUBLISH channel x
    FLUSHALL
"""


def session_of(wire: Wire) -> dict[str, Any]:
    """The map of HOTKEYS GET, with the keys of each list in a map, too."""
    (found,) = wire.call("HOTKEYS", "GET").value
    values = [element.plain() for element in found.value]
    session = {name.decode(): value for name, value in zip(values[::2], values[1::2], strict=True)}
    for name in ("by-cpu-time-us", "by-net-bytes"):
        if name in session:
            session[name] = dict(zip(session[name][::2], session[name][1::2], strict=True))
    return session


def test_bytes_are_counted_for_the_keys_that_redis_counts_them_for(pair: Pair) -> None:
    pair.run_text(f"HOTKEYS START METRICS 1 NET COUNT 64\n{COUNTED}")
    ours, theirs = map(session_of, pair.wires)
    assert list(ours) == list(theirs)
    for name in (
        "by-net-bytes",
        "total-net-bytes",
        "net-bytes-all-commands-all-slots",
        "selected-slots",
        "sample-ratio",
    ):
        assert ours[name] == theirs[name], name


def test_a_request_that_waits_for_a_key_is_not_counted(pair: Pair) -> None:
    sessions = []
    for wire, server in zip(pair.wires, pair.servers, strict=True):
        with server.connect() as reader:
            wire.call("HOTKEYS", "START", "METRICS", "1", "NET")
            reader.send("XREAD", "BLOCK", "0", "STREAMS", "s", "$")
            eventually(lambda wire=wire: b"blocked_clients:1" in wire.call("INFO", "clients").value)
            wire.call("XADD", "s", "1-1", "f", "v")
            assert reader.read().value is not None
            sessions.append(session_of(wire)["by-net-bytes"])
    assert sessions[0] == sessions[1]


def test_both_metrics_are_notified_in_the_order_of_redis(pair: Pair) -> None:
    pair.run_text(f"HOTKEYS START METRICS 2 NET CPU COUNT 2\n{COUNTED}\nHOTKEYS STOP")
    ours, theirs = map(session_of, pair.wires)
    assert list(ours) == list(theirs)
    for session in (ours, theirs):
        assert len(session["by-cpu-time-us"]) == len(session["by-net-bytes"]) == 2
        assert 0 < sum(session["by-cpu-time-us"].values()) <= session["all-commands-all-slots-us"]
        assert session["tracking-active"] == 0
        assert session["collection-duration-ms"] < 60_000
    assert ours["by-net-bytes"] == theirs["by-net-bytes"]


def test_samples_are_a_part_of_all(pair: Pair) -> None:
    all_bytes = 400 * len("*2\r\n$3\r\nGET\r\n$1\r\nk\r\n" + ("$-1\r\n" if pair.protocol == 2 else "_\r\n"))
    for wire in pair.wires:
        wire.call("HOTKEYS", "START", "METRICS", "1", "NET", "SAMPLE", "4")
        wire.pipeline(parse_script("GET k\n" * 400))
        session = session_of(wire)
        assert session["net-bytes-all-commands-all-slots"] == all_bytes
        assert 0.1 < session["total-net-bytes"] / all_bytes < 0.5
        assert session["by-net-bytes"] == {b"k": session["total-net-bytes"]}


def test_a_session_ends_when_its_time_is_over(pair: Pair) -> None:
    for wire in pair.wires:
        wire.call("HOTKEYS", "START", "METRICS", "1", "NET", "DURATION", "1")
        eventually(lambda wire=wire: session_of(wire)["tracking-active"] == 0, what="the end of the session")
        assert 900 <= session_of(wire)["collection-duration-ms"] < 60_000
        wire.call("GET", "k")
        assert session_of(wire)["by-net-bytes"] == {}
        assert wire.call("HOTKEYS", "STOP").value is None
        assert wire.call("HOTKEYS", "RESET") == Reply("+", b"OK")
