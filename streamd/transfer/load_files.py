"""Files into streams, each row once, however often the load is killed and repeated.

A load of a file has a name: a given one, or one made from its path and identity. The marker of that name holds the number of rows
written, and is moved in the transaction that writes them (marked.py); a load that is repeated reads the file again, compares
what it skips, and continues after it. When all is done, a second key says so, and the load is not repeated at all. Both keys
expire.

A file next to the data, as `streamd export` writes it, has the rest of the stream: then the stream must be new, and becomes equal to
the exported one. A stream that replaces another is created under a different key, and renamed when it is complete:

    XADD staged ... SET marker                       transaction by transaction, as always
    XGROUP, XCLAIM ... XSETID staged, SET restored   its groups and counters
    RENAME staged into, SET done                     only now the other stream is gone

Whatever fails before, the staged stream is deleted, unless the server cannot be reached or the process is killed: then it waits for
the load to be repeated, and expires like the marker.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamd.client.archive_keys import replaced_key, token_key
from streamd.client.client_errors import DeliveryError, OptionError, ServerError, UnreachableError
from streamd.client.connection import Connection, Request, run
from streamd.client.key_names import stream_key, stream_name
from streamd.client.key_slots import tag_beside
from streamd.client.url_options import ConnectionOptions
from streamd.errors import StreamdError
from streamd.transfer.batch_rows import BatchRows, split_by_slot
from streamd.transfer.chunk_delivery import WriterLink
from streamd.transfer.collector_pause import collector_paused
from streamd.transfer.files import FIELDS, ID, STREAM, DataFile, Reading, Roles, Shape, format_of
from streamd.transfer.load_chunks import CHUNK_ROWS, Chunk, LoadPlan, chunks_of, with_placeholders
from streamd.transfer.made_ahead import made_ahead
from streamd.transfer.marked import Marked, Marker, marker_key
from streamd.transfer.move_error import MoveError
from streamd.transfer.stream_copy import StreamCopy, check, expiry, read_state, restore
from streamd.transfer.task import Task
from streamd.transfer.write_options import SinkOptions

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["STATE_SUFFIX", "LoadReport", "LoadSettings", "find_files", "load"]

STATE_SUFFIX = ".groups.json"
"""What follows the name of a data file in that of the file with the stream's state."""

PREFIX = "streamd:load:"
"""Before the names of the keys that say how far a load is."""

KEPT_MS = 7 * 86_400_000
"""How long these keys are kept after they were last set."""

MOST_OPEN = 64
"""How many connections to a cluster are kept at a time."""

CHUNKS_AHEAD = 8
"""How many transactions are encoded before it is their turn."""

SAMPLE = 64 * 1024
"""Bytes of the start, and of the end, of a file by which it is recognized."""

EVICTED = "the server has evicted it, or it has expired; load the file again"

Progress = Callable[[int], None]
"""Called with how many bytes of all files are read."""


@dataclass(frozen=True)
class LoadSettings:
    """The options of a load.

    into       key of the stream; None: as the rows or the file of the state say
    roles      see files.py
    nulls      what becomes of nulls: omit, empty, fail
    with_state restore groups and counters where a file has them
    replaces   let a restored stream replace the stream under its key
    name       of the load; None: recognized by the files
    again      load files again that have been loaded before
    """

    into: str | None = None
    roles: Roles = field(default_factory=Roles)
    nulls: str = "omit"
    with_state: bool = True
    replaces: bool = False
    name: str | None = None
    again: bool = False


@dataclass
class LoadReport:
    """What came of one file.

    rows       of the file
    before     rows that an earlier attempt had written
    streams    rows for each stream
    groups     how many were restored; None: there was no state
    """

    path: str
    rows: int = 0
    before: int = 0
    streams: dict[str, int] = field(default_factory=dict)
    groups: int | None = None
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def find_files(paths: Iterable[str], form: str | None) -> list[DataFile]:
    """The files of a command line: of a folder, those whose names say a format, in their order.

    Raises MoveError when no file is found, or a format is not known.
    """
    found = []
    for path in paths:
        if Path(path).is_dir():
            inside = sorted(str(each) for each in Path(path).iterdir() if is_data(each))
            if not inside:
                raise MoveError(f"folder {path} has no file of entries")
            found += [DataFile(each, form or format_of(each) or "") for each in inside]
        else:
            known = form or format_of(path)
            if path != "-" and Path(path).exists() and not Path(path).is_file():
                raise MoveError(f"{path} is no file: a pipe is loaded as -, the standard input")
            if known is None:
                raise MoveError(f"the name of {path} does not say what is in it: --format does")
            found.append(DataFile(path, known))
    return found


def is_data(path: Path) -> bool:
    name = path.name
    return (
        format_of(name) is not None and not name.endswith(STATE_SUFFIX) and not name.startswith(".") and path.is_file()
    )


def load(
    files: list[DataFile], options: ConnectionOptions, settings: LoadSettings, *, progress: Progress | None = None
) -> Iterator[LoadReport]:
    """Load files, one after the other; yields a report of each.

    Raises MoveError, OSError, and errors of the server. Rows written before stay, and are skipped next time.
    """
    for file in files:
        if settings.replaces and not has_state(file):
            fault = "a pipe has none" if file.path == "-" else f"there is no {file.path + STATE_SUFFIX}"
            raise MoveError(f"--replace takes exports with their groups: {fault}")
        if settings.with_state and has_state(file) and settings.into is not None and len(files) > 1:
            raise MoveError("several streams with their groups cannot become one: --no-groups appends their entries")
    done_bytes = 0
    for at, file in enumerate(files):
        tell = partial(tell_sum, progress, done_bytes)
        state = find_state_file(file) if settings.with_state else None
        with collector_paused():
            yield FileLoad(file, state, settings, options, at).run(tell)
        done_bytes += file.size or 0


def tell_sum(progress: Progress | None, before: int, done: int) -> None:
    if progress is not None:
        progress(before + done)


def has_state(file: DataFile) -> bool:
    return file.path != "-" and os.path.exists(file.path + STATE_SUFFIX)


def find_state_file(file: DataFile) -> StreamCopy | None:
    if not has_state(file):
        return None
    path = file.path + STATE_SUFFIX
    return StreamCopy.parse(path, Path(path).read_bytes())


class FileLoad:
    """The load of one file."""

    def __init__(
        self,
        file: DataFile,
        state: StreamCopy | None,
        settings: LoadSettings,
        options: ConnectionOptions,
        number: int,
    ) -> None:
        self._file = file
        self._state = state
        self._settings = settings
        self._connection = options
        self._into = settings.into or (state.stream if state else None)
        # A file that is known by what it is keeps its name, whatever is loaded before it.
        self._number = number if settings.name is not None else 0
        self._name = self._load_name()
        # One transaction has the stream, the marker and the note: in a cluster they must be in the same slot. If there are several
        # streams, each hash tag has a marker, and the note is in the slot of the name.
        self._is_spread = self._into is None and bool(options.cluster_nodes)
        self._prefix = PREFIX if self._into is None else f"{PREFIX}{in_slot_of(self._into)}:"
        noted = f"{PREFIX}{{{tag_beside(stream_key(self._name))}}}:" if self._is_spread else self._prefix
        self._done_key = stream_key(f"{noted}{self._name}:{self._number}:done")
        self._round_key = stream_key(f"{noted}{self._name}:{self._number}:round")
        self._round = 0
        self._link = WriterLink(options.at_key(self._done_key))
        self._target = self._into  # the stream that is written; its key may be another in the end
        self._query = self._name  # of the marker; each target has its own
        self._staged: bytes | None = None
        if settings.replaces and state is not None and self._into is not None:
            self._query = f"{self._name}:new"
            self._target = f"{self._prefix}{self._query}:{self._number}:stream"
            self._staged = stream_key(self._target)
        self._marker_key = stream_key(f"{self._prefix}{self._query}:{self._number}")
        self._restored_key = self._marker_key + b":restored"

    def _load_name(self) -> str:
        """The name of this load: that given, or one that the same file has again."""
        settings, file = self._settings, self._file
        if settings.name is not None:
            return settings.name
        if file.path == "-":
            return uuid.uuid4().hex
        about = os.stat(file.path)
        made = hashlib.sha256()
        with open(file.path, "rb") as opened:
            made.update(opened.read(SAMPLE))
            opened.seek(max(about.st_size - SAMPLE, 0))
            made.update(opened.read(SAMPLE))
        shape = asdict(settings.roles), settings.nulls, self._state is not None
        made.update(repr((os.path.realpath(file.path), about.st_size, about.st_mtime_ns, self._into, shape)).encode())
        return made.hexdigest()[:32]

    def run(self, progress: Progress) -> LoadReport:
        with closing(self._link):
            return self._run(progress)

    def _run(self, progress: Progress) -> LoadReport:
        report = LoadReport(self._file.path)
        started = time.monotonic()
        done = self._link.ask(self._begin_round if self._is_spread else self._begin)
        if done is None:
            try:
                self._write(report, progress)
                done = self._end(report)
            except UnreachableError:
                raise
            except BaseException:
                self._abandon()
                raise
        else:
            report.before = done["rows"]
        report.rows, report.streams, report.groups = done["rows"], done["streams"], done["groups"]
        report.seconds = time.monotonic() - started
        return report

    # --- Steps ----------------------------------------------------------------------------------------------------------

    def _begin(self, connection: Connection) -> dict[str, Any] | None:
        """The note of an earlier load that was completed; None: rows are left to load."""
        self._check_replaceable(connection)
        own = [self._marker_key, self._done_key, *self._staged_keys]
        if self._settings.again:
            connection.command("DEL", *own)
        marker, done = connection.command("MGET", self._marker_key, self._done_key)
        noted: dict[str, Any] | None = None if done is None else json.loads(done)
        written = [*noted["streams"]] if noted else [] if self._target is None else [self._target]
        if (
            (marker is not None or noted is not None)
            and written
            and not connection.command("EXISTS", *map(stream_key, written))
        ):
            # They have been deleted since.
            connection.command("DEL", *own)
            noted = None
        if noted is not None:
            self._check_unchanged(connection)
            return noted
        if self._state is not None:
            check(connection, self._state)
        return None

    def _begin_round(self, connection: Connection) -> dict[str, Any] | None:
        """As `_begin`, for streams in several slots. Markers of an earlier round are not known here; they no longer count."""
        done, count = connection.command("MGET", self._done_key, self._round_key)
        noted: dict[str, Any] | None = None if done is None else json.loads(done)
        self._round = int(count or 0)
        requests: list[Request] = []
        if self._settings.again or (noted is not None and not self._exists_any(noted["streams"])):
            self._round += 1
            noted = None
            requests.append(("DEL", self._done_key))
        # In one transaction: without the note, and in the round before, all rows would seem to be written.
        connection.transaction([*requests, ("SET", self._round_key, self._round, "PX", 2 * KEPT_MS)])
        return noted

    def _exists_any(self, streams: Iterable[str]) -> bool:
        requests = [("EXISTS", stream_key(stream)) for stream in streams]
        return any(run(self._connection, lambda connection: connection.pipeline(requests))) or not requests

    def _check_replaceable(self, connection: Connection) -> None:
        """Raise MoveError when the value to be replaced is not a stream: RENAME would replace it, too."""
        if self._staged is None or self._into is None:
            return
        kind = connection.command("TYPE", stream_key(self._into)).decode()
        if kind not in ("stream", "none"):
            raise MoveError(
                f"the key {self._into!r} holds a {kind}, which --replace does not replace by the stream of {self._file.path}: delete it, "
                "or name another key with --into"
            )

    def _check_unchanged(self, connection: Connection) -> None:
        """Raise MoveError for a stream that is to be replaced, was replaced by the same file before, and has changed since.

        Also when the reply to that attempt was lost: entries added since may be wanted.
        """
        if self._staged is None or self._state is None or self._into is None:
            return
        if not self._state.is_of_same_stream(read_state(connection, self._into)):
            raise MoveError(
                f"stream {self._into!r} has changed since {self._file.path} took its place: --again replaces it once more"
            )

    @property
    def _staged_keys(self) -> list[bytes]:
        """Keys of a staged stream next to its marker."""
        return [] if self._staged is None else [self._staged, self._restored_key]

    def _make_way(self, connection: Connection) -> None:
        """Begin a stream with its groups, unless an earlier attempt has: its key must be free, or it is staged."""
        key = stream_key(self._into or "")
        if connection.command("EXISTS", self._marker_key):
            if self._staged is not None:
                connection.command("PEXPIRE", self._staged, KEPT_MS)
            return
        begun: Request = ("SET", self._marker_key, Marker(0).to_bytes(), "PX", KEPT_MS)
        if self._staged is not None:
            # Made before its first entry, so that at no time it is without an expiry.
            made = [("XGROUP", "CREATE", self._staged, "-", "$", "MKSTREAM"), ("XGROUP", "DESTROY", self._staged, "-")]
            connection.transaction([("DEL", *self._staged_keys), *made, ("PEXPIRE", self._staged, KEPT_MS), begun])
            return
        if connection.command("EXISTS", key):
            raise MoveError(
                f"there is a key {self._into!r} already. A stream with its groups needs a new one: --into names it, --replace "
                "puts the new stream in its place, --no-groups appends the entries alone"
            )
        connection.command(*begun)

    def _abandon(self) -> None:
        """Remove a staged stream, if the server lets that be done now."""
        if self._staged is not None:
            with suppress(StreamdError):
                # The marker is watched by a transaction that is still on its way, which then fails.
                run(
                    replace(self._link.options, retries=0, failover_timeout_ms=0),
                    lambda connection: connection.command("DEL", self._marker_key, *self._staged_keys),
                )

    def _write(self, report: LoadReport, progress: Progress) -> None:
        roles = self._settings.roles
        if self._into is not None:
            roles = Roles(roles.id, None, roles.fields, roles.is_id_sure, roles.keeps_ids)
        reading = self._file.open(roles)
        state = self._state
        if state is not None and reading.shape != Shape(True, False, None) and (state.rows or reading.shape):
            raise MoveError(f"{self._file.path} is not the file that {self._file.path + STATE_SUFFIX} belongs to")
        if state is not None:
            self._link.ask(self._make_way)
        plan = LoadPlan(self._options(reading.shape), reading.shape or Shape(True, False, None))
        delivery: Marked | Spread
        if self._is_spread:
            delivery = Spread(lambda key: self._open_delivery(plan.options.beside(key), report))
        else:
            delivery = self._open_delivery(plan.options, report)
        rows = 0
        try:
            with closing(self._chunks(plan, reading)) as chunks:
                for chunk in chunks:
                    chunk.deliver(delivery)
                    rows += chunk.stop - chunk.start
                    progress(chunk.done)
            delivery.finish()
        except DeliveryError as error:
            raise MoveError(f"{self._file.path}: {error}") from None
        except OptionError as error:
            raise MoveError(f"{self._file.path}: {error.reason}") from None
        finally:
            delivery.close()
        gone = 0 if state is None else len(state.gone)
        report.rows = rows - gone
        if state is not None:
            self._check_rows(state, report.rows)
        report.streams = {stream_name(key): count for key, count in delivery.stream_rows.items()}
        if state is not None:
            report.streams = {self._into or "": report.rows}

    def _open_delivery(self, options: SinkOptions, report: LoadReport) -> Marked:
        """The delivery to streams that have one marker; counts the rows that it has."""
        # On a connection of its own, which always has a transaction open.
        link = WriterLink(options.connection)
        task = Task(self._query, self._round, self._number)
        key = marker_key(options, task)
        marker = link.ask(lambda connection: Marker.parse(key, connection.command("GET", key)))
        report.before += marker.rows if marker.batch == self._round else 0
        return Marked(options, task, link, KEPT_MS)

    def _check_rows(self, state: StreamCopy, rows: int) -> None:
        if rows != state.rows:
            raise MoveError(f"{self._file.path} has {rows:,} entries, not {state.rows:,}: it belongs to another export")

    def _chunks(self, plan: LoadPlan, reading: Reading) -> Generator[Chunk]:
        """The rows, ready to be sent. A pipe is not read ahead: a thread that waits for it cannot be ended."""
        chunks = chunks_of(plan, self._batches(reading))
        return chunks if self._file.path == "-" else made_ahead(chunks, CHUNKS_AHEAD)

    def _batches(self, reading: Reading) -> Iterator[tuple[pa.RecordBatch, int]]:
        if self._is_spread:
            return ((part, done) for batch, done in reading.batches for _, part in split_by_slot(batch, STREAM))
        if self._state is None or not self._state.gone:
            return reading.batches
        return with_placeholders(reading.batches, [*self._state.gone])

    def _options(self, shape: Shape | None) -> SinkOptions:
        if shape is not None and self._into is None and not shape.has_stream:
            raise MoveError(f"{self._file.path} does not say which stream it is of: --into does")
        return SinkOptions(
            connection=self._connection if self._is_spread else self._link.options,
            stream=self._target,
            stream_column=STREAM,
            id_column=ID if shape is not None and shape.has_id else None,
            fields_column=FIELDS,
            null_values=self._settings.nulls,
            delivery="exactly-once",
            marker_prefix=self._prefix,
            chunk_size=CHUNK_ROWS,
        )

    def _end(self, report: LoadReport) -> dict[str, Any]:
        """Restore the state, and note that all is done."""
        groups = None if self._state is None else len(self._state.groups)
        noted = {"rows": report.rows, "streams": report.streams, "groups": groups}
        note = ("SET", self._done_key, json.dumps(noted), "PX", KEPT_MS)
        if self._state is None or self._into is None:
            with closing(WriterLink(self._connection) if self._is_spread else self._link) as link:
                link.ask(partial(self._note_rows, report.streams, note))
        else:
            self._link.ask(partial(self._restore, self._state, stream_key(self._into), note))
        return noted

    def _restore(self, state: StreamCopy, key: bytes, note: Request, connection: Connection) -> None:
        if connection.command("EXISTS", self._done_key):
            return  # it was only not heard of
        if self._staged is None:
            with noted_if_done(connection, self._done_key):
                restore(connection, key, state, then=[*expiry(key, state), *told(connection, self._into), note])
            return
        if not connection.command("EXISTS", self._restored_key):
            self._check_staged(state, connection)
            with noted_if_done(connection, self._restored_key):
                restore(connection, self._staged, state, then=[("SET", self._restored_key, "", "PX", KEPT_MS)])
        self._check_replaceable(connection)
        connection.command("WATCH", self._staged)
        # A transaction whose RENAME fails would still do the rest, to the stream that was to be replaced.
        if connection.command("EXISTS", self._staged):
            with noted_if_done(connection, self._done_key):
                moved: list[Request] = [("RENAME", self._staged, key), ("PERSIST", key), *expiry(key, state)]
                moved += told(connection, self._into)
                if connection.transaction([*moved, ("DEL", self._restored_key), note]) is not None:
                    return
        else:
            connection.command("UNWATCH")
        raise MoveError(f"{stream_name(self._staged)} was changed: {EVICTED}")

    def _note_rows(self, streams: Iterable[str], note: Request, connection: Connection) -> None:
        """Rows may be those of a stream that was deleted, corrected."""
        for request in (*(each for stream in streams for each in told(connection, stream)), note):
            connection.command(*request)

    def _check_staged(self, state: StreamCopy, connection: Connection) -> None:
        """A key that expires may have gone, and been created again by later writes."""
        found, wanted = connection.command("XLEN", self._staged or b""), state.rows + len(state.gone)
        if found != wanted:
            raise MoveError(f"{stream_name(self._staged or b'')} has {found:,} entries of {wanted:,}: {EVICTED}")


class Spread:
    """The delivery of rows of several streams to a cluster: one for each hash tag, made by `open_one` when its first row comes.

    The rows of a call are of streams with the same tag.
    """

    def __init__(self, open_one: Callable[[bytes], Marked]) -> None:
        self._open_one = open_one
        self._deliveries: dict[str, Marked] = {}
        self._open: dict[str, Marked] = {}  # those with a connection, the one that was used last at the end

    def deliver(self, rows: BatchRows, start: int, stop: int) -> int:
        key = rows.key_of(start)
        tag = tag_beside(key)
        if tag not in self._deliveries:
            self._deliveries[tag] = self._open_one(key)
        self._open.pop(tag, None)
        self._open[tag] = self._deliveries[tag]
        if len(self._open) > MOST_OPEN:
            # It is opened again when it is needed; what is written is known by its marker.
            self._open.pop(next(iter(self._open))).link.close()
        return self._deliveries[tag].deliver(rows, start, stop)

    @property
    def stream_rows(self) -> dict[bytes, int]:
        return {key: count for each in self._deliveries.values() for key, count in each.stream_rows.items()}

    def finish(self) -> None:
        for each in self._deliveries.values():
            each.finish()

    def close(self) -> None:
        for each in self._deliveries.values():
            each.close()


@contextmanager
def noted_if_done(connection: Connection, key: bytes) -> Iterator[None]:
    """Delete a note when what it is about has failed: a transaction does its other requests, the note among them."""
    try:
        yield
    except ServerError:
        connection.command("DEL", key)
        raise


def told(connection: Connection, stream: str | None) -> list[Request]:
    """What makes an archive of a stream compare all of it: its entries may be others, under the same IDs."""
    is_archived = stream is not None and connection.command("EXISTS", token_key(stream))
    return [("SET", replaced_key(stream or ""), uuid.uuid4().hex)] if is_archived else []


def in_slot_of(key: str) -> str:
    """A hash tag: names that contain it, after a prefix without braces, are in the slot of a key in a cluster.

    It does not exist for a key with a closing brace and without a hash tag.
    """
    start = key.find("{")
    has_tag = 0 <= start < key.find("}", start + 1) - 1
    return key if has_tag else f"{{{key}}}"
