"""Exactly once by the rows' own IDs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from streamd.client.client_errors import OptionError, ServerError
from streamd.client.connection import Connection
from streamd.client.points import MAX_ID, parse_entry_id
from streamd.transfer.batch_rows import BatchRows
from streamd.transfer.chunk_delivery import Delivery, find_refused

__all__ = ["Identified"]

WHOLE_ID = re.compile(rb"\d+-\d+")


class Identified(Delivery):
    """The rows have the IDs. A refused row is skipped when the stream already has exactly that entry, or when it
    would have been trimmed immediately; otherwise the rows were out of order, which is an error."""

    def _write(self, connection: Connection, rows: BatchRows, start: int, stop: int) -> int:
        if self._options.delivery == "exactly-once":
            self._check_ids(rows, start, stop)
        self._arm(connection)
        replies = self._transact(connection, rows.encode(start, stop), stop - start, self._extra(rows, start, stop))
        if replies is None:
            return stop
        refused = find_refused(replies, stop - start)
        if refused:
            self._disarm(connection)
            is_there = self._find_entries(
                connection, rows, {at: start + at for at in refused if _is_too_low(replies[at])}
            )
            refused = [at for at in refused if at not in is_there]
        self._refuse(rows, range(start, stop), replies, refused)
        return stop

    def _check_ids(self, rows: BatchRows, start: int, stop: int) -> None:
        for row in range(start, stop):
            entry_id, _ = rows.entry_of(row)
            if not WHOLE_ID.fullmatch(entry_id):
                raise OptionError(
                    "idColumn",
                    f"exactly-once needs IDs like 1526919030474-55, not {entry_id.decode(errors='replace')!r}",
                )

    def _find_entries(self, connection: Connection, rows: BatchRows, numbers: Mapping[int, int]) -> set[int]:
        """Which refused rows need not be written; `numbers` identify the rows."""
        asked = {name: (rows.key_of(row), *rows.entry_of(row)) for name, row in numbers.items()}
        asked = {name: each for name, each in asked.items() if WHOLE_ID.fullmatch(each[1])}
        found = connection.pipeline([("XRANGE", stream, entry_id, entry_id) for stream, entry_id, _ in asked.values()])
        streams = list(dict.fromkeys(stream for stream, _, _ in asked.values()))
        firsts = connection.pipeline([("XRANGE", stream, "-", "+", "COUNT", 1) for stream in streams])
        first_of = {stream: parse_entry_id(first[0][0]) for stream, first in zip(streams, firsts, strict=True) if first}
        is_there = set()
        for (name, (stream, entry_id, fields)), same in zip(asked.items(), found, strict=True):
            if same:
                needless = same[0][1] == fields
            else:
                # What is below the first entry would be trimmed again immediately.
                needless = self._trimming.is_wanted and parse_entry_id(entry_id) < first_of.get(stream, MAX_ID)
            if needless:
                is_there.add(name)
        return is_there


def _is_too_low(reply: Any) -> bool:
    return isinstance(reply, ServerError) and "equal or smaller" in reply.text
