"""What stream commands propagate: the same as Redis, and enough to make the same state again. Marked `real`.

Held against the append-only files of both servers, which have what replicas get, too. On the way the same is seen of the
events, the touched keys and the count of changes of each command (`support.commands.observed`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import hiredis
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.commands.handler import HandlerContext, make_context, run, set_time
from support.commands.observed import OBSERVING, Effect, ServerObserver, compare_told, masked, run_observed, units
from support.commands.scripts import KEYS, SCRIPT_SETTINGS, Script, is_propagated_in_full, scripts
from support.compare.differential import Request, parse_script
from support.compare.effect_stories import STREAM_STORIES, UNIT_STORIES
from support.compare.later import without_created, without_later_fixes
from support.compare.stories import Stage
from support.servers import start_redis, start_streamd

from streamd.serve.families import load_all
from streamd.values.streams.idempotency import registry_of
from streamd.values.streams.stream import Stream

pytestmark = [pytest.mark.long, pytest.mark.real]

Observers = tuple[ServerObserver, ServerObserver]


@pytest.fixture(scope="module")
def observers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Observers]:
    servers = [
        start(tmp_path_factory.mktemp(start.__name__), OBSERVING)  #
        for start in (start_streamd, start_redis)
    ]
    both = ServerObserver(servers[0]), ServerObserver(servers[1])
    yield both
    for observer in both:
        observer.close()
        observer.server.stop()
    assert "Traceback" not in servers[0].log()


def compare(observers: Observers, requests: Sequence[Request], **sizes: int) -> None:
    both = []
    for observer in observers:
        observer.start_over(**{"stream_node_max_entries": 100, "stream_node_max_bytes": 4096} | sizes)
        both.append(observer.run(requests, KEYS))
    compare_told(requests, *both)


# --- As Redis does it -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("node_entries", [100, 2], ids=["one node", "small nodes"])
@pytest.mark.parametrize("name", STREAM_STORIES)
def test_effects_are_those_of_redis(observers: Observers, name: str, node_entries: int) -> None:
    compare(observers, parse_script(STREAM_STORIES[name]), stream_node_max_entries=node_entries)


def without_keyspace_commands(script: Script) -> list[Request]:
    """The requests on streams, and those that make and remove keys of the first database by themselves."""
    others = (b"DEL", b"UNLINK", b"RENAME", b"RENAMENX", b"SET", b"DEBUG")
    return [each for each in script.requests if each[0].startswith(b"X") or each[0] in others]


def sizes_of(script: Script) -> dict[str, int]:
    node_bytes = 4096 if script.has_clock_ids else script.node_bytes
    return {"stream_node_max_entries": script.node_entries, "stream_node_max_bytes": node_bytes}


@settings(SCRIPT_SETTINGS, max_examples=100)
@given(script=scripts())
def test_a_random_script_does_the_same(observers: Observers, script: Script) -> None:
    compare(observers, list(without_later_fixes(without_keyspace_commands(script))), **sizes_of(script))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@settings(SCRIPT_SETTINGS, max_examples=5000)
@given(script=scripts(lengths=(10, 30, 60)))
def test_many_long_random_scripts_do_the_same(observers: Observers, script: Script) -> None:
    compare(observers, list(without_later_fixes(without_keyspace_commands(script))), **sizes_of(script))


# --- Units ----------------------------------------------------------------------------------------------------------


def told_units(observer: ServerObserver) -> list[list[Effect]]:
    """What was propagated since the last time, unit by unit, masked; see later.without_created."""
    log = without_created(effect for effect in observer.read_log() if effect[0] != b"SELECT")
    return [[masked(effect) for effect in unit] for unit in units(log)]


def play(observer: ServerObserver, lines: str) -> list[list[Effect]]:
    """Play a story; the units that it was propagated as. A line begins with who sends it.

    `who> line` blocks, `who: line` does not; `ab.` reads what two blocked clients are served.
    """
    stage = Stage(observer.server, 2)
    observer.read_log()
    try:
        for line in filter(None, map(str.strip, lines.splitlines())):
            if line.endswith("."):
                stage.served(*line[:-1])
            elif line[1] == ">":
                stage.block(line[0], line[3:])
            else:
                stage.do(line[3:], line[0])
        return told_units(observer)
    finally:
        stage.close()


@pytest.mark.parametrize("name", UNIT_STORIES)
def test_units_are_those_of_redis(observers: Observers, name: str) -> None:
    ours, theirs = (play(observer, UNIT_STORIES[name]) for observer in observers)
    assert ours == theirs


# --- Enough to make the same state ----------------------------------------------------------------------------------


def stream_state(stream: Stream, full: list[Any]) -> dict[Any, Any]:
    """All that effects bring about: not when consumers were seen."""
    state = dict(zip(full[::2], full[1::2], strict=True))
    state["nodes"] = stream.list_nodes()
    tracked = stream.idempotency
    state["idempotency"] = None if tracked is None else list(tracked.producers())
    groups = []
    for fields in state.pop(b"groups"):
        group = dict(zip(fields[::2], fields[1::2], strict=True))
        consumers = [dict(zip(each[::2], each[1::2], strict=True)) for each in group.pop(b"consumers")]
        group.pop(b"lag")  # follows from the rest
        group["consumers"] = [(c[b"name"], c[b"pending"]) for c in consumers]
        groups.append(group)
    state["groups"] = groups
    return state


def state_of(ctx: HandlerContext) -> dict[bytes, Any]:
    state: dict[bytes, Any] = {}
    for key in KEYS:
        value = ctx.db.peek(key)
        if isinstance(value, Stream):
            value.check_invariants()
            state[key] = stream_state(value, run(ctx, b"XINFO", b"STREAM", key, b"FULL", b"COUNT", b"0"))
        else:
            state[key] = value
    return state


def replayed(effects: Sequence[Sequence[bytes]], now_ms: int, **sizes: int) -> HandlerContext:
    """A context in which effects were run as those of a file are."""
    load_all()
    ctx = make_context(**sizes)
    set_time(ctx, now_ms)
    ctx.is_replaying = True
    for effect in effects:
        reply = run(ctx, *effect)
        assert not isinstance(reply, hiredis.ReplyError), f"{effect}: {reply}"
    return ctx


@settings(SCRIPT_SETTINGS, max_examples=300)
@given(script=scripts(with_xnack=True), has_xnack=st.booleans())
def test_effects_make_the_same_state(script: Script, has_xnack: bool) -> None:
    compare_with_replayed(script, has_xnack)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@settings(SCRIPT_SETTINGS, max_examples=10_000)
@given(script=scripts((30, 60, 120), with_xnack=True), has_xnack=st.booleans())
def test_effects_of_many_long_scripts_make_the_same_state(script: Script, has_xnack: bool) -> None:
    compare_with_replayed(script, has_xnack)


def compare_with_replayed(script: Script, has_xnack: bool) -> None:
    load_all()
    ctx = make_context(**sizes_of(script))
    ctx.is_propagating = True
    ctx.has_xnack = has_xnack
    log: list[list[bytes]] = []
    requests = [each for each in without_keyspace_commands(script) if is_propagated_in_full(each)]
    for request in requests:
        if request[0] == b"DEBUG":
            set_time(ctx, ctx.now_ms + 2)
        else:
            log += run_observed(ctx, request)
    assert state_of(replayed(log, ctx.now_ms, **sizes_of(script))) == state_of(ctx), log


NACKED = (
    "XADD s 1-1 f v", "XADD s 2-1 f v", "XADD s 3-1 f v", "XGROUP CREATE s g 0",
    "XREADGROUP GROUP g a COUNT 2 STREAMS s >", "XDEL s 2-1",
)  # fmt: skip


def test_giving_back_is_propagated_as_it_was_received_to_readers_that_know_it() -> None:
    twins = Twins()
    twins.ctx.has_xnack = True
    for line in NACKED:
        twins.do(line)
    for line, told in (
        ("XNACK s g FAIL IDS 2 1-1 9-9 retrycount 4", True),
        ("XNACK s g FAIL IDS 1 9-9 FORCE", False),
        ("XNACK s g SILENT IDS 2 3-1 2-1 FORCE", True),
    ):
        assert twins.do(line) == ([line.encode().split()] if told else [])
    twins.check()


def test_giving_back_is_propagated_as_claims_of_nobody_to_older_readers() -> None:
    twins = Twins()
    for line in NACKED:
        twins.do(line)
    effects = [
        b"XCLAIM s g", b"", b"-1 2-1 TIME 0 RETRYCOUNT 0 FORCE JUSTID LASTID 2-1",
        b"XCLAIM s g", b"", b"-1 1-1 TIME 1 RETRYCOUNT 0 FORCE JUSTID LASTID 2-1",
    ]  # fmt: skip
    assert twins.do("XNACK s g SILENT IDS 3 2-1 9-9 1-1") == [
        [*effects[at].split(), effects[at + 1], *effects[at + 2].split()] for at in (0, 3)
    ]
    assert twins.do("XNACK s g FAIL IDS 1 9-9 FORCE") == []
    twins.check()
    # Somebody may have that name; then nobody gets another one.
    run_observed(twins.ctx, [b"XGROUP", b"CREATECONSUMER", b"s", b"g", b""])
    twins.log += [[b"XGROUP", b"CREATECONSUMER", b"s", b"g", b""]]
    (effect,) = twins.do("XNACK s g FAIL IDS 1 3-1 FORCE")
    assert effect[3:6] == [b"\0", b"-1", b"3-1"]
    assert twins.do("XCLAIM s g a 0 2-1") == [b"XACK s g 2-1".split()]
    assert twins.do("XAUTOCLAIM s g a 0 - COUNT 1 JUSTID")[0][3] == b"a"
    replica = twins.check()
    assert replica.db.peek(b"s").groups[b"g"].unowned() == [(3, 1)]


def test_a_position_set_by_a_claim_that_only_finds_lost_entries_is_propagated() -> None:
    twins = Twins()
    for line in NACKED:
        twins.do(line)
    twins.do("XNACK s g SILENT IDS 1 2-1")
    assert twins.do("XCLAIM s g a 1000000 2-1 LASTID 7-1") == [
        b"XACK s g 2-1".split(), b"XGROUP SETID s g 7-1 ENTRIESREAD 2".split()
    ]  # fmt: skip
    twins.check()


def test_each_entry_given_back_counts_as_a_change() -> None:
    load_all()
    ctx = make_context()
    ctx.is_propagating = True
    for line in NACKED:
        run_observed(ctx, line.encode().split())
    dirty = ctx.dirty
    assert run(ctx, "XNACK", "s", "g", "SILENT", "IDS", 3, "1-1", "1-1", "9-9") == 2
    assert ctx.dirty == dirty + 2


class Twins:
    """A context that propagates, and one in which what it propagates is replayed."""

    def __init__(self, **sizes: int) -> None:
        load_all()
        self.sizes = sizes
        self.ctx = make_context(**sizes)
        self.ctx.is_propagating = True
        self.log: list[list[bytes]] = []

    def do(self, line: str) -> list[list[bytes]]:
        """Run a line; its effects."""
        effects = run_observed(self.ctx, line.encode().split())
        self.log += effects
        return effects

    def check(self) -> HandlerContext:
        """The replayed context, which must be in the same state."""
        replica = replayed(self.log, self.ctx.now_ms, **self.sizes)
        assert state_of(replica) == state_of(self.ctx)
        return replica


def test_an_iid_that_is_used_again_after_it_has_expired_is_no_duplicate_when_replayed() -> None:
    twins = Twins()
    twins.do("XADD s IDMP p i * f 1")
    twins.do("XADD s IDMP p i * f again")
    twins.do("XADD s IDMP p j * f 2")
    set_time(twins.ctx, twins.ctx.now_ms + 200_000)
    registry_of(twins.ctx).expire(twins.ctx.now_ms)
    twins.do("XADD s IDMP p i * f 3")
    replica = replayed(twins.log, twins.ctx.now_ms)
    assert run(replica, "XLEN", "s") == 3
    registry_of(replica).expire(replica.now_ms)
    assert state_of(replica) == state_of(twins.ctx)


def test_a_duplicate_is_one_when_replayed_even_after_it_has_expired_there() -> None:
    twins = Twins()
    twins.do("XADD s IDMP p i * f 1")
    assert twins.do("XADD s IDMP p i MAXLEN ~ 0 LIMIT 5 * f 1") == [b"XADD s IDMP p i MAXLEN ~ 0 LIMIT 5 * f 1".split()]
    replica = replayed(twins.log[:1], twins.ctx.now_ms + 200_000)
    registry_of(replica).expire(replica.now_ms)
    assert run(replica, *twins.log[1]) == b"0-0"
    assert run(replica, "XLEN", "s") == 1
    twins.check()


@pytest.mark.parametrize("policy", ["KEEPREF", "DELREF", "ACKED"])
@pytest.mark.parametrize("limit", ["", " LIMIT 2", " LIMIT 0"])
@pytest.mark.parametrize("threshold", ["MINID ~ 1-4", "MINID ~ 1-5", "MINID ~ 9", "MAXLEN ~ 2", "MAXLEN ~ 0"])
@pytest.mark.parametrize("command", ["XTRIM s {}", "XADD s {} 8-8 f v"])
def test_an_approximate_trim_removes_the_same_when_replayed(
    command: str, threshold: str, limit: str, policy: str
) -> None:
    twins = Twins(stream_node_max_entries=2)
    for seq in range(1, 8):
        twins.do(f"XADD s 1-{seq} f v")
    twins.do("XGROUP CREATE s g 1-6")
    twins.do("XCLAIM s g a 0 1-1 1-4 FORCE")
    twins.do(command.format(f"{threshold}{limit} {policy}"))
    twins.check()


def test_deleting_what_was_trimmed_away_is_propagated_when_it_was_pending() -> None:
    twins = Twins()
    twins.do("XADD s 1-1 f v")
    twins.do("XGROUP CREATE s g 0")
    twins.do("XREADGROUP GROUP g a STREAMS s >")
    twins.do("XTRIM s MAXLEN 0")
    assert twins.do("XDELEX s KEEPREF IDS 1 1-1") == []
    assert twins.do("XDELEX s DELREF IDS 1 1-1") == [b"XDELEX s DELREF IDS 1 1-1".split()]
    assert twins.do("XDELEX s DELREF IDS 1 1-1") == []
    twins.check()


CREATED = [b"XGROUP", b"CREATECONSUMER", b"s", b"g", b"new"]


@pytest.mark.parametrize(
    ("request_line", "before"),
    [
        ("XREADGROUP GROUP g new STREAMS s >", []),
        ("XREADGROUP GROUP g new STREAMS s 0", []),
        ("XREADGROUP GROUP g new BLOCK 1 STREAMS s >", []),
        ("XREADGROUP GROUP g new CLAIM 1000 STREAMS s >", []),
        ("XREADGROUP GROUP g new NOACK STREAMS u >", ["XGROUP SETID u g 1-1 ENTRIESREAD 1"]),
        ("XCLAIM s g new 1000 1-1", []),
        ("XCLAIM s g new 0 7-7 FORCE", []),
        ("XCLAIM s g new 0 7-7 LASTID 9-9", ["XGROUP SETID s g 9-9 ENTRIESREAD 2"]),
        ("XAUTOCLAIM s g new 1000 0", []),
    ],
)
def test_a_consumer_that_gets_nothing_is_propagated_after_what_the_command_did(
    request_line: str, before: list[str]
) -> None:
    twins = Twins()
    for key in ("s", "u"):
        twins.do(f"XADD {key} 1-1 f v")
        twins.do(f"XGROUP CREATE {key} g 0")
    twins.do("XADD s 1-2 f v")
    twins.do("XREADGROUP GROUP g a STREAMS s >")
    key = b"u" if " u " in request_line else b"s"
    created = [*CREATED[:2], key, *CREATED[3:]]
    assert twins.do(request_line) == [*(line.encode().split() for line in before), created]
    assert twins.do("XREADGROUP GROUP g new STREAMS s >") == ([] if key == b"s" else [CREATED])
    twins.check()


def test_a_consumer_that_gets_something_becomes_known_by_it() -> None:
    twins = Twins()
    twins.do("XADD s 1-1 f v")
    twins.do("XGROUP CREATE s g 0")
    for line in ("XREADGROUP GROUP g a STREAMS s >", "XCLAIM s g b 0 1-1", "XAUTOCLAIM s g c 0 0"):
        assert {effect[0] for effect in twins.do(line)} <= {b"XCLAIM", b"XGROUP"}
        assert [b"CREATECONSUMER"] not in [effect[1:2] for effect in twins.log]
    assert list(twins.check().db.peek(b"s").groups[b"g"].consumers) == [b"a", b"b", b"c"]


def test_effects_are_not_built_when_nobody_wants_them() -> None:
    load_all()
    ctx = make_context()
    for line in (
        "XADD s MAXLEN ~ 5 * f v",
        "XGROUP CREATE s g 0",
        "XREADGROUP GROUP g a NOACK STREAMS s >",
        "XGROUP SETID s g 0",
        "XREADGROUP GROUP g b CLAIM 0 STREAMS s >",
        "XCLAIM s g a 0 1-1 LASTID 9999999999999-9",
        "XAUTOCLAIM s g a 0 0",
        "XTRIM s MAXLEN ~ 0",
    ):
        ctx.effects = None
        dirty = ctx.dirty
        run(ctx, *line.split())
        assert ctx.effects is None, line
        assert ctx.dirty > dirty or line.startswith("XTRIM"), line
