"""Readers of the parts of a stream, on a model of the server, with virtual time: any of them joins, dies, stops for a while and returns,
and any call may get no reply, before or after it has been carried out.

At every moment entries of a part are first handled in order, and none is acknowledged that was not handled. When the faults are over,
each part has exactly one reader, and everything has been handled.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from streamd.partitions.parts import Parts
from streamd.partitions.reading import Call, Handle, NoReplyError, Pause, Reading, Step, Steps, WaitForEntry

COUNT = 5
LEASE_S = 6.0


class Part:
    """A stream with its group."""

    def __init__(self) -> None:
        self.length = 0
        self.delivered = 0
        self.pending: dict[int, str] = {}
        """IDs and their consumers."""
        self.acknowledged: set[int] = set()
        self.handled: list[int] = []
        """IDs in the order in which they were handled, again and again perhaps."""


class World:
    """A server: what the scripts do, and the time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.handling_s = 0.0
        """How long a batch is handled."""
        self.parts: dict[str, Part] = {}
        self.leases: dict[str, tuple[str, float]] = {}
        self.readers: dict[str, float] = {}

    def part(self, stream: str) -> Part:
        return self.parts.setdefault(stream, Part())

    def holder(self, lease: str) -> str | None:
        token, until = self.leases.get(lease, ("", 0.0))
        return token if until > self.now else None

    def carry_out(self, call: Call) -> Any:
        script: Callable[..., Any] = getattr(self, call.script.name)
        return script(call.keys, *call.arguments)

    def _extend(self, lease: str, token: str, lease_ms: int) -> None:
        self.leases[lease] = token, self.now + lease_ms / 1000

    def acquire(self, keys: tuple[str, str], token: str, lease_ms: int, group: str, start: str) -> int:
        if self.holder(keys[1]) not in (None, token):
            return 0
        self._extend(keys[1], token, lease_ms)
        return 1

    def take(
        self, keys: tuple[str, str], token: str, lease_ms: int, group: str, consumer: str, count: int, next_pending: str,
        *done: int,
    ) -> Any:  # fmt: skip
        if self.holder(keys[1]) != token:
            return None
        self._extend(keys[1], token, lease_ms)
        part = self.part(keys[0])
        self._acknowledge(part, done)
        if next_pending:
            start = int(next_pending.partition("-")[0])
            pending = sorted(each for each in part.pending if each >= start)
            found, left = pending[:count], pending[count:]
            next_pending = f"{left[0]}-0" if left else ""
        else:
            found = list(range(part.delivered + 1, min(part.delivered + count, part.length) + 1))
            part.delivered += len(found)
        part.pending.update(dict.fromkeys(found, token))
        return [[each, []] for each in found], next_pending, part.length

    def _acknowledge(self, part: Part, done: tuple[int, ...]) -> None:
        for each in done:
            assert each in part.handled, "acknowledged, but not handled"
            if part.pending.pop(each, None) is not None:
                part.acknowledged.add(each)

    def renew(self, keys: tuple[str], token: str, lease_ms: int) -> int:
        if self.holder(keys[0]) != token:
            return 0
        self._extend(keys[0], token, lease_ms)
        return 1

    def release(self, keys: tuple[str, str], token: str, group: str, *done: int) -> int:
        if self.holder(keys[1]) != token:
            return 0
        self._acknowledge(self.part(keys[0]), done)
        del self.leases[keys[1]]
        return 1

    def join(self, keys: tuple[str], token: str, lease_ms: int) -> list[str]:
        self.readers = {name: until for name, until in self.readers.items() if until > self.now}
        self.readers[token] = self.now + lease_ms / 1000
        return sorted(self.readers)

    def leave(self, keys: tuple[str], token: str) -> int:
        return int(self.readers.pop(token, None) is not None)


class Thread:
    """A generator of steps, the step that it is at, and from when on it can be carried out."""

    def __init__(self, steps: Steps, now: float) -> None:
        self._steps = steps
        self.due = now
        self.step: Step | None = None
        self.go_on(now, lambda: next(steps))

    @property
    def has_ended(self) -> bool:
        return self.step is None

    def go_on(self, now: float, resume: Callable[[], Step]) -> None:
        try:
            self.step = resume()
        except StopIteration:
            self.step = None
        self.due = now + (self.step.seconds if isinstance(self.step, Pause) else 0.0)

    def run(self, world: World, *, is_lost_before: bool, is_lost_after: bool) -> None:
        step, result = self.step, None
        if isinstance(step, Handle):
            part = world.part(step.batch.stream)
            for entry_id, _ in step.batch.entries:
                if entry_id not in part.handled:
                    assert entry_id == len(set(part.handled)) + 1, "handled before those ahead of it"
                part.handled.append(entry_id)
        elif isinstance(step, Call | WaitForEntry):
            if isinstance(step, Call) and not is_lost_before:
                result = world.carry_out(step)
            if is_lost_before or is_lost_after:
                self.go_on(world.now, lambda: self._steps.throw(NoReplyError()))
                return
        self.go_on(world.now, lambda: self._steps.send(result))
        if isinstance(self.step, Handle):
            self.due = world.now + world.handling_s


class Process:
    """A reader: the thread that keeps the leases, and those that read."""

    def __init__(self, world: World, name: str) -> None:
        self.reading = Reading(
            Parts("s", COUNT), "g", consumer=name, lease_s=LEASE_S, count=2, start="0"
        )  # fmt: skip
        self.keeper = Thread(self.reading.keep(), world.now)
        self.threads: dict[int, Thread] = {}
        self.is_frozen = False

    @property
    def all_threads(self) -> list[Thread]:
        return [self.keeper, *self.threads.values()]

    def start_threads(self, world: World) -> None:
        for number in self.reading.wanted:
            if number not in self.threads or self.threads[number].has_ended:
                self.threads[number] = Thread(self.reading.read(number), world.now)


class Story:
    """Readers whose lives are decided by a seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.world = World()
        self.processes: list[Process] = []
        self.names = 0

    def play(self, steps: int, faults: float) -> None:
        """Let threads that can run do so, one step at a time; where none can, let the time pass."""
        for _ in range(steps):
            can_run = [
                (process, thread)
                for process in self.processes
                if not process.is_frozen
                for thread in process.all_threads
                if not thread.has_ended and thread.due <= self.world.now
            ]
            if not can_run:
                self.world.now += 0.1
                continue
            process, thread = self.rng.choice(can_run)
            kind = self.rng.random()
            thread.run(self.world, is_lost_before=kind < faults / 2, is_lost_after=faults / 2 <= kind < faults)
            if thread is process.keeper and isinstance(thread.step, Pause):
                process.start_threads(self.world)
            self.world.now += self.rng.choice([0.0, 0.001, 0.05])

    def join(self) -> None:
        self.names += 1
        self.processes.append(Process(self.world, f"reader {self.names}"))

    def add(self) -> None:
        for stream in Parts("s", COUNT).streams:
            self.world.part(stream).length += self.rng.randrange(4)

    def one_deed(self) -> None:
        self.add()
        if not self.processes:
            self.join()
        process = self.rng.choice(self.processes)
        deed = self.rng.choice(["join", "die", "end", "freeze or thaw", "freeze or thaw", "wait", "faults", "faults"])
        if deed == "join" and len(self.processes) < 5:
            self.join()
        elif deed == "die":
            self.processes.remove(process)
        elif deed == "end":
            process.reading.stop()
        elif deed == "freeze or thaw":
            process.is_frozen = not process.is_frozen
        elif deed == "wait":
            self.world.now += self.rng.choice([0.5, LEASE_S / 2, 2 * LEASE_S])
        self.play(self.rng.randrange(300), self.rng.choice([0.1, 0.5]) if deed == "faults" else 0.0)

    def end_well(self) -> None:
        """The faults are over, and somebody is left to read."""
        self.processes = [process for process in self.processes if not process.reading.is_stopping]
        for process in self.processes:
            process.is_frozen = False
        self.join()
        end = self.world.now + 4 * LEASE_S
        while self.world.now < end:
            self.play(100, 0.0)
        held = sorted(number for process in self.processes for number in process.reading.held)
        assert held == list(range(COUNT)), "a part has no reader, or two"
        sizes = [len(process.reading.held) for process in self.processes]
        assert max(sizes) - min(sizes) <= 1
        for part in self.world.parts.values():
            assert set(part.handled) == set(range(1, part.length + 1)), "not handled"
            assert part.acknowledged == set(part.handled), "not acknowledged"


@pytest.mark.parametrize("seed", range(60))
def test_each_part_has_one_reader_after_any_sequence_of_joins_deaths_and_returns(seed: int) -> None:
    story = Story(seed)
    for _ in range(25):
        story.one_deed()
    story.end_well()


def test_a_lease_is_kept_while_a_batch_is_handled_for_longer_than_that() -> None:
    story = Story(1)
    story.world.handling_s = 3 * LEASE_S
    story.join()
    story.join()
    story.add()
    while story.world.now < 30 * LEASE_S:
        story.play(100, 0.0)
    assert [sorted(part.handled) for part in story.world.parts.values()] == [
        list(range(1, part.length + 1)) for part in story.world.parts.values()
    ], "once each"
