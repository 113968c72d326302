"""Jobs that are added again and again, at times on which all workers agree."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from streamd.delivery.client.rule_values import Seconds

__all__ = ["NextTime", "Periodic"]

NextTime = Callable[[float], float]
"""From a Unix time in seconds to the next one, later, at which the job is added; the same in all workers."""


@dataclass(frozen=True)
class Periodic:
    """A job that is added periodically.

    name    by which it is added once, whoever does it
    fields  of the entry
    every   seconds, counted from 1970; or the next time
    """

    name: str
    fields: Mapping[Any, Any]
    every: Seconds | NextTime

    def next_time(self, now: float) -> float:
        """The first time after `now`, Unix time in seconds. Raises ValueError if there is none."""
        if callable(self.every):
            found = self.every(now)
        else:
            step = self.every.total_seconds() if isinstance(self.every, timedelta) else self.every
            if step <= 0:
                raise ValueError(f"{self.name} cannot be added every {step} seconds")
            found = (math.floor(now / step) + 1) * step
        if not found > now:
            raise ValueError(f"The next time of {self.name} must be later than {now}, not {found}")
        return found
