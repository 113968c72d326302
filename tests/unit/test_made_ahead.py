"""Items made in a thread before they are asked for (`transfer/made_ahead.py`)."""

from __future__ import annotations

import threading
from collections.abc import Generator

import pytest

from streamd.transfer.made_ahead import made_ahead


class Source:
    """Numbers; knows how many were made, and whether it was closed."""

    def __init__(self, count: int, *, fails_at: int | None = None) -> None:
        self._count = count
        self._fails_at = fails_at
        self.made = 0
        self.is_closed = False
        self.threads: set[int] = set()

    def numbers(self) -> Generator[int]:
        try:
            for at in range(self._count):
                if at == self._fails_at:
                    raise ValueError(f"no {at}")
                self.threads.add(threading.get_ident())
                self.made += 1
                yield at
        finally:
            self.is_closed = True


@pytest.mark.parametrize("count", [0, 1, 2, 3, 100])
def test_the_items_come_in_their_order(count: int) -> None:
    source = Source(count)
    assert [*made_ahead(source.numbers(), 2)] == [*range(count)]
    assert source.is_closed
    assert threading.get_ident() not in source.threads


@pytest.mark.parametrize("at", [0, 1, 9])
def test_an_error_comes_in_its_turn(at: int) -> None:
    source = Source(10, fails_at=at)
    items = made_ahead(source.numbers(), 3)
    found: list[int] = []
    with pytest.raises(ValueError, match=f"^no {at}$"):
        found.extend(items)
    assert found == [*range(at)]
    assert source.is_closed


@pytest.mark.parametrize("taken", [1, 2, 5])
def test_closing_it_ends_the_thread(taken: int) -> None:
    before = set(threading.enumerate())
    source = Source(1_000_000)
    items = made_ahead(source.numbers(), 4)
    assert [next(items) for _ in range(taken)] == [*range(taken)]
    items.close()
    assert source.is_closed
    assert source.made <= taken + 4
    assert set(threading.enumerate()) <= before
