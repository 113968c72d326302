"""KeyStatistics: how many keys there are, how many were asked for and found, and how long strings are, for INFO."""

from __future__ import annotations

from collections.abc import Iterator

from streamd.core.capability import Capability
from streamd.core.host import Host
from streamd.core.info import Field, Lines

__all__ = ["KeyStatistics"]


class KeyStatistics(Capability):
    """What is counted by the databases of a server."""

    info = {
        "stats": (
            Field("keyspace_hits", lambda self: sum(db.hits for db in self.databases)),
            Field("keyspace_misses", lambda self: sum(db.misses for db in self.databases)),
        ),
        "keyspace": (Lines("databases", lambda self: self.database_lines()),),
        "keysizes": (Lines("sizes", lambda self: self.size_lines()),),
    }

    def __init__(self, host: Host) -> None:
        self.databases = host.databases

    def reset_statistics(self) -> None:
        for db in self.databases:
            db.hits = db.misses = 0

    def database_lines(self) -> Iterator[str]:
        """The databases that have keys."""
        for db in self.databases:
            if len(db):
                yield f"db{db.index}:keys={len(db)},expires={db.expiring},avg_ttl={db.avg_ttl},subexpiry=0"

    def size_lines(self) -> Iterator[str]:
        """How many strings there are of which length, up to the next power of two; Redis has no line for streams either."""
        for db in self.databases:
            if sizes := db.string_sizes:
                counts = ",".join(f"{short(size)}={count}" for size, count in sizes)
                yield f"db{db.index}_distrib_strings_sizes:{counts}"


def short(power: int) -> str:
    """A power of two for people, without decimals: `512`, `1K`, `2G`; and 0."""
    thousands = max(0, power.bit_length() - 1) // 10
    return f"{power >> 10 * thousands}{' KMGTP'[thousands].strip()}"
