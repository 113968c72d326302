"""Which slots each primary gets, and which have to move for the shares to be even. Arithmetic alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from streamd.clustering.view import NodeView, ranges_of

__all__ = ["SLOT_COUNT", "Move", "first_shares", "moves_to_balance", "moves_to_empty", "plan_moves", "replicas_of"]

SLOT_COUNT = 16384


def first_shares(count: int) -> list[tuple[int, int]]:
    """The ranges of the primaries of a new cluster."""
    bounds = [round(number * SLOT_COUNT / count) for number in range(count + 1)]
    return [(first, end - 1) for first, end in pairwise(bounds)]


def replicas_of(count: int, replicas: int) -> list[int]:
    """For each node of a new cluster behind its primaries, the number of its primary.

    count     of all nodes
    replicas  of each primary; those left over go to the first primaries
    """
    primaries = count // (replicas + 1)
    return [number % primaries for number in range(count - primaries)]


@dataclass(frozen=True)
class Move:
    """Slots that one primary gets from another one."""

    source: str
    target: str
    slots: tuple[int, ...]

    @property
    def ranges(self) -> list[tuple[int, int]]:
        return ranges_of(self.slots)


def plan_moves(slots: Mapping[str, Sequence[int]], wanted: Mapping[str, int]) -> list[Move]:
    """The moves after which each primary has as many slots as wanted; none that has too many gets any.

    slots   the slots of each primary, by its ID
    wanted  how many it is to have; together as many as there are
    """
    surplus = {node: list(own[wanted[node] :]) for node, own in slots.items() if len(own) > wanted[node]}
    moves = []
    for target in sorted(wanted, key=lambda node: len(slots[node]) - wanted[node]):
        missing = wanted[target] - len(slots[target])
        for source, spare in surplus.items():
            taken = spare[: max(missing, 0)]
            if taken:
                del spare[: len(taken)]
                missing -= len(taken)
                moves.append(Move(source, target, tuple(taken)))
    return moves


def even_counts(nodes: Sequence[str], slots: Mapping[str, Sequence[int]], total: int) -> dict[str, int]:
    """As many slots for each as for every other; those that have most keep the odd ones, so that fewer slots move."""
    least, odd = divmod(total, len(nodes))
    by_size = sorted(nodes, key=lambda node: -len(slots[node]))
    return {node: least + (number < odd) for number, node in enumerate(by_size)}


def moves_to_balance(primaries: Sequence[NodeView]) -> list[Move]:
    """The moves after which all primaries have an even share, those without slots too."""
    slots = {node.id: node.slots for node in primaries}
    return plan_moves(slots, even_counts([*slots], slots, sum(map(len, slots.values()))))


def moves_to_empty(primaries: Sequence[NodeView], leaving: str) -> list[Move]:
    """The moves after which one primary has no slots, and the others have got even parts of them."""
    slots = {node.id: node.slots for node in primaries}
    others = [node for node in slots if node != leaving]
    wanted = even_counts(others, slots, sum(map(len, slots.values())))
    # Those that have more than their share keep it: only the slots of the leaving node move.
    spare = list(slots[leaving])
    moves = []
    for node in sorted(others, key=lambda node: len(slots[node]) - wanted[node]):
        taken = spare[: max(0, wanted[node] - len(slots[node]))]
        del spare[: len(taken)]
        if taken:
            moves.append(Move(leaving, node, tuple(taken)))
    return moves
