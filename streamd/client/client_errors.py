"""The errors of programs that read and write streams on a server.

    StreamdError
     +- OptionError       an option that is not valid; names it
     +- ServerError       an error reply of the server; `code` is its first word
     +- UnreachableError  no server, or the connection is lost, after all attempts
     +- MissingStreamError   a named stream does not exist
     +- DataLossError     entries that were to be read are gone, or belong to another stream
     +- DeliveryError     rows that cannot be written exactly once: they, or the marker, have changed
     +- MalformedError    an entry that cannot be cast to the schema asked for (mode FAILFAST)
     +- MoveError         a file that cannot be loaded, or a stream that is in the way (transfer/move_error.py)
     +- ArchiveError      see archive/archive_errors.py; those of Spark: spark/spark_errors.py

SplitForbiddenError (transfer/partitions.py) is a ServerError.

All of them can be pickled, since Spark moves them between processes, and none contains a password.
"""

from __future__ import annotations

from streamd.errors import StreamdError

__all__ = [
    "DataLossError",
    "DeliveryError",
    "MalformedError",
    "MissingStreamError",
    "OptionError",
    "ServerError",
    "UnreachableError",
]


class OptionError(StreamdError, ValueError):
    """An option that is not valid.

    option  its name, as the documentation writes it
    reason  what is wrong with it
    """

    def __init__(self, option: str, reason: str) -> None:
        super().__init__(option, reason)
        self.option = option
        self.reason = reason

    def __str__(self) -> str:
        return f"option {self.option}: {self.reason}"


class ServerError(StreamdError):
    """An error reply. `str()` is the whole line without the `-`."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    @property
    def code(self) -> str:
        """The first word: ERR, NOPERM, WRONGTYPE ..."""
        return self.text.partition(" ")[0]

    @property
    def is_missing_key(self) -> bool:
        """The key does not exist."""
        return "no such key" in self.text.lower()


class UnreachableError(StreamdError, ConnectionError):
    """No server answers at the given address, or the connection broke, after all attempts."""


class MissingStreamError(StreamdError):
    """A named stream does not exist.

    place  the server that was asked; None when that is plain
    """

    def __init__(self, stream: str, place: str | None = None) -> None:
        super().__init__(stream, place)
        self.stream = stream
        self.place = place

    def __str__(self) -> str:
        return f"there is no stream {self.stream!r}" + ("" if self.place is None else f" at {self.place}")


class DataLossError(StreamdError):
    """Entries that were to be read have been trimmed, or the stream has been replaced by another."""


class DeliveryError(StreamdError):
    """Rows that cannot be written exactly once: a batch that is repeated with other rows, or that a later one overtook."""


class MalformedError(StreamdError, ValueError):
    """An entry that cannot be cast to the columns asked for, in mode FAILFAST."""
