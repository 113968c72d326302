"""Copying keys one by one, where a source cannot be replicated: SCAN, DUMP and PTTL there, RESTORE on the target.

While the target restores a batch, the source already dumps the next one. Batches grow and shrink so that their payloads
stay around BATCH_BYTES.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from streamd.client.client_errors import ServerError, UnreachableError
from streamd.client.replies import as_text
from streamd.importing.peers import ImportFailedError, Peer, raised
from streamd.importing.survey import SUPPORTED_TYPES, scan

__all__ = ["Copied", "copy_keys"]

BATCH_BYTES = 8 << 20
MAX_BATCH = 512
MAX_PAYLOAD = (512 << 20) - 1
"""The longest argument that a server accepts by default (`proto-max-bulk-len`)."""
EXAMPLES = 5


@dataclass
class Copied:
    """What has been copied so far.

    size      bytes of their payloads
    refused   keys that could not be copied, and why; only the first EXAMPLES are kept
    failures  the number of all of them
    """

    keys: int = 0
    size: int = 0
    failures: int = 0
    refused: list[str] = field(default_factory=list)

    def refuse(self, db: int, key: bytes, reason: str) -> None:
        self.failures += 1
        if len(self.refused) < EXAMPLES:
            self.refused.append(f"{key.decode('utf-8', 'backslashreplace')} of database {db}: {reason}")


@dataclass(frozen=True)
class Dumped:
    """A batch of requests that restore keys."""

    db: int
    requests: list[tuple[str | bytes | int, ...]]

    @property
    def size(self) -> int:
        return sum(len(words[3]) for words in self.requests if isinstance(words[3], bytes))


def copy_keys(source: Peer, target: Peer, databases: Collection[int], progress: Callable[[Copied], None]) -> Copied:
    """Copy all keys of supported types of some databases, under the same numbers; they replace keys of the same name.

    progress  told after each batch; what it raises ends the copying between two batches
    Raises ImportFailedError.
    """
    copied = Copied()
    waiting: Dumped | None = None  # sent to the target, whose replies are still to be read
    for dumped in dump(source, databases, copied):
        if waiting is not None:
            settle(target, waiting, copied)
            progress(copied)
        send(target, dumped)
        waiting = dumped
    if waiting is not None:
        settle(target, waiting, copied)
    progress(copied)
    return copied


def dump(source: Peer, databases: Collection[int], copied: Copied) -> Iterator[Dumped]:
    """All keys that are supported, as requests that restore them."""
    at_once = 16
    for db in sorted(databases):
        for keys in scan(source, db):
            types = ask(source, [("SELECT", db), *(("TYPE", key) for key in keys)])[1:]
            wanted = [key for key, name in zip(keys, types, strict=True) if as_text(name) in SUPPORTED_TYPES]
            while wanted:
                batch, wanted = wanted[:at_once], wanted[at_once:]
                questions = [words for key in batch for words in (("DUMP", key), ("PTTL", key))]
                answers = ask(source, [("SELECT", db), *questions])[1:]
                requests: list[tuple[str | bytes | int, ...]] = []
                for key, payload, ttl_ms in zip(batch, answers[::2], answers[1::2], strict=True):
                    if payload is None or ttl_ms == -2:  # gone by now
                        continue
                    if len(payload) > MAX_PAYLOAD:
                        copied.refuse(db, key, f"its {len(payload):,} bytes are too many for one request")
                        continue
                    # A rest of less than 1 ms is not "no expiry", which 0 would mean.
                    expiry_ms = 0 if ttl_ms < 0 else max(ttl_ms, 1)
                    requests.append(("RESTORE", key, expiry_ms, payload, "REPLACE"))
                found = Dumped(db, requests)
                at_once = max(1, at_once // 2) if found.size > BATCH_BYTES else min(MAX_BATCH, at_once * 2)
                if requests:
                    yield found


def ask(source: Peer, requests: Sequence[Sequence[str | bytes | int]]) -> list[Any]:
    """The replies. Raises ImportFailedError for an error reply as well."""
    replies = source.ask(requests)
    try:
        for each in replies:
            raised(each)
    except ServerError as error:
        raise ImportFailedError(f"{source} refuses to have its keys copied: {error}") from None
    return replies


def send(target: Peer, batch: Dumped) -> None:
    try:
        target.send([("SELECT", batch.db), *batch.requests])
    except UnreachableError as error:
        raise ImportFailedError(f"{target}: {error}") from None


def settle(target: Peer, batch: Dumped, copied: Copied) -> None:
    """Read the replies to a batch that was sent."""
    try:
        connection = target.send([])
        raised(connection.read())
        for _, key, _, payload, _ in batch.requests:
            reply = connection.read()
            if not isinstance(reply, ServerError):
                copied.keys += 1
                copied.size += len(payload) if isinstance(payload, bytes) else 0
            elif str(reply).startswith("ERR Bad data format") and isinstance(key, bytes):
                copied.refuse(batch.db, key, str(reply))
            elif "DUMP payload version" in str(reply):
                raise ImportFailedError(f"{target} cannot read the format of the source, which is a newer one: {reply}")
            else:
                raise ImportFailedError(f"{target} does not accept the keys: {reply}")
    except ServerError as error:
        raise ImportFailedError(f"{target} does not accept the keys: {error}") from None
    except UnreachableError as error:
        raise ImportFailedError(f"{target}: {error}") from None
