"""What keeps a stream from being partitioned, or its parts from being read."""

from __future__ import annotations

from streamd.errors import StreamdError

__all__ = ["PartitionError"]


class PartitionError(StreamdError):
    """A count of parts, or a name, that cannot be used; str() is one line with the reason and the next step."""
