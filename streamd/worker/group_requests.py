"""What a worker asks of its consumer group. streamd follows the rule of a group itself; on a Redis it is followed here.

An entry that fails stays with its consumer, and counts as delivered now: so its back-off follows from what the server has, and holds for
every worker. Without a back-off it is given back instead. Nobody takes an entry that has been idle for less than the lease, except the
consumer that it is with.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redis.exceptions import RedisClusterException, RedisError, ResponseError

from streamd.delivery.client import group as rules_of
from streamd.worker.dead_letter_script import MOVE
from streamd.worker.job import Job
from streamd.worker.rule import Rule

if TYPE_CHECKING:
    import redis.asyncio

__all__ = ["Failure", "Found", "Group", "Waiting", "is_unknown_command"]

log = logging.getLogger("streamd.worker")

PAGE = 100
"""Pending entries that are asked for at once."""

UNOWNED = -1
"""The idle time of an entry that was given back, as XPENDING has it."""

TOLERANCE_MS = 50
"""How much less an entry may have been idle that is known to be with this consumer."""

GIVEN_BACK_MS = 1000
"""How soon a job is tried again that failed and has no back-off."""


@dataclass(frozen=True)
class Waiting:
    """An entry that this consumer is to claim.

    left_ms   how long it has to wait for that
    least_ms  for how long nobody may have had it then
    """

    id: str
    deliveries: int
    left_ms: int
    least_ms: int


@dataclass(frozen=True)
class Row:
    """A pending entry.

    idle_ms  since it was delivered or renewed; -1: it was given back
    wait_ms  its back-off
    """

    id: str
    deliveries: int
    idle_ms: int
    wait_ms: int


@dataclass(frozen=True)
class Found:
    """An entry that was claimed.

    is_new  it was not: there was none, and this one had not been delivered yet
    """

    job: Job
    is_new: bool = False


@dataclass(frozen=True)
class Failure:
    """What has become of a job that failed.

    is_dead  it was moved to the dead letters
    waiting  it is tried again
    """

    is_dead: bool = False
    waiting: Waiting | None = None


class Group:
    """A consumer of a group.

    client    of redis-py, for asyncio
    given     the rule of the worker; None: that of the server, if it has any
    lease_ms  how long an entry is safe from other consumers after it was delivered or renewed
    """

    def __init__(
        self, client: redis.asyncio.RedisCluster | redis.asyncio.Redis, stream: str, name: str, consumer: str,
        given: Rule | None, lease_ms: int,
    ) -> None:  # fmt: skip
        self._client: Any = client
        self.stream = stream
        self.name = name
        self.consumer = consumer
        self._lease_ms = lease_ms
        self._given = given
        self._rules = rules_of(client, stream, name)
        knows_claims = "claim_min_idle_time" in inspect.signature(client.xreadgroup).parameters
        self._claim_option = {"claim_min_idle_time": lease_ms} if knows_claims else {}
        self._acts = False
        self.rule = given or Rule()

    # --- Beginning, and end ------------------------------------------------------------------------------------------

    async def open(self, start: str) -> None:
        """Create the group if it is missing, and learn whether the server follows rules; also after another server has taken over."""
        try:
            await self._client.xgroup_create(self.stream, self.name, id=start, mkstream=True)
        except ResponseError as error:
            if not str(error).startswith("BUSYGROUP"):
                raise
        await self._read_rule(self._given)

    async def _read_rule(self, given: Rule | None = None) -> None:
        """Learn the rule that holds, and whether the server follows it; set options of the given one first."""
        try:
            if given is not None and (options := given.options()):
                await self._rules.set(**options)
            self.rule = Rule.of(await self._rules.get())
            self._acts = True
        except RedisError as error:
            if not is_unknown_command(error):
                raise
            self.rule = self._given or Rule()
            self._acts = False

    async def own(self, but: Collection[str]) -> list[Waiting]:
        """What is with this consumer, except for these entries: it has had them before, or their delivery did not arrive."""
        return [
            Waiting(row.id, row.deliveries, max(row.wait_ms - row.idle_ms, 0), row.wait_ms)
            async for row in self._pending(consumername=self.consumer)
            if row.id not in but
        ]

    async def leave(self) -> None:
        """Remove the consumer, unless entries are with it."""
        if not await self._client.xpending_range(self.stream, self.name, "-", "+", 1, self.consumer):
            await self._client.xgroup_delconsumer(self.stream, self.name, self.consumer)

    # --- Getting entries ---------------------------------------------------------------------------------------------

    async def read(self, count: int, block_ms: int) -> list[Job]:
        """New entries."""
        reply = await self._client.xreadgroup(self.name, self.consumer, {self.stream: ">"}, count=count, block=block_ms)
        return [Job(self.stream, text_of(entry_id), fields, 1) for entry_id, fields, *_ in entries_in(reply)]

    async def look(self, but: Collection[str]) -> Found | None:
        """An entry that a consumer has left, or given back; on streamd a new one, if there is none.

        but  entries that are being handled
        """
        if self._acts:
            reply = await self._client.execute_command(
                "XREADGROUP", "GROUP", self.name, self.consumer, "COUNT", 1, "CLAIM", self._lease_ms,
                "STREAMS", self.stream, ">", **self._claim_option,
            )  # fmt: skip
            for entry_id, fields, *known in entries_in(reply):
                row = None if known else await self._find(text_of(entry_id))  # redis-py before 7.1
                deliveries = int(known[1]) + 1 if known else row.deliveries if row else 1
                return Found(
                    Job(self.stream, text_of(entry_id), fields, deliveries), is_new=not any(map(int, known or [1]))
                )
            return None
        async for row in self._pending(idle=self._lease_ms):
            is_ready = row.idle_ms == UNOWNED or row.idle_ms >= row.wait_ms
            if row.id not in but and is_ready and (job := await self._claim(row.id, row.deliveries, self._lease_ms)):
                return Found(job)
        return None

    async def retry(self, waiting: Waiting) -> Job | None:
        """An entry whose time has come; None: it is not pending any more, or others have it."""
        return await self._claim(waiting.id, waiting.deliveries, waiting.least_ms)

    async def _claim(self, entry_id: str, deliveries: int, least_ms: int) -> Job | None:
        if not self._acts and self.rule.dead_letter and self.rule.is_last(deliveries):
            await self._move(entry_id, least_ms, "max-deliveries")
            return None
        for found, fields in await self._client.xclaim(self.stream, self.name, self.consumer, least_ms, [entry_id]):
            if found is not None:
                return Job(self.stream, entry_id, fields, deliveries + 1)
        return None

    async def _pending(self, **only: Any) -> Any:
        """Pending entries in the order of their IDs."""
        start = "-"
        while rows := await self._client.xpending_range(self.stream, self.name, start, "+", PAGE, **only):
            for row in rows:
                yield self._row(row)
            start = f"({text_of(rows[-1]['message_id'])}"

    async def _find(self, entry_id: str) -> Row | None:
        rows = await self._client.xpending_range(self.stream, self.name, entry_id, entry_id, 1)
        return self._row(rows[0]) if rows else None

    def _row(self, row: Mapping[str, Any]) -> Row:
        entry_id, deliveries = text_of(row["message_id"]), int(row["times_delivered"])
        return Row(entry_id, deliveries, int(row["time_since_delivered"]), self.rule.wait_ms(entry_id, deliveries))

    # --- What becomes of them ----------------------------------------------------------------------------------------

    async def renew(self, ids: Sequence[str]) -> None:
        """Make the leases of these entries, which are with this consumer, begin now."""
        await self._client.xclaim(self.stream, self.name, self.consumer, 0, ids, justid=True)

    async def acknowledge(self, entry_id: str) -> None:
        await self._client.xack(self.stream, self.name, entry_id)

    async def fail(self, entry_id: str, *, is_fatal: bool) -> Failure:
        """A job has failed: it is tried again later, or not at all.

        is_fatal  not at all, if there is a stream for dead letters
        """
        if self._acts:
            await self._read_rule()
        is_fatal = is_fatal and bool(self.rule.dead_letter)
        count = await self._nack("FATAL" if is_fatal else "FAIL", [entry_id])
        row = await self._find(entry_id)
        if count is not None:
            if row is None:
                return Failure(is_dead=count > 0)
        elif row is None:
            return Failure()
        elif is_fatal or self.rule.is_last(row.deliveries):
            return Failure(is_dead=await self._move(entry_id, 0, "fatal" if is_fatal else "max-deliveries"))
        elif row.wait_ms:
            await self.renew([entry_id])
        else:
            await self.hand_over([entry_id])
        if row.wait_ms and row.idle_ms != UNOWNED:
            return Failure(waiting=Waiting(entry_id, row.deliveries, row.wait_ms, row.wait_ms))
        return Failure(waiting=Waiting(entry_id, row.deliveries, GIVEN_BACK_MS, self._lease_ms))

    async def give_back(self, ids: Sequence[str]) -> None:
        """Entries were delivered, and nothing was done: others may have them, as if they had not been."""
        if await self._nack("SILENT", ids) is None:
            await self.hand_over(ids, retrycount=0)

    async def _nack(self, mode: str, ids: Sequence[str]) -> int | None:
        """How many entries were given back, in the server's way; None: it has none, or it is a Redis."""
        if not self._acts:
            return None
        try:
            return int(await self._client.execute_command("XNACK", self.stream, self.name, mode, "IDS", len(ids), *ids))
        except RedisError as error:
            if not is_unknown_command(error):
                raise
        self._acts = False  # a Redis has taken over
        return None

    async def hand_over(self, ids: Sequence[str], **options: Any) -> None:
        """Let others claim entries that are with this consumer, as if their leases had run out."""
        await self._client.xclaim(
            self.stream, self.name, self.consumer, 0, ids, idle=self._lease_ms, justid=True, **options
        )

    async def leave_waiting(self, waiting: Waiting, left_ms: int) -> None:
        """Let others claim an entry when its back-off is over, though it is with this consumer, which will not be there.

        left_ms  until then
        """
        if waiting.least_ms < self._lease_ms:
            idle_ms = waiting.least_ms - left_ms
            await self._client.xclaim(
                self.stream, self.name, self.consumer, max(idle_ms - TOLERANCE_MS, 0), [waiting.id],
                idle=self._lease_ms - left_ms, justid=True,
            )  # fmt: skip

    async def _move(self, entry_id: str, least_ms: int, reason: str) -> bool:
        try:
            moved = await self._client.eval(
                MOVE, 2, self.stream, self.rule.dead_letter, self.name, entry_id, least_ms, reason
            )
        except (ResponseError, RedisClusterException) as error:  # the latter: it is in another slot
            log.warning("%s of %s cannot be moved to the dead letters: %s", entry_id, self.stream, error)
            return False
        return bool(moved)

    async def add_once(self, name: str, at_ms: int, fields: Mapping[Any, Any]) -> None:
        """Add an entry that several workers may add, once."""
        words = [word for pair in fields.items() for word in pair]
        await self._client.execute_command("XADD", self.stream, "IDMP", f"every:{name}", at_ms, "*", *words)


def is_unknown_command(error: BaseException) -> bool:
    """Also in the words of redis-py's clients of clusters, which ask for a list of commands first."""
    return "unknown command" in str(error) or "doesn't exist in Redis commands" in str(error)


def text_of(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def entries_in(reply: Any) -> list[Any]:
    """The entries in a reply of XREADGROUP for one stream, in each of the shapes that redis-py gives it: the ID, the fields, and perhaps,
    with CLAIM, the idle time and the delivery count that they had before."""
    if not reply:
        return []
    (found,) = reply.values() if isinstance(reply, dict) else [reply[0][1]]
    if found and isinstance(found[0], list):
        (found,) = found
    return list(found)
