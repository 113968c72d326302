"""The states of slots for the router follow each change of slots: after random commands they equal states computed from scratch."""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import Any

import pytest

from streamd.cluster.bus.core import ClusterCore
from streamd.cluster.bus.options import Options
from streamd.cluster.bus.slots import SLOT_COUNT
from streamd.cluster.routing import SLOT_STATES
from streamd.cluster.topology import Topology
from streamd.errors import CommandError

OTHERS = [b"%040x" % number for number in (2, 3)]
SAVED = "".join(
    f"{number:040x} 127.0.0.1:{7000 + number}@{17000 + number},,tls-port=0,shard-id={number:040x} {flags} - 0 0 {number} connected\n"
    for number, flags in ((1, "myself,master"), (2, "master"), (3, "master"))
).encode()


def state_of(core: ClusterCore, slot: int) -> int:
    state = core.state
    owner = state.owners[slot]
    found = 0 if owner is not None else SLOT_STATES["unowned"]
    if owner is not None and owner is state.myself.shard_primary:
        found = SLOT_STATES["owned" if state.myself.is_primary else "copied"]
    found |= SLOT_STATES["migrating"] if slot in state.migrating else 0
    return found | (SLOT_STATES["importing"] if slot in state.importing else 0)


def is_shown(core: ClusterCore, slot: int) -> bool:
    owner = core.state.owners[slot]
    return (owner is not None and owner is core.state.myself.shard_primary) or slot in core.state.importing


def change(core: ClusterCore, random: Random) -> None:
    """A random command, which may be refused."""
    first = random.choice([0, 5, 63, 8191, 16300])
    slots = range(first, first + random.choice([1, 2, 70]))
    slot, other = random.choice([0, 5, 6, 64, 8192, 16383]), random.choice(OTHERS)
    commands: list[tuple[Any, ...]] = [
        (core.add_slots, slots), (core.delete_slots, slots), (core.set_slot_migrating, slot, other),
        (core.set_slot_importing, slot, other), (core.set_slot_stable, slot), (core.set_slot_node, slot, other, 0),
        (core.set_slot_node, slot, core.state.myself.id, 0), (core.take_slots, slots),
    ]  # fmt: skip
    if core.state.myself.is_replica or random.random() < 0.1:
        commands = [(core.flush_slots,), (core.replicate, other), (core.reset,), (core.fail_over, "takeover")]
    function, *args = random.choice(commands)
    with suppress(CommandError):
        function(*args, **({"hard": False} if function == core.reset else {}))


@pytest.mark.parametrize("seed", range(20))
def test_states_of_slots_follow_their_changes(seed: int) -> None:
    random = Random(seed)
    core = ClusterCore(Options(port=7001), Random(seed), 1000, saved=SAVED)
    topology = Topology(None, core)  # type: ignore[arg-type]  # the configuration is for addresses
    assert topology.update()
    for _ in range(60):
        before = bytes(topology.states), bytes(topology.shown), core.state.is_ok
        change(core, random)
        has_changed = topology.update()
        assert [*topology.states] == [state_of(core, slot) for slot in range(SLOT_COUNT)]
        assert [*map(bool, topology.shown)] == [is_shown(core, slot) for slot in range(SLOT_COUNT)]
        assert has_changed or before == (bytes(topology.states), bytes(topology.shown), core.state.is_ok)
