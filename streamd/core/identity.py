"""Who a client is, as far as the core needs to know; users are in users/user.py."""

from __future__ import annotations

__all__ = ["Identity"]


class Identity:
    """A user. While `is_limited` is true, the capability that knows its permissions checks a client's requests."""

    name: bytes

    @property
    def is_limited(self) -> bool:
        """Whether the user's permissions are restricted."""
        return False
