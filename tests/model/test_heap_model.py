"""The memory of compiled modules against a dict: blocks of every size, taken, resized and freed in any order."""

from __future__ import annotations

import gc

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from support.compiled import compiled

from streamd.heap import allocated

blocks = compiled("heap_blocks")

EDGES = [0, 1, 8, 15, 16, 17, 31, 32, 33, 187, 192, 193, 255, 256, 257, 496, 497, 511, 512, 513, 527, 528, 600, 5000]
SIZES = st.one_of(st.sampled_from(EDGES), st.integers(0, 700))


@pytest.fixture(autouse=True)
def nothing_else_is_freed() -> None:
    """Free what earlier tests left in cycles: the collector might come to it while bytes are counted here."""
    gc.collect()


class HeapAgainstDict(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.held: dict[int, bytes] = {}
        self.sized: dict[int, bytes] = {}
        self.serial = 0
        self.before = allocated()

    def fill(self, block: int, kept: bytes, size: int) -> None:
        """Write to all of a block's bytes after the first ones, which must have been kept."""
        assert block
        assert block not in self.held
        assert blocks.room_of(block) >= size
        assert block % 8 == 0
        assert blocks.read(block, len(kept)) == kept
        self.serial += 1
        data = kept + (self.serial.to_bytes(4, "little") * (size // 4 + 1))[: size - len(kept)]
        blocks.write(block, data)
        self.held[block] = data

    def any(self, data: st.DataObject) -> int | None:
        return data.draw(st.sampled_from(sorted(self.held))) if self.held else None

    @rule(size=SIZES)
    def take(self, size: int) -> None:
        self.fill(blocks.take(size), b"", size)

    @rule(size=SIZES, count=st.integers(1, 300))
    def take_many(self, size: int, count: int) -> None:
        for _ in range(count):
            self.take(size)

    @rule(count=st.sampled_from([0, 1, 2, 7, 64, 511, 512, 513]), size=st.sampled_from([0, 1, 2, 8, 64, 512, 513]))
    def take_zeros(self, count: int, size: int) -> None:
        self.fill(blocks.take_zeros(count, size), bytes(count * size), count * size)

    @rule(count=st.sampled_from([2**32, 2**63, 2**64 - 1]), size=st.sampled_from([2**32, 2**63, 2**64 - 1]))
    def ask_for_more_than_exists(self, count: int, size: int) -> None:
        assert blocks.take_zeros(count, size) == 0
        assert blocks.take(2**63) == 0

    @rule(data=st.data(), size=SIZES)
    def resize(self, data: st.DataObject, size: int) -> None:
        block = self.any(data)
        if block is not None:
            kept = self.held.pop(block)[:size]
            self.fill(blocks.resize(block, size), kept, size)

    @rule(data=st.data())
    def fail_to_resize(self, data: st.DataObject) -> None:
        block = self.any(data)
        if block is not None:
            assert blocks.resize(block, 2**63) == 0

    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        block = self.any(data)
        if block is not None:
            self.drop(block)

    def drop(self, block: int) -> None:
        data = self.held.pop(block)
        assert blocks.read(block, len(data)) == data
        blocks.write(block, b"\xaa" * blocks.room_of(block))
        blocks.release(block)

    @rule(size=SIZES, count=st.integers(1, 300))
    def take_sized(self, size: int, count: int) -> None:
        for _ in range(count):
            block = blocks.take_sized(size)
            self.serial += 1
            self.sized[block] = (self.serial.to_bytes(4, "little") * (size // 4 + 1))[:size]
            blocks.write(block, self.sized[block])
            if 0 < size <= blocks.MOST_SMALL:
                assert blocks.sized_memory_of(block, size) == (size + 7) // 8 * 8

    @rule(part=st.integers(1, 5), from_end=st.booleans())
    def release_sized(self, part: int, from_end: bool) -> None:
        for block in list(self.sized)[:: -part if from_end else part]:
            self.drop_sized(block)

    def drop_sized(self, block: int) -> None:
        data = self.sized.pop(block)
        assert blocks.read(block, len(data)) == data
        blocks.write(block, b"\xaa" * len(data))
        blocks.release_sized(block, len(data))

    @rule(part=st.integers(1, 5), from_end=st.booleans())
    def release_many(self, part: int, from_end: bool) -> None:
        for block in list(self.held)[:: -part if from_end else part]:
            self.drop(block)

    @invariant()
    def blocks_are_apart_and_counted(self) -> None:
        end = 0
        both = self.held | self.sized
        for block in sorted(both):
            assert block >= end
            end = block + (blocks.room_of(block) if block in self.held else len(both[block]))
            assert blocks.read(block, len(both[block])) == both[block]
        taken = sum(blocks.sized_memory_of(block, len(data)) for block, data in self.sized.items())
        assert allocated() - self.before == sum(map(blocks.memory_of, self.held)) + taken

    def teardown(self) -> None:
        for block in list(getattr(self, "held", ())):
            self.drop(block)
        for block in list(getattr(self, "sized", ())):
            self.drop_sized(block)
        blocks.release(0)


HeapAgainstDict.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestHeap = HeapAgainstDict.TestCase
