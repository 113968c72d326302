"""A reader in threads: one that keeps the leases, and one for each part that it reads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Any

from redis.exceptions import NoScriptError

from streamd.partitions.parts import Parts
from streamd.partitions.reading import Batch, Call, Handle, NoReplyError, Pause, Reading, Steps, WaitForEntry
from streamd.partitions.requests import TEMPORARY, is_temporary, script_by_sha, script_by_text, wait_options

if TYPE_CHECKING:
    import redis

__all__ = ["Reader"]


class Reader:
    """A reader of the parts of a stream, which it shares with all readers of the same group.

    client  a RedisCluster or Redis of redis-py. Its time-out must be longer than a second
    parts   of which stream
    group   the consumer group; it is created in each part that does not have it
    handle  gets each batch; afterwards its entries are acknowledged. It is called in several threads, in one at a time for a part
    consumer, lease_s, count, start  see `Reading`

    Entries of a part are handled in order, and by one reader at a time; those that a reader had not acknowledged when it lost the part,
    once more by the next one. A reader whose process is stopped in the middle of a batch, for longer than the lease, goes on with that batch
    while the next one handles it, too.
    """

    def __init__(
        self, client: redis.RedisCluster | redis.Redis, parts: Parts, group: str, handle: Callable[[Batch], object], *,
        consumer: str | None = None, lease_s: float = 10.0, count: int = 100, start: str = "0",
    ) -> None:  # fmt: skip
        self._client = client
        self._handle = handle
        self._reading = Reading(parts, group, consumer=consumer, lease_s=lease_s, count=count, start=start)
        self._threads: dict[int, threading.Thread] = {}
        self._stopping = threading.Event()
        self._failure: BaseException | None = None

    @property
    def held(self) -> frozenset[int]:
        """The parts that it reads at the moment."""
        return frozenset(self._reading.held)

    def stop(self) -> None:
        """Let `run` return when the batches that are being handled are done; from any thread, or a handler of signals."""
        self._reading.stop()
        self._stopping.set()

    def run(self) -> None:
        """Read until `stop` is called.

        Raises PartitionError when the stream has another number of parts, what `handle` raises, and errors of redis-py that are not
        those of a fail-over; then other readers get the parts at once.
        """
        parts = self._reading.parts
        Parts.open(self._client, parts.name, parts.count)
        try:
            self._drive(self._reading.keep(), self._pause_of_keeper)
        finally:
            self.stop()
            for thread in self._threads.values():
                thread.join()
        if self._failure is not None:
            raise self._failure

    def _pause_of_keeper(self, seconds: float) -> None:
        threads = self._threads
        if self._stopping.is_set():
            for thread in threads.values():
                if thread.is_alive():
                    thread.join(seconds)
                    break
            return
        for part in self._reading.wanted:
            if part not in threads or not threads[part].is_alive():
                threads[part] = threading.Thread(target=self._read, args=(part,), name=f"part {part}", daemon=True)
                threads[part].start()
        self._stopping.wait(seconds)

    def _read(self, part: int) -> None:
        try:
            self._drive(self._reading.read(part), self._stopping.wait)
        except BaseException as error:
            self._failure = self._failure or error
            self.stop()
            self._try_to(self._reading.release(part))

    def _drive(self, steps: Steps, pause: Callable[[float], object]) -> None:
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
                    self._handle(step.batch)
                elif isinstance(step, Pause):
                    pause(step.seconds)
                else:
                    try:
                        result = self._call(step)
                    except TEMPORARY as error:
                        if not is_temporary(error):
                            raise
                        failed = True

    def _call(self, step: Call | WaitForEntry) -> Any:
        if isinstance(step, WaitForEntry):
            return self._client.xread(**wait_options(step))
        try:
            return self._client.execute_command(*script_by_sha(step))  # type: ignore[no-untyped-call]
        except NoScriptError:
            return self._client.execute_command(*script_by_text(step))  # type: ignore[no-untyped-call]

    def _try_to(self, step: Call) -> None:
        """For what another reader would notice later anyway."""
        try:
            self._call(step)
        except Exception:
            return
