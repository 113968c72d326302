"""Hashes whose fields expire, replicated: streamd and Redis in both roles. Marked `real`."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from support.replicas.nodes import Node, assert_same_state, hash_state, wait_in_sync, wait_until

pytestmark = pytest.mark.real

FAR = 70_000_000_000_000
PAIRS = [("streamd", "redis"), ("redis", "streamd"), ("streamd", "streamd")]


def fill(node: Node, chance: random.Random) -> None:
    """Hashes of all encodings, with and without expiries; some fields expire soon."""
    for size in (1, 10, 600):
        names = [f"f{i}" for i in range(size)]
        node.must("HSET", f"plain{size}", *(word for name in names for word in (name, str(chance.randint(-9, 10**12)))))
        node.must("HSET", f"timed{size}", *(word for name in names for word in (name, "v" * chance.randint(0, 60))))
        node.must("HPEXPIREAT", f"timed{size}", str(FAR + size), "FIELDS", str(size), *names)
        node.must("HSET", f"soon{size}", *(word for name in names for word in (name, "v")), "kept", "v")
        node.must("HPEXPIRE", f"soon{size}", str(chance.randint(200, 1500)), "FIELDS", str(size), *names)


def change(node: Node, chance: random.Random) -> None:
    """Random requests on those hashes."""
    for _ in range(150):
        key = chance.choice(["plain", "timed", "soon"]) + chance.choice(["1", "10", "600"])
        names = [f"f{chance.randint(0, 20)}" for _ in range(chance.randint(1, 4))]
        counted = ["FIELDS", str(len(names)), *names]
        pairs = [word for name in names for word in (name, str(chance.randint(0, 99)))]
        node.call(*chance.choice([
            ["HSET", key, *pairs], ["HDEL", key, *names], ["HINCRBY", key, names[0], "7"],
            ["HINCRBYFLOAT", key, names[0], "0.1"], ["HSETNX", key, *pairs[:2]],
            ["HPEXPIRE", key, str(chance.choice([0, 30, 100_000])), *counted], ["HPERSIST", key, *counted],
            ["HGETEX", key, *chance.choice([["PX", "100000"], ["PERSIST"], ["PX", "0"]]), *counted],
            ["HGETDEL", key, *counted], ["HGET", key, names[0]], ["HRANDFIELD", key, "3"],
            ["HSETEX", key, *chance.choice([["PX", "40"], ["KEEPTTL"], ["EXAT", "1"]]), "FIELDS", str(len(names)), *pairs],
        ]))  # fmt: skip


@pytest.mark.parametrize(("primary_kind", "replica_kind"), PAIRS)
def test_replicas_have_the_same_fields(new_node: Callable[..., Node], primary_kind: str, replica_kind: str) -> None:
    chance = random.Random(primary_kind + replica_kind)
    primary, replica = new_node(primary_kind), new_node(replica_kind)
    fill(primary, chance)
    change(primary, chance)
    replica.follow(primary)
    wait_in_sync(primary, replica)
    change(primary, chance)
    assert_same_state(primary, replica)
    for size in (1, 10, 600):  # what is left when all that expires soon has expired
        wait_until(
            lambda size=size: primary.call("HPTTL", f"soon{size}", "FIELDS", "1", "f19").value[0].value < 2000, "time"
        )
    change(primary, chance)
    assert_same_state(primary, replica)


@pytest.mark.parametrize(("primary_kind", "replica_kind"), PAIRS[:2])
def test_a_replica_hides_expired_fields_until_its_primary_removes_them(
    new_node: Callable[..., Node], primary_kind: str, replica_kind: str
) -> None:
    primary, replica = new_node(primary_kind), new_node(replica_kind)
    replica.follow(primary)
    primary.must("DEBUG", "SET-ACTIVE-EXPIRE", "0")
    primary.must("HSET", "h", "a", "1", "b", "2")
    primary.must("HPEXPIRE", "h", "30", "FIELDS", "1", "a")
    wait_in_sync(primary, replica)
    wait_until(lambda: replica.call("HGET", "h", "a").value is None, "the field hidden")
    assert replica.call("HLEN", "h").value == 2
    assert [part.value for part in replica.call("HPTTL", "h", "FIELDS", "2", "a", "b").value] == [-2, -1]
    assert replica.call("HGETALL", "h").plain() == [b"b", b"2"]
    assert {part.value for part in replica.call("HKEYS", "h").value} == {b"b"}
    assert [part.value for part in replica.call("HSCAN", "h", "0").value[1].value] == [b"b", b"2"]
    if replica_kind == "streamd":
        assert {part.value for part in replica.call("HRANDFIELD", "h", "-20").value} == {b"b"}
    assert primary.call("HGET", "h", "a").value is None
    wait_in_sync(primary, replica)
    wait_until(lambda: replica.call("HLEN", "h").value == 1, "the field removed")


@pytest.mark.parametrize("kind", ["streamd", "redis"])
def test_a_promoted_replica_removes_expired_fields(new_node: Callable[..., Node], kind: str) -> None:
    primary, replica = new_node(kind), new_node("streamd")
    replica.follow(primary)
    primary.must("DEBUG", "SET-ACTIVE-EXPIRE", "0")
    primary.must("HSET", "h", "a", "1", "b", "2")
    primary.must("HPEXPIRE", "h", "1", "FIELDS", "1", "a")
    wait_in_sync(primary, replica)
    replica.follow(None)
    wait_until(lambda: replica.call("HLEN", "h").value == 1, "the field removed")
    with replica.connect() as wire:
        assert hash_state(wire, b"h") == {b"b": (b"2", -1)}
