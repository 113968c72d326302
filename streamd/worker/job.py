"""What a handler gets, and how it says that a job is not to be tried again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Fatal", "Job"]


@dataclass(frozen=True)
class Job:
    """An entry that was delivered.

    stream      the key of its stream
    id          its ID
    fields      text if the client decodes replies, else bytes
    deliveries  how often it has been delivered, this time included
    """

    stream: str
    id: str
    fields: Mapping[Any, Any]
    deliveries: int


class Fatal(Exception):
    """Raised by a handler: the job would fail again. It becomes a dead letter at once, if there is a stream for these."""
