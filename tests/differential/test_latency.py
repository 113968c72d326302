"""LATENCY: events and histograms, as a real Redis has them. Marked `real`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import pytest
from support.compare.differential import Pair
from support.compare.observing import info_fields, same_story
from support.compare.tables import cases
from support.servers import Server, eventually
from support.wire import Reply, Wire, split_line

pytestmark = [pytest.mark.long, pytest.mark.real]


@pytest.fixture(autouse=True)
def settings_are_put_back(streamd_server: Server, redis_server: Server) -> Iterator[None]:
    yield
    for server in (streamd_server, redis_server):
        with server.connect() as wire:
            wire.call("CONFIG", "SET", "latency-monitor-threshold", "0", "latency-tracking", "yes")
            wire.call("CONFIG", "SET", "latency-tracking-info-percentiles", "50 99 99.9")
            wire.call("LATENCY", "RESET")


CASES = """
== nothing has happened
LATENCY LATEST
LATENCY HISTORY command
LATENCY GRAPH command
LATENCY GRAPH "no\\r\\nsuch"
LATENCY RESET
LATENCY RESET command nothing
LATENCY HISTOGRAM nothing
LATENCY HISTOGRAM nothing xgroup|nothing

== arity and words
LATENCY
LATENCY FOO
LATENCY LATEST x
LATENCY HISTORY
LATENCY HISTORY a b
LATENCY GRAPH
LATENCY DOCTOR x
LATENCY HELP x

== settings
CONFIG SET latency-monitor-threshold -1
CONFIG SET latency-monitor-threshold x
CONFIG SET latency-tracking-info-percentiles "50 101"
CONFIG SET latency-tracking-info-percentiles "x"
CONFIG SET latency-tracking-info-percentiles "0 10.5 100 99.99999"
CONFIG GET latency-tracking-info-percentiles
CONFIG SET latency-tracking-info-percentiles ""
CONFIG GET latency-tracking-info-percentiles
CONFIG GET latency-tracking
"""


@pytest.mark.parametrize("script", cases(CASES))
def test_cases(pair: Pair, script: list[tuple[bytes, ...]]) -> None:
    for wire in pair.wires:
        wire.call("LATENCY", "RESET")
    pair.run(script)


# --- Events -----------------------------------------------------------------------------------------------------------


def slow(wire: Wire, ms: int) -> None:
    assert wire.call("DEBUG", "SLEEP", f"{ms / 1000:.3f}") == Reply("+", b"OK")


def has_only_event(wire: Wire, name: bytes, *requests: Sequence[str | bytes]) -> bool:
    """Whether requests make this event, and no other. On a busy machine any other command may take a millisecond, too."""
    wire.call("LATENCY", "RESET")
    for request in requests:
        assert not wire.call(*request).is_error
    return [event.value[0].value for event in wire.call("LATENCY", "LATEST").value] == [name]


@pytest.mark.parametrize("protocol", [2, 3])
def test_events_are_kept_from_the_threshold_on(protocol: int, streamd_server: Server, redis_server: Server) -> None:
    def story(server: Server) -> object:
        with server.connect(protocol) as wire:
            slow(wire, 30)
            wire.call("CONFIG", "SET", "latency-monitor-threshold", "1000")
            wire.call("LATENCY", "RESET")
            slow(wire, 10)
            shown = [wire.call("LATENCY", "LATEST")]
            slow(wire, 1200)
            (event,) = wire.call("LATENCY", "LATEST").value
            name, at_s, last_ms, most_ms = event.value
            (sample,) = wire.call("LATENCY", "HISTORY", "command").value
            assert sample.value == (at_s, last_ms)
            assert 1200 <= last_ms.value < 60_000
            assert most_ms == last_ms
            shown += [name, wire.call("LATENCY", "HISTORY", "COMMAND"), wire.call("LATENCY", "RESET", "x", "command")]
            return [*shown, wire.call("LATENCY", "LATEST")]

    same_story(story, streamd_server, redis_server)


def test_samples_of_one_second_become_one(streamd_server: Server) -> None:
    """The longest of them; which second it was is up to the clock, so only sums are looked at."""
    with streamd_server.connect() as wire:
        wire.call("CONFIG", "SET", "latency-monitor-threshold", "2")
        for ms in (20, 5, 10):
            slow(wire, ms)
        latest = {event.value[0].value: event for event in wire.call("LATENCY", "LATEST").value}
        history = [sample.value for sample in wire.call("LATENCY", "HISTORY", "command").value]
        # Commands that did not sleep may be among them, when the machine is busy.
        seconds = [at_s.value for at_s, _ in history]
        assert len(set(seconds)) == len(seconds)
        assert max(ms.value for _, ms in history) >= latest[b"command"].value[3].value >= 20


def test_a_transaction_is_counted_by_its_commands_and_itself(pair: Pair) -> None:
    requests = [("MULTI",), ("DEBUG", "SLEEP", "0.02"), ("EXEC",)]
    for wire in pair.wires:
        wire.call("CONFIG", "SET", "latency-monitor-threshold", "1")
        eventually(lambda wire=wire: has_only_event(wire, b"command", *requests))  # type: ignore[misc]


def test_fast_commands_are_an_event_of_their_own(streamd_server: Server) -> None:
    """A large reply makes one slow: 64 MB have to be copied."""
    with streamd_server.connect() as wire:
        wire.call("CONFIG", "SET", "latency-monitor-threshold", "1")
        eventually(lambda: has_only_event(wire, b"fast-command", ("ECHO", b"x" * (64 << 20))))


@pytest.mark.parametrize("protocol", [2, 3])
def test_the_graph_is_drawn_as_redis_draws_it(protocol: int, streamd_server: Server, redis_server: Server) -> None:
    def story(server: Server) -> object:
        with server.connect(protocol) as wire:
            wire.call("CONFIG", "SET", "latency-monitor-threshold", "1000")
            wire.call("LATENCY", "RESET")
            slow(wire, 1200)
            reply = wire.call("LATENCY", "GRAPH", "command")
            return reply.kind, re.sub(rb"\d+", b"N", reply.value)

    same_story(story, streamd_server, redis_server)


@pytest.mark.parametrize("protocol", [2, 3])
def test_doctor_speaks_in_the_same_form(protocol: int, streamd_server: Server, redis_server: Server) -> None:
    """Verbatim text, which names the event and its figures; the words are our own."""
    for server in (streamd_server, redis_server):
        with server.connect(protocol) as wire:
            wire.call("LATENCY", "RESET")
            kinds = [wire.call("LATENCY", "DOCTOR")]
            wire.call("CONFIG", "SET", "latency-monitor-threshold", "1")
            kinds.append(wire.call("LATENCY", "DOCTOR"))
            slow(wire, 20)
            kinds.append(wire.call("LATENCY", "DOCTOR"))
            assert {reply.kind for reply in kinds} == {"$" if protocol == 2 else "="}
            assert b"CONFIG SET latency-monitor-threshold" in kinds[0].value
            # More than one on a busy machine, on which CONFIG SET may take a millisecond, too.
            assert re.search(rb"\d\. command: \d+ [a-z ]+", kinds[2].value)
            assert b"CONFIG SET slowlog-log-slower-than 1000" in kinds[2].value


# --- Histograms -------------------------------------------------------------------------------------------------------


def histograms(wire: Wire, *names: str) -> dict[bytes, tuple[int, list[tuple[int, int]]]]:
    """By command: calls, and (bound in us, calls up to it)."""
    found = {}
    for name, value in pairs(wire.call("LATENCY", "HISTOGRAM", *names)):
        fields = {key.value: field for key, field in pairs(value)}
        assert list(fields) == [b"calls", b"histogram_usec"]
        bounds = [(bound.value, count.value) for bound, count in pairs(fields[b"histogram_usec"])]
        found[name.value] = fields[b"calls"].value, bounds
    return found


def pairs(reply: Reply) -> list[tuple[Reply, Reply]]:
    return list(zip(reply.value[::2], reply.value[1::2], strict=True))


REQUESTS = """
PING
SET k v
SET k v
GET k
GET
FOO
CLIENT ID
CLIENT SETNAME x
XADD s 1-1 f v
XADD s 1-1 f v
MULTI
PING
EXEC
EXEC
XREAD BLOCK 1 STREAMS s $
"""


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("names", ["", "ping", "set get", "client", "CLIENT|ID nothing set set", "exec multi", "echo"])
def test_every_call_is_counted_once(names: str, protocol: int, streamd_server: Server, redis_server: Server) -> None:
    def story(server: Server) -> object:
        with server.connect(protocol) as wire:
            wire.call("FLUSHALL")
            wire.call("CONFIG", "RESETSTAT")
            for line in REQUESTS.strip().splitlines():
                wire.call(*split_line(line))
            found = histograms(wire, *names.split())
            for calls, bounds in found.values():
                assert bounds[-1][1] == calls
                assert [count for _, count in bounds] == sorted({count for _, count in bounds})
                assert {bound for bound, _ in bounds} <= BOUNDS
            return sorted((name, calls) for name, (calls, _) in found.items())

    same_story(story, streamd_server, redis_server)


BOUNDS = {
    1, 2, 4, 8, 16, 33, 66, 132, 264, 528, 1056, 2113, 4227, 8454, 16908, 33816, 67633, 135266, 270532, 541065, 1073741,
}  # fmt: skip


@pytest.mark.parametrize("ms", [25, 300, 560, 1100])
def test_bounds_are_those_of_redis(ms: int, streamd_server: Server, redis_server: Server) -> None:
    for server in (streamd_server, redis_server):
        with server.connect() as wire:
            wire.call("CONFIG", "RESETSTAT")
            slow(wire, ms)
            took_us = int(info_fields(wire, "commandstats")["cmdstat_debug"].split("usec=")[1].split(",")[0])
            assert took_us >= ms * 1000
            bound = min((bound for bound in BOUNDS if bound >= took_us), default=max(BOUNDS))
            assert histograms(wire, "debug") == {b"debug": (1, [(bound, 1)])}


@pytest.mark.parametrize("percentiles", ["50 99 99.9", "0 10.5 100 99.99999", ""])
def test_latencystats_have_the_form_of_redis(percentiles: str, streamd_server: Server, redis_server: Server) -> None:
    def story(server: Server) -> object:
        with server.connect() as wire:
            wire.call("CONFIG", "SET", "latency-tracking-info-percentiles", percentiles)
            wire.call("CONFIG", "RESETSTAT")
            wire.call("PING")
            wire.call("CLIENT", "ID")
            wire.call("DEBUG", "SLEEP", "1.1")
            found = info_fields(wire, "latencystats")
            most = found["latency_percentiles_usec_debug"]
            return most, sorted((name, re.sub(r"=\d+\.\d{3}", "=N", value)) for name, value in found.items())

    same_story(story, streamd_server, redis_server)


def test_tracking_can_be_off(streamd_server: Server, redis_server: Server) -> None:
    def story(server: Server) -> object:
        with server.connect() as wire:
            wire.call("CONFIG", "RESETSTAT")
            wire.call("PING")
            wire.call("CONFIG", "SET", "latency-tracking", "no")
            wire.call("PING")
            off = info_fields(wire, "latencystats"), histograms(wire, "ping")[b"ping"][0]
            wire.call("CONFIG", "SET", "latency-tracking", "yes")
            wire.call("PING")
            return off, histograms(wire, "ping")[b"ping"][0], info_fields(wire, "commandstats")["cmdstat_ping"][:7]

    same_story(story, streamd_server, redis_server)


def test_help_has_the_form_of_redis(pair: Pair) -> None:
    heads = []
    for wire in pair.wires:
        lines = [line.value for line in wire.call("LATENCY", "HELP").value]
        heads.append(sorted(line for line in lines if not line.startswith(b"    ")))
    assert heads[0] == heads[1]
