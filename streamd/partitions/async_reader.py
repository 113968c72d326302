"""A reader in tasks of asyncio: one that keeps the leases, and one for each part that it reads."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import closing
from typing import TYPE_CHECKING, Any

from redis.exceptions import NoScriptError

from streamd.partitions.parts import Parts
from streamd.partitions.reading import Batch, Call, Handle, NoReplyError, Pause, Reading, Steps, WaitForEntry
from streamd.partitions.requests import TEMPORARY, is_temporary, script_by_sha, script_by_text, wait_options

if TYPE_CHECKING:
    import redis.asyncio

__all__ = ["AsyncReader"]


class AsyncReader:
    """`Reader` for asyncio: `handle` is a coroutine function, and called for several parts at a time. One that computes for longer than
    the lease, and does not let the loop run, loses its parts."""

    def __init__(
        self, client: redis.asyncio.RedisCluster | redis.asyncio.Redis, parts: Parts, group: str,
        handle: Callable[[Batch], Awaitable[object]], *,
        consumer: str | None = None, lease_s: float = 10.0, count: int = 100, start: str = "0",
    ) -> None:  # fmt: skip
        self._client = client
        self._handle = handle
        self._reading = Reading(parts, group, consumer=consumer, lease_s=lease_s, count=count, start=start)
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._stopping = asyncio.Event()
        self._failure: BaseException | None = None

    @property
    def held(self) -> frozenset[int]:
        """The parts that it reads at the moment."""
        return frozenset(self._reading.held)

    def stop(self) -> None:
        """Let `run` return when the batches that are being handled are done."""
        self._reading.stop()
        self._stopping.set()

    async def run(self) -> None:
        """Read until `stop` is called; see `Reader.run`. When it is cancelled, so are the handlers, and others get the parts."""
        parts = self._reading.parts
        await Parts.open_async(self._client, parts.name, parts.count)
        try:
            await self._drive(self._reading.keep(), self._pause_of_keeper)
        except BaseException:
            for task in self._tasks.values():
                task.cancel()
            raise
        finally:
            self.stop()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        if self._failure is not None:
            raise self._failure

    async def _pause_of_keeper(self, seconds: float) -> None:
        tasks = self._tasks
        if self._stopping.is_set():
            left = [task for task in tasks.values() if not task.done()]
            if left:
                await asyncio.wait(left, timeout=seconds)
            return
        for part in self._reading.wanted:
            if part not in tasks or tasks[part].done():
                tasks[part] = asyncio.create_task(self._read(part), name=f"part {part}")
        await self._pause(seconds)

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return

    async def _read(self, part: int) -> None:
        try:
            await self._drive(self._reading.read(part), self._pause)
        except BaseException as error:
            if not isinstance(error, asyncio.CancelledError):
                self._failure = self._failure or error
            self.stop()
            await self._try_to(self._reading.release(part))

    async def _drive(self, steps: Steps, pause: Callable[[float], Awaitable[object]]) -> None:
        """Carry out steps until there are no more."""
        result: Any = None
        failed = False
        with closing(steps):
            while True:
                try:
                    step = steps.throw(NoReplyError()) if failed else steps.send(result)
                except StopIteration:
                    return
                result, failed = None, False
                if isinstance(step, Handle):
                    await self._handle(step.batch)
                elif isinstance(step, Pause):
                    await pause(step.seconds)
                else:
                    try:
                        result = await self._call(step)
                    except TEMPORARY as error:
                        if not is_temporary(error):
                            raise
                        failed = True

    async def _call(self, step: Call | WaitForEntry) -> Any:
        if isinstance(step, WaitForEntry):
            return await self._client.xread(**wait_options(step))
        try:
            return await self._client.execute_command(*script_by_sha(step))
        except NoScriptError:
            return await self._client.execute_command(*script_by_text(step))

    async def _try_to(self, step: Call) -> None:
        """For what another reader would notice later anyway."""
        try:
            await self._call(step)
        except Exception:
            return
