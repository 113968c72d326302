"""Whether a server holds the data that an archive is of.

    streamd:archive:server   string: a random name of the data, made by the first archiver that works on it

The name belongs to the data and not to a process or an address: it is saved, replicated and imported with the streams, so that
it survives restarts, fail-overs and moves, which replace run IDs and replication IDs. Manifests note it. That another server
has entries with higher IDs in a stream of the same name, which is all that can be seen of a trimmed stream, is no proof then.

A name that is missing is no proof of another server, since the key may be lost: the server is the one that was archived if it
still holds the last archived entry. Otherwise the user must say so.

A copy of a server has its name, too: a second server with the same files, or the old primary after a fail-over that it survived. Nothing
that is kept with the data tells the two apart, since a restart from these files leaves just what a copy has; and what is not kept with
it changes with every restart and fail-over. But only one of them can go on with the archive unnoticed:

    streamd:archive:manifest:{<tag>}:<key>:<archive>   string: JSON with number and run of the last manifest that was written from here, and of the
                                               one that is about to be committed, so that a run may be killed before or after that; and
                                               what XINFO STREAM said when the stream was last compared with the archive

Where the last manifest is neither, an archiver has worked on a copy since, or the server has lost its last writes, or it lacks the key
for another reason. Then its entries decide, all of them (same_stream.py): one that should be in the archive and is not would be trimmed
without having been archived. So they do where that stream cannot have become the present one (boundary.py: it was written again), and where
`streamd load` has written to it since, which may have changed any of them:

    streamd:archive:replaced:{<tag>}:<key>   string: a name of that load (lock.py); the key above repeats it once the entries were compared
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterable
from dataclasses import astuple
from typing import Any

from streamd.archive.archive_errors import IncarnationError
from streamd.archive.archived_rows import find_archived
from streamd.archive.boundary import can_have_become
from streamd.archive.layout import Layout
from streamd.archive.manifest import Manifest
from streamd.archive.manifest_log import ManifestLog, archived_streams
from streamd.client.archive_keys import key_beside, replaced_key
from streamd.client.client_errors import ServerError
from streamd.client.connection import Connection, Reply, run
from streamd.client.key_names import stream_key
from streamd.client.points import format_entry_id
from streamd.client.stream_info import StreamInfo

__all__ = [
    "archive_label",
    "check_identity",
    "find_note",
    "is_noted",
    "manifest_key",
    "manifests_note",
    "other_server",
    "replaced_by",
    "settle_identity",
]

KEY = "streamd:archive:server"


def ask_for_name(connection: Connection, *words: str) -> Reply:
    """The reply to a request about the name, at the node that has it of a cluster, whose streams have one name."""
    options = connection.options
    if options.cluster_nodes:
        return run(options.at(KEY), lambda each: each.command(*words))
    return connection.command(*words)


def find_identity(connection: Connection) -> str | None:
    """The name of a server's data; None when it has none."""
    found = ask_for_name(connection, "GET", KEY)
    return None if found is None else found.decode(errors="replace")


def give_identity(connection: Connection, name: str) -> str:
    """Name a server's data, unless it has a name; returns the one that it has then."""
    ask_for_name(connection, "SET", KEY, name, "NX")
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
    return bool(held) and held[0][1] == find_archived(layout, log, last)


def check_identity(connection: Connection, log: ManifestLog) -> bool:
    """Raise IncarnationError when the data of a server evidently is not what was archived; return whether it is known to be.

    A server that does not let its name be read is not suspected, and an archive from before there were names takes any.
    """
    if log.last is None or not log.last.server_id:
        return True
    try:
        found = find_identity(connection)
    except ServerError:
        return True
    if found is not None and found != log.last.server_id:
        raise other_server(connection, found)
    return found is not None


def manifest_key(layout: Layout, stream: str) -> str:
    """The key that says which manifest was last written from a server. Several archives may be of one stream."""
    return f"{key_beside('manifest', stream)}:{archive_label(layout)}"


def archive_label(layout: Layout) -> str:
    """What distinguishes an archive from others in keys of the server: of its address."""
    return hashlib.sha256(str(layout.root).encode()).hexdigest()[:16]


def manifests_note(manifests: Iterable[Manifest], replaced: bytes, state: StreamInfo | None) -> bytes:
    """The value of that key.

    replaced  the last load into the stream, when it was compared with the manifests
    state     of the stream then
    """
    found = {
        "manifests": [[each.sequence, each.run] for each in manifests],
        "replaced": replaced.decode(errors="replace"),
        "stream": None if state is None else astuple(state),
    }
    return json.dumps(found).encode()


def find_note(connection: Connection, layout: Layout, stream: str) -> dict[str, Any] | None:
    """What that key says, empty when it says nothing; None when the user may not read it."""
    try:
        found = json.loads(connection.command("GET", manifest_key(layout, stream)) or b"{}")
    except ServerError:
        return None
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def is_noted(note: dict[str, Any] | None, last: Manifest, replaced: bytes, state: StreamInfo) -> bool:
    """Whether a server knows the last manifest, its stream can have become what it is, and nothing was loaded into it since.

    note      from before `state`: an archiver may be at work; without permission to read it, the server is not suspected
    replaced  the last load into the stream
    """
    if note is None:
        return True
    if not note or note["stream"] is None:
        return False
    return (
        [last.sequence, last.run] in note["manifests"]
        and note["replaced"] == replaced.decode(errors="replace")
        and can_have_become(StreamInfo(*note["stream"]), state)
    )


def replaced_by(connection: Connection, stream: str) -> bytes:
    """The last load into a stream; empty: there was none since it is archived."""
    try:
        return connection.command("GET", replaced_key(stream)) or b""
    except ServerError:
        return b""


def other_server(connection: Connection, found: str | None) -> IncarnationError:
    seen = "has no such name" if found is None else "has another one"
    return IncarnationError(
        f"{connection.place} is not the server whose streams are archived here: its data {seen} ({KEY}). If it took over from that "
        "server, run the archiver once with --accept-server"
    )
