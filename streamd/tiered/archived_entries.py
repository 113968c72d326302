"""ArchivedEntries: clients that wait for a reader, and what its answer is worth when it arrives.

A request that needs the archive waits as one that blocks: other requests run, the stream changes. When the answer is there, the request is
run again, and the answer is used only if, together with what is in memory at that moment, nothing can be missing:

    the same stream    no other value has taken the place of the key since the question
    the border         what may have left memory is archived, or had been removed already when the reader found no gap
    the range          the rows that were read reach as far as they are needed

Otherwise the question is put again. What makes one necessary is an archiver that trims, or another client that does; the next answer begins
with newer manifests. After ATTEMPTS the reply is an error.

A request may need several ranges, each of which has its place. They are asked for one after another, so that a client never has more than
`max_bytes` of answers.

The consumers of a group read one after another from the same place, so they share its last answer: whoever runs takes what comes next from
it, as long as it is enough, and no archiver, and no deletion from the archive, has begun or ended since. The first for whom it is not
asks, and those that come meanwhile wait for the same answer.
"""

from __future__ import annotations

from collections.abc import Callable

from streamd.client.archive_keys import key_beside, token_key
from streamd.client.key_names import stream_name
from streamd.client.points import parse_entry_id
from streamd.client.tier_frames import TierAnswer, TierQuestion
from streamd.core.client import Client
from streamd.core.context import BlockRequest, Context
from streamd.core.host import Host
from streamd.core.tiers import MAX_ID, Fetched, TierPart, TierRange, Tiers
from streamd.errors import CommandError
from streamd.keyspace.database import Database
from streamd.printable import key_in_one_line
from streamd.tiered.readers import Question, Readers

__all__ = ["ArchivedEntries"]

ATTEMPTS = 10

AHEAD_BYTES = 1 << 20
"""What is read for a group at a time, if its consumers ask for less: they share it."""

AHEAD_S = 1.0
"""How long that may be used."""

AHEAD_MOST = 32
"""How many groups have such entries at a time; the others read what they ask for."""


class Asked:
    """A question, and what is known of its answer.

    value     the stream, as it was when the question was put
    first     the ID from which on was read
    attempts  how often it was put
    waits     the clients that wait for the answer
    answer    None: it has not arrived
    until     when it is too old to be shared, by the clock of the loop
    locks     the counter of archivers' locks when the question was put; None: it is not shared
    """

    def __init__(
        self, value: object, first: int, question: Question, attempts: int, locks: object | None = None
    ) -> None:
        self.value = value
        self.first = first
        self.question = question
        self.attempts = attempts
        self.waits: list[Wait] = []
        self.answer: TierAnswer | None = None
        self.until = 0.0
        self.locks = locks

    def part(self, now: TierRange) -> TierPart | None:
        """See Fetched."""
        if self.answer is None:
            return None
        check(now.key, self.answer)
        return joined(now, self.answer, self)


class Wait:
    """A client that waits for answers.

    record  the client's Blocked record, which distinguishes this wait of the client from later ones
    asked   by place
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        self.record = client.blocked
        self.asked: dict[int, Asked] = {}

    @property
    def has_answer(self) -> bool:
        return all(each.answer is not None for each in self.asked.values())


class ArchivedEntries(Tiers):
    """The entries of streams in an archive, through its readers.

    max_bytes  the longest archived part of a reply
    """

    def __init__(self, host: Host) -> None:
        super().__init__()
        self._host = host
        self._waits: dict[int, Wait] = {}
        self._ahead: dict[tuple[int, bytes, bytes], Asked] = {}
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

    def read(self, ctx: Context, args: list[bytes], wanted: TierRange, place: int = 0) -> TierPart | None:
        own = self._asked(ctx, place)
        if own is not None and own.answer is not None:
            check(wanted.key, own.answer)
        for asked in (own, self._shared(ctx, wanted)):
            if asked is None:
                continue
            if asked.answer is None:
                self._wait_for(ctx, args, asked, place)
                return None
            if (part := joined(wanted, asked.answer, asked)) is not None:
                return part
        self._ask(ctx, args, wanted.key, wanted.value, wanted, place)
        return None

    def leave_out(self, ctx: Context, place: int) -> None:
        wait = self._wait_of(ctx.client)
        if wait is not None:
            wait.asked.pop(place, None)

    def fetch(self, db: Database, wanted: TierRange, done: Callable[[Fetched], None]) -> None:
        question = self._question(db, wanted.key, wanted.value, wanted, 0)
        asked = Asked(wanted.value, wanted.first, question, 1)

        def arrived(answer: TierAnswer) -> None:
            asked.answer = answer
            done(asked)

        self._readers().ask(question, arrived)

    def facts(self, ctx: Context, args: list[bytes], key: bytes, value: object) -> dict[str, int | str] | None:
        asked = self._asked(ctx, 0)
        if asked is not None:
            if asked.answer is None:
                self._wait_for(ctx, args, asked, 0)
                return None
            check(key, asked.answer)
            if asked.value is value:
                return asked.answer.facts
        self._ask(ctx, args, key, value, None, 0)
        return None

    def _shared(self, ctx: Context, wanted: TierRange) -> Asked | None:
        """What the consumers of a group share."""
        if wanted.group is None:
            return None
        found = self._ahead.get((ctx.db.index, wanted.key, wanted.group))
        if found is None or found.locks != locks_of(ctx.db, wanted.key):
            return None
        is_old = found.answer is not None and found.until < self._host.loop.time()
        return None if is_old else found

    # --- Waiting -----------------------------------------------------------------------------------------------------

    def _wait_of(self, client: Client) -> Wait | None:
        """What the running request waits for, or has waited for; None when it runs for the first time."""
        wait = self._waits.get(client.id)
        return wait if wait is not None and client.blocked is wait.record is not None else None

    def _asked(self, ctx: Context, place: int) -> Asked | None:
        wait = self._wait_of(ctx.client)
        return None if wait is None else wait.asked.get(place)

    def _wait_for(self, ctx: Context, args: list[bytes], asked: Asked, place: int) -> None:
        """The client waits for an answer."""
        wait = self._wait_of(ctx.client)
        ctx.block_on(BlockRequest([], args, 0))
        if wait is None:
            self.forget(ctx.client)
            wait = self._waits[ctx.client.id] = Wait(ctx.client)
        wait.asked[place] = asked
        if wait not in asked.waits:
            asked.waits.append(wait)

    def _ask(
        self, ctx: Context, args: list[bytes], key: bytes, value: object, wanted: TierRange | None, place: int
    ) -> None:
        """Put a question, for the first time or again. The client waits."""
        former, first = self._asked(ctx, place), 0 if wanted is None else wanted.first
        # A group that has moved on meanwhile has been read by others.
        attempts = 1 if former is None or former.first != first else former.attempts + 1
        if attempts > ATTEMPTS:
            raise unreadable(key, f"the stream was trimmed or replaced during each of {ATTEMPTS} attempts; try again")
        question = self._question(ctx.db, key, value, wanted, self._held(ctx.client, place))
        shared = None if wanted is None or wanted.group is None else (ctx.db.index, key, wanted.group)
        asked = Asked(value, first, question, attempts, None if shared is None else locks_of(ctx.db, key))
        if shared is not None and (shared in self._ahead or len(self._ahead) < AHEAD_MOST):
            self._ahead[shared] = asked
        self._wait_for(ctx, args, asked, place)

        def arrived(answer: TierAnswer) -> None:
            asked.answer = answer
            asked.until = self._host.loop.time() + AHEAD_S
            if answer.error and shared is not None and self._ahead.get(shared) is asked:
                del self._ahead[shared]
            waits, asked.waits = asked.waits, []
            for wait in waits:
                self._resume(wait)

        self._readers().ask(question, arrived)

    def _question(self, db: Database, key: bytes, value: object, wanted: TierRange | None, held_bytes: int) -> Question:
        incarnation = self._incarnation(db.index, key, value)
        if wanted is None:
            return Question(TierQuestion(key, db.index, incarnation))
        return Question(
            TierQuestion(
                key,
                db.index,
                incarnation,
                first=wanted.first,
                last=wanted.last,
                limit=wanted.limit,
                is_reverse=wanted.is_reverse,
                count=wanted.count,
                enough=wanted.enough,
                ahead=0 if wanted.group is None else min(AHEAD_BYTES, self.max_bytes // 2),
                ids=wanted.ids,
                may_be_cut=wanted.may_be_cut,
                max_bytes=max(1, self.max_bytes - held_bytes),
            )
        )

    def _held(self, client: Client, place: int) -> int:
        """The bytes of the answers that a client has in other places."""
        wait = self._wait_of(client)
        others = {} if wait is None else wait.asked
        answers = [each.answer for at, each in others.items() if at != place and each.answer is not None]
        return sum(len(each.entries.data) - each.spare for each in answers)

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

    def _resume(self, wait: Wait) -> None:
        if wait.client.blocked is wait.record:
            self._host.blocked.retry(wait.client)
        if wait.client.blocked is not wait.record:
            self._drop(wait)

    def resume_held(self) -> None:
        """Answer those whose answers have arrived while no request could be run: during a pause, or a long script."""
        for wait in list(self._waits.values()):
            if wait.has_answer or wait.client.blocked is not wait.record:
                self._resume(wait)

    def _drop(self, wait: Wait) -> None:
        for each in wait.asked.values():
            if wait in each.waits:
                each.waits.remove(wait)
                if not each.waits:
                    each.question.cancel()
                    for shared in [shared for shared, held in self._ahead.items() if held is each]:
                        del self._ahead[shared]
        if self._waits.get(wait.client.id) is wait:
            del self._waits[wait.client.id]

    def forget(self, client: Client) -> None:
        """The client is gone, or waits no longer."""
        if (wait := self._waits.get(client.id)) is not None:
            self._drop(wait)

    def forget_streams(self) -> None:
        """Drop what is known of keys whose stream is gone, so that nothing of it is kept."""
        databases, now = self._host.databases, self._host.loop.time()
        for shared, asked in list(self._ahead.items()):
            if asked.answer is not None and asked.until < now:
                del self._ahead[shared]
        for (db, key), (value, _) in list(self._seen.items()):
            if databases[db].peek(key) is not value:
                del self._seen[db, key]


def locks_of(db: Database, key: bytes) -> object:
    """How many locks archivers, and deletions, have had of a stream."""
    return db.peek(token_key(stream_name(key)).encode())


def check(key: bytes, answer: TierAnswer) -> None:
    """Raises CommandError when the answer is an error."""
    if answer.error:
        raise unreadable(key, answer.error)


def unreadable(key: bytes, reason: str) -> CommandError:
    return CommandError(f"ARCHIVE The archived part of {key_in_one_line(stream_name(key))} cannot be read: {reason}")


def joined(now: TierRange, answer: TierAnswer, asked: Asked) -> TierPart | None:
    """The part of a reply that an answer gives; None when it is not enough, or of another stream."""
    if asked.value is not now.value:
        return None
    boundary = answer.boundary
    if now.trimmed > boundary:
        return None
    if now.live_limit > boundary and now.live_limit != answer.live_limit and boundary:
        return None
    border = min(now.limit, boundary)
    part = TierPart(
        now.first, border, answer.entries, is_reverse=now.is_reverse, boundary=boundary, left=answer.left,
        unread=answer.high if answer.is_cut else MAX_ID,
    )  # fmt: skip
    if now.ids is not None:
        is_enough = set(now.ids) <= set(asked.question.asked.ids or ()) and now.first <= part.unread
        return part if is_enough else None
    has_all = 0 < now.count <= part.count or 0 < now.enough <= part.size
    if answer.high < min(border, now.last):
        if (now.is_reverse or not has_all) and not (answer.is_cut and now.group is not None and part.count):
            return None
        if now.group is not None:
            # It gets these, and nothing from memory: it has not read all that is archived.
            part.border = MAX_ID
    if answer.low > now.first and not (now.is_reverse and has_all):
        return None
    return part
