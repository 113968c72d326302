"""Limits of memory: which commands are refused, which keys and clients go, what is told of it. Marked `real`.

Where the two servers must answer alike, they are compared. How much memory they use is their own affair, so which keys go
is asked of streamd alone, with limits that are set from what it says it uses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from support.commands.observed import OBSERVING, ServerObserver
from support.compare.differential import Pair
from support.compare.events import Listener
from support.compare.observing import same_story
from support.servers import Server, eventually
from support.wire import ConnectionClosed, Reply, Wire

pytestmark = [pytest.mark.long, pytest.mark.real]

MB = 1 << 20
KB = 1 << 10
StartServer = Callable[..., Server]
OOM = b"OOM command not allowed when used memory > 'maxmemory'."


@pytest.fixture(autouse=True)
def no_limit_is_left(streamd_server: Server, redis_server: Server) -> Iterator[None]:
    yield
    for server in (streamd_server, redis_server):
        with server.connect() as wire:
            assert wire.line("CONFIG SET maxmemory 0 maxmemory-policy noeviction lfu-log-factor 10") == Reply(
                "+", b"OK"
            )


def info(wire: Wire, field: str) -> str:
    text: bytes = wire.call("INFO", "everything").value
    return text.decode().split(f"\r\n{field}:")[1].split("\r")[0]


def used(wire: Wire) -> int:
    return int(info(wire, "used_memory"))


def limit(wire: Wire, more: int, policy: str) -> None:
    """Let no more memory be used than `more` bytes beyond what is used now."""
    assert wire.line(f"CONFIG SET maxmemory-policy {policy} maxmemory {used(wire) + more}") == Reply("+", b"OK")


# --- As Redis -----------------------------------------------------------------------------------------------------------


def test_what_needs_memory_is_refused_when_there_is_none(pair: Pair) -> None:
    pair.run_text(
        """
        SET a 1
        XADD s 1-1 f v
        XGROUP CREATE s g 0
        CONFIG SET maxmemory 1
        SET a 2
        SET b 2
        GET a
        SETNX b 1
        MSET a 2
        GETSET a 1
        INCR a
        APPEND a 1
        SETRANGE a 0 x
        COPY a b
        XADD s * f v
        XADD s NOMKSTREAM * f v
        XGROUP CREATE s h 0
        XGROUP CREATE t h 0 MKSTREAM
        XGROUP CREATECONSUMER s g c
        XREADGROUP GROUP g c STREAMS s >
        XCLAIM s g c 0 1-1
        XSETID s 5-5
        XACK s g 1-1
        XDEL s 1-1
        XTRIM s MAXLEN 0
        XLEN s
        EXPIRE a 100
        PERSIST a
        GETEX a EX 10
        RENAME a b
        RENAME b a
        MOVE a 1
        GETDEL a
        DEL a
        PUBLISH c m
        TOUCH a
        PING
        CONFIG SET maxmemory 0
        SET a 2
        """
    )


def test_transactions_are_refused_when_something_in_them_needs_memory(pair: Pair) -> None:
    pair.run_text(
        """
        CONFIG SET maxmemory 1
        MULTI
        GET a
        SET a 1
        ECHO a
        EXEC
        MULTI
        DISCARD
        WATCH a
        UNWATCH
        MULTI
        GET a
        DEL a
        EXEC
        MULTI
        CONFIG SET maxmemory 0
        EXEC
        MULTI
        SET a 1
        GET a
        EXEC
        """
    )


def test_a_transaction_that_was_queued_before_is_refused_as_a_whole(
    streamd_server: Server, redis_server: Server
) -> None:
    told = []
    for server in (streamd_server, redis_server):
        with server.connect() as wire, server.connect() as other:
            wire.call("FLUSHALL")
            replies = wire.pipeline([("MULTI",), ("SET", "a", "1")])
            other.line("CONFIG SET maxmemory 1")
            told.append([*replies, wire.call("EXEC"), wire.call("GET", "a")])
    assert told[0] == told[1]
    assert told[0][2].value.startswith(b"EXECABORT")


POLICIES = (
    "volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl", "volatile-lrm", "allkeys-lru", "allkeys-lfu",
    "allkeys-random", "allkeys-lrm", "noeviction",
)  # fmt: skip


@pytest.mark.parametrize("policy", POLICIES)
def test_what_object_says_depends_on_the_policy(pair: Pair, policy: str) -> None:
    pair.run_text(
        f"""
        CONFIG SET maxmemory-policy {policy} lfu-log-factor 0
        SET a 1
        XADD s 1-1 f v
        OBJECT FREQ a
        OBJECT IDLETIME a
        GET a
        GET a
        SET a 2
        INCR a
        EXPIRE a 100
        TOUCH a
        TTL a
        EXISTS a
        TYPE a
        STRLEN a
        OBJECT FREQ a
        OBJECT ENCODING a
        XADD s 1-2 f v
        XLEN s
        XRANGE s - +
        OBJECT FREQ s
        RENAME a b
        OBJECT FREQ b
        COPY b c
        OBJECT FREQ b
        OBJECT FREQ c
        MOVE b 1
        SELECT 1
        OBJECT FREQ b
        SELECT 0
        OBJECT FREQ none
        OBJECT IDLETIME none
        CLIENT NO-TOUCH on
        GET c
        STRLEN c
        OBJECT FREQ c
        TOUCH c
        OBJECT FREQ c
        CLIENT NO-TOUCH off
        CONFIG SET maxmemory-policy noeviction
        """
    )


CHANGES = """
    XREADGROUP GROUP g a COUNT 1 STREAMS {} >
    XREADGROUP GROUP g a STREAMS {} 5
    XREADGROUP GROUP e a STREAMS {} >
    XREADGROUP GROUP e new BLOCK 1 NOACK STREAMS {} >
    XREADGROUP GROUP nogroup a STREAMS {} >
    XREADGROUP GROUP g a CLAIM 0 STREAMS {} >
    XREAD STREAMS {} 0
    XACK {} g 1-0
    XACK {} g 9-0
    XCLAIM {} g a 0 9-0
    XCLAIM {} g new 0 1-0
    XAUTOCLAIM {} e a 100000 0
    XGROUP CREATE {} n 0
    XGROUP CREATE {} g 0
    XGROUP SETID {} g 0
    XGROUP CREATECONSUMER {} g z
    XGROUP CREATECONSUMER {} g a
    XGROUP DELCONSUMER {} g a
    XGROUP DELCONSUMER {} g nobody
    XGROUP DESTROY {} g
    XGROUP DESTROY {} nogroup
    XSETID {} 9-0
    XSETID {} 1-0
    XCFGSET {} IDMP-DURATION 50
    XCFGSET {} IDMP-DURATION 100
    XIDMPRECORD {} p i 1-0
    XACKDEL {} g ACKED IDS 1 1-0
    XACKDEL {} g IDS 1 9-0
    XDELEX {} ACKED IDS 1 1-0
    XPENDING {} g
    XADD {} 9-9 f v
    XDEL {} 2-0
    XTRIM {} MAXLEN 5
    TOUCH {}
    EXPIRE {} 100
    XLEN {}
"""


@pytest.mark.parametrize("mode", ["off", "on"])
def test_what_is_changed_is_young_with_lrm(mode: str, pair: Pair) -> None:
    lines = [line.strip() for line in CHANGES.splitlines() if line.strip()]
    keys = [f"s{at}" for at in range(len(lines))]
    made = """
        XADD {0} 1-0 f v
        XADD {0} 2-0 f v
        XGROUP CREATE {0} g 0
        XGROUP CREATE {0} e $
        XGROUP CREATECONSUMER {0} e a
        XREADGROUP GROUP g a COUNT 1 STREAMS {0} >
    """
    script = [f"CONFIG SET maxmemory-policy allkeys-lrm\nCLIENT NO-TOUCH {mode}"]
    script += [made.format(key) for key in keys]
    pair.run_text("\n".join(script))
    for wire in pair.wires:
        wire.send("DEBUG", "SLEEP", "2.2")
    assert [wire.read().value for wire in pair.wires] == [b"OK", b"OK"]
    is_old = [
        [
            (line, wire.pipeline([line.format(key).split(), ("OBJECT", "IDLETIME", key)])[1].value > 1)
            for line, key in zip(lines, keys, strict=True)
        ]
        for wire in pair.wires
    ]
    assert is_old[0] == is_old[1]
    assert {old for _, old in is_old[0]} == {True, False}


def test_settings_are_refused_as_by_redis(pair: Pair) -> None:
    pair.run_text(
        """
        CONFIG SET maxmemory-policy lru
        CONFIG SET maxmemory -1
        CONFIG SET maxmemory 1gb
        CONFIG GET maxmemory
        CONFIG SET maxmemory 0
        CONFIG SET maxmemory-samples 0
        CONFIG SET maxmemory-samples 65
        CONFIG SET maxmemory-eviction-tenacity 101
        CONFIG SET maxmemory-clients 200%
        CONFIG SET maxmemory-clients 10%
        CONFIG GET maxmemory-clients
        CONFIG SET maxmemory-clients 0
        CONFIG SET lfu-decay-time -1
        """
    )


def test_memory_usage_reads_its_arguments_as_redis_does(pair: Pair) -> None:
    pair.run_text(
        """
        MEMORY USAGE none
        MEMORY USAGE none SAMPLES 5
        MEMORY USAGE none SAMPLES -1
        MEMORY USAGE none SAMPLES x
        MEMORY USAGE none SAMPLES
        MEMORY USAGE none FOO 1
        MEMORY USAGE none SAMPLES 1 SAMPLES 2
        MEMORY FOO
        MEMORY
        MEMORY PURGE
        """
    )


def test_memory_stats_has_the_fields_of_redis(pair: Pair) -> None:
    names = []
    for wire in pair.wires:
        wire.call("SET", "a", "1")
        fields = wire.call("MEMORY", "STATS").value
        # Of the interpreter of Lua, and of parts that there are only in Redis, nothing has to be said.
        names.append([field.value for field in fields[::2]])
        kinds = {field.value: value.kind for field, value in zip(fields[::2], fields[1::2], strict=True)}
        assert kinds[b"db.0"] == ("%" if pair.protocol == 3 else "*")
        assert kinds[b"dataset.percentage"] == ("," if pair.protocol == 3 else "$")
    assert names[0] == names[1]


# --- Keys that go -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def wire(new_streamd: Callable[..., Server]) -> Iterator[Wire]:
    """A connection to a streamd of one's own, which does not look for expired keys."""
    server = new_streamd(**OBSERVING | {"notify-keyspace-events": "KEAe", "databases": "4"})
    with server.connect() as wire:
        wire.server = server  # type: ignore[attr-defined]
        yield wire


def fill(wire: Wire, names: list[str], *more: str, size: int = 1000) -> None:
    # A few at a time: requests that have been received take memory too.
    replies = []
    for at in range(0, len(names), 20):
        replies += wire.pipeline([("SET", name, f"{name}:{'x' * size}", *more) for name in names[at : at + 20]])
    assert all(reply == Reply("+", b"OK") for reply in replies), next(r for r in replies if r != Reply("+", b"OK"))


def there(wire: Wire, names: list[str]) -> int:
    wire.call("CLIENT", "NO-TOUCH", "ON")
    reply = wire.call("EXISTS", *names)
    wire.call("CLIENT", "NO-TOUCH", "OFF")
    return int(reply.value)


def names(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]


@pytest.mark.parametrize("policy", ["allkeys-lru", "allkeys-lfu", "allkeys-random", "allkeys-lrm"])
def test_the_limit_is_kept_and_what_goes_is_reported(wire: Wire, policy: str) -> None:
    server = wire.server  # type: ignore[attr-defined]
    listener = Listener(server)
    observer = ServerObserver(server)
    fill(wire, names("k", 200))
    limit(wire, 300 * KB, policy)
    observer.read_log()
    fill(wire, names("more", 1000))
    assert used(wire) <= int(info(wire, "maxmemory"))
    assert wire.line("CONFIG SET maxmemory 0") == Reply("+", b"OK")
    gone = int(info(wire, "evicted_keys"))
    assert gone > 500
    assert int(wire.call("DBSIZE").value) == 1200 - gone
    log = observer.read_log()
    assert sum(effect[0] == b"DEL" for effect in log) == gone
    assert not any(effect[0] == b"MULTI" for effect in log), "each is a unit of its own"
    wire.call("PUBLISH", "the-end-of-the-script", "1")
    events = [event for event in listener.read_to_end(b"1") if event.event == b"evicted"]
    assert [event.key for event in events] == [effect[1] for effect in log if effect[0] == b"DEL"]
    observer.close()
    listener.close()


def test_what_is_used_stays_with_lru(wire: Wire) -> None:
    old, hot = names("old", 300), names("hot", 300)
    fill(wire, old + hot)
    wire.line("DEBUG SLEEP 0.02")
    wire.pipeline([("GET", name) for name in hot])
    limit(wire, 0, "allkeys-lru")
    wire.call("CONFIG", "SET", "maxmemory-samples", "10")
    fill(wire, names("new", 150))
    assert there(wire, hot) > 1.5 * there(wire, old)
    assert there(wire, hot) > 270


def test_what_is_used_often_stays_with_lfu(wire: Wire) -> None:
    limit(wire, 2 * MB, "allkeys-lfu")
    rare, hot = names("rare", 300), names("hot", 300)
    fill(wire, rare + hot)
    for _ in range(30):
        wire.pipeline([("GET", name) for name in hot])
    limit(wire, 0, "allkeys-lfu")
    fill(wire, names("new", 150))
    assert there(wire, hot) > 280


def test_what_is_changed_stays_with_lrm_though_others_are_read(wire: Wire) -> None:
    limit(wire, 2 * MB, "allkeys-lrm")
    read, changed = names("read", 300), names("changed", 300)
    fill(wire, read + changed)
    wire.line("DEBUG SLEEP 0.02")
    wire.pipeline([("APPEND", name, "x") for name in changed])
    wire.line("DEBUG SLEEP 0.02")
    wire.pipeline([("GET", name) for name in read])
    limit(wire, 0, "allkeys-lrm")
    fill(wire, names("new", 150))
    assert there(wire, changed) > 270


def test_what_expires_first_goes_first_with_ttl(wire: Wire) -> None:
    keys = names("k", 300)
    for number, name in enumerate(keys):
        fill(wire, [name], "EX", str(10_000 + 37 * number % 300 * 10))
    by_time = sorted(keys, key=lambda name: 37 * int(name[1:]) % 300)
    stays = names("stays", 50)
    fill(wire, stays)
    limit(wire, 0, "volatile-ttl")
    fill(wire, names("new", 100))
    left = there(wire, keys)
    assert 150 < left < 250
    assert there(wire, by_time[:-left]) == 0
    assert there(wire, stays) == 50


@pytest.mark.parametrize("policy", ["volatile-lru", "volatile-lfu", "volatile-random", "volatile-lrm", "volatile-ttl"])
def test_only_keys_with_an_expiry_go_with_volatile_policies(wire: Wire, policy: str) -> None:
    stays, goes = names("stays", 100), names("goes", 100)
    fill(wire, stays)
    fill(wire, goes, "EX", "1000")
    limit(wire, 0, policy)
    # One after the other: what has been received of a pipeline takes memory that is free again at its end.
    replies = [wire.call("SET", f"n{number}", "x" * 1000) for number in range(300)]
    assert Reply("+", b"OK") in replies
    assert replies[-1] == Reply("-", OOM)
    assert there(wire, stays) == 100
    assert there(wire, goes) == 0


def test_keys_of_all_databases_go(wire: Wire) -> None:
    for index in range(4):
        wire.call("SELECT", index)
        fill(wire, names("k", 200))
    limit(wire, 0, "allkeys-random")
    fill(wire, names("more", 400))
    sizes = []
    for index in range(4):
        wire.call("SELECT", index)
        sizes.append(there(wire, names("k", 200)))
    assert all(size < 200 for size in sizes), sizes


def test_a_request_waits_for_all_the_room_that_is_needed_when_the_tenacity_is_greatest(wire: Wire) -> None:
    wire.pipeline([("SET", f"k{n}", b"x" * 1000) for n in range(2000)])
    wire.call("CONFIG", "SET", "maxmemory-eviction-tenacity", "100", "maxmemory-policy", "allkeys-random")
    bound = used(wire) - MB
    replies = wire.pipeline([("CONFIG", "SET", "maxmemory", bound), ("PING",), ("INFO", "memory")])
    wire.call("CONFIG", "SET", "maxmemory-eviction-tenacity", "10")
    assert int(replies[2].value.split(b"used_memory:")[1].split(b"\r")[0]) <= bound


@pytest.mark.parametrize("tenacity", [0, 10, 100])
def test_a_large_stream_takes_no_other_keys_with_it(wire: Wire, tenacity: int) -> None:
    wire.pipeline([("XADD", "large", "*", "f", f"{number}:{'v' * 1000}") for number in range(20_000)])
    wire.call("EXPIRE", "large", "1000")
    keys = names("k", 100)
    fill(wire, keys, "EX", "2000")
    wire.call("CONFIG", "SET", "maxmemory-eviction-tenacity", tenacity)
    limit(wire, -MB, "volatile-ttl")
    fill(wire, ["more"])
    assert wire.call("EXISTS", "large") == Reply(":", 0)
    eventually(lambda: used(wire) <= int(info(wire, "maxmemory")), what="the limit")
    assert there(wire, keys) == 100


def test_what_there_was_no_time_for_is_evicted_between_turns(wire: Wire) -> None:
    fill(wire, names("k", 20_000), size=200)
    wire.call("CONFIG", "SET", "maxmemory-eviction-tenacity", "0")
    wire.line(f"CONFIG SET maxmemory-policy allkeys-lru maxmemory {used(wire) // 4}")
    assert wire.call("SET", "while", "it goes on") == Reply("+", b"OK")
    eventually(lambda: used(wire) <= int(info(wire, "maxmemory")), what="the limit")
    assert int(info(wire, "total_eviction_exceeded_time")) >= 0
    assert int(info(wire, "current_eviction_exceeded_time")) == 0


def test_a_lowered_limit_holds_without_any_command(wire: Wire) -> None:
    fill(wire, names("k", 2000))
    wire.line(f"CONFIG SET maxmemory-policy allkeys-random maxmemory {used(wire) // 2}")
    eventually(lambda: used(wire) <= int(info(wire, "maxmemory")), what="the limit")


def test_a_watched_key_that_goes_stops_the_transaction(wire: Wire) -> None:
    fill(wire, ["only"], size=100_000)
    with wire.server.connect() as other:  # type: ignore[attr-defined]
        other.call("WATCH", "only")
        wire.line(f"CONFIG SET maxmemory-policy allkeys-lru maxmemory {used(wire) - 50_000}")
        eventually(lambda: wire.call("EXISTS", "only").value == 0, what="the end of the key")
        other.call("MULTI")
        assert other.call("EXEC").value is None


# --- Used memory ------------------------------------------------------------------------------------------------------------


def test_used_memory_follows_the_data(wire: Wire) -> None:
    before, resident = used(wire), int(info(wire, "used_memory_rss"))
    fill(wire, names("k", 20_000), size=300)
    wire.pipeline([("XADD", "s", "*", "f", f"{number}:{'v' * 100}") for number in range(50_000)])
    grown = used(wire) - before
    resident = int(info(wire, "used_memory_rss")) - resident
    assert 0.8 * resident < grown < 1.25 * resident, (grown, resident)
    assert (
        int(wire.call("MEMORY", "USAGE", "s").value) + 20_000 * int(wire.call("MEMORY", "USAGE", "k1").value)
        < 1.1 * grown
    )
    wire.call("FLUSHALL")
    eventually(lambda: used(wire) < before + 200 * KB, what="the end of the data")


# --- Clients that go --------------------------------------------------------------------------------------------------------


def is_closed(wire: Wire) -> bool:
    try:
        wire.drain()
        wire.call("PING")
    except (ConnectionClosed, ConnectionError):
        return True
    return False


def test_the_client_that_takes_most_goes_and_no_evict_protects(wire: Wire) -> None:
    server = wire.server  # type: ignore[attr-defined]
    with server.connect() as greedy, server.connect() as small, server.connect() as spared:
        assert spared.call("CLIENT", "NO-EVICT", "ON") == Reply("+", b"OK")
        assert wire.call("CONFIG", "SET", "maxmemory-clients", str(4 * MB)) == Reply("+", b"OK")
        # Requests that are not complete are kept.
        spared.send_bytes(b"*2\r\n$3\r\nGET\r\n$3000000\r\n" + b"x" * 2_900_000)
        greedy.send_bytes(b"*2\r\n$3\r\nGET\r\n$3000000\r\n" + b"x" * 2_900_000)
        eventually(lambda: int(info(wire, "evicted_clients")) == 1, what="the end of a client")
        assert is_closed(greedy)
        assert not is_closed(small)
        spared.send_bytes(b"x" * 100_000 + b"\r\n")
        assert spared.read().kind == "$-1"


def test_many_small_requests_in_a_transaction_are_memory_of_their_client(
    new_streamd: StartServer, new_redis: StartServer
) -> None:
    """However few bytes they are."""

    def story(server: Server) -> object:
        with server.connect() as wire, server.connect() as other:
            other.call("MULTI")
            wire.call("CONFIG", "SET", "maxmemory-clients", "1mb")
            with suppress(ConnectionClosed, OSError):
                other.pipeline([("PING",)] * 60_000)
            eventually(lambda: info(wire, "connected_clients") == "1", what="the end of the client")
            return info(wire, "evicted_clients")

    same_story(story, new_streamd(), new_redis())


def test_clients_may_have_a_part_of_maxmemory(wire: Wire) -> None:
    server = wire.server  # type: ignore[attr-defined]
    with server.connect() as greedy:
        assert wire.line("CONFIG SET maxmemory 20mb maxmemory-clients 10%") == Reply("+", b"OK")
        greedy.send_bytes(b"*2\r\n$3\r\nGET\r\n$3000000\r\n" + b"x" * 2_900_000)
        eventually(lambda: int(info(wire, "evicted_clients")) == 1, what="the end of a client")
        assert is_closed(greedy)


# --- Names that clients hold ------------------------------------------------------------------------------------------------

HOLDING = {
    "channels": ("SUBSCRIBE", "UNSUBSCRIBE"),
    "patterns": ("PSUBSCRIBE", "PUNSUBSCRIBE"),
    "shard channels": ("SSUBSCRIBE", "SUNSUBSCRIBE"),
    "watched keys": ("WATCH", "UNWATCH"),
    "prefixes": ("CLIENT TRACKING ON BCAST PREFIX", "CLIENT TRACKING OFF"),
}
"""What takes a name, and what gives all of them up."""


def hold(wire: Wire, kind: str, count: int, size: int) -> list[Reply]:
    """Have a connection take names, each with a request of its own; the replies."""
    # One at a time: requests that have been received take memory too.
    return [wire.call(*HOLDING[kind][0].split(), f"{number:06}".ljust(size, "x")) for number in range(count)]


def memory_of(observer: Wire, client_id: int) -> int:
    """The bytes that CLIENT LIST shows for a client, without what Redis keeps for its replies."""
    fields = dict(
        word.split("=")
        for word in observer.call("CLIENT", "LIST", "ID", client_id).value.decode().split()
        if "=" in word
    )
    return int(fields["tot-mem"]) - int(fields["rbs"])


def wait_until_below(observer: Wire, holder: Wire, holder_id: int, size: int) -> None:
    """Read what a client is told until it takes less memory."""

    def is_below() -> bool:
        holder.drain()
        return memory_of(observer, holder_id) < size

    eventually(is_below, what="the end of the names")


@pytest.mark.parametrize("kind", HOLDING)
def test_names_count_as_memory_of_their_client_and_of_the_server(
    streamd_server: Server, redis_server: Server, kind: str
) -> None:
    count = 3000
    grown = []
    for server in (streamd_server, redis_server):
        with server.connect() as observer, server.connect(3) as holder:
            holder_id = holder.client_id()
            memory, total = memory_of(observer, holder_id), used(observer)
            hold(holder, kind, count, 10)
            held = memory_of(observer, holder_id) - memory
            grown.append((held / count, (used(observer) - total) / count))
            holder.send(*HOLDING[kind][1].split())
            wait_until_below(observer, holder, holder_id, memory + held * 3 // 5)  # Redis keeps its tables
    (ours, our_total), (its, its_total) = grown
    assert 0.5 * its < ours < 2.5 * its, grown
    assert 0.5 * its_total < our_total < 2 * its_total, grown


@pytest.mark.parametrize("kind", HOLDING)
def test_a_client_with_too_many_names_goes(wire: Wire, kind: str) -> None:
    server = wire.server  # type: ignore[attr-defined]
    with server.connect() as holder, server.connect() as small:
        hold(holder, kind, 500, 4000)
        assert wire.line("CONFIG SET maxmemory-clients 1mb") == Reply("+", b"OK")
        eventually(lambda: int(info(wire, "evicted_clients")) == 1, what="the end of a client")
        assert is_closed(holder)
        assert not is_closed(small)


@pytest.mark.parametrize("kind", ["channels", "patterns", "shard channels"])
def test_no_more_names_are_taken_than_there_is_memory_for(
    streamd_server: Server, redis_server: Server, kind: str
) -> None:
    for server in (streamd_server, redis_server):
        with server.connect() as observer:
            limit(observer, 3 * MB, "noeviction")
            with server.connect() as holder:
                replies = hold(holder, kind, 1000, 4000)
                assert 100 < sum(reply.kind == "*" for reply in replies) < 1000, server.name
                assert {reply.value for reply in replies if reply.is_error} == {OOM}, server.name
            # Gone, it leaves room.
            with server.connect() as holder:
                eventually(lambda: hold(holder, kind, 1, 4000)[0].kind == "*", what="room")


# --- What is counted ----------------------------------------------------------------------------------------------------


BULK = 100 * KB


@pytest.fixture(params=["streamd", "redis"])
def server(request: pytest.FixtureRequest, new_streamd: StartServer, new_redis: StartServer) -> Server:
    """Each of the two, alone: what they are asked here has no figure that must be equal, but the same answer."""
    return new_streamd() if request.param == "streamd" else new_redis()


@pytest.mark.parametrize(
    "request_", [("SET", "k"), ("XADD", "s", "*", "f"), ("SUBSCRIBE",), ("APPEND", "k"), ("MSET", "k")]
)
def test_a_request_that_does_not_fit_is_refused(server: Server, request_: tuple[str, ...]) -> None:
    with server.connect() as wire:
        limit(wire, 2 * MB, "noeviction")
        assert wire.call(*request_, b"x" * 2 * MB).value == OOM
        assert not wire.call(*request_, b"x" * MB).is_error
        wire.call("RESET")
        assert wire.call("GET", b"x" * 2 * MB).value is None
        assert wire.call("DEL", "k", "s").value in (0, 1)
        assert wire.call("SET", "k", b"x" * MB) == Reply("+", b"OK")


def test_requests_that_wait_for_exec_take_memory(server: Server) -> None:
    with server.connect() as wire, server.connect() as other:
        limit(wire, 2 * MB, "noeviction")
        replies = other.pipeline([("MULTI",), *[("SET", "k", b"x" * 900 * KB)] * 3, ("EXEC",)])
        assert [each.value[:3] for each in replies] == [b"OK", b"QUE", b"QUE", b"OOM", b"EXE"]
        other.pipeline([("MULTI",), ("SET", "k", b"x" * 1500 * KB)])
        assert wire.call("SET", "k", b"x" * 800 * KB).value == OOM
        other.call("DISCARD")
        assert wire.call("SET", "k", b"x" * 800 * KB) == Reply("+", b"OK")


@pytest.mark.parametrize("part", [b"$900000\r\n" + b"y" * BULK, b"$90000\r\n" + b"y" * 90000 + b"\r\n$90000\r\n"])
def test_requests_that_have_arrived_in_part_take_memory(server: Server, part: bytes) -> None:
    with server.connect() as wire:
        for i in range(50):
            wire.call("SET", f"k{i}", b"x" * 10 * KB)
        limit(wire, MB, "allkeys-lru")
        clients = [server.connect() for _ in range(30)]
        for client in clients:
            client.socket.sendall(b"*9\r\n$3\r\nDEL\r\n" + part)
        eventually(lambda: wire.line("DBSIZE").value < 25, what="eviction")
        for client in clients:
            client.close()
        eventually(lambda: wire.line("SET after 1") == Reply("+", b"OK"), what="room for a key")
        left = wire.line("DBSIZE").value
        assert all(wire.line(f"SET n{i} {'x' * 1000}") == Reply("+", b"OK") for i in range(100))
        assert wire.line("DBSIZE").value == left + 100


def test_clients_that_do_not_read_go_before_keys_do(server: Server) -> None:
    with server.connect() as wire:
        for i in range(50):
            wire.call("SET", f"k{i}", b"x" * 10 * KB)
        settings = ("client-output-buffer-limit", "pubsub 0 0 0", "maxmemory-clients", "3mb")
        assert wire.call("CONFIG", "SET", *settings) == Reply("+", b"OK")
        limit(wire, 10 * MB, "allkeys-lru")
        clients = [server.connect() for _ in range(20)]
        for client in clients:
            client.call("SUBSCRIBE", "c")
        for _ in range(200):
            wire.call("PUBLISH", "c", b"x" * BULK)
            if int(info(wire, "evicted_clients")) >= 5:
                break
        assert int(info(wire, "evicted_clients")) >= 5
        assert wire.line("DBSIZE").value == 50
        for client in clients:
            client.close()


@pytest.mark.parametrize(("name_size", "count"), [(10, 3000), (1000, 300)])
def test_telling_those_who_track_evicted_keys_evicts_no_more_keys(server: Server, name_size: int, count: int) -> None:
    """A message takes more than the key that is gone: if messages counted, all keys would go."""
    with server.connect() as wire:
        keys = [f"k{i}".ljust(name_size, "x") for i in range(count)]
        for key in keys:
            wire.call("SET", key, b"v" * 100)
        clients = [server.connect(protocol=3) for _ in range(10)]
        for client in clients:
            client.line("CLIENT TRACKING ON")
            client.pipeline([("GET", key) for key in keys])
        limit(wire, -20 * KB, "allkeys-lru")
        wire.line("SET a 1")
        for _ in range(30):
            wire.line("PING")
        assert count / 3 < wire.line("DBSIZE").value <= count
        assert int(info(wire, "evicted_keys")) >= 1
        for client in clients:
            client.close()


WAITING = {
    "paused": ("CLIENT PAUSE 3600000 WRITE", [("XADD", "s", "*", "f", b"x" * 5 * MB)], "CLIENT UNPAUSE"),
    "blocked": (
        "PING",
        [("XREAD", "BLOCK", "0", "STREAMS", *(f"{i:06}".ljust(1000, "x") for i in range(2000)), *["$"] * 2000)],
        "PING",
    ),
}


@pytest.mark.parametrize("why", WAITING)
def test_requests_that_wait_take_memory_until_they_are_done(server: Server, why: str) -> None:
    first, requests, last = WAITING[why]
    with server.connect() as wire:
        before = used(wire)
        wire.line(first)
        with server.connect() as waiting:
            for request in requests:
                waiting.send(*request)
            eventually(lambda: used(wire) > before + 2 * MB, what="memory of a request that waits")
        wire.line(last)

        def is_free() -> bool:
            wire.line("DEL s")  # which is written at the end of the pause, perhaps
            return used(wire) < before + MB

        eventually(is_free, what="the memory of a client that is gone")
