"""The replication stream beside Redis's own: after the same commands replicas receive the same bytes. Marked `real`.

A raw replica is attached to each of two primaries. Every command of a stream must be written in the one canonical way
(`parse_stream`), so equal commands are equal bytes; times are masked. What docs/differences.md excepts is named below.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest
from hypothesis import given, settings
from support.commands.observed import Effect, masked
from support.commands.scripts import SCRIPT_SETTINGS, Script, scripts
from support.compare.differential import Difference, Request, parse_script
from support.compare.effect_stories import GENERIC_STORIES, MEETINGS, NO_CYCLE, STREAM_STORIES, UNIT_STORIES
from support.compare.later import without_created, without_later_fixes
from support.compare.stories import Stage
from support.replicas.nodes import Node, wait_until
from support.replicas.raw_replica import RawReplica
from support.wire import Reply, Wire, join_line

pytestmark = [pytest.mark.long, pytest.mark.real]

# Nothing is said but effects.
QUIET = {"repl_ping_replica_period": "3600", "repl_timeout": "3600"}


class Listener:
    """A primary and a raw replica of it; `run` gives what the replica receives for each line."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.replica = RawReplica(node)
        self.replica.attach()
        self.wire = node.connect()

    def close(self) -> None:
        self.wire.close()
        self.replica.close()

    def start_over(self, **sizes: int) -> None:
        """Empty the server, and send something in database 0, so that the stream is there."""
        for name, value in ({"stream_node_max_entries": 100, "stream_node_max_bytes": 4096} | sizes).items():
            self._ok("CONFIG", "SET", name.replace("_", "-"), str(value))
        self._ok("DEBUG", "SET-ACTIVE-EXPIRE", "1")
        for request in (("SELECT", "0"), ("FLUSHALL",), ("SET", "mark", ""), ("DEL", "mark")):
            self._ok(*request)
        self.effects()

    def _ok(self, *request: str) -> None:
        reply = self.wire.call(*request)
        assert not reply.is_error, (request, reply)

    def effects(self) -> list[Effect]:
        """What the replica has received since the last time, masked."""
        return [masked(command) for command in self.replica.read_commands()]

    def run(self, requests: Sequence[Request]) -> list[list[Effect]]:
        """The effects of each request."""
        told = []
        for request in requests:
            self.wire.call(*request)
            told.append(self.effects())
        return told


Listeners = tuple[Listener, Listener]


@pytest.fixture(scope="module")
def listeners(new_shared_node: Callable[..., Node]) -> Iterator[Listeners]:
    """streamd and Redis."""
    both = Listener(new_shared_node("streamd", **QUIET)), Listener(new_shared_node("redis", **QUIET))
    yield both
    for listener in both:
        listener.close()


# --- What docs/differences.md excepts -------------------------------------------------------------------------------

CREATING = (b"XREADGROUP", b"XCLAIM", b"XAUTOCLAIM")


def is_excepted(request: Request, ours: Sequence[Effect], theirs: Sequence[Effect]) -> bool:
    """Whether these are different effects of a request that docs/differences.md names."""
    name = request[0].upper()
    if name in CREATING:
        # A consumer that gets nothing is propagated here.
        return unwrapped(without_created(ours)) == unwrapped(without_created(theirs))
    # An XDELEX that only forgets pending entries which had been trimmed away is propagated here.
    return name == b"XDELEX" and [*ours] == [request] and not theirs


def unwrapped(effects: Sequence[Effect]) -> list[Effect]:
    """A transaction of one command without MULTI and EXEC, of none left out."""
    shown = list(effects)
    if shown and shown[0] == (b"MULTI",) and len(shown) <= 3:
        shown = shown[1:-1]
    return shown


def compare(listeners: Listeners, requests: Sequence[Request], **sizes: int) -> list[list[Effect]]:
    """Fail at the first request after which the replicas received different bytes."""
    for listener in listeners:
        listener.start_over(**sizes)
    ours, theirs = (listener.run(requests) for listener in listeners)
    for at, (request, mine, its) in enumerate(zip(requests, ours, theirs, strict=True)):
        if mine != its and not is_excepted(request, mine, its):
            explain(requests[: at + 1], mine, its)
    return ours


def explain(requests: Sequence[Request], ours: Sequence[Effect], theirs: Sequence[Effect]) -> None:
    lines = ["the last line of these was sent to replicas in different ways:"]
    lines += ["    " + join_line(request) for request in requests]
    for name, effects in (("streamd", ours), ("redis", theirs)):
        lines += [f"  {name}:", *("    " + join_line(effect) for effect in effects)]
    raise Difference("\n".join(lines))


# --- Stories --------------------------------------------------------------------------------------------------------

STORIES = {
    "messages": """
        PUBLISH channel message
        SPUBLISH shard message
        PUBLISH channel ""
        SELECT 2
        PUBLISH channel message
        SET a 1
        PUBLISH channel message
        SELECT 3
        PUBLISH channel message
        SET a 1
        MULTI
        PUBLISH channel message
        EXEC
        MULTI
        PUBLISH channel one
        SPUBLISH shard two
        EXEC
        MULTI
        SET a 2
        PUBLISH channel message
        EXEC
    """,
    "databases": """
        SET a 1
        SELECT 1
        GET a
        SET a 1
        SET a 2
        SELECT 0
        SELECT 1
        SET a 3
        SELECT 15
        XADD s 1-1 f v
        MOVE s 3
        SELECT 3
        COPY s t DB 4
        SWAPDB 3 4
        SWAPDB 3 3
        SELECT 4
        DEL s
        FLUSHDB
        FLUSHDB
        FLUSHALL
        FLUSHALL ASYNC
        SET a 1
        FLUSHALL SYNC
    """,
    "transactions and databases": """
        MULTI
        SELECT 1
        SET a 1
        SELECT 2
        GET a
        SELECT 1
        SET a 2
        EXEC
        SET a 3
        MULTI
        SELECT 5
        SET a 3
        EXEC
        MULTI
        SELECT 0
        EXEC
        SET a 3
        MULTI
        SET a 4
        SET a
        EXEC
        MULTI
        SET a 4
        INCR s
        XADD a * f v
        EXEC
        MULTI
        SET a 5
        DISCARD
        WATCH a
        MULTI
        INCR a
        INCR a
        EXEC
        MULTI
        XADD s 1-1 f v
        XGROUP CREATE s g 0
        XREADGROUP GROUP g c STREAMS s >
        FLUSHALL
        SET a 1
        EXEC
    """,
    "forms of expiry": """
        SET a 1
        EXPIRE a 100
        PEXPIRE a 100000
        EXPIREAT a 99999999999
        PEXPIREAT a 99999999999999
        EXPIRE a 10 NX
        EXPIRE a 10 XX
        EXPIRE a 1 GT
        EXPIRE a 1000 LT
        PERSIST a
        EXPIRE a 10 GT
        EXPIRE a 10 LT
        SET a 1 EX 10
        SET a 1 KEEPTTL
        SET a 1 PX 10000
        SET a 1 EXAT 99999999999
        SET a 1 PXAT 99999999999999
        SET a 1 PXAT 1
        GET a
        SET a 1 EX 100 NX GET
        SET a 1 EX 100 XX GET
        SETEX a 100 v
        PSETEX a 100000 v
        GETEX a
        GETEX a EX 100
        GETEX a PX 100000
        GETEX a EXAT 99999999999
        GETEX a PXAT 99999999999999
        GETEX a PERSIST
        GETEX a PERSIST
        GETEX a EXAT 1
        SET a 1
        EXPIRE a 0
        SET a 1
        PEXPIREAT a 5
        SET a 1
        GETDEL a
        GETDEL a
    """,
    "restored": r"""
        RESTORE a 0 "\x00\x03abc\x0a\x00\xd9\xac0=Ar\xa2\xe2"
        RESTORE a 100000 "\x00\x03abc\x0a\x00\xd9\xac0=Ar\xa2\xe2" REPLACE
        restore a 99999999999999 "\x00\x03abc\x0a\x00\xd9\xac0=Ar\xa2\xe2" absttl replace
        RESTORE a 1 "\x00\x03abc\x0a\x00\xd9\xac0=Ar\xa2\xe2" ABSTTL REPLACE
        RESTORE a 0 "\x00\x03abc\x0a\x00\xd9\xac0=Ar\xa2\xe2" IDLETIME 5
        RESTORE s 0 "\x13\x01\x10\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x01\x1d\x1d\x00\x00\x00\x0a\x00\x01\x01\x00\x01\x01\x01\x81f\x02\x00\x01\x02\x01\x00\x01\x00\x01\x81v\x02\x04\x01\xff\x01\x01\x01\x01\x01\x00\x00\x01\x00\x0a\x00\xffU\xabbj\xc05\xdb" FREQ 7
        RESTORE s 0 "\x13\x01\x10\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x01\x1d\x1d\x00\x00\x00\x0a\x00\x01\x01\x00\x01\x01\x01\x81f\x02\x00\x01\x02\x01\x00\x01\x00\x01\x81v\x02\x04\x01\xff\x01\x01\x01\x01\x01\x00\x00\x01\x00\x0a\x00\xffU\xabbj\xc05\xdb"
        RESTORE t 0 "broken"
        SET b abc
        COPY b c
        COPY b c
        COPY b c REPLACE
        RENAME c d
        RENAMENX d b
        RENAMENX d e
        MOVE e 1
        UNLINK b e
    """,
    "what changes nothing": """
        DEL none
        EXPIRE none 10
        PERSIST none
        XADD none NOMKSTREAM * f v
        XDEL none 1-1
        XTRIM none MAXLEN 0
        XACK none g 1-1
        XREAD COUNT 1 STREAMS none 0
        GET none
        GETEX none EX 10
        GETDEL none
        SETRANGE none 1 ""
        MULTI
        EXEC
        MULTI
        GET none
        DEL none
        EXEC
        UNLINK none
        XGROUP CREATE none g 0
        RENAME none other
        MOVE none 1
        COPY none other
    """,
    "the words as they were sent": """
        set a 1
        sEt a 1 xx get
        setex a 0100 v
        xadd s maxlen = 05 1-1 f v
        XADD s nomkstream 2 f v
        xgroup create s g 0-0
        expire a +10
        pexpireat a 099999999999999
        incrby a 05
        del a a
    """,
    "floats": """
        SET a 10.50
        INCRBYFLOAT a 0.1
        INCRBYFLOAT a 1e3
        SET a 3.0e3 EX 100
        INCRBYFLOAT a 200
        INCRBYFLOAT b 0.1
    """,
}
ALL_STORIES = {
    **{f"generic: {name}": text for name, text in GENERIC_STORIES.items()},
    **{f"streams: {name}": text for name, text in STREAM_STORIES.items()},
    **STORIES,
}


@pytest.mark.parametrize("story", ALL_STORIES)
def test_replicas_receive_what_those_of_redis_receive(listeners: Listeners, story: str) -> None:
    compare(listeners, parse_script(ALL_STORIES[story]))


@pytest.mark.parametrize("story", [name for name in ALL_STORIES if "trim" in name])
def test_trims_of_small_nodes(listeners: Listeners, story: str) -> None:
    compare(listeners, parse_script(ALL_STORIES[story]), stream_node_max_entries=2)


def test_an_expired_key_is_deleted_before_the_command_that_met_it(listeners: Listeners) -> None:
    for line in MEETINGS:
        compare(listeners, parse_script(f"{NO_CYCLE}SET other v\nSET k v PX 1\nDEBUG SLEEP 0.003\n{line}"))


def test_keys_that_expire_by_themselves_are_deleted_in_their_databases(listeners: Listeners) -> None:
    told = []
    for listener in listeners:
        listener.start_over()
        listener.wire.call("DEBUG", "SET-ACTIVE-EXPIRE", "0")
        for database in range(3):
            listener.run([(b"SELECT", b"%d" % database), (b"SET", b"k", b"v", b"PX", b"10")])
        # The stream is in none of the three databases when the deletions begin.
        listener.run([(b"SELECT", b"9"), (b"SET", b"mark", b""), (b"DEL", b"mark")])
        listener.wire.call("DEBUG", "SET-ACTIVE-EXPIRE", "1")
        wait_until(lambda listener=listener: not listener.node.info("keyspace"), "the end of three keys")
        listener.wire.call("SELECT", "0")
        effects = listener.effects()
        deletions = [(effects[at - 1][1], each) for at, each in enumerate(effects) if each[0] != b"SELECT"]
        told.append((len(effects), sorted(deletions)))
    # Redis visits databases in its own order; but each deletion stands alone, behind its SELECT.
    assert told[0][1] == told[1][1]
    assert len(told[0][1]) == 3


@pytest.mark.parametrize("story", UNIT_STORIES)
def test_who_waited_comes_after_what_served_it(listeners: Listeners, story: str) -> None:
    told = []
    for listener in listeners:
        listener.start_over()
        told.append(play(listener, UNIT_STORIES[story]))
    assert told[0] == told[1]


def play(listener: Listener, lines: str) -> list[Effect]:
    """What a replica receives during a story, but for consumers that are created; see `support.compare.effect_stories`."""
    stage = Stage(listener.node, 2)
    try:
        for line in filter(None, map(str.strip, lines.splitlines())):
            if line.endswith("."):
                stage.served(*line[:-1])
            elif line[1] == ">":
                stage.block(line[0], line[3:])
            else:
                stage.do(line[3:], line[0])
        return [effect for effect in without_created(listener.effects()) if effect[0] != b"FLUSHALL"]
    finally:
        stage.close()


def test_several_clients_share_one_stream(listeners: Listeners) -> None:
    """SELECT is sent when the database changes, whoever asked for it."""
    told = []
    for listener in listeners:
        listener.start_over()
        wires = [listener.node.connect() for _ in range(3)]
        for database, wire in enumerate(wires):
            assert wire.call("SELECT", database) == Reply("+", b"OK")
        for at in (0, 0, 1, 2, 2, 0, 1):
            wires[at].call("INCR", "n")
        told.append(listener.effects())
        for wire in wires:
            wire.close()
    assert told[0] == told[1]


def test_a_full_sync_is_followed_by_a_select(listeners: Listeners) -> None:
    """Whoever listens already receives it too."""
    told = []
    for listener in listeners:
        listener.start_over()
        listener.run([(b"SELECT", b"4"), (b"SET", b"a", b"1")])
        with RawReplica(listener.node) as other:
            other.attach()
            listener.wire.call("SET", "a", "2")
            told.append((listener.effects(), [masked(each) for each in other.read_commands()]))
    assert told[0] == told[1]
    assert told[0][0] == told[0][1] == [(b"SELECT", b"4"), (b"SET", b"a", b"2")]


def test_a_waiting_client_has_replicas_asked(listeners: Listeners) -> None:
    """WAIT sends REPLCONF GETACK *, 37 bytes that count."""
    for listener in listeners:
        listener.start_over()
        listener.wire.call("SET", "a", "1")
        listener.effects()
        before = listener.replica.offset
        with Wire(listener.node.port) as waiting:
            waiting.call("SET", "a", "2")
            waiting.send("WAIT", "1", "60000")
            request = b"*3\r\n$8\r\nREPLCONF\r\n$6\r\nGETACK\r\n$1\r\n*\r\n"
            assert len(request) == 37
            told = b""
            while not told.endswith(request):
                told += listener.replica.read_stream(listener.replica.offset + 1)
            listener.replica.ack()
            assert waiting.read() == Reply(":", 1)
        assert listener.node.offset == listener.replica.offset
        assert listener.replica.offset - before == len(told)


# --- Scripts --------------------------------------------------------------------------------------------------------


def sizes_of(script: Script) -> dict[str, int]:
    node_bytes = 4096 if script.has_clock_ids else script.node_bytes
    return {"stream_node_max_entries": script.node_entries, "stream_node_max_bytes": node_bytes}


@settings(SCRIPT_SETTINGS, max_examples=60)
@given(script=scripts())
def test_a_random_script_is_sent_to_replicas_alike(listeners: Listeners, script: Script) -> None:
    compare(listeners, list(without_later_fixes(script.requests)), **sizes_of(script))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@settings(SCRIPT_SETTINGS, max_examples=1000)
@given(script=scripts(lengths=(10, 30, 60)))
def test_many_long_random_scripts_are_sent_to_replicas_alike(listeners: Listeners, script: Script) -> None:
    compare(listeners, list(without_later_fixes(script.requests)), **sizes_of(script))
