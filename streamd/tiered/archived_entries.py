"""ArchivedEntries: clients that wait for a reader, and what its answer is worth when it arrives.

A request that needs the archive waits as one that blocks: other requests run, the stream changes. When the answer is there, the request is
run again, and the answer is used only if, together with what is in memory at that moment, nothing can be missing:

    the same stream    no other value has taken the place of the key since the question
    the border         what may have left memory is archived, or had been removed already when the reader found no gap
    the range          the rows that were read reach as far as they are needed

Otherwise the question is put again. What makes one necessary is an archiver that trims, or another client that does; the next answer begins
with newer manifests. After ATTEMPTS the reply is an error.
"""

from __future__ import annotations

from streamd.client.archive_keys import key_beside
from streamd.client.key_names import stream_name
from streamd.client.points import parse_entry_id
from streamd.client.tier_frames import TierAnswer, TierQuestion
from streamd.core.client import Client
from streamd.core.context import BlockRequest, Context
from streamd.core.host import Host
from streamd.core.tiers import TierPart, TierRange, Tiers
from streamd.errors import CommandError
from streamd.keyspace.database import Database
from streamd.printable import key_in_one_line
from streamd.tiered.readers import Question, Readers

__all__ = ["ArchivedEntries"]

ATTEMPTS = 10


class Wait:
    """A client that waits for an answer.

    record    the client's Blocked record, which distinguishes this wait of the client from later ones
    wanted    the range, and the stream as it was when the question was put; None: only facts are asked for
    """

    def __init__(self, client: Client, wanted: TierRange | None, value: object) -> None:
        self.client = client
        self.record = client.blocked
        self.wanted = wanted
        self.value = value
        self.attempts = 1
        self.question: Question | None = None
        self.answer: TierAnswer | None = None


class ArchivedEntries(Tiers):
    """The entries of streams in an archive, through its readers.

    max_bytes  the longest archived part of a reply
    """

    def __init__(self, host: Host) -> None:
        super().__init__()
        self._host = host
        self._waits: dict[int, Wait] = {}
        self._seen: dict[tuple[int, bytes], tuple[object, int]] = {}
        self._incarnations = 0
        self.readers: Readers | None = None
        self.max_bytes = 0

    def trimmed_to(self, db: Database, key: bytes) -> int:
        noted = db.peek(key_beside("trimmed", stream_name(key)).encode())
        try:
            return parse_entry_id(noted) if isinstance(noted, bytes) else 0
        except ValueError:
            return 0

    # --- Reading -----------------------------------------------------------------------------------------------------

    def read(self, ctx: Context, args: list[bytes], wanted: TierRange) -> TierPart | None:
        wait = self._wait_of(ctx.client)
        if wait is None:
            self._begin(ctx, args, wanted.key, wanted.value, wanted)
            return None
        answer = self._answer_of(ctx, args, wait, wanted.key)
        if answer is None:
            return None
        part = joined(wait, wanted, answer)
        if part is None:
            self._ask_again(ctx, args, wait, wanted.key, wanted.value, wanted)
        return part

    def facts(self, ctx: Context, args: list[bytes], key: bytes, value: object) -> dict[str, int | str] | None:
        wait = self._wait_of(ctx.client)
        if wait is None:
            self._begin(ctx, args, key, value, None)
            return None
        answer = self._answer_of(ctx, args, wait, key)
        if answer is None:
            return None
        if wait.value is not value:
            self._ask_again(ctx, args, wait, key, value, None)
            return None
        return answer.facts

    # --- Waiting -----------------------------------------------------------------------------------------------------

    def _wait_of(self, client: Client) -> Wait | None:
        """What the running request has waited for; None when it runs for the first time."""
        wait = self._waits.get(client.id)
        return wait if wait is not None and client.blocked is wait.record is not None else None

    def _begin(self, ctx: Context, args: list[bytes], key: bytes, value: object, wanted: TierRange | None) -> None:
        self.forget(ctx.client)
        ctx.block_on(BlockRequest([], args, 0))
        wait = self._waits[ctx.client.id] = Wait(ctx.client, wanted, value)
        self._put(ctx, wait, key)

    def _answer_of(self, ctx: Context, args: list[bytes], wait: Wait, key: bytes) -> TierAnswer | None:
        """The answer, if it is there. Raises CommandError when it is an error."""
        answer = wait.answer
        if answer is None:
            ctx.block_on(BlockRequest([], args, 0))
        elif answer.error:
            raise CommandError(
                f"ARCHIVE The archived part of {key_in_one_line(stream_name(key))} cannot be read: {answer.error}"
            )
        return answer

    def _ask_again(
        self, ctx: Context, args: list[bytes], wait: Wait, key: bytes, value: object, wanted: TierRange | None
    ) -> None:
        if wait.attempts == ATTEMPTS:
            raise CommandError(
                f"ARCHIVE The archived part of {key_in_one_line(stream_name(key))} cannot be read: the stream was trimmed or replaced during each of "
                f"{ATTEMPTS} attempts; try again"
            )
        wait.attempts += 1
        wait.answer, wait.wanted, wait.value = None, wanted, value
        ctx.block_on(BlockRequest([], args, 0))
        self._put(ctx, wait, key)

    def _put(self, ctx: Context, wait: Wait, key: bytes) -> None:
        db, wanted = ctx.db.index, wait.wanted
        asked = TierQuestion(key, db, self._incarnation(db, key, wait.value))
        if wanted is not None:
            asked = TierQuestion(
                key,
                db,
                asked.incarnation,
                wanted.first,
                wanted.last,
                wanted.limit,
                wanted.is_reverse,
                wanted.count,
                self.max_bytes,
            )
        wait.question = self._readers().ask(asked, lambda answer: self._arrived(wait, answer))

    def _readers(self) -> Readers:
        if self.readers is None:
            raise CommandError("ARCHIVE No archive is set (stream-archive-dir)")
        return self.readers

    def _incarnation(self, db: int, key: bytes, value: object) -> int:
        """A number that is another one when another stream has taken the place of a key."""
        seen = self._seen.get((db, key))
        if seen is None or seen[0] is not value:
            self._incarnations += 1
            seen = self._seen[db, key] = value, self._incarnations
        return seen[1]

    def _arrived(self, wait: Wait, answer: TierAnswer) -> None:
        wait.answer = answer
        self._resume(wait)

    def _resume(self, wait: Wait) -> None:
        if wait.client.blocked is wait.record:
            self._host.blocked.retry(wait.client)
        if wait.client.blocked is not wait.record:
            self._drop(wait)

    def resume_held(self) -> None:
        """Answer those whose answer has arrived while no request could be run: during a pause, or a long script."""
        for wait in list(self._waits.values()):
            if wait.answer is not None or wait.client.blocked is not wait.record:
                self._resume(wait)

    def _drop(self, wait: Wait) -> None:
        if wait.question is not None:
            wait.question.cancel()
        if self._waits.get(wait.client.id) is wait:
            del self._waits[wait.client.id]

    def forget(self, client: Client) -> None:
        """The client is gone, or waits no longer."""
        if (wait := self._waits.get(client.id)) is not None:
            self._drop(wait)

    def forget_streams(self) -> None:
        """Drop what is known of keys whose stream is gone, so that nothing of it is kept."""
        databases = self._host.databases
        for (db, key), (value, _) in list(self._seen.items()):
            if databases[db].peek(key) is not value:
                del self._seen[db, key]


def joined(wait: Wait, now: TierRange, answer: TierAnswer) -> TierPart | None:
    """The part of a reply that an answer gives; None when it is not enough, or of another stream."""
    if wait.value is not now.value:
        return None
    boundary = answer.boundary
    if now.trimmed > boundary:
        return None
    if now.live_limit > boundary and now.live_limit != answer.live_limit and boundary:
        return None
    border = min(now.limit, boundary)
    rows, data = memoryview(answer.rows).cast("B").cast("Q"), memoryview(answer.data)
    part = TierPart(border, rows, data, is_reverse=now.is_reverse)
    start, stop = part.bounds
    has_all = 0 < now.count <= stop - start
    if answer.high < min(border, now.last) and (now.is_reverse or not has_all):
        return None
    if answer.low > now.first and not has_all:
        return None
    return part
