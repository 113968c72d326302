"""Whether a server holds the data that an archive is of.

    streamd:archive:server   string: a random name of the data, made by the first archiver that works on it

The name belongs to the data and not to a process or an address: it is saved, replicated and imported with the streams, so that
it survives restarts, fail-overs and moves, which replace run IDs and replication IDs. Manifests note it. That another server
has entries with higher IDs in a stream of the same name, which is all that can be seen of a trimmed stream, is no proof then.

A name that is missing is no proof of another server, since the key may be lost: the server is the one that was archived if it
still holds the last archived entry. Otherwise the user must say so.
"""

from __future__ import annotations

import uuid

from streamd.spark.archive.errors import IncarnationError
from streamd.spark.archive.layout import Layout
from streamd.spark.archive.manifest_log import ManifestLog, archived_streams
from streamd.spark.archive.reading import read_archived
from streamd.spark.errors import ServerError
from streamd.spark.wire.connection import Connection
from streamd.spark.wire.ids import format_entry_id
from streamd.spark.wire.names import stream_key

__all__ = ["check_identity", "settle_identity"]

KEY = "streamd:archive:server"


def find_identity(connection: Connection) -> str | None:
    """The name of a server's data; None when it has none."""
    found = connection.command("GET", KEY)
    return None if found is None else found.decode(errors="replace")


def give_identity(connection: Connection, name: str) -> str:
    """Name a server's data, unless it has a name; returns the one that it has then."""
    connection.command("SET", KEY, name, "NX")
    return find_identity(connection) or name


def noted_identity(layout: Layout, log: ManifestLog) -> str:
    """The name that the manifests of a stream note; of a new stream, what the newest of the others does. Empty: there is none."""
    if log.last is not None:
        return log.last.server_id
    others = (ManifestLog.read(layout, stream).last for stream in archived_streams(layout))
    named = (each for each in others if each is not None and each.server_id)
    newest = max(named, key=lambda each: each.created_ms, default=None)
    return "" if newest is None else newest.server_id


def settle_identity(connection: Connection, layout: Layout, log: ManifestLog, *, accepts: bool) -> str:
    """The name of the data to note in manifests; it is made if it is the first.

    accepts  the user says that this is the right server
    Raises IncarnationError when it is, or seems to be, another server.
    """
    noted, found = noted_identity(layout, log), find_identity(connection)
    if not noted or (found is not None and accepts):
        return found or give_identity(connection, uuid.uuid4().hex)
    if found is None and (accepts or holds_last(connection, layout, log)):
        return give_identity(connection, noted)
    if found != noted:
        raise other_server(connection, found)
    return noted


def holds_last(connection: Connection, layout: Layout, log: ManifestLog) -> bool:
    """Whether a server holds the last archived entry, as it was archived."""
    if not log.files:
        return False
    last = log.files[-1].last
    text = format_entry_id(last)
    held = connection.command("XRANGE", stream_key(log.stream), text, text)
    rows = [
        row
        for batch in read_archived(layout, log.stream, last, last, ("fields",), log=log)
        for row in batch.to_pylist()
    ]
    archived = [[word for pair in row["fields"] for word in (pair["field"], pair["value"])] for row in rows]
    return bool(held) and [fields for _, fields in held] == archived


def check_identity(connection: Connection, log: ManifestLog) -> None:
    """Raise IncarnationError when the data of a server evidently is not what was archived.

    A server that has no name, or does not let it be read, is not suspected.
    """
    if log.last is None or not log.last.server_id:
        return
    try:
        found = find_identity(connection)
    except ServerError:
        return
    if found is not None and found != log.last.server_id:
        raise other_server(connection, found)


def other_server(connection: Connection, found: str | None) -> IncarnationError:
    seen = "has no such name" if found is None else "has another one"
    return IncarnationError(
        f"{connection.place} is not the server whose streams are archived here: its data {seen} ({KEY}). If it took over from that "
        "server, run the archiver once with --accept-server"
    )
