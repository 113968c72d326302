"""What can go wrong between files and streams."""

from __future__ import annotations

from streamd.errors import StreamdError

__all__ = ["MoveError"]


class MoveError(StreamdError):
    """A file that cannot be loaded, or a stream that is in the way."""
