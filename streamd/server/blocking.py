"""Clients that wait for keys, and how they are woken.

A waiting client is a `Blocked` record: the request to run again, its keys, and when it gives up. Every key that somebody
waits for has a `Waiters` entry in its database's `waiters`, with first-come-first-served queues: one for readers without a
group, one for each consumer group. Dicts serve as queues, because they keep their order and drop an element from the
middle in O(1).

When a key is ready, all readers without a group are run again, provided that it is a stream now: they outlast whatever
else becomes of it. Of a group only the head of its queue is run again, and the next one only when the head was served: with
a thousand consumers waiting, a message costs as much as with one. Group readers also learn that the key has gone or is
something else, since then they fail.

A served request is run whole, so what it finds may come from any of its keys. One that finds nothing stays where it was
in its queues, with the time-out it had.

Keys are served after each command that made one ready, as Redis does it: a reader sees what the command left, not what
the rest of a pipeline will. Its own next requests wait for the end of the turn.

Time-outs, and the times at which claiming readers look again, stand in one sorted list with one timer for the earliest.
They go by the monotonic clock, so that setting the wall clock changes no wait.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING, Any

from sortedcontainers import SortedList

from streamd.engine.stream import Stream

if TYPE_CHECKING:
    from streamd.commands.context import BlockRequest
    from streamd.engine.database import Database
    from streamd.server.client import Client
    from streamd.server.dispatch import Dispatcher, Entry

__all__ = ["Blocked", "BlockedClients"]

NEVER = float("inf")


class Blocked:
    """A client that waits.

    db        the database it waits in
    request   what to run when a key is ready, from the last time it was run
    deadline  when it gives up, in monotonic seconds; NEVER without a time-out
    retry_at  when it is to be run again though no key is ready; NEVER if that cannot help
    entry     the dispatcher's entry of the command
    args      the request as received
    spent_us  what has been spent running it
    """

    __slots__ = ("args", "client", "db", "deadline", "entry", "request", "retry_at", "spent_us")

    def __init__(self, client: Client, db: Database, request: BlockRequest, deadline: float) -> None:
        self.client = client
        self.db = db
        self.request = request
        self.deadline = deadline
        self.retry_at = NEVER
        self.entry: Entry
        self.args: list[bytes]
        self.spent_us = 0

    def begin(self, entry: Entry, args: list[bytes], took_us: int) -> None:
        """The request has been run for the first time: what of it is counted, once the wait is over."""
        self.entry, self.args, self.spent_us = entry, args, took_us


class Waiters:
    """The queues of one key."""

    __slots__ = ("groups", "readers")

    def __init__(self) -> None:
        self.readers: dict[Blocked, None] = {}
        self.groups: dict[bytes, dict[Blocked, None]] = {}

    def queue(self, request: BlockRequest) -> dict[Blocked, None]:
        """The queue that a request waits in."""
        if request.group is None:
            return self.readers
        return self.groups.setdefault(request.group, {})

    def remove(self, blocked: Blocked) -> None:
        group = blocked.request.group
        self.queue(blocked.request).pop(blocked, None)
        if group is not None and not self.groups.get(group, True):
            del self.groups[group]

    def is_empty(self) -> bool:
        return not (self.readers or self.groups)


class BlockedClients:
    """The registry of all waiting clients. `len()` is their number."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._blocked: dict[int, Blocked] = {}
        self._timeline: Any = SortedList()
        """(time, client id), for deadlines and retries."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = NEVER
        self._running: Blocked | None = None
        """The record whose request is being run again."""
        self.dispatcher: Dispatcher

    def __len__(self) -> int:
        return len(self._blocked)

    def __iter__(self) -> Any:
        return iter(self._blocked.values())

    # --- To wait ---------------------------------------------------------------------------------------------------

    def block(self, client: Client, db: Database, request: BlockRequest) -> None:
        """Let `client` wait; called from inside its handler, for the first time or again."""
        blocked = self._running
        if blocked is not None and blocked.client is client:
            blocked.request.args = request.args
            self._set_retry(blocked, request.ready_at_ms)
            self._running = None
            return
        deadline = monotonic() + request.timeout_ms / 1000 if request.timeout_ms else NEVER
        blocked = Blocked(client, db, request, deadline)
        client.blocked = blocked
        self._blocked[client.id] = blocked
        for key in request.keys:
            waiters = db.waiters.get(key)
            if waiters is None:
                waiters = db.waiters[key] = Waiters()
            waiters.queue(request)[blocked] = None
        if deadline != NEVER:
            self._add_time(deadline, client.id)
        self._set_retry(blocked, request.ready_at_ms)

    def _set_retry(self, blocked: Blocked, ready_at_ms: int | None) -> None:
        if blocked.retry_at != NEVER:
            self._timeline.discard((blocked.retry_at, blocked.client.id))
            blocked.retry_at = NEVER
        if ready_at_ms is not None:
            wait_ms = max(1, ready_at_ms - self.dispatcher.context.now_ms)
            blocked.retry_at = monotonic() + wait_ms / 1000
            self._add_time(blocked.retry_at, blocked.client.id)

    def _end(self, blocked: Blocked) -> None:
        """Take a client out of every queue; it goes on from now."""
        client = blocked.client
        del self._blocked[client.id]
        client.blocked = None
        for key in blocked.request.keys:
            waiters = blocked.db.waiters.get(key)
            if waiters is not None:
                waiters.remove(blocked)
                if waiters.is_empty():
                    del blocked.db.waiters[key]
        if blocked.deadline != NEVER:
            self._timeline.discard((blocked.deadline, client.id))
        self._set_retry(blocked, None)

    # --- To go on --------------------------------------------------------------------------------------------------

    def serve_ready(self, ready: dict[tuple[Database, bytes], None]) -> None:
        """Serve those who wait for the keys in `ready`, until none is left, those included that serving makes ready."""
        while ready:
            keys = list(ready)
            ready.clear()
            for db, key in keys:
                self._serve_key(db, key)

    def _serve_key(self, db: Database, key: bytes) -> None:
        waiters = db.waiters.get(key)
        if waiters is None:
            return
        if waiters.readers and isinstance(db.peek(key), Stream):
            for blocked in list(waiters.readers):
                self._serve(blocked)
        for group in list(waiters.groups):
            while queue := waiters.groups.get(group):
                if not self._serve(next(iter(queue))):
                    break

    def _serve(self, blocked: Blocked) -> bool:
        """Run a waiting request again; True when it did not ask to wait once more."""
        client = blocked.client
        if client.blocked is not blocked:
            return True
        mark = client.reply.mark()
        self._running = blocked
        self.dispatcher.run_again(client, blocked.request.args)
        if self._running is None:
            self.dispatcher.wait_on(client)
            return False
        self._running = None
        self._finish(blocked, mark)
        return True

    def _finish(self, blocked: Blocked, mark: int) -> None:
        self._end(blocked)
        self.dispatcher.end_wait(blocked.client, blocked)
        self.dispatcher.finish_blocked(blocked.client, mark)
        self.dispatcher.resume(blocked.client)

    def time_out(self, blocked: Blocked) -> None:
        """Answer as after a time-out."""
        mark = blocked.client.reply.mark()
        blocked.client.reply.null_array()
        self._finish(blocked, mark)

    def fail(self, blocked: Blocked, text: str) -> None:
        """Answer with an error."""
        mark = blocked.client.reply.mark()
        self.dispatcher.write_error(blocked.client, text)
        self._finish(blocked, mark)

    def drop(self, client: Client) -> None:
        """The connection is gone: forget that it waits."""
        if client.blocked is not None:
            self._end(client.blocked)

    # --- Time ------------------------------------------------------------------------------------------------------

    def _add_time(self, when: float, client_id: int) -> None:
        self._timeline.add((when, client_id))
        if when < self._timer_at:
            self._arm(when)

    def _arm(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = when
        # The loop counts whole milliseconds from the beginning of its turn: a timer may come early, and is set again.
        self._timer = self._loop.call_later(max(0.0, when - monotonic()) + 0.0005, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        self._timer_at = NEVER
        now = monotonic()
        while self._timeline and self._timeline[0][0] <= now:
            when, client_id = self._timeline.pop(0)
            blocked = self._blocked[client_id]
            if when >= blocked.deadline:
                self.time_out(blocked)
            else:
                blocked.retry_at = NEVER
                self._serve(blocked)
        if self._timeline:
            self._arm(self._timeline[0][0])
