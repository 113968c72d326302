"""Who a client is, as far as the core needs to know; users are in users/user.py."""

from __future__ import annotations

__all__ = ["Identity"]


class Identity:
    """A user. A client's requests are put to the capability that knows its rights while `is_limited` is true."""

    name: bytes

    @property
    def is_limited(self) -> bool:
        """Whether there is something that the user may not do."""
        return False
