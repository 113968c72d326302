"""SLOWLOG: what is logged, how it is cut and shown, as a real Redis has it. Marked `real`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from support.compare.differential import Pair, Request
from support.compare.observing import client_fields, info_fields, same_story
from support.compare.tables import cases
from support.servers import Server, eventually
from support.wire import Reply, Wire

pytestmark = pytest.mark.real

LOG_ALL = ("CONFIG", "SET", "slowlog-log-slower-than", "0", "slowlog-max-len", "1000")
LOG_SOME = ("CONFIG", "SET", "slowlog-log-slower-than", "10000", "slowlog-max-len", "128")
LOG_LITTLE = ("CONFIG", "SET", "slowlog-log-slower-than", "60000000")
"""Nothing, however busy the machine; not -1, with which the entries would be thrown away."""


@pytest.fixture(autouse=True)
def settings_are_put_back(streamd_server: Server, redis_server: Server) -> Iterator[None]:
    yield
    for server in (streamd_server, redis_server):
        with server.connect() as wire:
            wire.call(*LOG_SOME)
            wire.call("SLOWLOG", "RESET")


def logged(wire: Wire) -> list[object]:
    """The entries, oldest first, without the number, the times and the port."""
    entries = []
    for entry in reversed(wire.call("SLOWLOG", "GET", "-1").value):
        number, at_s, took_us, args, address, name = entry.value[:6]  # Redis 8.10 has one more, see below
        assert [field.kind for field in entry.value[:6]] == [":", ":", ":", "*", "$", "$"]
        assert number.value >= 0
        assert at_s.value > 1_700_000_000
        assert took_us.value >= 0
        entries.append((args, address.value.partition(b":")[0], name.value))
    return entries


CASES = """
== what is run is logged, even when it fails
SET k v
GET k
GET s
XADD s 1-1 f v
XADD s 1-1 f v
GET s
CONFIG GET hz
CLIENT ID
CLIENT SETNAME worker
PING
SLOWLOG LEN
CLIENT SETNAME ""

== what is refused is not
GET
FOO
CLIENT FOO
CONFIG
SLOWLOG GET x y z
GET k

== of a transaction its commands, and not its end
MULTI
SET a 1
GET a
EXEC
MULTI
DISCARD
EXEC
MULTI
FOO
EXEC

== passwords are not logged
AUTH secret
AUTH someone secret
HELLO 2 AUTH someone secret SETNAME me
HELLO 2 AUTH default secret SETNAME me
CONFIG SET requirepass ""
config set REQUIREPASS ""
CONFIG SET hz 10 masterauth "" maxmemory 0
CONFIG SET masteruser "" tls-key-file-pass ""
CONFIG SET hz nothing requirepass secret
CONFIG SET nothing x requirepass secret
CONFIG GET requirepass
ACL SETUSER observer on >secret
ACL GETUSER observer
ACL DELUSER observer
ACL WHOAMI
ACL CAT stream

== waiting is no work
XREAD BLOCK 1 STREAMS nothing $

== errors of the command itself
SLOWLOG GET -2
SLOWLOG GET x
SLOWLOG GET 99999999999999999999
SLOWLOG GET 1 2
SLOWLOG GET 0
SLOWLOG
SLOWLOG FOO
SLOWLOG LEN x
SLOWLOG RESET x
SLOWLOG HELP x
"""


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("script", cases(CASES))
def test_the_log_is_that_of_redis(
    script: list[Request], protocol: int, streamd_server: Server, redis_server: Server
) -> None:
    def story(server: Server) -> object:
        with server.connect(protocol) as wire, server.connect() as other:
            wire.call("FLUSHALL")
            wire.call(*LOG_ALL)
            other.call("SLOWLOG", "RESET")
            replies = [
                (reply.kind, reply.value if reply.is_error else None)
                for reply in (wire.call(*request) for request in script)
            ]
            other.call(*LOG_LITTLE)
            return replies, logged(other)

    same_story(story, streamd_server, redis_server)


ALL = [str(number).encode() for number in range(60)]


@pytest.mark.parametrize(
    "request_",
    [
        (b"DEL", *ALL[:30]),
        (b"DEL", *ALL[:31]),
        (b"DEL", *ALL[:32]),
        (b"DEL", *ALL[:60]),
        (b"SET", b"k", b"v" * 127),
        (b"SET", b"k", b"v" * 128),
        (b"SET", b"k", b"v" * 129),
        (b"SET", b"k", b"\xff\x00\r\n" * 1000),
        (b"DEL", b"k" * 1000, *ALL[:40], b"k" * 1000),
        (b"SET", b"", b""),
    ],
    ids=lambda request: f"{len(request)}-of-{max(map(len, request))}",
)
def test_long_requests_are_cut(request_: tuple[bytes, ...], streamd_server: Server, redis_server: Server) -> None:
    def story(server: Server) -> object:
        with server.connect() as wire:
            wire.call(*LOG_ALL)
            wire.call("SLOWLOG", "RESET")
            wire.call(*request_)
            return logged(wire)[1:]

    same_story(story, streamd_server, redis_server)


def test_a_served_request_is_logged_when_it_is_served(streamd_server: Server, redis_server: Server) -> None:
    def story(server: Server) -> object:
        with server.connect() as wire, server.connect() as reader:
            wire.call("DEL", "s")
            reader_id = reader.client_id()
            wire.call(*LOG_ALL)
            wire.call("SLOWLOG", "RESET")
            reader.send("XREAD", "BLOCK", "0", "STREAMS", "s", "$")
            eventually(lambda: b"flags=b" in wire.call("CLIENT", "LIST", "ID", str(reader_id)).value)
            before = sum(args.value[0].value == b"XREAD" for args, *_ in logged(wire))
            wire.call("SLOWLOG", "RESET")
            wire.call("XADD", "s", "1-1", "f", "v")
            reader.read()
            return before, logged(wire)

    same_story(story, streamd_server, redis_server)


@pytest.mark.parametrize("reason", ["TIMEOUT", "ERROR"])
def test_a_request_whose_wait_is_ended_is_logged(reason: str, streamd_server: Server, redis_server: Server) -> None:
    def story(server: Server) -> object:
        with server.connect() as wire, server.connect() as reader:
            wire.call("DEL", "s")
            reader_id = reader.client_id()
            reader.send("XREAD", "BLOCK", "0", "STREAMS", "s", "$")
            eventually(lambda: b"flags=b" in wire.call("CLIENT", "LIST", "ID", str(reader_id)).value)
            wire.call(*LOG_ALL)
            wire.call("SLOWLOG", "RESET")
            wire.call("CLIENT", "UNBLOCK", str(reader_id), reason)
            reader.read()
            wire.call(*LOG_LITTLE)
            return sorted(args.value[0].value for args, *_ in logged(wire))

    same_story(story, streamd_server, redis_server)


def test_the_log_gets_shorter_when_the_next_entry_comes(streamd_server: Server, redis_server: Server) -> None:
    def story(server: Server) -> object:
        with server.connect() as wire:
            wire.call(*LOG_ALL)
            wire.call("SLOWLOG", "RESET")
            for number in range(5):
                wire.call("ECHO", str(number))
            lengths = [wire.call("SLOWLOG", "LEN")]
            for setting, value in (
                ("slowlog-max-len", "3"),
                ("slowlog-max-len", "0"),
                ("slowlog-log-slower-than", "-1"),
            ):
                wire.call("CONFIG", "SET", setting, value)
                lengths += [wire.call("SLOWLOG", "LEN"), wire.call("SLOWLOG", "LEN")]
            return lengths, logged(wire)

    same_story(story, streamd_server, redis_server)


def test_numbers_go_on_after_a_reset(pair: Pair) -> None:
    for wire in pair.wires:
        wire.call(*LOG_ALL)
        wire.call("PING")
        last = wire.call("SLOWLOG", "GET", "1").value[0].value[0].value
        wire.call("SLOWLOG", "RESET")
        first = wire.call("SLOWLOG", "GET", "-1").value[-1].value[0].value
        assert first == last + 2


def test_only_what_took_long_is_logged(streamd_server: Server, redis_server: Server) -> None:
    def story(server: Server) -> object:
        with server.connect() as wire:
            wire.call("CONFIG", "SET", "slowlog-log-slower-than", "1000000")
            wire.call("SLOWLOG", "RESET")
            wire.call("PING")
            wire.call("DEBUG", "SLEEP", "1.2")
            wire.call("PING")
            (entry,) = wire.call("SLOWLOG", "GET").value
            assert 1_200_000 <= entry.value[2].value < 60_000_000
            return entry.value[3]

    same_story(story, streamd_server, redis_server)


@pytest.mark.parametrize("count", ["", "3", "0", "-1", "100"])
def test_the_newest_come_first(count: str, pair: Pair) -> None:
    shown = []
    for wire in pair.wires:
        wire.call(*LOG_ALL)
        wire.call("SLOWLOG", "RESET")
        for number in range(12):
            wire.call("ECHO", str(number))
        wire.call(*LOG_LITTLE)
        reply = wire.call("SLOWLOG", "GET", *([count] if count else []))
        shown.append([entry.value[3] for entry in reply.value])
    assert shown[0] == shown[1]


def test_help_has_the_form_of_redis(pair: Pair) -> None:
    ours, theirs = (wire.call("SLOWLOG", "HELP") for wire in pair.wires)
    assert ours.kind == theirs.kind == "*"
    assert heads(ours) == heads(theirs)


def heads(reply: Reply) -> list[bytes]:
    return [line.value for line in reply.value if not line.value.startswith(b"    ")]


def test_what_is_counted_since_redis_8_8(new_streamd: Callable[..., Server]) -> None:
    """The fields of newer releases: there is no server to compare with yet."""
    with new_streamd(slowlog_log_slower_than="0").connect() as wire:
        wire.call("CONFIG", "RESETSTAT")
        wire.pipeline([("DEBUG", "SLEEP", "0.01"), *[("PING",)] * 9])
        wire.call("SLOWLOG", "RESET")
        stats = info_fields(wire, "stats")
        assert stats["slowlog_commands_count"] == "12"  # RESETSTAT and SLOWLOG RESET, too
        assert (
            10 <= float(stats["slowlog_commands_time_ms_max"]) <= float(stats["slowlog_commands_time_ms_sum"]) < 60_000
        )
        assert stats["commands_per_parse_batch_sum"] >= "11"
        assert int(stats["total_client_processing_events"]) >= int(stats["commands_per_parse_batch_cnt"]) >= 2
        assert float(stats["commands_per_parse_batch_avg"]) > 1
        assert re.search(r",slowlog_count=9,slowlog_time_ms_sum=\d+\.\d\d,slowlog_time_ms_max=\d+\.\d\d$",
                         info_fields(wire, "commandstats")["cmdstat_ping"])  # fmt: skip
        fields = client_fields(wire, wire.client_id())
        assert list(fields)[-4:] == ["tot-cmds", "read-events", "parse-batch-cmd-sum", "parse-batch-cnt"]
        assert int(fields["parse-batch-cmd-sum"]) > int(fields["parse-batch-cnt"]) >= 3
        assert int(fields["read-events"]) >= 3
        wire.call("CONFIG", "RESETSTAT")
        assert info_fields(wire, "stats")["slowlog_commands_count"] == "1"


def test_letters_for_fields_of_hashes_are_taken(new_streamd: Callable[..., Server]) -> None:
    with new_streamd().connect() as wire:
        for letters, shown in (("KESTIV", b"KESTIV"), ("AVK", b"AKV")):
            assert wire.call("CONFIG", "SET", "notify-keyspace-events", letters) == Reply("+", b"OK")
            assert wire.call("CONFIG", "GET", "notify-keyspace-events").plain()[1] == shown
