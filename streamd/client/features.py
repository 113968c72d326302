"""What servers differ in."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Features"]


@dataclass(frozen=True)
class Features:
    """What a server is, and which features that differ between servers it has.

    name            `streamd`, `redis` or `valkey`
    version         its own version
    redis_version   the Redis release that it claims compatibility with
    """

    name: str
    version: tuple[int, ...]
    redis_version: tuple[int, ...]
    has_idmp: bool
    """XADD with IDMP and IDMPAUTO, XCFGSET (Redis 8.6)."""
    has_acked_trim: bool
    """KEEPREF, DELREF and ACKED for XADD and XTRIM, XDELEX, XACKDEL (Redis 8.2)."""
    has_streamd_helpers: bool
    """Commands of streamd's own that Redis does not have, among them the cheap split of a stream; as far as is known, this
    user may call them (`SplitForbiddenError`)."""

    def __str__(self) -> str:
        return f"{self.name} {'.'.join(map(str, self.version))}"
