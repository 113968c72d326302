"""KeyStatistics: numbers of keys, of key lookups with and without a hit, and the lengths of strings, for INFO."""

from __future__ import annotations

from streamd.core.capability import Capability
from streamd.core.host import Host
from streamd.core.info import Fields, Lines
from streamd.keyspace.database import total_counts, with_keys
from streamd.keyspace.value_type import registered_types

__all__ = ["KeyStatistics"]


class KeyStatistics(Capability):
    """The counters of a server's databases."""

    info = {
        "stats": (
            Fields(
                "keyspace_hits keyspace_misses expired_keys evicted_keys slave_expires_tracked_keys",
                lambda self: total_counts(self.databases),
            ),
        ),
        "keyspace": (Lines("databases", lambda self: self.database_lines()),),
        "keysizes": (Lines("sizes", lambda self: self.size_lines()),),
    }

    def __init__(self, host: Host) -> None:
        self.databases = host.databases

    def reset_statistics(self) -> None:
        for db in self.databases:
            db.hits = db.misses = 0

    def database_lines(self) -> list[str]:
        """The databases that have keys."""
        return [
            f"db{db.index}:keys={len(db)},expires={db.expiring},avg_ttl={db.avg_ttl},subexpiry=0"
            for db in with_keys(self.databases)
        ]

    def size_lines(self) -> list[str]:
        """Numbers of values by size, rounded up to a power of two, for the types that count them."""
        lines = []
        for db in with_keys(self.databases):
            for each in registered_types():
                if each.sizes_name and (sizes := db.sizes_by_power(each)):
                    counts = ",".join(f"{short(size)}={count}" for size, count in sizes)
                    lines.append(f"db{db.index}_distrib_{each.sizes_name}:{counts}")
        return lines


def short(power: int) -> str:
    """A power of two in human-readable form, without decimals: `512`, `1K`, `2G`; also 0."""
    thousands = max(0, power.bit_length() - 1) // 10
    return f"{power >> 10 * thousands}{' KMGTP'[thousands].strip()}"
