"""STREAMD.SPLIT and `split` against a list of entries: parts in order, none empty, of lengths that differ by one at most."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from support.compiled import compiled

from streamd.values.streams.stream import Stream

split = compiled("nodes").split

ID = tuple[int, int]
MAX = 2**64 - 1


def expected(entries: list[ID], parts: int) -> list[tuple[ID, ID, int]]:
    """The parts of a list: each begins at its share of the whole, rounded down."""
    parts = min(parts, len(entries))
    starts = [len(entries) * part // parts for part in range(parts)]
    ends = [*starts[1:], len(entries)]
    return [(entries[start], entries[end - 1], end - start) for start, end in zip(starts, ends, strict=True)]


@st.composite
def streams(draw: st.DrawFn) -> tuple[Stream, list[ID]]:
    """A stream with small nodes, some of them with holes, shortened, or gone; and the entries that are left."""
    stream = Stream(
        node_max_entries=draw(st.sampled_from([1, 3, 3, 7, 0])), node_max_bytes=draw(st.sampled_from([0, 120]))
    )
    steps = st.sampled_from([(0, 1), (0, 1), (0, 9), (1, -1), (300, -1), (70_000, 5), (2**40, 0)])
    ms, seq, entries = draw(st.sampled_from([(0, 1), (1, 0), (2**64 - 2**50, 3)])), 0, []
    (ms, seq) = ms
    for step_ms, step_seq in draw(st.lists(steps, max_size=60)):
        ms, seq = (ms + step_ms, max(0, seq + step_seq) if not step_ms else seq % 5)
        if ms > MAX or (entries and (ms, seq) <= entries[-1]) or (ms, seq) == (0, 0):
            continue
        stream.append([(b"f", b"v")] if seq % 2 else [(b"f", b"v"), (b"g", b"w")], id=(ms, seq))
        entries.append((ms, seq))
    for at in draw(st.lists(st.integers(0, 70), max_size=40)):
        if at < len(entries):
            assert stream.delete(entries.pop(at)) == "deleted"
    cut = draw(st.integers(0, 20))
    if cut < len(entries) and cut % 3 == 0:
        stream.trim(max_length=len(entries) - cut)
        del entries[:cut]
    return stream, entries


@settings(max_examples=300, deadline=None)
@given(made=streams(), parts=st.sampled_from([1, 2, 3, 5, 16, 60, 1000]), data=st.data())
def test_parts_are_those_of_a_list(made: tuple[Stream, list[ID]], parts: int, data: st.DataObject) -> None:
    stream, entries = made
    assert split(stream, parts) == (expected(entries, parts) if entries else [])
    beside = [(ms, max(0, seq - 1)) for ms, seq in entries] + [(ms, seq + 1) for ms, seq in entries]
    bounds = st.sampled_from([*entries, *entries, *beside, (0, 0), (MAX, MAX), (5, 5)])
    low, high = data.draw(bounds), data.draw(bounds)
    inside = [id for id in entries if low <= id <= high]
    assert split(stream, parts, low, high) == (expected(inside, parts) if inside else [])
    limit = data.draw(st.sampled_from([1, 2, 7, 40, 1000]))
    inside = inside[:limit]
    assert split(stream, parts, low, high, limit=limit) == (expected(inside, parts) if inside else [])
    stream.check_invariants()
