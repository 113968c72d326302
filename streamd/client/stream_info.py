"""A stream and its groups as a server describes them: the replies of XINFO and XPENDING, read in one place.

    StreamInfo    XINFO STREAM
    GroupNeeds    what a group still needs, of XINFO GROUPS and XPENDING
    find_groups   the needs of all groups of a stream, as of one moment

IDs are 128-bit numbers (points.py). What programs compute for people who watch a server is in streamd/stream_state.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streamd.client.client_errors import ServerError
from streamd.client.points import parse_entry_id
from streamd.client.replies import pairs

if TYPE_CHECKING:
    from streamd.client.connection import Connection

__all__ = ["GroupNeeds", "StreamInfo", "find_groups"]


@dataclass(frozen=True)
class StreamInfo:
    """The reply of XINFO STREAM.

    length          entries
    last_generated  the last ID; 0: there was none
    first_entry     ID of the first entry; None: the stream is empty
    entries_added   in all its life; None on servers before Redis 7
    max_deleted     highest ID that XDEL removed, 0 when it removed none; trimming does not change it; None likewise
    """

    length: int
    last_generated: int
    first_entry: int | None
    entries_added: int | None = None
    max_deleted: int | None = None

    @classmethod
    def parse(cls, reply: Sequence[Any]) -> StreamInfo:
        found = pairs(reply)
        first, deleted = found.get(b"first-entry"), found.get(b"max-deleted-entry-id")
        return cls(
            length=int(found[b"length"]),
            last_generated=parse_entry_id(found[b"last-generated-id"]),
            first_entry=parse_entry_id(first[0]) if first else None,
            entries_added=found.get(b"entries-added"),
            max_deleted=None if deleted is None else parse_entry_id(deleted),
        )

    def has_none_up_to(self, point: int) -> bool:
        """Whether no entry at or below an ID is left."""
        return self.first_entry is None or self.first_entry > point


@dataclass(frozen=True)
class GroupNeeds:
    """How much of its stream a consumer group still needs.

    pending        entries that are delivered and not acknowledged
    first_pending  the lowest of their IDs
    """

    name: str
    last_delivered: int
    pending: int
    first_pending: int | None

    @classmethod
    def parse(cls, info: Sequence[Any], pending: Sequence[Any]) -> GroupNeeds:
        """From one group of XINFO GROUPS, and the summary that XPENDING gives of it."""
        found = pairs(info)
        return cls(
            name=found[b"name"].decode(errors="surrogateescape"),
            last_delivered=parse_entry_id(found[b"last-delivered-id"]),
            pending=int(pending[0]),
            first_pending=parse_entry_id(pending[1]) if pending[1] is not None else None,
        )

    @property
    def free_until(self) -> int:
        """The last ID up to which this group needs nothing: everything is delivered and acknowledged."""
        if self.first_pending is None:
            return self.last_delivered
        return min(self.last_delivered, self.first_pending - 1)


def find_groups(connection: Connection, key: bytes) -> list[GroupNeeds]:
    """The needs of the groups of a stream, none when it does not exist. A group that is destroyed in between needs nothing."""
    while True:
        try:
            names = [pairs(each)[b"name"] for each in connection.command("XINFO", "GROUPS", key)]
            # Read in one transaction, so that no entry goes from undelivered to pending in between.
            done = connection.transaction([("XINFO", "GROUPS", key), *(("XPENDING", key, name) for name in names)])
        except ServerError as error:
            if error.code == "NOGROUP":  # whose text speaks of a missing key, too
                continue
            if error.is_missing_key:
                return []
            raise
        infos, *pending = done or []
        if [pairs(each)[b"name"] for each in infos] == names:
            return [GroupNeeds.parse(*each) for each in zip(infos, pending, strict=True)]
