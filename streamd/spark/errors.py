"""The errors of the data source.

    StreamdError
     +- OptionError       an option that is not valid; names it
     +- ServerError       an error reply of the server; `code` is its first word
     +- UnreachableError  no server, or the connection is lost, after all attempts
     +- MissingStreamError   a stream that was named is not there
     +- DataLossError     entries that were to be read are gone, or belong to another stream
     +- DeliveryError     rows that cannot be written exactly once: they, or the marker, have changed
     +- MalformedError    an entry that cannot be cast to the schema asked for (mode FAILFAST)
     +- JavaMissingError  there is no Java that Spark can use; says how to install one
     +- VersionError      something that this PySpark is too old for
     +- OffsetError       an offset in a checkpoint that this version does not understand (source/offsets.py)
     +- ArchiveError      see archive/errors.py

SplitForbiddenError (source/partitions.py) is a ServerError.

All of them can be pickled, since Spark moves them between processes, and none contains a password.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from streamd.errors import StreamdError

__all__ = [
    "DataLossError",
    "DeliveryError",
    "JavaMissingError",
    "MalformedError",
    "MissingStreamError",
    "OptionError",
    "ServerError",
    "UnreachableError",
    "VersionError",
    "told_in_one_line",
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
    """A stream that was named is not there.

    place  the server that was asked
    """

    def __init__(self, stream: str, place: str) -> None:
        super().__init__(stream, place)
        self.stream = stream
        self.place = place

    def __str__(self) -> str:
        return f"there is no stream {self.stream!r} at {self.place}"


class DataLossError(StreamdError):
    """Entries that were to be read have been trimmed, or the stream has been replaced by another."""


class DeliveryError(StreamdError):
    """Rows that cannot be written exactly once: a batch that is repeated with other rows, or that a later one overtook."""


class MalformedError(StreamdError, ValueError):
    """An entry that cannot be cast to the columns asked for, in mode FAILFAST."""


class VersionError(StreamdError):
    """What needs PySpark 4.2 or newer: there a source is told where a batch begins and how much it may read."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what

    def __str__(self) -> str:
        return f"{self.what} need PySpark 4.2 or newer"


class JavaMissingError(StreamdError):
    """There is no Java that Spark can use."""


@contextmanager
def told_in_one_line() -> Iterator[None]:
    """Around what Spark calls in processes of its own: a StreamdError reaches the user without the stack of that process.

    These errors are about options, servers and data, not about code, and Spark puts the stack before the message. The
    process ends after any exception, so the variable, which Spark reads when it reports one, concerns nothing else.
    """
    try:
        yield
    except StreamdError:
        main = getattr(sys.modules["__main__"], "__spec__", None)
        if main is not None and main.name.startswith("pyspark."):
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise
