"""ServerLoop: asyncio's event loop, which waits in an `EventSet`.

Events of plain connections are handled where the loop waits: a request costs no turn of the loop, whose timers, tasks
and transports get theirs when they have something to do: a callback that is ready (`_ready`, which asyncio's loop keeps
for itself), a timer that is due, or an event of a descriptor of the loop.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from streamd.sockets.poller import BROKEN_EVENT, EventSet

__all__ = ["ServerLoop"]

BOTH = selectors.EVENT_READ | selectors.EVENT_WRITE


class EventSelector(selectors.BaseSelector, Mapping[Any, selectors.SelectorKey]):
    """The descriptors of a loop, in an EventSet; as a mapping, their keys by number or by whatever has a `fileno`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.events = EventSet()
        self._loop = loop
        self._keys: dict[int, selectors.SelectorKey] = {}

    def __getitem__(self, fileobj: Any) -> selectors.SelectorKey:
        fd = number_of(fileobj)
        if fd < 0:  # it was closed before it left
            fd = next((key.fd for key in self._keys.values() if key.fileobj is fileobj), fd)
        return self._keys[fd]

    def __iter__(self) -> Iterator[int]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        fd = number_of(fileobj)
        if fd in self._keys:
            raise KeyError(f"{fileobj!r} (FD {fd}) is already registered")
        self.events.change(fd, -1, events)
        key = self._keys[fd] = selectors.SelectorKey(fileobj, fd, events, data)
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        key = self._keys.pop(self[fileobj].fd)
        with suppress(OSError):  # closed: it has left the set by that
            self.events.change(key.fd, key.events, -1)
        return key

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = self[fileobj]
        if events != key.events:
            self.events.change(key.fd, key.events, events)
        key = self._keys[key.fd] = key._replace(events=events, data=data)
        return key

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = []
        for fd, events in self.events.wait(self._loop, timeout):
            key = self._keys.get(fd)
            if key is not None:
                found.append((key, (BOTH if events & BROKEN_EVENT else events) & key.events))
        return found

    def close(self) -> None:
        self._keys.clear()
        self.events.close()


def number_of(fileobj: Any) -> int:
    return fileobj if isinstance(fileobj, int) else int(fileobj.fileno())


class ServerLoop(asyncio.SelectorEventLoop):
    """The loop of a process that serves; `events` is the set that it waits in. Raises NotImplementedError where the system has none."""

    def __init__(self) -> None:
        selector = EventSelector(self)
        self.events = selector.events
        super().__init__(selector)

    def call_at(self, when: float, *args: Any, **context: Any) -> asyncio.TimerHandle:  # type: ignore[override]
        """As asyncio's, through which `call_later` goes, too."""
        self.events.wait_until(when)
        return super().call_at(when, *args, **context)
