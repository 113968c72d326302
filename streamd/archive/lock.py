"""The lock of a stream that is being archived, and everything that is done under it on the server.

    streamd:archive:lock:{<tag>}:<key>      string, expires: who archives this stream; set with NX
    streamd:archive:merging:{<tag>}:<key>   string, expires: who merges its files in the background (see background_merge.py)
    streamd:archive:token:{<tag>}:<key>     string: a counter; each holder takes the next number, its fencing token
    streamd:archive:trimmed:{<tag>}:<key>   string: up to which ID archivers have trimmed, or are about to
    streamd:archive:leases:{<tag>}:<key>    string, expires: readers that prevent trimming (see leases.py)
    streamd:archive:manifest:{<tag>}:<key>  string, for each archive: the last manifest (see origin.py)
    streamd:archive:replaced:{<tag>}:<key>  string: the last load into the stream (see origin.py); written by `streamd load`
    streamd:archive:runs:{<tag>}:<key>      string: the last runs, for whoever watches them (see client/archive_runs.py)

Strings, because every server has them. The lock belongs to the stream and not to an archive: two archives of one stream
would trim what the other does not have yet.

A lock that expires cannot stop its holder, which may have been suspended. So whatever the holder changes is tied to the
lock: on the server by WATCH (`guarded`: done only if the lock is still this run's at that moment), in the archive by
the order of what is done (see manifest.py), which is why an archiver that died on this machine can be taken over from
at once.
"""

from __future__ import annotations

import json
import os
import platform
import threading
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from streamd.archive.archive_errors import LockedError, LockLostError
from streamd.client.archive_keys import key_beside, token_key
from streamd.client.client_errors import ServerError, UnreachableError
from streamd.client.connection import Connection, connect
from streamd.client.url_options import ConnectionOptions
from streamd.errors import StreamdError

__all__ = ["ArchiveLock", "holder_of", "merging_run", "trimmed_to", "used_tokens"]

POLL_S = 0.05


def holder_of(connection: Connection, stream: str) -> dict[str, Any] | None:
    """Who holds the lock of a stream: host, pid, run, archive; None when it is free."""
    return described(connection.command("GET", key_beside("lock", stream)))


def merging_run(connection: Connection, stream: str) -> str | None:
    """The run that merges files of a stream in the background; None if no live process does."""
    holder = described(connection.command("GET", key_beside("merging", stream)))
    return None if holder is None or is_dead(holder) else holder.get("run")


def described(value: bytes | None) -> dict[str, Any] | None:
    if value is None:
        return None
    try:
        found = json.loads(value)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {"run": value.decode(errors="replace")}


def trimmed_to(connection: Connection, stream: str) -> str | None:
    """Up to which ID archivers have trimmed, or None when none has."""
    value = connection.command("GET", key_beside("trimmed", stream))
    return None if value is None else value.decode(errors="replace")


def used_tokens(connection: Connection, stream: str) -> int:
    """The last fencing token that this server has given for a stream; 0 when none was, or the counter is lost."""
    value = connection.command("GET", token_key(stream))
    return 0 if value is None else int(value)


class ArchiveLock:
    """The lock of one stream, held by one run. Made by `acquire`; a thread renews it until `release` or `stop_renewing`.

    kind   "lock", or "merging" for that of a merge in the background
    token  the fencing token
    is_lost  a renewal has found that it is no longer this run's
    """

    def __init__(
        self, connection: Connection, stream: str, run: str, archive: str, ttl_ms: int, kind: str = "lock"
    ) -> None:
        self.connection = connection
        self.stream = stream
        self.run = run
        self.ttl_ms = ttl_ms
        self.token = 0
        self.is_lost = False
        self._key = key_beside(kind, stream)
        self._value = json.dumps(
            {"run": run, "host": host_identity(), "pid": os.getpid(), "archive": archive}, sort_keys=True
        ).encode()
        self._stop = threading.Event()
        self._renewer: threading.Thread | None = None

    @classmethod
    def acquire(
        cls,
        connection: Connection,
        stream: str,
        *,
        run: str,
        archive: str,
        ttl_ms: int = 60_000,
        wait_ms: int = 0,
        ended: Collection[str] = (),
        kind: str = "lock",
    ) -> ArchiveLock:
        """Acquire the lock. Raises LockedError if somebody else holds it and does not release it within `wait_ms`.

        A dead process of this machine is not waited for.
        ended  runs of this process that have ended without being able to release it
        """
        lock = cls(connection, stream, run, archive, ttl_ms, kind)
        deadline = time.monotonic() + wait_ms / 1000
        while connection.command("SET", lock._key, lock._value, "NX", "PX", ttl_ms) is None:
            value = connection.command("GET", lock._key)
            if value is None or lock._take_from_the_dead(value, ended):
                continue
            if time.monotonic() >= deadline:
                holder = described(value) or {}
                raise LockedError(
                    f"stream {stream!r} is being archived by process {holder.get('pid')} on {holder.get('host')} "
                    f"into {holder.get('archive')}; its lock expires after {ttl_ms} ms unless it is renewed"
                )
            time.sleep(POLL_S)
        lock.token = int(connection.command("INCR", token_key(stream)))
        return lock

    def take_merging(self) -> ArchiveLock:
        """End the merge of this stream in the background, whoever does it, and let no other begin: acquire its lock as well."""
        self.guarded([("DEL", key_beside("merging", self.stream))])
        archive = json.loads(self._value)["archive"]
        return ArchiveLock.acquire(
            self.connection, self.stream, run=self.run, archive=archive, ttl_ms=self.ttl_ms, kind="merging"
        )

    def _take_from_the_dead(self, value: bytes, ended: Collection[str]) -> bool:
        """Remove the lock of a process of this machine that is gone, or of a run that has ended; return whether that was done."""
        holder = described(value) or {}
        if not is_dead(holder) and holder.get("run") not in ended:
            return False
        self.connection.command("WATCH", self._key)
        if self.connection.command("GET", self._key) != value:
            self.connection.command("UNWATCH")
            return True
        self.connection.transaction([("DEL", self._key)])
        return True

    def raise_token(self, above: int) -> None:
        """Ensure that the token is higher than any used one, even if the server has lost its counter."""
        if self.token <= above:
            self.token = above + 1
            self.guarded([("SET", token_key(self.stream), self.token)])

    def start_renewing(self, options: ConnectionOptions) -> None:
        """Renew the lock from a thread, over a connection of its own."""
        self._renewer = threading.Thread(
            target=self._renew, args=(options,), name=f"archive lock of {self.stream}", daemon=True
        )
        self._renewer.start()

    def _renew(self, options: ConnectionOptions) -> None:
        connection: Connection | None = None
        while not self._stop.wait(self.ttl_ms / 3000):
            # A short outage of the server is no reason to stop: the run itself checks the lock before it changes anything.
            try:
                connection = connection or connect(options)
                if not extend(connection, self._key, self._value, self.ttl_ms):
                    self.is_lost = True
                    break
            except (UnreachableError, ServerError):
                if connection is not None:
                    connection.close()
                connection = None
        if connection is not None:
            connection.close()

    def stop_renewing(self) -> None:
        self._stop.set()
        if self._renewer is not None:
            self._renewer.join()
            self._renewer = None

    def check(self) -> None:
        """Raise LockLostError unless the lock is still this run's; extend it."""
        if not extend(self.connection, self._key, self._value, self.ttl_ms):
            raise self._lost()

    def _lost(self) -> LockLostError:
        return LockLostError(f"the lock of {self.stream!r} is lost: another archiver works on it, or it has expired")

    def guarded(self, requests: Sequence[Sequence[bytes | str | int]]) -> list[Any]:
        """Do all of the requests, and only if the lock is still this run's; return their replies.

        Raises LockLostError when it is not; then nothing was done.
        """
        while True:
            _, value = self.connection.pipeline([("WATCH", self._key), ("GET", self._key)])
            if value != self._value:
                self.connection.command("UNWATCH")
                raise self._lost()
            # None: the lock was touched since WATCH, by this run's own renewal or because it expired: check again.
            done = self.connection.transaction([*requests, ("PEXPIRE", self._key, self.ttl_ms)])
            if done is not None:
                return done[:-1]

    def release(self) -> None:
        """Release the lock. If that fails, it expires."""
        self.stop_renewing()
        with suppress(StreamdError):
            try:
                self.guarded([("DEL", self._key)])
            except (UnreachableError, ServerError):
                options = self.connection.options
                if not options.cluster_nodes:
                    raise
                # The slot has moved: the node that has it now is asked, once.
                self.connection.close()
                self.connection = connect(replace(options, retries=0, failover_timeout_ms=0))
                self.guarded([("DEL", self._key)])


def extend(connection: Connection, key: str, value: bytes, ttl_ms: int) -> bool:
    """Set the expiry of a lock that has this value; return whether it had."""
    while True:
        _, found = connection.pipeline([("WATCH", key), ("GET", key)])
        if found != value:
            connection.command("UNWATCH")
            return False
        # None: touched since WATCH, by another thread of the same run or by its expiry.
        if connection.transaction([("PEXPIRE", key, ttl_ms)]) is not None:
            return True


def host_identity() -> str:
    """This machine, or this container: process IDs are comparable where this is equal."""
    with suppress(OSError):
        return f"{platform.node()}/{os.readlink('/proc/self/ns/pid')}"
    return platform.node()


def is_dead(holder: dict[str, Any]) -> bool:
    """Whether the process that holds a lock was one of this machine, and has ended."""
    return holder.get("host") == host_identity() and is_gone(holder.get("pid"))


def is_gone(pid: object) -> bool:
    """No process of this machine has this PID."""
    if not isinstance(pid, int) or pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False
