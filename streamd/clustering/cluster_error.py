"""What keeps an operator's command from being carried out."""

from __future__ import annotations

from streamd.errors import StreamdError

__all__ = ["ClusterError", "StopRequestedError"]


class ClusterError(StreamdError):
    """A cluster that cannot be started or changed; str() is one line with the reason and the next step."""


class StopRequestedError(StreamdError):
    """The work was ended on request."""
