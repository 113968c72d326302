"""The replication stream: its bytes, its blocks, and how long they are kept."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support.commands.hosts import Host

from streamd.core.client import ClientHost
from streamd.core.context import Context
from streamd.core.effects import Effect, Effects
from streamd.replication.replication_stream import Feed, ReplicationStream

XADD = [b"XADD", b"s", b"1-1", b"f", b"v"]


def encoded(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


@pytest.fixture
def stream() -> ReplicationStream:
    made = ReplicationStream(Effects(ClientHost(), Context()))
    made.open(0)
    return made


def test_a_closed_stream_keeps_nothing(stream: ReplicationStream) -> None:
    stream.close()
    stream.take_effects([Effect(0, XADD)], 0)
    assert (len(stream), stream.memory(), stream.is_open) == (0, 0, False)
    stream.check_invariants()


def test_commands_select_their_database_when_it_changes(stream: ReplicationStream) -> None:
    for db_index in (0, 0, 3):
        stream.take_effects([Effect(db_index, XADD)], 0)
    one = encoded(*XADD)
    assert stream.recent(1) == encoded(b"SELECT", b"0") + one + one + encoded(b"SELECT", b"3") + one
    assert stream.offset == len(stream.recent(1)) == len(stream)


def test_effects_of_one_unit_are_enclosed_with_the_select_inside(stream: ReplicationStream) -> None:
    stream.take_effects([Effect(1, XADD), Effect(1, [b"DEL", b"k"])], 0)
    assert stream.recent(1) == (
        encoded(b"MULTI") + encoded(b"SELECT", b"1") + encoded(*XADD) + encoded(b"DEL", b"k") + encoded(b"EXEC")
    )


def test_an_effect_that_cannot_be_encoded_leaves_nothing_behind(stream: ReplicationStream) -> None:
    with pytest.raises(TypeError, match="Expected bytes, got int"):
        stream.take_effects([Effect(1, XADD), Effect(2, [b"SET", 1])], 0)  # type: ignore[list-item]
    assert (stream.offset, stream.recent(1)) == (0, b"")
    stream.take_effects([Effect(1, XADD)], 0)
    assert stream.recent(1) == encoded(b"SELECT", b"1") + encoded(*XADD)


def test_a_command_selects_again_when_a_replica_begins_there(stream: ReplicationStream) -> None:
    stream.take_effects([Effect(0, XADD)], 0)
    begin = stream.offset + 1
    stream.select_again()
    stream.append([b"ping"])
    stream.take_effects([Effect(0, XADD)], 0)
    assert stream.recent(begin) == encoded(b"ping") + encoded(b"SELECT", b"0") + encoded(*XADD)


def test_what_a_primary_sent_is_kept_byte_for_byte(stream: ReplicationStream) -> None:
    stream.open(1000)
    stream.append_raw(b"*1\r\n$4\r\nPING\r\n")
    assert (stream.first_offset, stream.offset, stream.recent(1005)) == (1001, 1014, b"$4\r\nPING\r\n")


def test_only_what_the_backlog_holds_can_be_continued(stream: ReplicationStream) -> None:
    stream.open(100)
    stream.append_raw(b"x" * 10)
    assert [stream.holds(offset) for offset in (100, 101, 110, 111, 112)] == [False, True, True, True, False]


def test_a_feed_at_the_end_of_a_block_goes_on_with_the_next(stream: ReplicationStream) -> None:
    stream.limit_backlog(16 << 10)
    feed = stream.feed_from(1)
    with Host() as host:
        replica = host.connect()
        stream.append_raw(b"a" * 20_000)
        feed.send(replica.client)
        for fill in (b"b", b"c", b"d"):
            stream.append_raw(fill * 20_000)
            stream.check_invariants()
        feed.send(replica.client)
        assert replica.transport.sent == b"".join(fill * 20_000 for fill in (b"a", b"b", b"c", b"d"))


class Backlog(RuleBasedStateMachine):
    """A stream against the bytes of its whole history."""

    @initialize(start=st.integers(0, 1000), size=st.sampled_from([16 << 10, 100_000]))
    def begin(self, start: int, size: int) -> None:
        self.stream = ReplicationStream(Effects(ClientHost(), Context()))
        self.stream.limit_backlog(size)
        self.stream.open(start)
        self.start, self.history = start, b""
        self.feeds: list[Feed] = []

    @rule(size=st.sampled_from([1, 100, 16383, 16384, 40000]), fill=st.binary(min_size=1, max_size=1))
    def append(self, size: int, fill: bytes) -> None:
        self.stream.append_raw(fill * size)
        self.history += fill * size

    @rule(
        sizes=st.lists(st.sampled_from([1, 100, 16383, 16384, 40000]), min_size=1, max_size=4), words=st.integers(1, 3)
    )
    def write(self, sizes: list[int], words: int) -> None:
        commands = [[b"SET"] + [b"x" * size] * words for size in sizes]
        head = encoded(b"SELECT", b"0") if self.stream.selected < 0 else b""
        self.stream.take_effects([Effect(0, command) for command in commands], 0)
        text = head + b"".join(encoded(*command) for command in commands)
        self.history += encoded(b"MULTI") + text + encoded(b"EXEC") if len(commands) > 1 else text

    @rule(sizes=st.lists(st.sampled_from([1, 16384, 40000]), min_size=1, max_size=4))
    def fail_to_write(self, sizes: list[int]) -> None:
        commands = [*([b"SET", b"x" * size] for size in sizes), [b"SET", 1]]
        with pytest.raises(TypeError, match="Expected bytes, got int"):
            self.stream.take_effects([Effect(0, command) for command in commands], 0)  # type: ignore[arg-type]

    @rule(size=st.sampled_from([16 << 10, 40_000, 100_000]))
    def limit(self, size: int) -> None:
        self.stream.limit_backlog(min(size, self.stream.backlog_size))

    @rule(data=st.data())
    def begin_feed(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.stream.first_offset, self.stream.offset + 1))
        self.feeds.append(self.stream.feed_from(offset))

    @precondition(lambda self: self.feeds)
    @rule(data=st.data())
    def end_feed(self, data: st.DataObject) -> None:
        self.feeds.pop(data.draw(st.integers(0, len(self.feeds) - 1))).close()

    @precondition(lambda self: self.feeds)
    @rule(data=st.data())
    def move_on(self, data: st.DataObject) -> None:
        feed = data.draw(st.sampled_from(self.feeds))
        feed.skip_to(data.draw(st.integers(feed.offset, self.stream.offset + 1)))

    @invariant()
    def is_the_end_of_the_history(self) -> None:
        if not hasattr(self, "stream"):
            return
        stream = self.stream
        stream.check_invariants()
        assert stream.offset == self.start + len(self.history)
        assert stream.recent(stream.first_offset) == self.history[stream.first_offset - 1 - self.start :]
        needed = min(
            [len(self.history), stream.backlog_size, *(stream.offset + 1 - feed.offset for feed in self.feeds)]
        )
        assert len(stream) >= needed
        for feed in self.feeds:
            assert stream.holds(feed.offset)
        if not self.feeds:
            # The oldest block may begin before the backlog does; a large append is spread over blocks.
            assert len(stream) <= stream.backlog_size + (32 << 10)


TestBacklog = Backlog.TestCase
TestBacklog.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
