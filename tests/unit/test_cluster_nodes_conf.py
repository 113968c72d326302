"""nodes.conf: written as Redis does, read back, and damaged."""

from __future__ import annotations

from contextlib import suppress
from random import Random

import pytest

from streamd.cluster.bus.node_lines import describe_node, format_state
from streamd.cluster.bus.nodes import Flag, State
from streamd.cluster.bus.nodes_conf import NodesFileError, parse_state
from streamd.cluster.bus.options import Local, Options
from streamd.cluster.bus.slots import from_ranges, from_slots

A, B, C = (letter * 40 for letter in "abc")
S, T = ("5" * 40, "6" * 40)

FILE = f"""\
{B} 127.0.0.1:7001@17001,host.example,tls-port=0,nodename=second,shard-id={T} master,fail? - 1 1800000000000 5 disconnected 101-16000
{A} 127.0.0.1:7000@17000,,tls-port=0,shard-id={S} myself,master - 0 0 3 connected 0-99 16383 [5->-{B}] [101-<-{B}]
{C} :0@0,,tls-port=0,shard-id={T} slave,noaddr,nofailover {B} 0 1800000000000 5 disconnected
vars currentEpoch 7 lastVoteEpoch 6
"""


def parse(text: str, *, is_tls: bool = False) -> State:
    options = Options(port=7000, bus_port=17000, is_tls=is_tls)
    return parse_state(text.encode(), options, Local(), Random(1), 1_800_000_000_000)


def test_a_file_is_read() -> None:
    state = parse(FILE)
    state.check_invariants()
    a, b, c = (state.nodes[each.encode()] for each in (A, B, C))
    assert state.myself is a
    assert (state.current_epoch, state.last_vote_epoch) == (7, 6)
    assert a.slots == from_ranges([(0, 99), (16383, 16383)])
    assert (b.slots, b.config_epoch, b.hostname, b.human_name) == (
        from_ranges([(101, 16000)]),
        5,
        "host.example",
        "second",
    )
    assert c.primary is b
    assert c.flags & (Flag.NOADDR | Flag.NOFAILOVER) == Flag.NOADDR | Flag.NOFAILOVER
    assert state.migrating == {5: b}
    assert state.importing == {101: b}
    assert not state.must_save


def test_what_was_read_is_written_again() -> None:
    written = format_state(parse(FILE)).decode()
    times = written.replace("fail? - 1800000000000 ", "fail? - 1 ")
    assert sorted(times.splitlines()) == sorted(FILE.splitlines())


def test_cluster_nodes_shows_the_same_with_a_shorter_address() -> None:
    state = parse(FILE)
    assert describe_node(state, state.nodes[B.encode()]).split()[1] == "127.0.0.1:7001@17001,host.example"
    assert describe_node(state, state.myself).split()[1] == "127.0.0.1:7000@17000"


def test_with_tls_the_other_port_is_that_without() -> None:
    state = parse(
        FILE.replace("7001@17001,host.example,tls-port=0", "7001@17001,host.example,tcp-port=6001"), is_tls=True
    )
    node = state.nodes[B.encode()]
    assert (node.port, node.tls_port) == (6001, 7001)
    assert b"127.0.0.1:7001@17001,host.example,tcp-port=6001," in format_state(state)


def test_old_files_have_neither_bus_port_nor_shard() -> None:
    state = parse(f"{A} 127.0.0.1:7000 myself,master - 0 0 0 connected\n{B} ::1:7001 slave {A} 0 0 0 connected\n\n")
    node = state.nodes[B.encode()]
    assert (node.ip, node.port, node.bus_port) == ("::1", 7001, 17001)
    assert node.shard_id == state.myself.shard_id


def test_the_current_epoch_is_not_below_a_config_epoch() -> None:
    assert parse(FILE.replace("currentEpoch 7", "currentEpoch 1")).current_epoch == 5


def test_unknown_variables_are_ignored() -> None:
    assert parse(FILE.replace("vars ", "vars future 1 ")).current_epoch == 7


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (A, A[:39]),
        (A, A.upper()),
        (f" connected 0-99 16383 [5->-{B}] [101-<-{B}]", ""),
        ("0-99", "9-0"),
        ("0-99", "0-16384"),
        ("0-99", "0-x"),
        ("0-99", "-1"),
        ("0-99", "50-150"),
        ("[5->-", "[5-"),
        (f"[5->-{B}]", f"[5->-{B}"),
        (f"[5->-{B}]", "[5->-x]"),
        ("nofailover", "other"),
        ("slave,noaddr", "slave,master"),
        (" 3 connected", " -3 connected"),
        (" 3 connected", " x connected"),
        ("127.0.0.1:7000@17000", "127.0.0.1"),
        ("7000@17000", "70000@17000"),
        ("7000@17000", "7000@x"),
        ("host.example", "host_example"),
        ("nodename=second", "nodename=a!"),
        ("nodename=second", "color=red"),
        (f"shard-id={S}", "shard-id=1"),
        ("myself,", ""),
        ("fail?", "fail?,myself"),
        ("currentEpoch 7", "currentEpoch"),
        ("currentEpoch 7", "currentEpoch x"),
        (f"{C} ", f"{A} "),
        (f"nofailover {B}", f"nofailover {'d' * 40}"),
        (f"nofailover {B}", f"nofailover {C}"),
    ],
)
def test_a_damaged_file_names_the_line(old: str, new: str) -> None:
    damaged = FILE.replace(old, new, 1) if old != A else FILE.replace(f"{A} 127", f"{new} 127")
    assert damaged != FILE
    with pytest.raises(NodesFileError, match=r'corrupted cluster config file ".+"') as caught:
        parse(damaged)
    assert caught.value.line in damaged.splitlines()


@pytest.mark.parametrize("size", [*range(0, 500, 7)])
def test_a_file_that_was_cut_off_is_refused_or_sound(size: int) -> None:
    with suppress(NodesFileError):
        parse(FILE[: len(FILE) - size]).check_invariants()


def test_noise_is_refused_or_sound() -> None:
    chance = Random(1)
    for _ in range(500):
        damaged = bytearray(FILE.encode())
        for _ in range(chance.randrange(1, 4)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        options = Options(port=7000, bus_port=17000)
        try:
            state = parse_state(bytes(damaged), options, Local(), Random(1), 0)
        except NodesFileError:
            continue
        state.check_invariants()


def test_every_set_of_slots_survives() -> None:
    state = parse(FILE)
    chance = Random(2)
    for _ in range(20):
        state.unassign(state.assigned)
        state.assign(from_slots(chance.sample(range(16384), 500)), state.myself)
        assert parse(format_state(state).decode()).myself.slots == state.myself.slots
