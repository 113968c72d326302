"""Streams: the layout of nodes, when they are split, tombstones, trimming, copies, and the order of everything."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from support.commands.handler import make_context, run
from support.compiled import compiled
from support.servers import eventually

import streamd.values.streams.xadd_xtrim
import streamd.values.streams.xdel
import streamd.values.streams.xrange  # noqa: F401  (each declares its commands)
from streamd.heap import allocated
from streamd.values.streams.group import Group
from streamd.values.streams.idempotency import Idempotency, IdempotencyRegistry
from streamd.values.streams.stream import Stream

validate_node = compiled("nodes").validate_node

listpacks = compiled("listpack")
decode, encode = listpacks.decode, listpacks.encode

ID = tuple[int, int]
MAX = 2**64 - 1
MAX_ID = (MAX, MAX)


def numbered(*numbers: int, node_max_entries: int = 3, node_max_bytes: int = 4096) -> Stream:
    """A stream of entries n-1, each with the field `f` and value n, three to a node."""
    stream = Stream(node_max_bytes, node_max_entries)
    for number in numbers:
        stream.append([(b"f", b"%d" % number)], (number, 1))
    return stream


def ids(stream: Stream) -> list[int]:
    stream.check_invariants()
    return [id[0] for id, _ in stream.range()]


def nodes(stream: Stream) -> list[list[bytes]]:
    return [decode(listpack) for _, listpack in stream.list_nodes()]


def group(stream: Stream, last_id: ID = (0, 0), pending: tuple[int, ...] = (), name: bytes = b"g") -> Group:
    """A group of the stream that has read up to `last_id`, with entries n-1 pending."""
    made = Group(name, last_id)
    made.create_consumer(b"c", now_ms=0)
    for number in pending:
        made.restore_pending((number, 1), b"c", delivery_ms=0, delivery_count=1)
    stream.groups[name] = made
    return made


# --- What a node looks like ---------------------------------------------------------------------------------------


def test_a_node_is_a_master_entry_and_entries() -> None:
    stream = Stream()
    stream.append([(b"a", b"x")], (1, 1))
    stream.append([(b"a", b"5")], (1, 2))
    [(master, listpack)] = stream.list_nodes()
    assert master == (1, 1)
    assert listpack == encode([*b"2 0 1 a 0 2 0 0 x 4 2 0 1 5 4".split()])


def test_entries_with_other_names_carry_them() -> None:
    stream = Stream()
    stream.append([(b"a", b"1"), (b"b", b"2")], (5, 9))
    stream.append([(b"b", b"1"), (b"a", b"2")], (6, 0))
    stream.append([(b"a", b"3")], (7, 0))
    stream.append([(b"a", b"4"), (b"b", b"5")], (8, 10))
    assert nodes(stream) == [
        [*b"4 0 2 a b 0".split(), *b"2 0 0 1 2 5".split(), *b"0 1 -9 2 b 1 a 2 8".split(),
         *b"0 2 -9 1 a 3 6".split(), *b"2 3 1 4 5 5".split()]
    ]  # fmt: skip
    assert stream.range((6, 0), (7, 0)) == [
        ((6, 0), [(b"b", b"1"), (b"a", b"2")]),
        ((7, 0), [(b"a", b"3")]),
    ]


def test_a_field_name_that_reads_as_an_integer_is_recognised() -> None:
    stream = Stream()
    for number, name in enumerate([b"17", b"17", b"017", b"+17"], 1):
        stream.append([(name, b"v")], (number, 0))
    assert [entry[1][0][0] for entry in stream.range()] == [b"17", b"17", b"017", b"+17"]
    assert nodes(stream)[0].count(b"17") == 1


def test_ids_far_from_the_master_id_wrap_as_signed_numbers() -> None:
    stream = Stream()
    for id in [(0, 1), (2**63, 0), (MAX, 0), MAX_ID]:
        stream.append([(b"f", b"v")], id)
    stream.check_invariants()
    assert [id for id, _ in stream.range()] == [(0, 1), (2**63, 0), (MAX, 0), MAX_ID]
    assert decode(stream.list_nodes()[0][1])[11:13] == [b"-9223372036854775808", b"-1"]


def test_counts_grow_and_shrink_in_the_listpack() -> None:
    stream = Stream(node_max_bytes=0, node_max_entries=0)
    for number in range(1, 300):
        stream.append([(b"f", b"v")], (number, 1))
    for number in range(1, 299):
        assert stream.delete((number, 1)) == "deleted"
        stream.check_invariants()
    [node] = nodes(stream)
    assert node[:2] == [b"1", b"298"]


# --- When a node is full ----------------------------------------------------------------------------------------


def test_a_node_is_full_by_entries_tombstones_included() -> None:
    stream = numbered(1, 2, 3, 4, 5)
    assert [master for master, _ in stream.list_nodes()] == [(1, 1), (4, 1)]
    stream.delete((4, 1))
    stream.append([(b"f", b"v")], (6, 1))
    stream.append([(b"f", b"v")], (7, 1))
    assert [master for master, _ in stream.list_nodes()] == [(1, 1), (4, 1), (7, 1)]


def test_a_node_is_full_by_bytes_before_encoding() -> None:
    stream = Stream(node_max_bytes=100, node_max_entries=0)
    stream.append([(b"f", b"x" * 40)], (1, 0))
    taken = len(stream.list_nodes()[0][1])
    stream.append([(b"f", b"x" * (100 - taken - 2))], (2, 0))
    assert stream.node_count == 1
    fresh = Stream(node_max_bytes=100, node_max_entries=0)
    fresh.append([(b"f", b"x" * 40)], (1, 0))
    fresh.append([(b"f", b"x" * (100 - taken - 1))], (2, 0))
    assert fresh.node_count == 2


def test_an_entry_is_never_split() -> None:
    stream = Stream(node_max_bytes=100)
    stream.append([(b"f", b"x" * 5000)], (1, 0))
    stream.append([(b"f", b"y" * 5000)], (2, 0))
    stream.check_invariants()
    assert stream.node_count == 2


def test_limits_are_looked_at_when_an_entry_is_added() -> None:
    stream = numbered(1, 2)
    stream.node_max_entries = 2
    stream.append([(b"f", b"v")], (3, 1))
    assert stream.node_count == 2


def test_a_full_node_takes_no_more_than_its_listpack() -> None:
    stream = Stream()
    for number in range(1, 1001):
        stream.append([(b"sensor-id", b"1234"), (b"temperature", b"19.8")], (1_700_000_000_000 + number, 0))
    stream.check_invariants()
    sizes = [len(listpack) for _, listpack in stream.list_nodes()]
    assert stream.memory_usage() < sum(sizes) + 110 * len(sizes) + 1000


# --- IDs --------------------------------------------------------------------------------------------------------


def test_an_automatic_id_follows_the_clock_and_never_goes_back() -> None:
    stream = Stream()
    field = [(b"f", b"v")]
    assert stream.append(field, now_ms=5) == (5, 0)
    assert stream.append(field, now_ms=5) == (5, 1)
    assert stream.append(field, now_ms=3) == (5, 2)
    assert stream.append(field, now_ms=6) == (6, 0)
    stream.append(field, (7, MAX))
    assert stream.append(field, now_ms=6) == (8, 0)


def test_the_first_automatic_id_at_time_zero_is_0_1() -> None:
    assert Stream().append([(b"f", b"v")], now_ms=0) == (0, 1)


@pytest.mark.parametrize("id", [(5, 1), (5, 0), (4, 9), (0, 0)])
def test_an_id_not_above_the_last_is_refused(id: ID) -> None:
    stream = numbered(5)
    with pytest.raises(ValueError, match="not above the last ID"):
        stream.append([(b"f", b"v")], id)
    assert ids(stream) == [5]


def test_after_the_greatest_id_there_is_none() -> None:
    stream = Stream()
    stream.append([(b"f", b"v")], MAX_ID)
    with pytest.raises(ValueError, match="no greater ID"):
        stream.append([(b"f", b"v")], now_ms=5)


def test_an_entry_has_at_least_one_field_of_bytes() -> None:
    stream = Stream()
    with pytest.raises(ValueError, match="at least one field"):
        stream.append([], (1, 1))
    with pytest.raises(TypeError, match="fields and values are bytes"):
        stream.append([(b"f", None)], (1, 1))  # type: ignore[list-item]
    with pytest.raises(TypeError, match="Expected bytes, got str"):
        stream.append([("f", b"v")], (1, 1))  # type: ignore[list-item]
    assert len(stream) == 0


def test_set_ids_takes_what_can_be_and_nothing_else() -> None:
    stream = numbered(1, 2, 3)
    with pytest.raises(ValueError, match="below the last entry"):
        stream.set_ids((2, 9))
    with pytest.raises(ValueError, match="more entries than were added"):
        stream.set_ids((9, 0), entries_added=2)
    with pytest.raises(ValueError, match="greatest deleted"):
        stream.set_ids((9, 0), max_deleted=(9, 1))
    assert (stream.last_generated_id, stream.entries_added) == ((3, 1), 3)
    stream.set_ids((9, 0), entries_added=20, max_deleted=(4, 0))
    assert (stream.last_generated_id, stream.entries_added, stream.max_deleted_entry_id) == ((9, 0), 20, (4, 0))
    stream.check_invariants()


# --- Ranges -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("first", range(12))
@pytest.mark.parametrize("last", range(12))
def test_ranges_begin_and_end_anywhere(first: int, last: int, reverse: bool) -> None:
    stream = numbered(1, 2, 3, 5, 7, 8, 10)
    for number in (3, 8):
        stream.delete((number, 1))
    for low, high in [((first, 0), (last, MAX)), ((first, 1), (last, 1)), ((first, 2), (last, 0))]:
        want = [number for number in (1, 2, 5, 7, 10) if low <= (number, 1) <= high]
        got = [id[0] for id, _ in stream.range(low, high, reverse=reverse)]
        assert got == (want[::-1] if reverse else want)


def test_a_range_stops_at_its_count() -> None:
    stream = numbered(*range(1, 9))
    assert [id[0] for id, _ in stream.range((2, 0), count=4)] == [2, 3, 4, 5]
    assert [id[0] for id, _ in stream.range(last=(6, 0), reverse=True, count=4)] == [5, 4, 3, 2]
    assert stream.range(count=0) == []


def test_a_seek_within_a_large_node_finds_its_place() -> None:
    stream = Stream(node_max_bytes=0, node_max_entries=0)
    times = [*range(1, 50), *range(1000, 1050), *[5000] * 50]
    for seq, ms in enumerate(times):
        stream.append([(b"f", b"v")], (ms, seq))
    entries = [id for id, _ in stream.range()]
    for at, id in enumerate(entries):
        assert [found for found, _ in stream.range(id, count=2)] == entries[at : at + 2]
        assert [found for found, _ in stream.range(last=id, reverse=True, count=2)] == entries[: at + 1][::-1][:2]
        assert id in stream
        assert (id[0], id[1] + 1000) not in stream


def test_fields_come_back_as_they_were() -> None:
    stream = Stream(node_max_entries=2)
    entries = [
        [(b"", b"")], [(b"", b"0"), (b"", b"-0")], [(b"\0\r\n", b"\xff" * 300)], [(b"f" * 70, b"9223372036854775808")],
        [(b"n", b"-9223372036854775808"), (b"n", b"-4097")], [(b"big", b"x" * 70000)],
    ]  # fmt: skip
    for number, fields in enumerate(entries, 1):
        stream.append(fields, (number, 0))
    stream.check_invariants()
    assert [fields for _, fields in stream.range()] == entries
    assert [fields for _, fields in stream.range(reverse=True)] == entries[::-1]


# --- Deleting ---------------------------------------------------------------------------------------------------


def test_a_deleted_entry_becomes_a_tombstone() -> None:
    stream = numbered(1, 2, 3)
    assert stream.delete((2, 1)) == "deleted"
    assert stream.delete((2, 1)) == "missing"
    assert stream.delete((2, 0)) == "missing"
    assert stream.delete((9, 0)) == "missing"
    assert nodes(stream) == [[*b"2 1 1 f 0 2 0 0 1 4 3 1 0 2 4 2 2 0 3 4".split()]]
    assert ids(stream) == [1, 3]


def test_a_node_goes_with_its_last_live_entry() -> None:
    stream = numbered(1, 2, 3, 4)
    for number in (3, 1, 2):
        stream.delete((number, 1))
        stream.check_invariants()
    assert [master for master, _ in stream.list_nodes()] == [(4, 1)]
    assert stream.radix_tree_nodes == 2


def test_ends_and_counters_follow_deletions() -> None:
    stream = numbered(1, 2, 3, 4, 5)
    for number, first, last in [(1, 2, 5), (5, 2, 4), (3, 2, 4), (2, 4, 4)]:
        stream.delete((number, 1))
        stream.check_invariants()
        assert (stream.first_entry_id, stream.last_entry_id) == ((first, 1), (last, 1))
    stream.delete((4, 1))
    stream.check_invariants()
    assert (stream.first_entry_id, stream.last_entry_id) == ((0, 0), (0, 0))
    assert (stream.last_generated_id, stream.max_deleted_entry_id) == ((5, 1), (5, 1))
    assert (len(stream), stream.entries_added, stream.node_count, stream.radix_tree_nodes) == (0, 5, 0, 1)


def test_an_empty_stream_continues() -> None:
    stream = numbered(1)
    stream.delete((1, 1))
    stream.append([(b"f", b"v")], (2, 1))
    assert ids(stream) == [2]
    assert (stream.first_entry_id, stream.last_entry_id) == ((2, 1), (2, 1))


# --- Trimming ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", range(9))
def test_an_exact_trim_leaves_what_was_asked_for(length: int) -> None:
    stream = numbered(*range(1, 9))
    assert stream.trim(max_length=length) == 8 - length
    assert ids(stream) == [*range(1, 9)][8 - length :]
    assert stream.max_deleted_entry_id == (0, 0)


@pytest.mark.parametrize(("length", "removed"), [(7, 0), (6, 0), (5, 3), (3, 3), (2, 6), (1, 6), (0, 8)])
def test_an_approximate_trim_removes_whole_nodes(length: int, removed: int) -> None:
    stream = numbered(*range(1, 9))
    assert stream.trim(max_length=length, approximate=True) == removed
    assert ids(stream) == [*range(1, 9)][removed:]


@pytest.mark.parametrize(("limit", "removed"), [(1, 0), (2, 0), (3, 3), (5, 3), (6, 6), (8, 8), (0, 8)])
def test_a_limit_begins_no_node_that_would_exceed_it(limit: int, removed: int) -> None:
    stream = numbered(*range(1, 9))
    assert stream.trim(max_length=0, approximate=True, limit=limit) == removed


@pytest.mark.parametrize(("number", "exact", "approximate"), [(1, 0, 0), (3, 2, 0), (4, 3, 3), (5, 4, 3), (99, 8, 8)])
def test_trimming_by_id(number: int, exact: int, approximate: int) -> None:
    assert numbered(*range(1, 9)).trim(min_id=(number, 1)) == exact
    assert numbered(*range(1, 9)).trim(min_id=(number, 1), approximate=True) == approximate
    assert numbered(*range(1, 9)).trim(min_id=(number, 0)) == exact


def test_an_exact_trim_at_each_append_keeps_the_ends_right() -> None:
    stream = Stream(node_max_entries=5)
    there: list[int] = []
    for number in range(1, 60):
        stream.append([(b"f", b"v")], (number, 1))
        stream.trim(max_length=7)
        there = [*there, number][-7:]
        if number % 4 == 0:
            stream.delete((there.pop(number % len(there)), 1))
        assert ids(stream) == there


def test_a_node_emptied_by_an_exact_trim_goes_though_its_end_is_not_reached() -> None:
    stream = numbered(1, 2, 3, 4)
    stream.delete((3, 1))
    assert stream.trim(min_id=(3, 1)) == 2
    assert ids(stream) == [4]
    assert [node[:2] for node in nodes(stream)] == [[b"1", b"0"]]
    assert (stream.first_entry_id, stream.node_count) == ((4, 1), 1)
    assert stream.trim(min_id=(3, 2)) == 0


@pytest.mark.parametrize("policy", ["keepref", "delref", "acked"])
def test_a_tail_node_without_live_entries_goes(policy: Any) -> None:
    stream = numbered(1, 2)
    stream.delete((2, 1))
    assert stream.trim(min_id=(2, 1), policy=policy) == 1
    assert (ids(stream), stream.node_count) == ([], 0)
    stream.append([(b"f", b"v")], (3, 1))
    assert ids(stream) == [3]


def test_no_group_has_read_more_than_was_added() -> None:
    stream = numbered(1, 2, 3)
    for name, entries_read in ((b"all", 3), (b"one", 1), (b"unknown", -1)):
        stream.groups[name] = Group(name, (3, 1), entries_read)
    stream.set_ids((3, 1))
    assert [each.entries_read for each in stream.groups.values()] == [3, 1, -1]
    stream.trim(max_length=2)
    stream.set_ids((3, 1), entries_added=2)
    assert [each.entries_read for each in stream.groups.values()] == [2, 1, -1]


@pytest.mark.parametrize("command", ["XTRIM s MAXLEN 0", "XADD s MAXLEN 1 * f v", "XTRIM s MINID 500-0"])
def test_many_trimmed_nodes_are_freed_out_of_line(command: str) -> None:
    ctx = make_context(stream_node_max_entries=3)
    for number in range(1, 501):
        run(ctx, "XADD", "s", f"{number}-0", "f", "v" * 100)
    stream = ctx.db.peek(b"s")
    nodes_before, bytes_before, threads_before = stream.node_count, allocated(), lazyfree_threads()
    run(ctx, *command.split())
    stream.check_invariants()
    assert stream.node_count <= 1
    assert len(lazyfree_threads() - threads_before) == 1
    eventually(lambda: bytes_before - allocated() > 100 * (nodes_before - 2))
    run(ctx, "XTRIM", "s", "MAXLEN", "0")
    assert ctx.db.trash.freed_objects() == 0  # nodes are no values


def lazyfree_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "lazyfree"}


def test_trimmed_nodes_that_nobody_takes_are_freed_with_the_stream() -> None:
    before = allocated()
    stream = Stream(node_max_entries=1)
    for number in range(1, 200):
        stream.append([(b"f", b"v")], (number, 1))
    assert stream.trim(max_length=0) == 199
    stream.append([(b"f", b"v")], (1000, 1))
    assert stream.trim(max_length=0) == 1
    del stream
    assert allocated() == before


def test_trimming_needs_one_strategy() -> None:
    with pytest.raises(TypeError, match="either max_length or min_id"):
        Stream().trim()
    with pytest.raises(TypeError, match="either max_length or min_id"):
        Stream().trim(max_length=1, min_id=(1, 1))


# --- Entries that groups know of ----------------------------------------------------------------------------------


def test_keepref_leaves_pending_records() -> None:
    stream = numbered(1, 2, 3)
    readers = group(stream, (3, 1), pending=(1, 2))
    assert stream.delete((1, 1)) == "deleted"
    assert stream.trim(max_length=1) == 1
    assert [record[0] for record in readers.pending()] == [(1, 1), (2, 1)]


def test_delref_drops_pending_records_in_all_groups() -> None:
    stream = numbered(1, 2, 3)
    one, two = group(stream, (3, 1), (1, 2, 3)), group(stream, (3, 1), (1, 2), b"h")
    assert stream.delete((1, 1), policy="delref") == "deleted"
    assert stream.trim(max_length=1, policy="delref") == 1
    assert [record[0] for record in one.pending()] == [(3, 1)]
    assert two.pending() == []


def test_delref_drops_records_of_entries_that_are_gone() -> None:
    stream = numbered(1)
    readers = group(stream, (1, 1), (1,))
    stream.delete((1, 1))
    assert stream.delete((1, 1), policy="delref") == "missing"
    assert readers.pending() == []


def test_acked_deletes_only_what_every_group_is_done_with() -> None:
    stream = numbered(1, 2, 3)
    group(stream, (2, 1), pending=(1,))
    group(stream, (3, 1), name=b"h")
    assert stream.delete((1, 1), policy="acked") == "referenced"  # pending
    assert stream.delete((2, 1), policy="acked") == "deleted"
    assert stream.delete((3, 1), policy="acked") == "referenced"  # not read
    assert stream.delete((9, 1), policy="acked") == "referenced"  # not there, but ahead of a group
    assert stream.delete((2, 1), policy="acked") == "missing"


def test_an_acked_trim_passes_over_what_is_referenced() -> None:
    stream = numbered(*range(1, 10))
    group(stream, (7, 1), pending=(2, 5, 6))
    assert stream.trim(max_length=0, policy="acked") == 4
    assert ids(stream) == [2, 5, 6, 8, 9]


def test_without_groups_nothing_is_referenced() -> None:
    stream = numbered(*range(1, 10))
    assert stream.trim(max_length=2, policy="acked") == 7
    assert stream.delete((8, 1), policy="acked") == "deleted"


@pytest.mark.parametrize("policy", ["delref", "acked"])
def test_with_references_an_approximate_trim_ends_within_a_node(policy: str) -> None:
    stream = numbered(*range(1, 10))
    assert stream.trim(max_length=4, approximate=True, policy=policy) == 5  # type: ignore[arg-type]
    assert ids(stream) == [6, 7, 8, 9]


# --- The whole stream -------------------------------------------------------------------------------------------


def test_a_copy_shares_nothing() -> None:
    stream = numbered(1, 2, 3, 4)
    group(stream, (2, 1), pending=(1,))
    stream.idempotency = Idempotency(IdempotencyRegistry(), 100, 10)
    stream.idempotency.record(b"p", b"i", (1, 1))
    stream.delete((2, 1))
    twin = stream.copy()
    twin.check_invariants()
    assert twin.list_nodes() == stream.list_nodes()
    assert twin.range() == stream.range()
    for name in ("entries_added", "last_generated_id", "first_entry_id", "last_entry_id", "max_deleted_entry_id"):
        assert getattr(twin, name) == getattr(stream, name)
    twin.append([(b"f", b"v")], (9, 1))
    twin.groups[b"g"].acknowledge([(1, 1)])
    twin.trim(max_length=0)
    assert twin.idempotency is not None
    twin.idempotency.record(b"p", b"j", (9, 1))
    assert ids(stream) == [1, 3, 4]
    assert stream.groups[b"g"].pending_count == 1
    assert stream.idempotency.find(b"p", b"j") is None
    assert twin.idempotency.find(b"p", b"i") == (1, 1)


def test_what_is_detached_can_be_freed_elsewhere() -> None:
    stream = numbered(*range(1, 100))
    group(stream, (99, 1), pending=tuple(range(1, 100)))
    assert stream.free_effort() > 33
    remains = stream.detach()
    assert (ids(stream), stream.groups, stream.last_generated_id, stream.free_effort()) == ([], {}, (0, 0), 0)
    stream.append([(b"f", b"v")], (1, 1))
    remains.free()
    remains.free()
    assert ids(stream) == [1]


def test_memory_usage_goes_down_with_what_is_removed() -> None:
    stream = numbered(*range(1, 1000))
    before = stream.memory_usage()
    stream.trim(max_length=10)
    assert stream.memory_usage() < before / 20


# --- Nodes from outside -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("elements", "reason"),
    [
        (b"", "does not start with the number of its live entries"),
        (b"x 0 1 f 0 2 0 0 v 4", "does not start with the number of its live entries"),
        (b"1", "no number of deleted entries"),
        (b"1 0 x f 0 2 0 0 v 4", "no number of field names"),
        (b"1 0 0 0 2 0 0 4", "no number of field names"),
        (b"1 0 9 f 0 2 0 0 v", "less field names than it says"),
        (b"1 0 1 f 1 2 0 0 v 4", "does not end with 0"),
        (b"1 0 1 f 0 4 0 0 v 4", "unknown flags"),
        (b"1 0 1 f 0 x 0 0 v 4", "unknown flags"),
        (b"1 0 1 f 0 2 0 x v 4", "has no ID"),
        (b"1 0 1 f 0 2", "has no ID"),
        (b"2 0 1 f 0 2 1 0 v 4 2 1 0 v 4", "do not ascend"),
        (b"1 0 1 f 0 2 0 -1 v 4", "do not ascend"),
        (b"1 0 1 f 0 0 0 0 x f v 6", "no number of fields"),
        (b"1 0 1 f 0 0 0 0 4611686018427387904 f v 6", "no number of fields"),
        (b"1 0 1 f 0 0 0 0 2 f v 6", "less fields or values than it says"),
        (b"1 0 1 f 0 2 0 0 v 5", "does not end with the number of its elements"),
        (b"1 0 1 f 0 0 0 0 1 f v 4", "does not end with the number of its elements"),
        (b"2 0 1 f 0 2 0 0 v 4", "other numbers of live and deleted entries"),
        (b"1 0 1 f 0 3 0 0 v 4", "other numbers of live and deleted entries"),
        (b"0 0 1 f 0", "no entries"),
    ],
)
def test_a_broken_node_is_refused(elements: bytes, reason: str) -> None:
    fault = validate_node((1, 1), encode(elements.split()))
    assert fault is not None
    assert reason in fault[1]


def test_a_broken_listpack_is_a_broken_node() -> None:
    assert validate_node((1, 1), b"\x07\0\0\0\0\0\0") == (6, "listpack does not end with its end byte")


def test_nodes_of_a_stream_are_sound_and_none_of_their_bytes_may_change_unseen() -> None:
    stream = numbered(1, 2, 3)
    stream.append([(b"other", b"v"), (b"g", b"w")], (3, 2))
    stream.delete((2, 1))
    for master, listpack in stream.list_nodes():
        assert validate_node(master, listpack) is None
        for at in range(len(listpack)):
            for bit in range(8):
                broken = bytearray(listpack)
                broken[at] ^= 1 << bit
                validate_node(master, bytes(broken))  # some changes give another good node, none a crash
