"""A cluster that follows a source which is no member of it: all keys are copied, and what changes them meanwhile is applied.

Nodes of a cluster cannot be replicas of a server outside of it, so a thread does their work:

    the stream of replication ───▶ what changed? ───▶ the same command, at the owner of the slot
                                        │
    SCAN ─────────────▶ keys to copy ◀──┘ where that is not possible, or has failed
                             │
                             └─▶ MULTI DUMP PTTL ROLE EXEC at the source, RESTORE or DEL at the owner

A copy has an offset: that of the stream when it was made. Of the commands that change its key, the earlier ones are passed over, and the
later ones applied. A command that cannot be applied, because its keys are in several slots, or because a slot moves or a primary fails
before the reply, makes its keys be copied, which never depends on what was applied before. So nothing is done twice, and nothing is
missing.

A primary that failed may have lost what it had acknowledged: all keys of its slots are copied again.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator
from itertools import islice

from streamd.client.client_errors import ServerError, UnreachableError
from streamd.client.key_slots import slot_of
from streamd.client.replies import as_text
from streamd.importing.as_replica import State
from streamd.importing.cluster_target import TEMPORARY_CODES, ClusterTarget, Routed
from streamd.importing.copying import BATCH_BYTES, MAX_BATCH, MAX_PAYLOAD
from streamd.importing.key_finder import KeyFinder
from streamd.importing.peers import ImportFailedError, Peer, PeerLostError, source_slots
from streamd.importing.replication_reader import Command, Stream
from streamd.importing.survey import scan

__all__ = ["IntoCluster"]

IDLE_S = 0.05
"""How long commands are waited for when there is nothing to copy."""
CHECK_EVERY_S = 1.0
ATTEMPT_EVERY_S = 0.2
PATIENCE_S = 60.0
"""How long a cluster that does not serve all slots is waited for, and before the first copy is complete, a source."""

EXPIRING = frozenset({"PEXPIREAT", "PERSIST"})
"""Commands whose reply 0 means that a key had expired here, though not at the source."""

MAX_COPIES = 10_000
"""Copies that are remembered, once all keys have been copied, before those are looked for that need not be."""

READING_OTHERS = frozenset({b"EVAL", b"EVALSHA", b"FCALL", b"SORT"})
"""Commands that may use keys which they do not name."""

BETWEEN_DATABASES = frozenset({b"COPY", b"MOVE"})
"""Commands that may change the database that is wanted while another one is selected."""

NOTHING = frozenset({b"MULTI", b"EXEC", b"PING"})
"""Commands of the stream that change no data. Those of a transaction are applied one by one."""

Unit = tuple[list[bytes], Routed]
"""The keys of a command that is to be applied, and where it goes."""


class IntoCluster:
    """Copies and follows, from `begin` to `end`.

    db             the number of the database that is wanted
    only           other databases are passed over; otherwise a change of one ends the import
    slots          those that the source has
    skip           keys of types that the cluster does not have are left out
    has_functions  the cluster gets the libraries of functions, too
    has_replaced   keys have been written
    left_out       commands that could not be applied, because they have no keys, by name
    """

    ended = "The cluster does not follow the source any more"

    def __init__(
        self,
        source: Peer,
        target: ClusterTarget,
        *,
        db: int,
        only: bool,
        slots: Collection[int],
        skip: bool,
        has_functions: bool,
    ) -> None:
        self.has_replaced = False
        self.left_out: Counter[str] = Counter()
        self._source = Peer(source.role, source.place)  # of the thread
        self._target = target
        self._db = db
        self._only = only
        self._slots = frozenset(slots)
        self._skip = skip
        self._stream = Stream(source.place)
        self._commands: deque[Command] = deque()  # what has been read and is not taken yet: a link may break among them
        self._batch_at = 0  # the offset of the first of those that were last taken together
        self._selected = 0
        self._finder: KeyFinder | None = None
        # What is copied.
        self._copying: frozenset[int] = frozenset()  # slots whose keys are all to be copied
        self._copies: dict[bytes, int] = {}  # offsets of copies that the stream may not have reached
        self._newest_copy = 0
        self._wanted: dict[bytes, int] = {}  # keys to copy, with the offset they miss; the oldest wish first
        self._scan: Iterator[list[bytes]] | None = None  # where the others come from
        self._scanned_at = 0  # the offset at its end
        self._at_once = 16
        self._has_functions = has_functions
        self._functions_are_due = has_functions
        # What is reported.
        self._has_been_linked = False  # the first copy is complete
        self._whole_at = 0.0  # when a look at the primaries began that found all of them, with everything
        self._trouble = "connecting"
        self._troubled_since: float | None = None
        self._keys = 0
        self._size = 0
        self._applied = 0
        self._checked_at = 0.0
        self._failure: ImportFailedError | None = None
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="import", daemon=True)

    # --- For the import ----------------------------------------------------------------------------------------------

    def begin(self) -> None:
        self._thread.start()

    def state(self) -> State:
        """How far it is. Raises ImportFailedError when it cannot succeed any more."""
        if self._failure is not None:
            raise self._failure
        history = self._stream.history
        return State(self._trouble or "linked", self._keys, self._size, offset=self.last_offset(), history=history)

    @property
    def was_linked(self) -> bool:
        """The cluster has had all data of the source, and as far as is known it has not lost any."""
        return self._has_been_linked and not self._copying and not self._target.lost

    def is_whole_since(self, moment: float) -> bool:
        """Whether the cluster had everything up to `last_offset` when all primaries were looked at, after a moment.

        False makes that happen soon. A primary that failed may not have been noticed before.
        """
        if self._whole_at < moment:
            self._checked_at = 0.0
            return False
        return self.was_linked

    def end(self) -> None:
        """Stop. May be called again."""
        self._ends.set()
        if self._thread.is_alive():
            self._thread.join()

    def keys(self) -> int:
        """How many the cluster holds, as far as is known."""
        return self._keys

    def last_offset(self) -> int:
        """The offset up to which the cluster has everything; 0 while it may have lost keys."""
        return self._applied if self.was_linked else 0

    # --- The thread --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._ends.is_set():
                self._step()
        except ImportFailedError as error:
            self._failure = error
        except Exception as error:
            self._failure = ImportFailedError(f"The import failed: {error!r}")
            raise
        finally:
            self._stream.close()
            self._source.close()
            self._keys = self._keys if self._target.is_down else self._target.keys()
            self._target.close()

    def _step(self) -> None:
        try:
            if self._finder is None:
                self._finder = KeyFinder(self._source)
            if not self._stream.is_open:
                self._open_stream()
            has_work = not self._target.is_down and (self._wanted or self._scan)
            self._commands += self._stream.read(0 if has_work else IDLE_S)
            self._take(self._finder)
            self._check()
            if not self._target.is_down:
                self._copy_some()
        except (PeerLostError, UnreachableError) as error:
            self._stream.close()
            self._wait_out("connecting", str(error), is_fatal=not self._has_been_linked)
            self._ends.wait(ATTEMPT_EVERY_S)
            return
        if self._target.is_down:
            self._wait_out("waiting for the cluster", f"{self._target} does not serve all slots", is_fatal=True)
            return
        self._troubled_since = None
        self._trouble = "copying" if self._copying else ""
        if self._scan is None:
            self._note_progress()

    def _note_progress(self) -> None:
        offset = self._stream.offset
        oldest = next(iter(self._wanted.values()), None)
        applied = offset if oldest is None else oldest - 1
        if self._copying:
            if applied < self._scanned_at:
                return
            # All keys of the scan have been copied. When the stream has got to where the copies are, none is needed any more.
            self._scanned_at = max(self._scanned_at, self._newest_copy)
            if applied < self._scanned_at:
                return
            self._copying = frozenset()
            self._has_been_linked = True
        self._applied = applied
        if self._newest_copy <= offset:
            self._copies.clear()
        elif len(self._copies) > MAX_COPIES:
            self._copies = {key: at for key, at in self._copies.items() if at > offset}

    def _wait_out(self, step: str, reason: str, *, is_fatal: bool) -> None:
        now = time.monotonic()
        self._trouble = step
        self._troubled_since = self._troubled_since or now
        if is_fatal and now > self._troubled_since + PATIENCE_S:
            raise ImportFailedError(f"{reason}, for {PATIENCE_S:.0f} s")

    def _open_stream(self) -> None:
        try:
            if self._stream.open():
                return
        except ServerError as error:
            if error.code in TEMPORARY_CODES or error.code == "NOMASTERLINK":
                raise UnreachableError(str(error)) from None
            raise ImportFailedError(f"{self._source} refuses to be followed: {error}") from None
        self._selected = 0
        self._commands.clear()
        self._wanted = dict.fromkeys(self._wanted, self._stream.offset)  # the offsets were of another history
        self._copies.clear()
        self._newest_copy = 0
        self._copy_again(self._slots)

    def _check(self) -> None:
        """Read the topology of both sides, now and then."""
        now = time.monotonic()
        if now < self._checked_at + (ATTEMPT_EVERY_S if self._target.is_down else CHECK_EVERY_S):
            return
        self._checked_at = now
        self._whole_at = 0.0
        if source_slots(self._source) != self._slots:
            raise ImportFailedError(f"{self._source} has other slots now: import again with --replace")
        if lost := self._target.refresh() & self._slots:
            self._copy_again(lost)
            self._functions_are_due |= self._has_functions
        self._keys = self._target.keys()
        if self.was_linked and not self._target.is_down:
            self._whole_at = now

    # --- Commands ----------------------------------------------------------------------------------------------------

    def _take(self, finder: KeyFinder) -> None:
        """Take all commands that have been read: apply what is new to the copies."""
        if not self._commands:
            return
        self._batch_at = self._commands[0][0]
        units: list[Unit] = []
        try:
            while self._commands:
                self._take_one(finder, *self._commands[0], units)
                self._commands.popleft()
        finally:
            replies = self._target.send([routed for _, routed in units])
            for (keys, (_, request)), reply in zip(units, replies, strict=True):
                if isinstance(reply, ServerError) or (reply == 0 and as_text(request[0]).upper() in EXPIRING):
                    self._want(keys, self._batch_at)

    def _take_one(self, finder: KeyFinder, offset: int, words: list[bytes], units: list[Unit]) -> None:
        """Take a command, or add it to those that are to be applied. Raises PeerLostError, UnreachableError: then nothing was done."""
        name = words[0].upper()
        if name in NOTHING:
            return
        if name == b"SELECT":
            self._selected = int(words[1])
        elif name == b"REPLCONF":
            self._stream.acknowledge()
        elif name == b"PUBLISH":
            self._target.publish(words)
        elif name == b"SPUBLISH":
            self._target.send([(slot_of(words[1]), words)])
        elif name == b"FUNCTION":
            self._has_functions = self._functions_are_due = True
        elif name in (b"FLUSHALL", b"SWAPDB"):
            self._copy_again(self._slots)
        elif self._selected != self._db:
            if not self._only:
                raise ImportFailedError(
                    f"{self._source} has had a change of database {self._selected}: a cluster has only one database"
                )
            if name in BETWEEN_DATABASES:
                self._want(finder.find(words), self._batch_at)
        elif name == b"FLUSHDB":
            self._copy_again(self._slots)
        elif not (keys := finder.find(words)):
            self.left_out[name.decode("utf-8", "replace")] += 1
        elif (slot := self._sort(keys, offset, is_copied=name in READING_OTHERS or is_effect(words))) is not None:
            units.append((keys, (slot, words)))

    def _sort(self, keys: list[bytes], offset: int, *, is_copied: bool) -> int | None:
        """The slot of a command that is to be applied; None: it is not, and keys that it changes after their copies are wanted."""
        due = [key for key in keys if self._copies.get(key, 0) < offset]
        is_current = all(
            key not in self._wanted and (key in self._copies or slot_of(key) not in self._copying) for key in due
        )
        slots = {slot_of(key) for key in keys}
        if len(due) == len(keys) and is_current and len(slots) == 1 and not is_copied:
            return slots.pop()
        self._want(due, self._batch_at)
        return None

    def _want(self, keys: Iterable[bytes], offset: int) -> None:
        """Have keys copied; `offset` never decreases, so the oldest wish is always the first."""
        for key in keys:
            self._wanted.setdefault(key, offset)

    # --- Copies ------------------------------------------------------------------------------------------------------

    def _copy_again(self, slots: Collection[int]) -> None:
        """Copy all keys of slots, whatever was copied before."""
        self._copying |= frozenset(slots)
        self._copies = {key: offset for key, offset in self._copies.items() if slot_of(key) not in self._copying}
        self._scan = self._find_keys()

    def _find_keys(self) -> Iterator[list[bytes]]:
        """All keys of the source, then those of the cluster, of which some may not be in the source any more."""
        yield from scan(self._source, self._db)
        # Twice: a key may move from a node that has not been scanned to one that has.
        for _ in range(2):
            yield from self._target.scan()

    def _copy_some(self) -> None:
        """Copy a batch of keys, and look for others before they are all copied."""
        if self._functions_are_due:
            self._copy_functions()
        if self._scan is not None and len(self._wanted) < MAX_BATCH:
            try:
                keys = next(self._scan, None)
            except PeerLostError:
                self._scan = self._find_keys()
                raise
            if keys is None:
                self._scan, self._scanned_at = None, self._stream.offset
            missing = (key for key in keys or () if slot_of(key) in self._copying and key not in self._copies)
            self._want(missing, self._stream.offset)
        batch = list(islice(self._wanted, self._at_once))
        if batch:
            self._copy(batch)

    def _copy(self, keys: list[bytes]) -> None:
        replies = self._source.ask([("SELECT", self._db), *(each for key in keys for each in dump(key))])[1:]
        copies: list[tuple[bytes, int]] = []
        requests: list[Routed] = []
        size = 0
        for key, reply in zip(keys, replies[4::5], strict=True):
            if isinstance(reply, ServerError) or any(isinstance(each, ServerError) for each in reply):
                first = next(each for each in (*replies, *reply) if isinstance(each, ServerError))
                raise ImportFailedError(f"{self._source} refuses to have its keys copied: {first}")
            payload, ttl_ms, role = reply
            copies.append((key, role[1] if role[0] == b"master" else role[4]))
            if payload is None:
                requests.append((slot_of(key), ("DEL", key)))
                continue
            if len(payload) > MAX_PAYLOAD:
                raise ImportFailedError(
                    f"{name_of(key)} cannot be copied: {len(payload):,} bytes are too many for one request"
                )
            size += len(payload)
            # A rest of less than 1 ms is not "no expiry", which 0 would mean.
            requests.append((slot_of(key), ("RESTORE", key, 0 if ttl_ms < 0 else max(ttl_ms, 1), payload, "REPLACE")))
        self._at_once = max(1, self._at_once // 2) if size > BATCH_BYTES else min(MAX_BATCH, self._at_once * 2)
        self.has_replaced = True
        for (key, offset), request, first in zip(copies, requests, self._target.send(requests), strict=True):
            reply = self._target.send_again(request, first)
            if isinstance(reply, ServerError) and reply.code in TEMPORARY_CODES:
                continue  # it is still wanted
            if isinstance(reply, ServerError) and not (self._skip and reply.text.startswith("ERR Bad data format")):
                raise ImportFailedError(f"{self._target} does not accept {name_of(key)}: {reply}")
            self._copies[key] = offset
            self._newest_copy = max(self._newest_copy, offset)
            self._wanted.pop(key, None)
        self._size += size

    def _copy_functions(self) -> None:
        payload = self._source.call("FUNCTION", "DUMP")
        try:
            self._target.on_all("FUNCTION", "RESTORE", payload, "FLUSH")
        except ServerError as error:
            if error.code not in TEMPORARY_CODES:
                raise ImportFailedError(f"{self._target} does not accept the libraries of functions: {error}") from None
        else:
            self._functions_are_due = self._target.is_down


def is_effect(words: list[bytes]) -> bool:
    """Whether only a replica can apply it: a streamd marks claims of entries without an owner, or in an archive, by an idle time below 0."""
    return words[0].upper() == b"XCLAIM" and words[4].startswith(b"-")


def dump(key: bytes) -> Iterator[tuple[str | bytes, ...]]:
    """Requests for a key as it is at one moment, with the offset of that moment."""
    yield from (("MULTI",), ("DUMP", key), ("PTTL", key), ("ROLE",), ("EXEC",))


def name_of(key: bytes) -> str:
    return key.decode("utf-8", "backslashreplace")
