"""Leases: readers that keep archivers from trimming what they are about to read from the server.

One string beside the stream holds all of them as JSON, `{"<reader>": ["<boundary>", <expires at, Unix ms>]}`, and expires
with the last. Each reader's boundary is an ID above which nothing may be trimmed until then. A string, because every server
has it; changed by WATCH and MULTI, so that no lease is lost. (With a key for each lease, finding them would take a SCAN.)

The order keeps a reader safe against an archiver that has looked for leases just before:

    reader     1. lease on everything (boundary 0-0)   2. reads the manifests   3. lease on what is above their boundary
    archiver   1. has a manifest                       2. looks for leases      3. trims, at most to that manifest

If the archiver did not see the lease, its manifest was there before the reader read the manifests, and so the reader takes
everything that is trimmed from the archive.
"""

from __future__ import annotations

import json
from typing import Any

from streamd.client.archive_keys import key_beside
from streamd.client.connection import Connection, server_ms
from streamd.client.points import format_entry_id, parse_entry_id

__all__ = ["leased_boundary", "release_lease", "take_lease"]

ATTEMPTS = 100


def leased_boundary(connection: Connection, stream: str) -> int | None:
    """The lowest boundary that a reader holds, or None when none does."""
    value, now_ms = connection.command("GET", key_beside("leases", stream)), server_ms(connection)
    held = [parse_entry_id(boundary) for boundary, until_ms in read_leases(value).values() if until_ms > now_ms]
    return min(held, default=None)


def take_lease(connection: Connection, stream: str, reader: str, boundary: int, duration_ms: int) -> None:
    """Prevent trimming above `boundary` for a while; a reader's new lease replaces its old one."""
    change(connection, stream, reader, format_entry_id(boundary), duration_ms)


def release_lease(connection: Connection, stream: str, reader: str) -> None:
    change(connection, stream, reader, None, 0)


def change(connection: Connection, stream: str, reader: str, boundary: str | None, duration_ms: int) -> None:
    key = key_beside("leases", stream)
    for _ in range(ATTEMPTS):
        _, value = connection.pipeline([("WATCH", key), ("GET", key)])
        now_ms = server_ms(connection)
        leases = {name: lease for name, lease in read_leases(value).items() if lease[1] > now_ms and name != reader}
        if boundary is not None:
            leases[reader] = [boundary, now_ms + duration_ms]
        longest_ms = max((until_ms for _, until_ms in leases.values()), default=0) - now_ms
        request = ("SET", key, json.dumps(leases), "PX", longest_ms) if leases else ("DEL", key)
        if connection.transaction([request]) is not None:
            return
    raise TimeoutError(f"{key} is repeatedly changed by others")


def read_leases(value: bytes | None) -> dict[str, list[Any]]:
    found = json.loads(value) if value else {}
    return found if isinstance(found, dict) else {}
