"""Pauses of Python's collector: off inside, however pauses nest and overlap, and as it was outside."""

from __future__ import annotations

import gc
from collections.abc import Generator, Iterator
from contextlib import closing

import pytest

from streamd.transfer.collector_pause import CollectorPause, collector_paused, made_paused


@pytest.fixture(autouse=True)
def enabled() -> Iterator[None]:
    assert gc.isenabled()
    yield
    gc.enable()
    gc.unfreeze()


def never() -> bool:
    return False


def test_pauses_nest() -> None:
    pause = CollectorPause(never)
    with pause():
        assert not gc.isenabled()
        with pause():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_pauses_overlap() -> None:
    pause = CollectorPause(never)
    first, second = pause(), pause()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert not gc.isenabled()  # the second one lasts
    second.__exit__(None, None, None)
    assert gc.isenabled()


def test_an_error_ends_a_pause() -> None:
    pause = CollectorPause(never)
    with pytest.raises(KeyError), pause():  # noqa: PT011  it says nothing
        raise KeyError
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off() -> None:
    pause = CollectorPause(never)
    gc.disable()
    with pause(), pause():
        pass
    assert not gc.isenabled()


def test_a_task_sets_aside_what_the_process_has_once() -> None:
    gc.unfreeze()
    tasks = [False, True, True]
    pause = CollectorPause(lambda: tasks.pop(0))
    with pause():
        assert gc.get_freeze_count() == 0
    with pause():
        frozen = gc.get_freeze_count()
        assert frozen > 0
    later = [[] for _ in range(1000)]  # type: ignore[var-annotated]
    with pause():
        assert gc.get_freeze_count() <= frozen
    assert len(tasks) == 1
    assert len(later) == 1000


def test_items_are_made_in_a_pause_and_used_outside_of_it() -> None:
    seen = []

    def items() -> Generator[int]:
        try:
            for at in range(3):
                seen.append(gc.isenabled())
                yield at
        finally:
            seen.append(gc.isenabled())

    assert [(item, gc.isenabled()) for item in made_paused(items())] == [(0, True), (1, True), (2, True)]
    assert seen == [False] * 4
    with closing(made_paused(items())) as started:
        assert next(started) == 0
        assert gc.isenabled()
    assert len(seen) == 6  # the generator was closed, too
    other = made_paused(items())
    with collector_paused():
        assert next(other) == 0
        assert not gc.isenabled()
    assert gc.isenabled()
    assert list(other) == [1, 2]
