"""What a server remembers of the rules that it follows, none of which must survive it: failures, and figures."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from streamd.core.context import Context
from streamd.delivery.per_server import part_of
from streamd.memory.eviction import Eviction

__all__ = ["DeliveryState", "Failure", "Place", "may_store", "state_of"]

MOST_IDS = 10_000
"""Entries of a group that are tried again by themselves; what is beyond waits for a claim, or for ACKWAIT."""


class Place(NamedTuple):
    """A group of a stream: the index of its database, the stream's key, the group's name."""

    db_index: int
    stream: bytes
    group: bytes


@dataclass
class Failure:
    """Entries of a group that could not be moved.

    error  why the last one could not
    ids    those to be tried again, (ms, seq), in order
    """

    error: str
    ids: dict[tuple[int, int], None] = field(default_factory=dict)


class DeliveryState:
    """The rules of this server since it started.

    moved     entries that were moved
    consumers_removed  consumers that were idle for longer than their group's rule allows
    failures  what could not be moved, by group, and is tried again
    cuts      where claims go on that had met too many entries that are held back, by group: the place of one in the order by time
    """

    def __init__(self) -> None:
        self.moved = 0
        self.consumers_removed = 0
        self.failures: dict[Place, Failure] = {}
        self.cuts: dict[Place, tuple[int, int, int, int]] = {}

    def note_move(self, place: Place, id: tuple[int, int]) -> None:
        """An entry was moved."""
        self.moved += 1
        self.forget(place, id)

    def forget_group(self, place: Place) -> None:
        """A group was destroyed."""
        self.failures.pop(place, None)
        self.cuts.pop(place, None)

    def note_failure(self, place: Place, id: tuple[int, int], error: str) -> None:
        """An entry could not be moved."""
        failure = self.failures.setdefault(place, Failure(error))
        failure.error = error
        if len(failure.ids) < MOST_IDS:
            failure.ids[id] = None

    def forget(self, place: Place, id: tuple[int, int]) -> None:
        """An entry was moved, or is not pending any more: it is not tried again."""
        failure = self.failures.get(place)
        if failure is not None:
            failure.ids.pop(id, None)
            if not failure.ids:
                del self.failures[place]


def state_of(context: Context) -> DeliveryState:
    """That of the server that commands run in."""
    return part_of(context, DeliveryState)


def may_store(context: Context) -> bool:
    """Whether memory allows another entry: commands that use none run at `maxmemory`, too."""
    eviction = context.find(Eviction)
    return eviction is None or not context.config.maxmemory or not eviction.is_full
