"""What can go wrong with an archive.

StreamdError
 +- ArchiveError          the archive, or the request, is not valid
     +- NoStreamsError    no stream matches the pattern
     +- LockedError       another archiver is working on this stream
     +- LockLostError     another archiver has taken over: this one must stop writing
     +- IncarnationError  the stream is not the one that was archived
     +- VerifyError       what was written is not what the server, or the files before, hold
     +- TableError        an open table could not be brought up to the manifests
     +- CorruptArchiveError   damaged manifests or files
         +- MissingFileError   a file that is missing now; it may have been replaced
"""

from __future__ import annotations

from streamd.errors import StreamdError

__all__ = [
    "ArchiveError",
    "CorruptArchiveError",
    "IncarnationError",
    "LockLostError",
    "LockedError",
    "MissingFileError",
    "NoStreamsError",
    "TableError",
    "VerifyError",
]


class ArchiveError(StreamdError):
    """The archive, or the request, is not valid."""


class NoStreamsError(ArchiveError):
    """No stream matches the pattern."""


class LockedError(ArchiveError):
    """Another archiver is working on this stream."""


class LockLostError(ArchiveError):
    """Another archiver has taken over the stream: this one stops, and has committed nothing since."""


class IncarnationError(ArchiveError):
    """The stream was deleted and recreated, or its IDs were set back, since it was archived."""


class VerifyError(ArchiveError):
    """What was written is not what the server, or the files before, hold. Nothing has been committed or trimmed."""


class TableError(ArchiveError):
    """An open table could not be brought up to the manifests. The archive itself is as it should be."""


class CorruptArchiveError(ArchiveError):
    """Damaged manifests or files of an archive."""


class MissingFileError(CorruptArchiveError):
    """A file that a manifest named is missing. A reader checks whether it has been replaced."""
