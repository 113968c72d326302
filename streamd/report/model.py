"""The contents of a report."""

from __future__ import annotations

from dataclasses import dataclass

from streamd.report.groups import Ack, DeadLetter, GroupLag, GroupState, Throughput
from streamd.report.profile import Profile

__all__ = ["Findings"]


@dataclass(frozen=True)
class Findings:
    """What was found out about a stream."""

    stream: str
    server: str
    made_ms: int  # Unix time of the server
    length: int  # entries that the server holds
    source: str  # how the entries were read, in words
    profile: Profile
    states: tuple[GroupState, ...]  # at the last look
    lags: tuple[GroupLag, ...]  # at every look
    acks: tuple[Ack, ...]
    throughputs: tuple[Throughput, ...]
    dead_letters: tuple[DeadLetter, ...]
    above: int  # deliveries beyond which an entry is a dead letter
