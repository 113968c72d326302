"""Runs a generator in a thread, ahead of what consumes its items."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import closing
from queue import SimpleQueue
from typing import TypeVar

__all__ = ["made_ahead"]

T = TypeVar("T")


def made_ahead(items: Generator[T], count: int) -> Generator[T]:
    """The items of a generator, of which up to `count` are made before they are asked for. Closes the generator.

    An exception is raised after the items before it. The thread ends with this generator, which must be closed; closing waits for the
    item that is being made, so making one should not take long.
    """
    made: SimpleQueue[tuple[T] | BaseException] = SimpleQueue()
    room = threading.Semaphore(count)
    is_over = threading.Event()

    def make() -> None:
        try:
            with closing(items):
                while room.acquire() and not is_over.is_set():
                    made.put((next(items),))
        except BaseException as error:  # the end, too; it is raised where the items are asked for
            made.put(error)

    thread = threading.Thread(target=make, name="made ahead", daemon=True)
    thread.start()
    try:
        while not isinstance(found := made.get(), BaseException):
            yield found[0]
            room.release()
        if not isinstance(found, StopIteration):
            raise found
    finally:
        is_over.set()
        room.release()
        thread.join()
