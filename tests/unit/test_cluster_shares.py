"""Which slots move: shares become even, and no slot moves that need not."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamd.clustering.shares import SLOT_COUNT, first_shares, moves_to_balance, moves_to_empty, replicas_of
from streamd.clustering.view import NodeView, parse_nodes, ranges_of, slots_in

owners = st.lists(st.integers(0, 6), min_size=1, max_size=300)
"""The owner of each slot; numbers that do not occur are primaries without slots."""


def primaries(owner_of: list[int]) -> list[NodeView]:
    return [
        NodeView(
            str(number), "h", 1, 2, frozenset(["master"]), None, True,
            tuple(ranges_of(slot for slot, owner in enumerate(owner_of) if owner == number)),
        )
        for number in range(7)
    ]  # fmt: skip


@pytest.mark.parametrize("count", [1, 2, 3, 7, 64])
def test_a_new_cluster_has_every_slot_once_in_even_shares(count: int) -> None:
    shares = first_shares(count)
    assert slots_in(shares) == list(range(SLOT_COUNT))
    sizes = [last - first + 1 for first, last in shares]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize(
    ("count", "replicas", "followed"), [(4, 1, [0, 1]), (6, 1, [0, 1, 2]), (5, 1, [0, 1, 0]), (6, 2, [0, 1, 0, 1]), (3, 0, [])]
)  # fmt: skip
def test_each_primary_has_its_replicas(count: int, replicas: int, followed: list[int]) -> None:
    assert replicas_of(count, replicas) == followed


@given(owners)
def test_shares_are_even_after_the_moves_that_balance(owner_of: list[int]) -> None:
    after = list(owner_of)
    moves = moves_to_balance(primaries(owner_of))
    for move in moves:
        for slot in move.slots:
            assert after[slot] == int(move.source)
            after[slot] = int(move.target)
    sizes = [Counter(after)[number] for number in range(7)]
    assert max(sizes) - min(sizes) <= 1
    assert sum(len(move.slots) for move in moves) == sum(
        max(0, Counter(owner_of)[number] - sizes[number]) for number in range(7)
    )
    assert not {move.source for move in moves} & {move.target for move in moves}


@given(owners, st.integers(0, 6))
def test_a_leaving_primary_gives_all_and_nobody_else_any(owner_of: list[int], leaving: int) -> None:
    after = list(owner_of)
    for move in moves_to_empty(primaries(owner_of), str(leaving)):
        assert move.source == str(leaving)
        for slot in move.slots:
            assert after[slot] == leaving
            after[slot] = int(move.target)
    assert leaving not in after


def test_lines_of_cluster_nodes_are_read() -> None:
    found = parse_nodes(
        "a 127.0.0.1:7000@17000,name,tls-port=0 myself,master - 0 0 1 connected 0-5 7 [8->-b]\n"
        "b ::1:7001@17001 slave,fail? a 0 0 1 disconnected\nc :0@0 handshake - 0 0 0 connected\n"
    )
    assert found["a"].ranges == ((0, 5), (7, 7))
    assert (found["a"].is_myself, found["a"].port, found["a"].bus_port) == (True, 7000, 17000)
    assert (found["b"].host, found["b"].primary_id) == ("::1", "a")
    assert not found["b"].is_connected
    assert not found["c"].is_settled
