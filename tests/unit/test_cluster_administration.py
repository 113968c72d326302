"""CLUSTER commands on a core: what they change, what they refuse, in Redis's words; nothing has changed after a refusal."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random

import pytest

from streamd.cluster.bus import actions
from streamd.cluster.bus.core import ClusterCore
from streamd.cluster.bus.node_lines import format_state
from streamd.cluster.bus.options import Options
from streamd.cluster.bus.packets import Header, PacketType, decode
from streamd.cluster.bus.slots import from_slots, slots_of
from streamd.errors import CommandError

ME, PRIMARY, REPLICA, OTHER = (letter * 40 for letter in (b"a", b"b", b"c", b"d"))
UNKNOWN = b"0" * 40
NOW = 1_800_000_000_000

FILE = f"""\
{ME.decode()} 10.0.0.1:7000@17000,,tls-port=0,shard-id={"1" * 40} myself,master - 0 0 3 connected 0-99
{PRIMARY.decode()} 10.0.0.2:7000@17000,,tls-port=0,shard-id={"2" * 40} master - 0 0 5 connected 100-199
{REPLICA.decode()} 10.0.0.3:7000@17000,,tls-port=0,shard-id={"2" * 40} slave {PRIMARY.decode()} 0 0 5 connected
{OTHER.decode()} 10.0.0.4:7000@17000,,tls-port=0,shard-id={"3" * 40} master - 0 0 0 connected
vars currentEpoch 5 lastVoteEpoch 0
"""

AS_REPLICA = FILE.replace("myself,master - 0 0 3 connected 0-99", f"myself,slave {OTHER.decode()} 0 0 0 connected")


def make(text: str | None = FILE, **settings: object) -> ClusterCore:
    options = Options(port=7000, bus_port=17000, **settings)  # type: ignore[arg-type]
    core = ClusterCore(options, Random(1), NOW, None if text is None else text.encode())
    core.take_actions()
    return core


def taken(core: ClusterCore, *kinds: type[actions.Action]) -> list[actions.Action]:
    core.check_invariants()
    return [each for each in core.take_actions() if isinstance(each, kinds)]


@pytest.mark.parametrize(
    ("text", "use", "error"),
    [
        (FILE, lambda core: core.forget(UNKNOWN), f"ERR Unknown node {'0' * 40}"),
        (FILE, lambda core: core.forget(ME), "ERR I tried hard but I can't forget myself..."),
        (AS_REPLICA, lambda core: core.forget(OTHER), "ERR Can't forget my master!"),
        (FILE, lambda core: core.replicate(UNKNOWN), f"ERR Unknown node {'0' * 40}"),
        (FILE, lambda core: core.replicate(ME), "ERR Can't replicate myself"),
        (FILE, lambda core: core.replicate(REPLICA), "ERR I can only replicate a master, not a replica."),
        (
            FILE,
            lambda core: core.replicate(OTHER),
            "ERR To set a master the node must be empty and without assigned slots.",
        ),
        (FILE, lambda core: core.add_slots([300, 100]), "ERR Slot 100 is already busy"),
        (FILE, lambda core: core.add_slots([300, 301, 300]), "ERR Slot 300 specified multiple times"),
        (FILE, lambda core: core.delete_slots([1, 300]), "ERR Slot 300 is already unassigned"),
        (FILE, lambda core: core.delete_slots([1, 1]), "ERR Slot 1 specified multiple times"),
        (FILE, lambda core: core.set_slot_migrating(100, OTHER), "ERR I'm not the owner of hash slot 100"),
        (FILE, lambda core: core.set_slot_migrating(1, UNKNOWN), f"ERR I don't know about node {'0' * 40}"),
        (FILE, lambda core: core.set_slot_migrating(1, REPLICA), "ERR Target node is not a master"),
        (FILE, lambda core: core.set_slot_importing(1, OTHER), "ERR I'm already the owner of hash slot 1"),
        (FILE, lambda core: core.set_slot_importing(100, UNKNOWN), f"ERR I don't know about node {'0' * 40}"),
        (FILE, lambda core: core.set_slot_node(1, UNKNOWN, 0), f"ERR Unknown node {'0' * 40}"),
        (
            FILE,
            lambda core: core.set_slot_node(1, OTHER, 1),
            "ERR Can't assign hashslot 1 to a different node while I still hold keys for this hash slot.",
        ),
        (AS_REPLICA, lambda core: core.set_slot_stable(1), "ERR Please use SETSLOT only with masters."),
        (FILE, lambda core: core.fail_over(), "ERR You should send CLUSTER FAILOVER to a replica"),
        (
            AS_REPLICA,
            lambda core: core.fail_over(),
            "ERR Master is down or failed, please use CLUSTER FAILOVER FORCE",
        ),
        (
            FILE,
            lambda core: core.set_config_epoch(9),
            "ERR The user can assign a config epoch only when the node does not know any other node.",
        ),
        (FILE, lambda core: core.set_config_epoch(-1), "ERR Invalid config epoch specified: -1"),
        (FILE, lambda core: core.count_failure_reports(UNKNOWN), f"ERR Unknown node {'0' * 40}"),
        (FILE, lambda core: core.describe_replicas(REPLICA), "ERR The specified node is not a master"),
    ],
)
def test_a_refusal_changes_nothing(text: str, use: Callable[[ClusterCore], object], error: str) -> None:
    core = make(text)
    before = format_state(core.state)
    with pytest.raises(CommandError, match=f"^{re.escape(error)}$"):
        use(core)
    assert format_state(core.state) == before
    assert core.take_actions() == []


@pytest.mark.parametrize(
    ("use", "error"),
    [
        (lambda core: core.flush_slots(), "ERR DB must be empty to perform CLUSTER FLUSHSLOTS."),
        (lambda core: core.reset(hard=False), "ERR CLUSTER RESET can't be called with master nodes containing keys"),
    ],
)
def test_some_commands_need_a_server_without_keys(use: Callable[[ClusterCore], object], error: str) -> None:
    core = make()
    core.local.key_count = 1
    with pytest.raises(CommandError, match=f"^{re.escape(error)}$"):
        use(core)
    core.local.key_count = 0
    use(core)
    assert not core.state.myself.slots


def test_a_fresh_node_saves_its_file_at_once() -> None:
    core = ClusterCore(Options(port=7000, bus_port=17000), Random(1), NOW)
    [saved] = taken(core, actions.Save)
    assert isinstance(saved, actions.Save)
    assert saved.must_sync
    assert b" myself,master - 0 0 0 connected\n" in saved.content


def test_slots_are_added_and_saved_with_a_sync() -> None:
    core = make()
    core.add_slots([300, 302])
    [saved] = taken(core, actions.Save)
    assert isinstance(saved, actions.Save)
    assert saved.must_sync
    assert b" 0-99 300 302" in saved.content


def test_slots_need_not_be_on_the_disk_at_once_but_within_a_second() -> None:
    core = make()
    core.local.is_durable = False

    def synced() -> list[bool | type[actions.Sync]]:
        return [
            each.must_sync if isinstance(each, actions.Save) else actions.Sync
            for each in taken(core, actions.Save, actions.Sync)
            if isinstance(each, actions.Save | actions.Sync)
        ]

    core.add_slots([300])
    assert synced() == [False]
    core.tick(NOW + 900)
    assert synced() == []
    core.tick(NOW + 1000)
    assert synced() == [actions.Sync]
    core.tick(NOW + 3000)
    assert synced() == []
    core.set_slot_importing(400, OTHER)  # keys that arrive are deleted at the start without this
    assert synced() == [False]
    core.tick(NOW + 4000)
    assert synced() == [actions.Sync]
    core.local.is_durable = True
    core.set_slot_stable(400)
    assert synced() == [True]
    core.bump_epoch()
    assert synced() == [True]
    core.add_slots([301])
    core.bump_epoch()
    core.take_slots([302])
    assert synced() == [True]


def test_added_slots_are_not_imported_any_more() -> None:
    core = make()
    core.set_slot_importing(300, OTHER)
    core.add_slots([300])
    assert not core.state.importing


def test_deleted_slots_end_subscriptions_of_shard_channels() -> None:
    core = make()
    core.delete_slots([1, 2, 150])
    assert taken(core, actions.SlotsLeft) == [actions.SlotsLeft([1, 2])]


def test_a_slot_that_was_imported_is_taken_with_a_new_epoch() -> None:
    core = make()
    core.set_slot_importing(100, PRIMARY)
    core.set_slot_node(100, ME, 0)
    assert (core.state.myself.config_epoch, core.state.importing) == (6, {})
    assert core.state.owners[100] is core.state.myself
    core.check_invariants()


def make_connected() -> ClusterCore:
    core = make()
    core.tick(NOW + 100)
    for connect in taken(core, actions.Connect):
        assert isinstance(connect, actions.Connect)
        core.link_opened(connect.link, "10.0.0.1", NOW + 100)
    taken(core)
    return core


def pongs(core: ClusterCore) -> list[Header]:
    packets = [decode(send.packet) for send in taken(core, actions.Send) if isinstance(send, actions.Send)]
    return [packet.header for packet in packets if packet.header.type == PacketType.PONG]


def test_an_epoch_that_is_bumped_is_announced_at_once() -> None:
    core = make_connected()
    core.bump_epoch()
    assert [header.config_epoch for header in pongs(core)] == [6] * 3
    core.bump_epoch()
    assert pongs(core) == []


def test_a_packet_with_the_own_id_does_not_change_the_own_epoch() -> None:
    core = make_connected()
    core.bump_epoch()
    own = next(send.packet for send in taken(core, actions.Send) if isinstance(send, actions.Send))
    core.receive(core.link_accepted("10.0.0.9", "10.0.0.1", NOW + 100), own[:31] + b"\x63" + own[32:], NOW + 100)
    assert decode(own[:31] + b"\x63" + own[32:]).header.config_epoch == 0x63
    assert core.state.myself.config_epoch == 6
    core.check_invariants()


def test_slots_that_come_one_by_one_are_announced_together() -> None:
    core = make_connected()

    def bring(*slots: int) -> None:
        for slot in slots:
            core.set_slot_importing(slot, PRIMARY)
            core.set_slot_node(slot, ME, 0)

    def announced() -> list[list[int]]:
        """The slots from 100 on that each new PONG claims."""
        bitmaps = [header.slot_bytes for header in pongs(core)]
        return [[slot for slot in slots_of(int.from_bytes(each, "little")) if slot >= 100] for each in bitmaps]

    assert announced() == []
    bring(100)
    assert announced() == [[100]] * 3  # the first one at once, to each of the others
    bring(101, 102)
    assert taken(core, actions.Send, actions.AnnounceLater) == [actions.AnnounceLater(20)]
    core.announce(NOW + 120)
    assert announced() == [[100, 101, 102]] * 3
    core.announce(NOW + 240)
    assert announced() == []
    bring(103)
    assert announced() == [[100, 101, 102, 103]] * 3


def test_keys_stay_when_the_target_claims_a_slot_that_is_being_moved() -> None:
    core = make()
    core.local.count_keys = lambda slot: slot
    core.set_slot_migrating(0, PRIMARY)
    core.set_slot_migrating(1, PRIMARY)
    core.set_slot_migrating(2, OTHER)
    taken(core)
    core.claims.update_slots(core.state.nodes[PRIMARY], 6, from_slots([0, 1, 2, 3, *range(100, 200)]))
    assert [*core.state.migrating] == [0, 2]
    assert [*core.state.importing] == [1]


def test_keys_of_lost_slots_stay_for_a_minute_unless_the_slot_is_imported() -> None:
    core = make()
    core.claims.update_slots(core.state.nodes[PRIMARY], 6, from_slots([1, 2, 3, *range(100, 200)]))
    core.set_slot_importing(2, PRIMARY)
    core.tick(NOW + 59_000)
    assert taken(core, actions.DeleteKeys) == []
    core.tick(NOW + 61_000)
    assert taken(core, actions.DeleteKeys) == [actions.DeleteKeys([1, 3])]
    core.tick(NOW + 130_000)
    assert taken(core, actions.DeleteKeys) == []


def test_a_slot_with_keys_remains_migrating_until_they_are_gone() -> None:
    core = make()
    core.set_slot_migrating(1, OTHER)
    core.set_slot_node(1, ME, 5)
    assert 1 in core.state.migrating
    core.set_slot_node(1, OTHER, 0)
    assert 1 not in core.state.migrating
    assert taken(core, actions.SlotsLeft) == [actions.SlotsLeft([1])]


def test_a_primary_that_gives_its_last_slot_away_follows() -> None:
    core = make(FILE.replace("connected 0-99", "connected 1"))
    core.set_slot_node(1, OTHER, 0)
    assert taken(core, actions.Follow) == [actions.Follow(OTHER, "10.0.0.4", 7000, 0)]
    assert core.state.myself.primary is core.state.nodes[OTHER]


def test_it_does_not_if_replicas_must_not_move() -> None:
    core = make(FILE.replace("connected 0-99", "connected 1"), allow_replica_migration=False)
    core.set_slot_node(1, OTHER, 0)
    assert core.state.myself.is_primary


def test_epochs_are_bumped_unless_they_are_the_greatest() -> None:
    core = make()
    assert core.bump_epoch() == "BUMPED 6"
    assert core.bump_epoch() == "STILL 6"


def test_a_config_epoch_is_set_once() -> None:
    core = make(None)
    core.set_config_epoch(9)
    assert core.state.current_epoch == 9
    with pytest.raises(CommandError, match="ERR Node config epoch is already non-zero"):
        core.set_config_epoch(10)


def test_a_soft_reset_keeps_id_and_epochs_a_hard_one_nothing() -> None:
    core = make()
    core.reset(hard=False)
    assert [*core.state.nodes] == [ME]
    assert (core.state.current_epoch, core.state.assigned) == (5, 0)
    core.reset(hard=True)
    assert core.state.myself.id != ME
    assert (core.state.current_epoch, core.state.myself.config_epoch) == (0, 0)
    core.check_invariants()


def test_a_replica_that_is_reset_drops_its_data() -> None:
    core = make(AS_REPLICA)
    core.reset(hard=False)
    assert core.state.myself.is_primary
    kinds = [type(each) for each in core.take_actions()]
    assert kinds.index(actions.Promote) < kinds.index(actions.DropData)


def test_a_takeover_asks_nobody() -> None:
    core = make(AS_REPLICA.replace(f"slave {OTHER.decode()}", f"slave {PRIMARY.decode()}"))
    core.fail_over("takeover")
    assert slots_of(core.state.myself.slots) == [*range(100, 200)]
    assert core.state.myself.config_epoch == 6
    assert taken(core, actions.Promote) == [actions.Promote()]


def test_a_forgotten_node_may_come_back_after_a_minute() -> None:
    core = make()
    core.forget(OTHER)
    core.forget(OTHER)
    assert core.gossiping.is_forgotten(OTHER)
    core.tick(NOW + 60_001)
    assert not core.gossiping.is_forgotten(OTHER)


def test_loaded_keys_claim_slots_that_nobody_owns() -> None:
    core = make()
    core.set_slot_importing(101, PRIMARY)
    core.claim_loaded_slots([5, 100, 101, 300])
    assert core.state.owners[300] is core.state.myself
    assert taken(core, actions.DeleteKeys) == [actions.DeleteKeys([100])]


def test_keys_that_were_left_behind_open_their_slot_at_the_start() -> None:
    core = make()
    core.local.count_keys = {7: 2}.get  # type: ignore[assignment]
    for slot in (7, 8):
        core.state.migrating[slot] = core.state.owners[100]
        core.state.assign(1 << slot, core.state.owners[100])
    core.claim_loaded_slots([7])
    assert [*core.state.importing] == [7]
    assert [*core.state.migrating] == [8]
    assert not taken(core, actions.DeleteKeys)


def test_a_replica_follows_from_the_start() -> None:
    options = Options(port=7000, bus_port=17000)
    core = ClusterCore(options, Random(1), NOW, AS_REPLICA.encode())
    assert taken(core, actions.Follow) == [actions.Follow(OTHER, "10.0.0.4", 7000, 0)]


def test_a_clock_that_goes_back_does_not_stop_the_node() -> None:
    core = make()
    core.tick(NOW + 1000)
    core.tick(NOW - 3_600_000)
    before = core.state.now_ms
    core.tick(NOW - 3_600_000 + 700)
    assert core.state.now_ms == before + 700
