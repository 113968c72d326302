"""When a job that failed is tried again, and how often: the rules of a group, as a worker follows them where the server does not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from streamd.delivery.client.rule_values import Seconds, Text, milliseconds

__all__ = ["Rule"]

MASK = 2**64 - 1
DISTANT_MS = 2**53


@dataclass(frozen=True, kw_only=True)
class Rule:
    """The rule of a group. The names and meanings are those of `GroupRules.set`.

    max_deliveries  a job is delivered at most this often; None: without end
    dead_letter     key of the stream that it is moved to then; on a cluster in the slot of the stream
    backoff         seconds until a job that has failed is tried again; 0: about a second, by any worker
    factor          by which these grow with each delivery
    max_backoff     seconds beyond which they do not grow
    jitter          percent by which they vary, by the job
    Raises ValueError for what streamd would refuse, too.
    """

    max_deliveries: int | None = None
    dead_letter: Text | None = None
    backoff: Seconds = 0.0
    factor: float = 1.0
    max_backoff: Seconds | None = None
    jitter: int = 0

    def __post_init__(self) -> None:
        if self.max_deliveries is not None and self.max_deliveries < 1:
            raise ValueError("max_deliveries must be at least 1")
        if self.max_deliveries is not None and not self.dead_letter:
            raise ValueError("max_deliveries needs dead_letter, the key of a stream")
        if milliseconds(self.backoff) < 0 or self.factor < 1 or not 0 <= self.jitter <= 100:
            raise ValueError("backoff must not be negative, factor at least 1, and jitter between 0 and 100")
        if not milliseconds(self.backoff) and (self.factor != 1 or self.max_backoff is not None or self.jitter):
            raise ValueError("factor, max_backoff and jitter need backoff")
        if self.max_backoff is not None and milliseconds(self.max_backoff) < milliseconds(self.backoff):
            raise ValueError("max_backoff must not be less than backoff")

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Rule:
        """The rule that a server has, as `GroupRules.get` returns it."""
        return cls(**{each.name: found[each.name] for each in fields(cls) if each.name in found})

    def options(self) -> dict[str, Any]:
        """What `GroupRules.set` accepts."""
        return {each.name: value for each in fields(self) if (value := getattr(self, each.name)) != each.default}

    def wait_ms(self, entry_id: str, deliveries: int) -> int:
        """How long after its last delivery an entry can be claimed, as the server computes it."""
        wait: float = milliseconds(self.backoff)
        if not wait or not deliveries:
            return 0
        most = DISTANT_MS if self.max_backoff is None else milliseconds(self.max_backoff)
        try:
            wait = min(most, wait * float(self.factor) ** (deliveries - 1))
        except OverflowError:
            wait = most
        return int(wait * (1 + self.jitter / 100 * swing(entry_id)))

    def is_last(self, deliveries: int) -> bool:
        """Whether an entry that was delivered so often is not delivered again."""
        return self.max_deliveries is not None and deliveries >= self.max_deliveries


def swing(entry_id: str) -> float:
    """A number from -1 to 1 that looks random and is always the same for an ID; the same as on the server."""
    ms, _, seq = entry_id.partition("-")
    value = (int(ms) * 0x9E3779B97F4A7C15 + int(seq)) & MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return ((value ^ (value >> 31)) >> 11) / 2**52 - 1
