"""Consumer groups: the structure itself, and the commands that make them, deliver, claim and acknowledge."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import hiredis
import pytest
from support.commands.handler import START_MS, HandlerContext, make_context, run, set_time

import streamd.values.streams.xack
import streamd.values.streams.xclaim
import streamd.values.streams.xgroup
import streamd.values.streams.xinfo
import streamd.values.streams.xpending
import streamd.values.streams.xread
from streamd.values.streams import delivery
from streamd.values.streams.group import Group
from streamd.values.streams.stream import Stream

MAX = 2**64 - 1
ID = tuple[int, int]


def make_stream(*numbers: int, node_max_entries: int = 3) -> Stream:
    """Entries n-1 with the field and value `f`, `n`."""
    stream = Stream(node_max_entries=node_max_entries)
    for number in numbers:
        stream.append([(b"f", b"%d" % number)], id=(number, 1))
    return stream


def entry(number: int, *more: Any) -> list[Any]:
    return [b"%d-1" % number, [b"f", b"%d" % number], *more]


def ids(numbers: Iterable[int]) -> list[bytes]:
    return [b"%d-1" % number for number in numbers]


# --- The group, from Python --------------------------------------------------------------------------------------------


@pytest.fixture
def group() -> Group:
    """Consumers `a` and `b`; 1-0, 3-0, 5-0 pending for `a`, 2-0, 4-0 for `b`."""
    group = Group(b"g", (5, 0), 5)
    for name in (b"a", b"b"):
        assert group.create_consumer(name, now_ms=7)
    for number in range(1, 6):
        group.restore_pending(
            (number, 0), b"a" if number % 2 else b"b", delivery_ms=100 + number, delivery_count=number
        )
    group.check_invariants()
    return group


def test_a_consumer_is_made_once() -> None:
    group = Group(b"g")
    assert group.create_consumer(b"", now_ms=5)
    assert not group.create_consumer(b"", now_ms=6)
    consumer = group.consumers[b""]
    assert (consumer.name, consumer.seen_ms, consumer.active_ms) == (b"", 5, -1)
    group.check_invariants()


def test_pending_entries_are_listed_by_id(group: Group) -> None:
    assert group.pending((2, 0), (3, 0)) == [((2, 0), b"b", 102, 2), ((3, 0), b"a", 103, 3)]
    assert [record[0] for record in group.pending(consumer=b"a")] == [(1, 0), (3, 0), (5, 0)]
    assert group.pending((6, 0)) == []
    assert (group.pending_count, group.pending_count_of(b"b")) == (5, 2)
    with pytest.raises(KeyError, match="b'nobody'"):
        group.pending(consumer=b"nobody")


def test_an_entry_is_acknowledged_once(group: Group) -> None:
    assert group.acknowledge([(1, 0), (9, 0), (1, 0), (2, 0)]) == 2
    assert not group.is_pending((1, 0))
    assert group.is_pending((3, 0))
    group.check_invariants()


def test_a_deleted_consumer_takes_its_pending_entries_along(group: Group) -> None:
    assert group.delete_consumer(b"a") == 3
    assert group.delete_consumer(b"a") is None
    assert [record[0] for record in group.pending()] == [(2, 0), (4, 0)]
    group.check_invariants()


def test_the_number_of_a_deleted_consumer_can_be_used_again(group: Group) -> None:
    for turn in range(5):
        group.delete_consumer(b"a")
        group.create_consumer(b"a", now_ms=turn)
        group.restore_pending((turn, 9), b"a", delivery_ms=0, delivery_count=1)
        group.check_invariants()
    assert group.pending(consumer=b"a") == [((4, 9), b"a", 0, 1)]


def test_an_entry_cannot_be_restored_twice_or_for_nobody(group: Group) -> None:
    with pytest.raises(ValueError, match="1-0 is pending already"):
        group.restore_pending((1, 0), b"b", delivery_ms=0, delivery_count=1)
    with pytest.raises(KeyError, match="b'nobody'"):
        group.restore_pending((9, 0), b"nobody", delivery_ms=0, delivery_count=1)
    group.check_invariants()


def test_a_copy_shares_nothing(group: Group) -> None:
    group.delete_consumer(b"b")  # its number is free: the copy numbers its consumers anew
    group.create_consumer(b"c", now_ms=1)
    group.consumers[b"a"].active_ms = 55
    twin = group.copy()
    twin.check_invariants()
    assert twin.pending() == group.pending()
    assert (twin.name, twin.last_delivered_id, twin.entries_read) == (b"g", (5, 0), 5)
    assert twin.consumers[b"a"].active_ms == 55
    twin.acknowledge([(1, 0)])
    twin.consumers[b"c"].seen_ms = 99
    assert group.is_pending((1, 0))
    assert group.consumers[b"c"].seen_ms == 1


def test_a_detached_group_is_empty_and_its_remains_can_be_freed(group: Group) -> None:
    remains = group.detach()
    assert (group.pending_count, group.consumers) == (0, {})
    group.check_invariants()
    remains.free()
    group.create_consumer(b"a", now_ms=0)
    group.restore_pending((1, 0), b"a", delivery_ms=0, delivery_count=1)
    group.check_invariants()


def test_memory_grows_with_what_is_pending_and_falls_again() -> None:
    group = Group(b"g")
    group.create_consumer(b"a", now_ms=0)
    empty = group.memory_bytes
    for number in range(10_000):
        group.restore_pending((1, number), b"a", delivery_ms=number // 100, delivery_count=1)
    assert 50 < (group.memory_bytes - empty) / 10_000 < 75
    group.acknowledge([(1, number) for number in range(10_000)])
    assert group.memory_bytes < empty + 20_000


# --- Delivery from Python ---------------------------------------------------------------------------------------------


def test_new_entries_are_delivered_once() -> None:
    stream = make_stream(1, 2, 3)
    group = Group(b"g")
    assert delivery.read_new(stream, group, b"a", now_ms=9, count=2) == stream.range((1, 1), (2, 1))
    assert delivery.read_new(stream, group, b"b", now_ms=9, no_ack=True) == stream.range((3, 1))
    assert delivery.read_new(stream, group, b"a", now_ms=9) == []
    assert [record[:2] for record in group.pending()] == [((1, 1), b"a"), ((2, 1), b"a")]
    assert (group.last_delivered_id, group.entries_read) == ((3, 1), 3)


def test_what_a_group_reads_next_is_the_first_live_entry_behind_its_position() -> None:
    stream = make_stream(1, 2, 3)
    group = Group(b"g")
    assert delivery.next_unread(stream, group) == (1, 1)
    delivery.read_new(stream, group, b"a", now_ms=9, count=1)
    stream.delete((2, 1))
    assert delivery.next_unread(stream, group) == (3, 1)
    stream.delete((3, 1))
    assert delivery.next_unread(stream, group) is None
    group.set_id((2**64 - 1, 2**64 - 1))
    assert delivery.next_unread(stream, group) is None


def test_the_oldest_pending_entry_and_those_delivered_often() -> None:
    group = Group(b"g")
    assert (group.oldest_pending_id, group.count_delivered_above(0, 100)) == (None, 0)
    group.create_consumer(b"a", now_ms=1)
    for number, deliveries in enumerate((1, 6, 2, 9), 5):
        group.restore_pending((number, 1), b"a", delivery_ms=9, delivery_count=deliveries)
    assert group.oldest_pending_id == (5, 1)
    assert [group.count_delivered_above(times, 100) for times in (0, 2, 5, 9)] == [4, 2, 2, 0]
    assert [group.count_delivered_above(5, limit) for limit in (0, 1, 2, 3, 4)] == [0, 0, 1, 1, 2]


def test_claiming_moves_what_is_idle_and_forgets_what_was_deleted() -> None:
    stream = make_stream(1, 2, 3)
    group = Group(b"g")
    delivery.read_new(stream, group, b"a", now_ms=100, count=2)
    stream.delete((1, 1))
    asked = [(2, 1), (1, 1), (3, 1)]
    assert delivery.claim(stream, group, b"b", asked, min_idle_ms=50, now_ms=149) == []
    assert not group.is_pending((1, 1))
    assert delivery.claim(stream, group, b"b", asked, min_idle_ms=50, now_ms=150) == [(2, 1)]
    assert delivery.claim(stream, group, b"b", asked, min_idle_ms=50, now_ms=150, force=True) == [(3, 1)]
    assert group.pending() == [((2, 1), b"b", 150, 2), ((3, 1), b"b", 150, 2)]


@pytest.mark.parametrize(
    ("start", "entries_read", "actions", "want"),
    [
        ((0, 0), -1, "", (-1, 5)),
        ((5, 1), -1, "", (-1, 0)),
        ((1, 1), -1, "", (-1, 4)),
        ((3, 1), -1, "", (-1, None)),
        ((3, 1), 3, "", (3, 2)),
        ((3, 1), -1, "read1", (-1, None)),
        ((3, 1), -1, "read9", (5, 0)),
        ((0, 0), -1, "read2", (2, 3)),
        ((0, 0), -1, "read2 del4", (2, None)),
        ((0, 0), -1, "read2 del4 read1", (-1, None)),
        ((0, 0), -1, "read2 del4 read9", (5, 0)),
        ((0, 0), -1, "read3 del1 del2", (3, 2)),
        ((0, 0), -1, "del1", (-1, 4)),
        ((0, 0), -1, "del3", (-1, None)),
        ((0, 0), -1, "trim2", (-1, 2)),
        ((0, 0), -1, "read1 trim2", (1, 2)),
        ((0, 0), -1, "read1 trim2 read1", (4, 1)),
        ((0, 0), -1, "trim0", (-1, 0)),
        ((MAX, MAX), -1, "", (-1, None)),
    ],
)
def test_entries_read_and_lag_are_notified_as_redis_tells_them(
    start: ID, entries_read: int, actions: str, want: tuple[int, int | None]
) -> None:
    stream = make_stream(1, 2, 3, 4, 5)
    group = Group(b"g", start, entries_read)
    for action in actions.split():
        number = int(action[-1])
        if action.startswith("read"):
            delivery.read_new(stream, group, b"a", now_ms=0, count=number)
        elif action.startswith("del"):
            stream.delete((number, 1))
        else:
            stream.trim(max_length=number)
    assert (group.entries_read, delivery.lag(stream, group)) == want


# --- XGROUP -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def ctx() -> HandlerContext:
    """`s` holds 1-1 to 5-1 and the group `g`, which has read nothing; `text` is a string."""
    ctx = make_context()
    ctx.db.add(b"s", make_stream(1, 2, 3, 4, 5))
    ctx.db.set(b"text", b"value")
    assert run(ctx, "XGROUP", "CREATE", "s", "g", "0") == b"OK"
    return ctx


def group_of(ctx: HandlerContext, name: bytes = b"g") -> Group:
    found = ctx.db.peek(b"s").groups[name]
    assert isinstance(found, Group)
    return found


def check(ctx: HandlerContext) -> None:
    ctx.db.peek(b"s").check_invariants()


def wrong_options(word: str) -> str:
    return f"ERR unknown subcommand or wrong number of arguments for '{word}'. Try XGROUP HELP."


MISSING_KEY = (
    "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the MKSTREAM option to "
    "create an empty stream automatically."
)
WRONG_TYPE = "WRONGTYPE Operation against a key holding the wrong kind of value"
NOT_INTEGER = "ERR value is not an integer or out of range"
INVALID_ID = "ERR Invalid stream ID specified as stream command argument"


@pytest.mark.parametrize(
    ("command", "error"),
    [
        ("CREATE s g 0", "BUSYGROUP Consumer Group name already exists"),
        ("CREATE s g x", INVALID_ID),
        ("CREATE s h +", INVALID_ID),
        ("CREATE none h 0", MISSING_KEY),
        ("CREATE text h 0", WRONG_TYPE),
        ("CREATE text h 0 FOO", wrong_options("CREATE")),
        ("CREATE text h 0 MKSTREAM MKSTREAM MKSTREAM MKSTREAM", WRONG_TYPE),
        ("CREATE none h 0 ENTRIESREAD 1 ENTRIESREAD 2", MISSING_KEY),
        ("CREATE s h x MKSTREAM MKSTREAM MKSTREAM MKSTREAM", wrong_options("CREATE")),
        ("create s h 0 ENTRIESREAD", wrong_options("create")),
        ("CREATE s h 0 ENTRIESREAD x FOO", NOT_INTEGER),
        ("CREATE s h 0 ENTRIESREAD -2", "ERR value for ENTRIESREAD must be positive or -1"),
        ("SETID s g x", INVALID_ID),
        ("SETID s h x", "NOGROUP No such consumer group 'h' for key name 's'"),
        ("SETID none h 0 MKSTREAM", wrong_options("SETID")),
        ("SETID none h 0", MISSING_KEY),
        ("SETID s h 0 ENTRIESREAD 1 ENTRIESREAD 1", "NOGROUP No such consumer group 'h' for key name 's'"),
        ("SETID s g 0 ENTRIESREAD 1 ENTRIESREAD 1", wrong_options("SETID")),
        ("DESTROY none g", MISSING_KEY),
        ("DESTROY text g", WRONG_TYPE),
        ("CREATECONSUMER s h c", "NOGROUP No such consumer group 'h' for key name 's'"),
        ("CREATECONSUMER none g c", MISSING_KEY),
        ("DELCONSUMER s h c", "NOGROUP No such consumer group 'h' for key name 's'"),
        ("DELCONSUMER text g c", WRONG_TYPE),
    ],
)
def test_xgroup_refuses(ctx: HandlerContext, command: str, error: str) -> None:
    reply = run(ctx, "XGROUP", *command.split())
    assert isinstance(reply, hiredis.ReplyError)
    assert str(reply) == error
    assert ctx.db.peek(b"none") is None


def test_user_bytes_cannot_break_the_error_line(ctx: HandlerContext) -> None:
    reply = run(ctx, "XGROUP", "SETID", b"s", b"a\r\nb", "0")
    assert str(reply) == "NOGROUP No such consumer group 'a  b' for key name 's'"


def test_mkstream_makes_an_empty_stream_with_the_settings_of_now() -> None:
    ctx = make_context(stream_node_max_entries=7)
    assert run(ctx, "XGROUP", "CREATE", "k", "g", "$", "MKSTREAM") == b"OK"
    stream = ctx.db.peek(b"k")
    assert (len(stream), stream.node_max_entries, stream.groups[b"g"].last_delivered_id) == (0, 7, (0, 0))


def test_mkstream_makes_nothing_for_a_wrong_id(ctx: HandlerContext) -> None:
    run(ctx, "XGROUP", "CREATE", "k", "g", "x", "MKSTREAM")
    assert ctx.db.peek(b"k") is None


@pytest.mark.parametrize("subcommand", ["CREATE", "SETID"])
def test_entries_read_is_at_most_what_was_added(ctx: HandlerContext, subcommand: str) -> None:
    name = "new" if subcommand == "CREATE" else "g"
    assert run(ctx, "XGROUP", subcommand, "s", name, "$", "ENTRIESREAD", 100) == b"OK"
    assert group_of(ctx, name.encode()).entries_read == 5
    assert group_of(ctx, name.encode()).last_delivered_id == (5, 1)


def test_setid_keeps_what_is_pending_and_forgets_entries_read(ctx: HandlerContext) -> None:
    run(ctx, "XREADGROUP", "GROUP", "g", "a", "STREAMS", "s", ">")
    for text, want in (("-", (0, 0)), ("+", (MAX, MAX)), ("2", (2, 0))):
        assert run(ctx, "XGROUP", "SETID", "s", "g", text) == b"OK"
        assert (group_of(ctx).last_delivered_id, group_of(ctx).entries_read) == (want, -1)
    assert group_of(ctx).pending_count == 5


def test_consumers_come_and_go(ctx: HandlerContext) -> None:
    assert [run(ctx, "XGROUP", "CREATECONSUMER", "s", "g", "c") for _ in range(2)] == [1, 0]
    run(ctx, "XREADGROUP", "GROUP", "g", "c", "COUNT", 3, "STREAMS", "s", ">")
    assert [run(ctx, "XGROUP", "DELCONSUMER", "s", "g", "c") for _ in range(2)] == [3, 0]
    check(ctx)


def test_destroying_a_group_is_reported_once(ctx: HandlerContext) -> None:
    assert [run(ctx, "XGROUP", "DESTROY", "s", "g") for _ in range(2)] == [1, 0]


def test_a_large_group_is_freed_elsewhere(ctx: HandlerContext) -> None:
    group = group_of(ctx)
    group.create_consumer(b"a", now_ms=0)
    for number in range(20_000):
        group.restore_pending((9, number), b"a", delivery_ms=0, delivery_count=1)
    run(ctx, "XGROUP", "DESTROY", "s", "g")
    assert group.pending_count == 0


def test_help_has_redis_shape(ctx: HandlerContext) -> None:
    lines = run(ctx, "XGROUP", "HELP")
    assert lines[0] == b"XGROUP <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"
    assert lines[-2:] == [b"HELP", b"    Print this help."]
    assert b"DESTROY <key> <group>" in lines


# --- XREADGROUP -------------------------------------------------------------------------------------------------------


def read(ctx: HandlerContext, consumer: str, *options: Any, id: str = ">") -> Any:
    """The entries of `s` that a read returns; None when it returns nothing at all."""
    reply = run(ctx, "XREADGROUP", "GROUP", "g", consumer, *options, "STREAMS", "s", id)
    check(ctx)
    return None if reply is None else reply[0][1]


def test_each_new_entry_goes_to_one_consumer(ctx: HandlerContext) -> None:
    assert read(ctx, "a", "COUNT", 2) == [entry(1), entry(2)]
    assert read(ctx, "b") == [entry(3), entry(4), entry(5)]
    assert read(ctx, "a") is None
    assert run(ctx, "XPENDING", "s", "g") == [5, b"1-1", b"5-1", [[b"a", b"2"], [b"b", b"3"]]]


def test_the_greatest_id_written_out_means_new_entries(ctx: HandlerContext) -> None:
    assert read(ctx, "a", "COUNT", 1, id=f"{MAX}-{MAX}") == [entry(1)]


def test_noack_entries_do_not_become_pending(ctx: HandlerContext) -> None:
    assert read(ctx, "a", "NOACK", "COUNT", 2) == [entry(1), entry(2)]
    assert group_of(ctx).pending_count == 0
    assert (group_of(ctx).last_delivered_id, group_of(ctx).entries_read) == ((2, 1), 2)
    assert group_of(ctx).consumers[b"a"].active_ms == -1


def test_history_is_one_consumers_own_and_counts_deliveries(ctx: HandlerContext) -> None:
    read(ctx, "a", "COUNT", 2)
    read(ctx, "b", "COUNT", 1)
    set_time(ctx, START_MS + 40)
    assert read(ctx, "a", id="0") == [entry(1), entry(2)]
    assert read(ctx, "a", id="1-1") == [entry(2)]
    assert read(ctx, "a", "COUNT", 1, id="0") == [entry(1)]
    assert read(ctx, "b", id="3-1") == []
    assert group_of(ctx).pending() == [
        ((1, 1), b"a", START_MS + 40, 3),
        ((2, 1), b"a", START_MS + 40, 3),
        ((3, 1), b"b", START_MS, 1),
    ]


@pytest.mark.parametrize(("resp", "sent"), [(2, b"*2\r\n$3\r\n2-1\r\n*-1\r\n"), (3, b"*2\r\n$3\r\n2-1\r\n_\r\n")])
def test_a_deleted_entry_of_the_history_is_an_id_and_a_null(ctx: HandlerContext, resp: int, sent: bytes) -> None:
    read(ctx, "a", "COUNT", 3)
    ctx.db.peek(b"s").delete((2, 1))
    assert read(ctx, "a", id="0") == [entry(1), [b"2-1", None], entry(3)]
    assert group_of(ctx).pending((2, 1), (2, 1)) == [((2, 1), b"a", START_MS, 1)]
    ctx.reply.resp = resp
    streamd.values.streams.xread.xreadgroup(
        ctx, [b"XREADGROUP", b"GROUP", b"g", b"a", b"COUNT", b"1", b"STREAMS", b"s", b"1-1"]
    )
    assert ctx.reply.take().endswith(sent)


def test_an_entry_delivered_again_after_setid_changes_hands(ctx: HandlerContext) -> None:
    read(ctx, "a", "COUNT", 2)
    read(ctx, "a", id="0")
    run(ctx, "XGROUP", "SETID", "s", "g", "1-1")
    set_time(ctx, START_MS + 5)
    assert read(ctx, "b", "COUNT", 2) == [entry(2), entry(3)]
    assert group_of(ctx).pending() == [
        ((1, 1), b"a", START_MS, 2),
        ((2, 1), b"b", START_MS + 5, 1),
        ((3, 1), b"b", START_MS + 5, 1),
    ]


def test_seen_and_active_times(ctx: HandlerContext) -> None:
    assert read(ctx, "a", id="0") == []
    consumer = group_of(ctx).consumers[b"a"]
    assert (consumer.seen_ms, consumer.active_ms) == (START_MS, -1)
    set_time(ctx, START_MS + 10)
    read(ctx, "a", "COUNT", 1)
    set_time(ctx, START_MS + 20)
    read(ctx, "a", id="0")
    assert (consumer.seen_ms, consumer.active_ms) == (START_MS + 20, START_MS + 10)


def test_a_stream_named_twice_is_read_twice(ctx: HandlerContext) -> None:
    reply = run(ctx, "XREADGROUP", "GROUP", "g", "a", "COUNT", 2, "STREAMS", "s", "s", "s", ">", ">", "0")
    assert reply == [[b"s", [entry(1), entry(2)]], [b"s", [entry(3), entry(4)]], [b"s", [entry(1), entry(2)]]]


# --- XREADGROUP CLAIM ---------------------------------------------------------------------------------------------------


def test_claim_comes_before_what_is_new_and_shows_how_it_was_pending(ctx: HandlerContext) -> None:
    read(ctx, "a", "COUNT", 2)
    set_time(ctx, START_MS + 100)
    assert read(ctx, "b", "CLAIM", 101, "COUNT", 1) == [entry(3, 0, 0)]
    assert read(ctx, "b", "CLAIM", 100, "COUNT", 3) == [entry(1, 100, 1), entry(2, 100, 1), entry(4, 0, 0)]
    assert [record[1:] for record in group_of(ctx).pending((1, 1), (2, 1))] == [(b"b", START_MS + 100, 2)] * 2


def test_claim_takes_the_oldest_delivery_first(ctx: HandlerContext) -> None:
    read(ctx, "a")
    for number, idle_ms in ((4, 900), (2, 500), (5, 700)):
        run(ctx, "XCLAIM", "s", "g", "a", 0, f"{number}-1", "IDLE", idle_ms, "JUSTID")
    assert [row[0] for row in read(ctx, "b", "CLAIM", 500)] == ids((4, 5, 2))
    assert [row[0] for row in read(ctx, "b", "CLAIM", 0, "COUNT", 3)] == ids((1, 3, 4))


@pytest.mark.parametrize(
    "renewal",
    [
        ("XREADGROUP", "GROUP", "g", "a", "COUNT", 2, "STREAMS", "s", "0"),
        ("XCLAIM", "s", "g", "a", 0, "1-1", "2-1", "JUSTID"),
        ("XCLAIM", "s", "g", "b", 0, "1-1", "2-1", "TIME", START_MS),
        ("XAUTOCLAIM", "s", "g", "b", 0, "0", "COUNT", 2),
        ("XREADGROUP", "GROUP", "g", "b", "COUNT", 2, "CLAIM", 0, "STREAMS", "s", ">"),
    ],
)
def test_a_delivery_at_the_same_time_moves_an_entry_behind_the_others(ctx: HandlerContext, renewal: Any) -> None:
    read(ctx, "a")
    run(ctx, *renewal)
    assert [row[0] for row in read(ctx, "b", "CLAIM", 0)] == ids((3, 4, 5, 1, 2))


def test_entries_delivered_again_at_the_same_time_move_behind_the_others(ctx: HandlerContext) -> None:
    read(ctx, "a")
    run(ctx, "XCLAIM", "s", "g", "a", 0, "3-1", "1-1")
    run(ctx, "XGROUP", "SETID", "s", "g", "3-1")
    read(ctx, "b")
    assert [row[0] for row in read(ctx, "b", "CLAIM", 0)] == ids((2, 3, 1, 4, 5))


def test_claim_with_a_time_in_the_past_goes_behind_the_entries_of_that_time(ctx: HandlerContext) -> None:
    read(ctx, "a")
    for numbers, time in (((4, 2), 1000), ((5,), 1001), ((3, 1), 1000), ((2,), 1000), ((2,), 1000)):
        run(ctx, "XCLAIM", "s", "g", "a", 0, *ids(numbers), "TIME", time)
    assert [row[0] for row in read(ctx, "b", "CLAIM", 0)] == ids((4, 3, 1, 2, 5))


def test_entries_of_one_delivery_time_are_in_the_order_restored_and_by_id_in_a_copy(ctx: HandlerContext) -> None:
    group_of(ctx).create_consumer(b"a", now_ms=0)
    for number, delivery_ms in ((4, 7), (2, 7), (5, 6), (3, 7), (1, 8)):
        group_of(ctx).restore_pending((number, 1), b"a", delivery_ms=delivery_ms, delivery_count=1)
    twin = ctx.db.peek(b"s").copy()
    assert [row[0] for row in read(ctx, "b", "CLAIM", 1, "COUNT", 5)] == ids((5, 4, 2, 3, 1))
    ctx.db.set(b"s", twin)
    assert [row[0] for row in read(ctx, "b", "CLAIM", 1, "COUNT", 5)] == ids((5, 2, 3, 4, 1))


def test_claim_skips_deleted_entries_and_leaves_them_pending(ctx: HandlerContext) -> None:
    read(ctx, "a")
    ctx.db.peek(b"s").delete((1, 1))
    assert [row[0] for row in read(ctx, "b", "CLAIM", 0, "COUNT", 2)] == ids((2, 3))
    for number in range(2, 6):
        ctx.db.peek(b"s").delete((number, 1))
    assert read(ctx, "b", "CLAIM", 0) is None
    assert group_of(ctx).pending_count == 5


def test_claim_with_noack_makes_only_the_claimed_pending(ctx: HandlerContext) -> None:
    read(ctx, "a", "COUNT", 1)
    assert read(ctx, "b", "CLAIM", 0, "NOACK", "COUNT", 3) == [entry(1, 0, 1), entry(2, 0, 0), entry(3, 0, 0)]
    assert [record[:2] for record in group_of(ctx).pending()] == [((1, 1), b"b")]


def test_a_history_read_turns_claim_off_for_the_streams_after_it(ctx: HandlerContext) -> None:
    read(ctx, "a")
    request = ["XREADGROUP", "GROUP", "g", "b", "CLAIM", 0, "STREAMS", "s", "s"]
    assert run(ctx, *request, "0", ">") == [[b"s", []]]
    assert [len(found) for _, found in run(ctx, *request, ">", "0")] == [5, 5]


# --- XACK, XACKDEL ----------------------------------------------------------------------------------------------------


def test_xack_counts_what_was_pending(ctx: HandlerContext) -> None:
    read(ctx, "a")
    assert run(ctx, "XACK", "s", "g", "1-1", "1-1", "9-9", "2-1") == 2
    assert run(ctx, "XACK", "s", "none", "x") == run(ctx, "XACK", "none", "g", "x") == 0
    assert len(ctx.db.peek(b"s")) == 5
    check(ctx)


def test_xack_does_nothing_when_one_id_is_wrong(ctx: HandlerContext) -> None:
    read(ctx, "a")
    assert str(run(ctx, "XACK", "s", "g", "1-1", "x")) == INVALID_ID
    assert group_of(ctx).pending_count == 5
    assert str(run(ctx, "XACK", "text", "g", "x")) == WRONG_TYPE


@pytest.fixture
def two_groups(ctx: HandlerContext) -> HandlerContext:
    """`g` has 1-1, 2-1 and 3-1 pending, `h` 2-1 and 3-1; 4-1 is new to both."""
    run(ctx, "XGROUP", "CREATE", "s", "h", "1-1")
    read(ctx, "a", "COUNT", 3)
    run(ctx, "XREADGROUP", "GROUP", "h", "a", "COUNT", 2, "STREAMS", "s", ">")
    return ctx


@pytest.mark.parametrize(
    ("policy", "replies", "left", "pending_in_h"),
    [
        ([], [1, 1, -1], [3, 4, 5], 2),
        (["KEEPREF"], [1, 1, -1], [3, 4, 5], 2),
        (["delref"], [1, 1, -1], [3, 4, 5], 1),
        (["ACKED"], [1, 2, -1], [2, 3, 4, 5], 2),
    ],
)
def test_xackdel_deletes_as_the_policy_says(
    two_groups: HandlerContext, policy: list[str], replies: list[int], left: list[int], pending_in_h: int
) -> None:
    ctx = two_groups
    assert run(ctx, "XACKDEL", "s", "g", *policy, "IDS", 3, "1-1", "2-1", "4-1") == replies
    assert [found[0] for found in ctx.db.peek(b"s").range()] == [(number, 1) for number in left]
    assert group_of(ctx).pending_count == 1
    assert group_of(ctx, b"h").pending_count == pending_in_h
    check(ctx)


@pytest.mark.parametrize(
    ("command", "error"),
    [
        ("text g FOO 1 x", WRONG_TYPE),
        ("none g FOO 1 x", "ERR syntax error"),
        ("s g IDS 0 1-1", "ERR Number of IDs must be a positive integer"),
        ("s g IDS x 1-1", "ERR Number of IDs must be a positive integer"),
        ("s g IDS 2 1-1", "ERR The `numids` parameter must match the number of arguments"),
        ("s g IDS 1 1-1 2-1", "ERR syntax error"),
        ("s g KEEPREF KEEPREF IDS 1 1-1", "ERR syntax error"),
        ("s g IDS 2 1-1 x", INVALID_ID),
    ],
)
def test_xackdel_refuses(ctx: HandlerContext, command: str, error: str) -> None:
    read(ctx, "a")
    assert str(run(ctx, "XACKDEL", *command.split())) == error
    assert group_of(ctx).pending_count == 5


def test_xackdel_does_not_read_the_ids_of_a_missing_group(ctx: HandlerContext) -> None:
    assert run(ctx, "XACKDEL", "s", "none", "IDS", 2, "x", "y") == [-1, -1]
    assert run(ctx, "XACKDEL", "none", "g", "IDS", 1, "x", "IDS", 2, "x", "y") == [-1, -1]


# --- XPENDING ---------------------------------------------------------------------------------------------------------


def test_an_empty_summary_has_nulls_of_both_kinds(ctx: HandlerContext) -> None:
    from streamd.values.streams.xpending import xpending

    xpending(ctx, [b"XPENDING", b"s", b"g"])
    assert ctx.reply.take() == b"*4\r\n:0\r\n$-1\r\n$-1\r\n*-1\r\n"
    ctx.reply.resp = 3
    xpending(ctx, [b"XPENDING", b"s", b"g"])
    assert ctx.reply.take() == b"*4\r\n:0\r\n_\r\n_\r\n_\r\n"


def test_the_summary_lists_consumers_with_something_by_name(ctx: HandlerContext) -> None:
    for name in ("z", "idle", "b", ""):
        if name == "idle":
            run(ctx, "XGROUP", "CREATECONSUMER", "s", "g", name)
        else:
            read(ctx, name, "COUNT", 1)
    assert run(ctx, "XPENDING", "s", "g") == [3, b"1-1", b"3-1", [[b"", b"1"], [b"b", b"1"], [b"z", b"1"]]]


def test_pending_entries_can_be_asked_for_by_interval_consumer_and_idle_time(ctx: HandlerContext) -> None:
    read(ctx, "a", "COUNT", 2)
    set_time(ctx, START_MS + 60)
    read(ctx, "b", "COUNT", 2)
    a = [[b"1-1", b"a", 60, 1], [b"2-1", b"a", 60, 1]]
    b = [[b"3-1", b"b", 0, 1], [b"4-1", b"b", 0, 1]]
    for arguments, want in (
        ("- + 10", a + b),
        ("- + 3", [*a, b[0]]),
        ("(1-1 (4-1 10", [a[1], b[0]]),
        ("2 2 10", [a[1]]),
        ("2-1 3-1 10", [a[1], b[0]]),
        ("3 2 10", []),
        ("- + 0", []),
        ("- + -1", []),
        ("- + 10 b", b),
        ("- + 10 nobody", []),
        ("- + 10 b ignored", b),
        ("IDLE 60 - + 10", a),
        ("IDLE 61 - + 10", []),
        ("idle 0 - + 10 b", b),
        ("IDLE -5 3-1 + 1", [b[0]]),
    ):
        assert run(ctx, "XPENDING", "s", "g", *arguments.split()) == want, arguments


def test_an_idle_time_is_never_negative(ctx: HandlerContext) -> None:
    read(ctx, "a", "COUNT", 1)
    set_time(ctx, START_MS - 1000)
    assert run(ctx, "XPENDING", "s", "g", "-", "+", 10) == [[b"1-1", b"a", 0, 1]]
    assert run(ctx, "XINFO", "CONSUMERS", "s", "g")[0][5:8:2] == [0, 0]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ("s g -", "ERR syntax error"),
        ("s g - +", "ERR syntax error"),
        ("s g IDLE 1 - +", "ERR syntax error"),
        ("s g IDLE x - + 1", NOT_INTEGER),
        ("s g x y z", NOT_INTEGER),
        ("none g x + 1", INVALID_ID),
        ("none g - (x 1", INVALID_ID),
        ("none g (18446744073709551615-18446744073709551615 + 1", "ERR invalid start ID for the interval"),
        ("none g - (0-0 1", "ERR invalid end ID for the interval"),
        ("text g - + 1", WRONG_TYPE),
        ("none g", "NOGROUP No such key 'none' or consumer group 'g'"),
        ("s none - + 1", "NOGROUP No such key 's' or consumer group 'none'"),
    ],
)
def test_xpending_refuses(ctx: HandlerContext, arguments: str, error: str) -> None:
    assert str(run(ctx, "XPENDING", *arguments.split())) == error


# --- XCLAIM -----------------------------------------------------------------------------------------------------------


def test_xclaim_moves_what_is_idle_in_the_order_asked(ctx: HandlerContext) -> None:
    read(ctx, "a")
    set_time(ctx, START_MS + 50)
    assert run(ctx, "XCLAIM", "s", "g", "b", 51, "1-1") == []
    assert run(ctx, "XCLAIM", "s", "g", "b", 50, "3-1", "9-9", "1-1") == [entry(3), entry(1)]
    assert run(ctx, "XCLAIM", "s", "g", "b", 50, "3-1") == []
    assert group_of(ctx).pending(consumer=b"b") == [
        ((1, 1), b"b", START_MS + 50, 2),
        ((3, 1), b"b", START_MS + 50, 2),
    ]
    check(ctx)


def test_xclaim_of_one_id_twice_returns_it_twice(ctx: HandlerContext) -> None:
    read(ctx, "a")
    assert run(ctx, "XCLAIM", "s", "g", "b", 0, "2-1", "2-1", "JUSTID") == ids((2, 2))
    assert run(ctx, "XCLAIM", "s", "g", "b", 0, "2-1", "2-1") == [entry(2), entry(2)]


@pytest.mark.parametrize(
    ("options", "delivery_ms", "count"),
    [
        ("", START_MS, 2),
        ("JUSTID", START_MS, 1),
        ("RETRYCOUNT 7", START_MS, 7),
        ("RETRYCOUNT 0 JUSTID", START_MS, 0),
        ("RETRYCOUNT -1", START_MS, 2),
        ("IDLE 100", START_MS - 100, 2),
        ("IDLE -100", START_MS, 2),
        (f"IDLE {START_MS + 1}", START_MS, 2),
        ("IDLE -9223372036854775808", START_MS, 2),
        ("TIME 0", 0, 2),
        ("TIME -1", START_MS, 2),
        (f"TIME {START_MS + 1}", START_MS, 2),
        ("IDLE 5 TIME 17", 17, 2),
    ],
)
def test_xclaim_sets_time_and_count(ctx: HandlerContext, options: str, delivery_ms: int, count: int) -> None:
    read(ctx, "a", "COUNT", 1)
    assert len(run(ctx, "XCLAIM", "s", "g", "b", 0, "1-1", *options.split())) == 1
    assert group_of(ctx).pending() == [((1, 1), b"b", delivery_ms, count)]
    check(ctx)


@pytest.mark.parametrize(("options", "count"), [("", 2), ("JUSTID", 1), ("RETRYCOUNT 5", 5)])
def test_force_makes_an_entry_pending_whatever_the_idle_time(ctx: HandlerContext, options: str, count: int) -> None:
    assert run(ctx, "XCLAIM", "s", "g", "b", 99999, "1-1", "9-9") == []
    assert len(run(ctx, "XCLAIM", "s", "g", "b", 99999, "1-1", "9-9", "FORCE", *options.split())) == 1
    assert group_of(ctx).pending() == [((1, 1), b"b", START_MS, count)]


def test_xclaim_forgets_deleted_entries_without_a_word(ctx: HandlerContext) -> None:
    read(ctx, "a", "COUNT", 2)
    ctx.db.peek(b"s").delete((1, 1))
    assert run(ctx, "XCLAIM", "s", "g", "b", 99999, "1-1", "2-1", "FORCE") == []
    assert [record[0] for record in group_of(ctx).pending()] == [(2, 1)]
    assert group_of(ctx).consumers[b"b"].active_ms == -1
    check(ctx)


def test_lastid_moves_the_group_forwards_only(ctx: HandlerContext) -> None:
    for last_id, want in (("3-1", (3, 1)), ("2-1", (3, 1)), ("7", (7, 0))):
        assert run(ctx, "XCLAIM", "s", "g", "b", 0, "1-1", "LASTID", last_id) == []
        assert group_of(ctx).last_delivered_id == want
    assert group_of(ctx).entries_read == -1


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ("text g c x y", WRONG_TYPE),
        ("none g c x y", "NOGROUP No such key 'none' or consumer group 'g'"),
        ("s g c x y", "ERR Invalid min-idle-time argument for XCLAIM"),
        ("s g c 0 x", "ERR Unrecognized XCLAIM option 'x'"),
        ("s g c 0 1-1 -", "ERR Unrecognized XCLAIM option '-'"),
        ("s g c 0 1-1 IDLE", "ERR Unrecognized XCLAIM option 'IDLE'"),
        ("s g c 0 1-1 IDLE x", "ERR Invalid IDLE option argument for XCLAIM"),
        ("s g c 0 1-1 TIME x", "ERR Invalid TIME option argument for XCLAIM"),
        ("s g c 0 1-1 RETRYCOUNT x", "ERR Invalid RETRYCOUNT option argument for XCLAIM"),
        ("s g c 0 1-1 LASTID x", INVALID_ID),
    ],
)
def test_xclaim_refuses_and_makes_no_consumer(ctx: HandlerContext, arguments: str, error: str) -> None:
    assert str(run(ctx, "XCLAIM", *arguments.split())) == error
    assert group_of(ctx).consumers == {}


# --- XAUTOCLAIM -------------------------------------------------------------------------------------------------------


def autoclaim(ctx: HandlerContext, min_idle_ms: int, start: str, *options: Any) -> Any:
    reply = run(ctx, "XAUTOCLAIM", "s", "g", "b", min_idle_ms, start, *options)
    check(ctx)
    return reply


def test_xautoclaim_goes_through_the_pending_entries_in_steps(ctx: HandlerContext) -> None:
    read(ctx, "a")
    assert autoclaim(ctx, 0, "0", "COUNT", 2) == [b"3-1", [entry(1), entry(2)], []]
    assert autoclaim(ctx, 0, "3-1", "COUNT", 2, "JUSTID") == [b"5-1", ids((3, 4)), []]
    assert autoclaim(ctx, 0, "(4-1", "COUNT", 1) == [b"0-0", [entry(5)], []]
    assert [record[1:] for record in group_of(ctx).pending()] == [(b"b", START_MS, count) for count in (2, 2, 1, 1, 2)]


def test_xautoclaim_drops_deleted_entries_whatever_their_idle_time(ctx: HandlerContext) -> None:
    read(ctx, "a")
    for number in (2, 4):
        ctx.db.peek(b"s").delete((number, 1))
    assert autoclaim(ctx, 99999, "0", "COUNT", 1) == [b"3-1", [], ids([2])]
    assert autoclaim(ctx, 0, "-", "COUNT", 3) == [b"5-1", [entry(1), entry(3)], ids([4])]


def test_xautoclaim_looks_at_ten_times_count(ctx: HandlerContext) -> None:
    stream = ctx.db.peek(b"s")
    for number in range(6, 101):
        stream.append([(b"f", b"%d" % number)], id=(number, 1))
    read(ctx, "a")
    assert autoclaim(ctx, 99999, "0", "COUNT", 2) == [b"21-1", [], []]
    assert autoclaim(ctx, 99999, "91-1", "COUNT", 1) == [b"0-0", [], []]


def test_xautoclaim_finds_entries_far_apart(ctx: HandlerContext) -> None:
    stream = ctx.db.peek(b"s")
    for number in range(6, 201):
        stream.append([(b"f", b"%d" % number)], id=(number, 1))
    numbers = [1, 2, 17, 18, 60, 61, 99, 180, 200]
    run(ctx, "XCLAIM", "s", "g", "a", 0, *ids(numbers), "FORCE")
    for deleted in (17, 61, 200):
        stream.delete((deleted, 1))
    kept = [number for number in numbers if number not in (17, 61, 200)]
    assert autoclaim(ctx, 0, "0") == [b"0-0", [entry(number) for number in kept], ids((17, 61, 200))]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ("none g c x y", "ERR Invalid min-idle-time argument for XAUTOCLAIM"),
        ("none g c 0 y", INVALID_ID),
        ("none g c 0 0 FOO", "ERR syntax error"),
        ("none g c 0 0 COUNT", "ERR syntax error"),
        ("none g c 0 0 COUNT 0", "ERR COUNT must be > 0"),
        ("none g c 0 0 COUNT x", "ERR COUNT must be > 0"),
        ("none g c 0 0 COUNT 576460752303423488", "ERR COUNT must be > 0"),
        ("text g c 0 0", WRONG_TYPE),
        ("none g c 0 0", "NOGROUP No such key 'none' or consumer group 'g'"),
        (
            "s g c 0 0 COUNT 576460752303423487",
            "ERR Insufficient memory, failed allocating transient memory, COUNT too high.",
        ),
    ],
)
def test_xautoclaim_refuses(ctx: HandlerContext, arguments: str, error: str) -> None:
    assert str(run(ctx, "XAUTOCLAIM", *arguments.split())) == error
    assert group_of(ctx).consumers == {}


# --- XINFO ------------------------------------------------------------------------------------------------------------


def as_dict(flat: list[Any]) -> dict[str, Any]:
    return {name.decode(): value for name, value in zip(flat[::2], flat[1::2], strict=True)}


HEAD = [
    "length",
    "radix-tree-keys",
    "radix-tree-nodes",
    "last-generated-id",
    "max-deleted-entry-id",
    "entries-added",
    "recorded-first-entry-id",
    "idmp-duration",
    "idmp-maxsize",
    "pids-tracked",
    "iids-tracked",
    "iids-added",
    "iids-duplicates",
]


def test_xinfo_stream_tells_the_fields_in_redis_order(ctx: HandlerContext) -> None:
    found = as_dict(run(ctx, "XINFO", "STREAM", "s"))
    assert list(found) == [*HEAD, "groups", "first-entry", "last-entry"]
    assert (found["length"], found["radix-tree-keys"], found["groups"]) == (5, 2, 1)
    assert (found["first-entry"], found["last-entry"]) == (entry(1), entry(5))
    for number in range(1, 6):
        ctx.db.peek(b"s").delete((number, 1))
    found = as_dict(run(ctx, "XINFO", "STREAM", "s"))
    assert found["first-entry"] is found["last-entry"] is None
    assert found["max-deleted-entry-id"] == b"5-1"


def test_xinfo_stream_full_tells_groups_and_consumers_by_name(ctx: HandlerContext) -> None:
    run(ctx, "XGROUP", "CREATE", "s", "a-group", "3-1")
    read(ctx, "z", "COUNT", 2)
    read(ctx, "a", "COUNT", 1)
    found = as_dict(run(ctx, "XINFO", "STREAM", "s", "FULL"))
    assert list(found) == [*HEAD, "entries", "groups"]
    assert found["entries"] == [entry(number) for number in range(1, 6)]
    first, second = (as_dict(group) for group in found["groups"])
    assert (first["name"], first["entries-read"], first["lag"], first["pending"]) == (b"a-group", None, None, [])
    assert list(second) == [
        "name", "last-delivered-id", "entries-read", "lag", "pel-count", "nacked-count", "pending", "consumers",
    ]  # fmt: skip
    assert (second["entries-read"], second["lag"], second["pel-count"]) == (3, 2, 3)
    assert second["pending"][0] == [b"1-1", b"z", START_MS, 1]
    consumers = [as_dict(consumer) for consumer in second["consumers"]]
    assert list(consumers[0]) == ["name", "seen-time", "active-time", "pel-count", "pending"]
    assert [consumer["name"] for consumer in consumers] == [b"a", b"z"]
    assert consumers[1]["pending"] == [[b"1-1", START_MS, 1], [b"2-1", START_MS, 1]]


@pytest.mark.parametrize(("count", "shown"), [("1", 1), ("0", 15), ("-7", 10), (None, 10)])
def test_xinfo_stream_full_limits_every_list(ctx: HandlerContext, count: str | None, shown: int) -> None:
    stream = ctx.db.peek(b"s")
    for number in range(6, 16):
        stream.append([(b"f", b"%d" % number)], id=(number, 1))
    read(ctx, "a")
    found = as_dict(run(ctx, "XINFO", "STREAM", "s", "FULL", *(() if count is None else ("COUNT", count))))
    group = as_dict(found["groups"][0])
    consumer = as_dict(group["consumers"][0])
    assert [len(found["entries"]), len(group["pending"]), len(consumer["pending"])] == [shown] * 3


def test_xinfo_groups_and_consumers(ctx: HandlerContext) -> None:
    run(ctx, "XGROUP", "CREATECONSUMER", "s", "g", "new")
    set_time(ctx, START_MS + 9)
    read(ctx, "a", "COUNT", 2)
    (group,) = run(ctx, "XINFO", "GROUPS", "s")
    assert group == [
        b"name", b"g", b"consumers", 2, b"pending", 2, b"last-delivered-id", b"2-1", b"entries-read", 2, b"lag", 3,
    ]  # fmt: skip
    set_time(ctx, START_MS + 20)
    assert run(ctx, "XINFO", "CONSUMERS", "s", "g") == [
        [b"name", b"a", b"pending", 2, b"idle", 11, b"inactive", 11],
        [b"name", b"new", b"pending", 0, b"idle", 20, b"inactive", -1],
    ]


def test_xinfo_answers_maps_in_resp3(ctx: HandlerContext) -> None:
    ctx.reply.resp = 3
    assert run(ctx, "XINFO", "GROUPS", "s")[0][b"entries-read"] is None
    assert run(ctx, "XINFO", "STREAM", "s", "FULL")[b"groups"][0][b"lag"] == 5


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ("STREAM none FOO", "ERR no such key"),
        ("STREAM text FOO", WRONG_TYPE),
        ("STREAM s FOO", "ERR unknown subcommand or wrong number of arguments for 'STREAM'. Try XINFO HELP."),
        ("stream s FULL COUNT", "ERR unknown subcommand or wrong number of arguments for 'stream'. Try XINFO HELP."),
        ("STREAM s FULL FOO 1", "ERR unknown subcommand or wrong number of arguments for 'STREAM'. Try XINFO HELP."),
        ("STREAM s FULL COUNT x", NOT_INTEGER),
        ("GROUPS none", "ERR no such key"),
        ("CONSUMERS none g", "ERR no such key"),
        ("CONSUMERS s none", "NOGROUP No such consumer group 'none' for key name 's'"),
    ],
)
def test_xinfo_refuses(ctx: HandlerContext, arguments: str, error: str) -> None:
    assert str(run(ctx, "XINFO", *arguments.split())) == error
