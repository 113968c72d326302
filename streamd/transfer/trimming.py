"""Trimming after each chunk that is written, with and without the server's ACKED."""

from __future__ import annotations

import time
from collections.abc import Sequence

from streamd.client.client_errors import OptionError
from streamd.client.connection import Connection, Request, server_features
from streamd.client.points import first_id_of, format_entry_id, parse_entry_id, parse_timestamp_ms
from streamd.client.stream_info import find_groups
from streamd.transfer.write_options import SinkOptions

__all__ = ["Trimming", "parse_minid"]

LEAST_TRIM_LIMIT = 10_000
"""Entries that one approximate trim may remove by default; more when a chunk adds more."""


def parse_minid(text: str, now_ms: int) -> int:
    """The value of `minId`: an ID, or the first ID of a moment. Raises ValueError."""
    try:
        return parse_entry_id(text)
    except ValueError:
        return first_id_of(parse_timestamp_ms(text, now_ms))


class Trimming:
    """The trimming after each chunk: one XTRIM for each stream in it, instead of arguments to each XADD. After each chunk
    the stream is as short as with those, and the requests of rows stay the same from one attempt to the next."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self.is_wanted = options.maxlen is not None or options.minid is not None
        self.is_replaced = False
        """The server has no ACKED; `trim_acknowledged` does it."""
        self._policy: list[str] = []

    def settle(self, connection: Connection) -> None:
        """Find out how the server does what `trimPolicy` says. Raises OptionError when it cannot."""
        policy = self._options.trim_policy
        if not self.is_wanted or policy is None:
            return
        features = server_features(connection)
        self._policy = [policy] if features.has_acked_trim else []
        self.is_replaced = policy == "ACKED" and not features.has_acked_trim
        if policy == "DELREF" and not features.has_acked_trim:
            raise OptionError("trimPolicy", f"{features} has no DELREF; leave it off, or use ACKED")

    def requests(self, streams: Sequence[bytes], rows: int) -> list[Request]:
        """Requests to send in the transaction of a chunk."""
        if not self.is_wanted or self.is_replaced:
            return []
        words = self._words(rows, None)
        return [("XTRIM", stream, *words) for stream in streams]

    def _words(self, rows: int, minid: int | None) -> list[str | int]:
        options = self._options
        if minid is None and options.maxlen is not None:
            what: list[str | int] = ["MAXLEN", "=" if options.trim_exactly else "~", options.maxlen]
        else:
            number = self.min_id() if minid is None else minid
            what = ["MINID", "=" if options.trim_exactly else "~", format_entry_id(number)]
        if not options.trim_exactly:
            limit = max(LEAST_TRIM_LIMIT, 2 * rows) if options.trim_limit is None else options.trim_limit
            what += ["LIMIT", limit]
        return what + self._policy

    def min_id(self) -> int:
        return parse_minid(str(self._options.minid), time.time_ns() // 1_000_000)

    def trim_acknowledged(self, connection: Connection, streams: Sequence[bytes], rows: int) -> None:
        """ACKED for servers without it: trim no further than every group has read and acknowledged."""
        for stream in streams:
            wanted = self._wanted_end(connection, stream, rows)
            end = min([wanted, *(group.free_until + 1 for group in find_groups(connection, stream))])
            if end:
                connection.command("XTRIM", stream, *self._words(rows, end))

    def _wanted_end(self, connection: Connection, stream: bytes, rows: int) -> int:
        """The lowest ID that groups allow to remain; 0 when nothing may be trimmed."""
        if self._options.maxlen is None:
            return self.min_id()
        excess = connection.command("XLEN", stream) - self._options.maxlen
        if excess <= 0:
            return 0
        # Only part of a large excess at a time: the IDs have to be read.
        oldest = connection.command("XRANGE", stream, "-", "+", "COUNT", min(excess, max(LEAST_TRIM_LIMIT, 2 * rows)))
        return parse_entry_id(oldest[-1][0]) + 1 if oldest else 0
