"""A worker: one task that gets entries, one for each job, one that renews leases, and one for each periodic job.

    _take    open the group ─▶ as long as there is room: retries that are due ─▶ what others have left ─▶ new entries
    _handle  call the handler ─▶ acknowledge, or fail; again until the server has it
    _renew   every third of the lease, for all jobs that are being handled

Whatever the worker has in memory is also in the pending entries list: a worker that is killed loses nothing, and others go on with it.
"""

from __future__ import annotations

import asyncio
import heapq
import inspect
import logging
import os
import secrets
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from redis.exceptions import RedisError, ResponseError

from streamd.delivery.client.rule_values import Seconds, milliseconds
from streamd.errors import StreamdError
from streamd.partitions.requests import is_temporary
from streamd.worker.group_requests import Group, Waiting, is_unknown_command
from streamd.worker.job import Fatal, Job
from streamd.worker.periodic import NextTime, Periodic
from streamd.worker.rule import Rule

if TYPE_CHECKING:
    import redis.asyncio

__all__ = ["Counts", "Worker", "WorkerError", "run"]

log = logging.getLogger("streamd.worker")

BLOCK_S = 1.0
"""How long a read waits for entries at most: a stop is noticed then, and redis-py gives up after 5 seconds."""

LEAST_BLOCK_S = 0.05
PAUSE_S = 0.1
MOST_PAUSE_S = 1.0
LOOK_AT_CLOCK_S = 10.0

LOOK_S = 3.0
"""How often a worker looks for what others have left, at least."""

SLACK_S = 0.005
"""Times of servers are whole milliseconds."""

PASSING = ("CLUSTERDOWN", "LOADING", "MASTERDOWN", "NOGROUP", "NOREPLICAS", "TRYAGAIN", "UNBLOCKED")
"""Errors of a server that a fail-over, a start or a deleted stream lead to."""

Handler = Callable[[Job], Awaitable[object]] | Callable[[Job], object]


class WorkerError(StreamdError):
    """A worker that cannot go on; str() is one line with the reason and the next step."""


@dataclass
class Counts:
    """What a worker has done, in jobs.

    handled        the handler returned, and they were acknowledged
    failed         the handler raised
    dead_lettered  they failed for the last time, and were moved to the dead letters
    claimed        they had been delivered before: to a worker that left them, or that failed
    lost           their lease ran out while they were handled, since the server could not be reached or the event loop did not run
    given_back     they arrived after the worker was stopped, and were left to others
    added          periodic jobs that this worker has added, or found added
    """

    handled: int = 0
    failed: int = 0
    dead_lettered: int = 0
    claimed: int = 0
    lost: int = 0
    given_back: int = 0
    added: int = 0


@dataclass
class Held:
    """A job that is being handled.

    renewed  when its lease began, or before that; a time of time.monotonic
    """

    job: Job
    renewed: float
    is_suspect: bool
    is_lost: bool = False


@dataclass(order=True)
class Retry:
    """A job that waits for its back-off.

    due      when it is over; a time of time.monotonic
    """

    due: float
    waiting: Waiting = field(compare=False)


class Worker:
    """A consumer of a group, which calls a handler for each entry.

    client       Redis or RedisCluster of redis.asyncio; its `socket_timeout` must be longer than a second
    stream       key of the stream
    group        name of the group; it is created if it is missing
    handle       a coroutine function, or a function, which is called in a thread. When it returns, the job is acknowledged. When it
                 raises, the job is tried again by the rule; `Fatal`: it is not
    rule         of the group. On streamd, the worker sets these options at its start; None: the rule that the group has. On a Redis, the
                 worker follows it; None: jobs that fail are tried again about a second later, without end
    consumer     a name that no other worker has while this one runs; None: a new one, which is removed at the end
    concurrency  jobs that are handled at a time
    lease        seconds after which others get a job of a worker that has died. It is renewed while a job is being handled
    grace        seconds that jobs have to end when the worker is stopped; then they are cancelled, and others get them
    start        the ID after which a new group begins: "0", all entries; "$", those that are added later

    Each entry is handled at least once: handlers must bear that a job is repeated. New jobs begin in the order of their IDs. What another
    worker has left, perhaps because of its own death, is tried one at a time, beside new jobs.
    """

    def __init__(
        self, client: redis.asyncio.RedisCluster | redis.asyncio.Redis, stream: str, group: str, handle: Handler, *,
        rule: Rule | None = None, consumer: str | None = None, concurrency: int = 10, lease: Seconds = 30.0,
        grace: Seconds = 30.0, start: str = "0",
    ) -> None:  # fmt: skip
        self._lease_s = milliseconds(lease) / 1000
        self._grace_s = milliseconds(grace) / 1000
        if concurrency < 1 or self._lease_s <= 0:
            raise ValueError("concurrency must be at least 1, and lease more than 0 seconds")
        self.stream = stream
        self.group = group
        self.consumer = consumer or f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
        self.counts = Counts()
        self._is_own_name = consumer is None
        self._start = start
        self._concurrency = concurrency
        self._handler = handle
        self._is_async = any(map(inspect.iscoroutinefunction, (handle, getattr(handle, "__call__", None))))  # noqa: B004
        self._threads = ThreadPoolExecutor(concurrency, thread_name_prefix=f"{stream} {group}")
        self._group = Group(client, stream, group, self.consumer, rule, milliseconds(lease))
        self._periodic: list[Periodic] = []
        self._held: dict[str, Held] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._retries: list[Retry] = []
        self._next_look = 0.0
        self._changed = asyncio.Event()
        self._is_stopping = False
        self._failure: BaseException | None = None

    @property
    def jobs(self) -> int:
        """How many are being handled."""
        return len(self._held)

    def every(self, every: Seconds | NextTime, fields: Mapping[Any, Any], *, name: str) -> None:
        """Add a job periodically, once for all workers that say the same; before `run`.

        every   seconds, counted from 1970; or a function from a Unix time in seconds to the next one, such as that of a crontab
        fields  of the entry
        name    of this job. Workers that add it at the same time, within `stream-idmp-duration` seconds of each other, add one entry

        Times at which no worker runs are left out. Needs XADD with IDMP: streamd, or Redis 8.6. Raises ValueError if there is no next time.
        """
        periodic = Periodic(name, dict(fields), every)
        periodic.next_time(time.time())
        self._periodic.append(periodic)

    def stop(self) -> None:
        """Let `run` return when the jobs that are being handled have ended; to be called in the event loop."""
        self._is_stopping = True
        self._changed.set()

    async def run(self) -> None:
        """Handle jobs until `stop` is called.

        Raises WorkerError if a periodic job cannot be added, and errors of redis-py that a fail-over or a restart does not explain. When it
        is cancelled, so are the handlers, and others get their jobs.
        """
        side = [asyncio.create_task(self._guard(each)) for each in (self._renew(), *map(self._add, self._periodic))]
        try:
            await self._guard(self._take())
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=self._grace_s)
        finally:
            for task in (*self._tasks, *side):
                task.cancel()
            await asyncio.gather(*self._tasks, *side, return_exceptions=True)
            self._threads.shutdown(wait=False, cancel_futures=True)
        if self._failure is not None:
            raise self._failure
        with suppress(RedisError, OSError):
            for retry in self._retries:
                left_s = max(retry.due - time.monotonic(), 0)
                await self._group.leave_waiting(retry.waiting, round(left_s * 1000))
            if self._is_own_name:
                await self._group.leave()

    async def _guard(self, part: Awaitable[None]) -> None:
        """The first part that fails ends the worker."""
        try:
            await part
        except Exception as error:
            self._failure = self._failure or error
            self.stop()

    async def _pause(self, seconds: float) -> None:
        """Wait, unless the worker is stopped or something changes."""
        self._changed.clear()
        if not self._is_stopping:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._changed.wait()

    async def _until_it_is_said(self, say: Callable[[], Awaitable[Any]]) -> Any:
        """The result of a request, which is repeated while the server cannot be reached."""
        pause = PAUSE_S
        while True:
            try:
                return await say()
            except (RedisError, OSError) as error:
                if not is_passing(error):
                    raise
            await asyncio.sleep(pause)
            pause = min(2 * pause, MOST_PAUSE_S)

    # --- Getting jobs ------------------------------------------------------------------------------------------------

    async def _take(self) -> None:
        pause = PAUSE_S
        while not self._is_stopping:
            try:
                await self._open()
                while not self._is_stopping:
                    await self._take_some()
                    pause = PAUSE_S
            except (RedisError, OSError) as error:
                if not is_passing(error) and not is_unknown_command(error):  # a Redis may have taken over
                    raise
                log.warning("%s cannot be read, trying again: %s", self.stream, error)
                await self._pause(pause)
                pause = min(2 * pause, MOST_PAUSE_S)

    async def _open(self) -> None:
        await self._group.open(self._start)
        known = {*self._held, *(each.waiting.id for each in self._retries)}
        for waiting in await self._group.own(known):
            self._wait(waiting)
        self._next_look = 0.0

    async def _take_some(self) -> None:
        now = time.monotonic()
        while self._has_room and self._retries and self._retries[0].due <= now:
            retry = heapq.heappop(self._retries)
            # Later than that, another consumer may have it, and it is found by looking.
            if now < retry.due + self._lease_s and (job := await self._group.retry(retry.waiting)):
                self._begin(job)
        while self._has_room and now >= self._next_look and not self._has_suspect:
            found = await self._group.look(self._held)
            if found is None or found.is_new:
                self._next_look = now + min(self._lease_s / 4, LOOK_S)
            if found is not None:
                self._begin(found.job, is_suspect=not found.is_new and found.job.deliveries > 1)
        if self._has_room:
            room = self._concurrency - len(self._held)
            jobs = await self._group.read(room, max(round(self._block_s(now) * 1000), 1))
            if self._is_stopping and jobs:
                await self._group.give_back([job.id for job in jobs])
                self.counts.given_back += len(jobs)
                return
            for job in jobs:
                self._begin(job)
        else:
            await self._pause(BLOCK_S)

    @property
    def _has_room(self) -> bool:
        return len(self._held) < self._concurrency and not self._is_stopping

    @property
    def _has_suspect(self) -> bool:
        return any(held.is_suspect for held in self._held.values())

    def _block_s(self, now: float) -> float:
        """How long a read may wait: until something else is to be done, or may be."""
        back_off_s = milliseconds(self._group.rule.backoff) / 1000
        ends = [now + BLOCK_S]
        if not self._has_suspect:
            ends.append(max(self._next_look, now))
        if self._retries:
            ends.append(max(self._retries[0].due, now))
        if self._held and back_off_s:
            ends.append(now + max(back_off_s, LEAST_BLOCK_S))
        return min(ends) - now

    def _begin(self, job: Job, *, is_suspect: bool = False) -> None:
        now = time.monotonic()
        if (held := self._held.get(job.id)) is not None:  # its lease had run out, and it was claimed back
            held.renewed, held.is_lost = now, False
            return
        self.counts.claimed += job.deliveries > 1
        self._held[job.id] = held = Held(job, now, is_suspect)
        task = asyncio.create_task(self._guard(self._handle(held)), name=f"{self.stream} {job.id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _wait(self, waiting: Waiting) -> None:
        heapq.heappush(self._retries, Retry(time.monotonic() + waiting.left_ms / 1000 + SLACK_S, waiting))

    # --- Handling them -----------------------------------------------------------------------------------------------

    async def _handle(self, held: Held) -> None:
        job = held.job
        try:
            await self._call(job)
        except asyncio.CancelledError:
            with suppress(RedisError, OSError):
                await self._group.hand_over([job.id])
            raise
        except Exception as error:
            log.warning("Job %s of %s has failed", job.id, self.stream, exc_info=error)
            self.counts.failed += 1
            if not held.is_lost:
                await self._until_it_is_said(partial(self._fail, job, is_fatal=isinstance(error, Fatal)))
        else:
            await self._until_it_is_said(partial(self._group.acknowledge, job.id))
            self.counts.handled += 1
        finally:
            del self._held[job.id]
            self._changed.set()

    async def _call(self, job: Job) -> None:
        if self._is_async:
            await self._handler(job)  # type: ignore[misc]
        else:
            await asyncio.get_running_loop().run_in_executor(self._threads, self._handler, job)

    async def _fail(self, job: Job, *, is_fatal: bool) -> None:
        failure = await self._group.fail(job.id, is_fatal=is_fatal)
        self.counts.dead_lettered += failure.is_dead
        if failure.waiting is not None:
            self._wait(failure.waiting)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._lease_s / 3)
            now = time.monotonic()
            for held in self._held.values():
                if now - held.renewed > self._lease_s and not held.is_lost:
                    held.is_lost = True
                    self.counts.lost += 1
            renewed = [held for held in self._held.values() if not held.is_lost]
            if renewed:
                with suppress(RedisError, OSError):
                    await self._group.renew([held.job.id for held in renewed])
                    for held in renewed:
                        held.renewed = now

    # --- Periodic jobs -----------------------------------------------------------------------------------------------

    async def _add(self, periodic: Periodic) -> None:
        while True:
            at = periodic.next_time(time.time())
            while (left := at - time.time()) > 0:
                await asyncio.sleep(min(left, LOOK_AT_CLOCK_S))
            add = partial(self._group.add_once, periodic.name, round(at * 1000), periodic.fields)
            try:
                await self._until_it_is_said(add)
            except ResponseError as error:
                reason = f"{periodic.name} cannot be added to {self.stream}: {error}. Periodic jobs need streamd or Redis 8.6"
                raise WorkerError(reason) from error
            self.counts.added += 1


def is_passing(error: BaseException) -> bool:
    """Whether the same request may succeed later."""
    return is_temporary(error) or (isinstance(error, ResponseError) and str(error).startswith(PASSING))


async def run(*workers: Worker) -> None:
    """Run workers until SIGTERM or SIGINT, which let jobs end; in the main thread. When one fails, the others are stopped.

    Raises what `Worker.run` raises: the first error.
    """
    loop = asyncio.get_running_loop()

    def stop() -> None:
        for worker in workers:
            worker.stop()

    async def run_one(worker: Worker) -> None:
        try:
            await worker.run()
        finally:
            stop()

    numbers = (signal.SIGTERM, signal.SIGINT)
    for number in numbers:
        loop.add_signal_handler(number, stop)
    try:
        results = await asyncio.gather(*map(run_one, workers), return_exceptions=True)
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
    for result in results:
        if isinstance(result, BaseException):
            raise result
