"""Stock Sentinels with streamd nodes: what they learn from INFO, whom they choose, passwords, and clients that follow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.exceptions import ReadOnlyError
from redis.retry import Retry
from redis.sentinel import Sentinel
from support.failover.rounds import LOSS_FREE, SERVICE, Cluster, Member
from support.replicas.nodes import Node, wait_until
from support.servers import target_is_redis
from support.wire import Wire

pytestmark = [pytest.mark.long, pytest.mark.real, pytest.mark.timeout(300)]

NewCluster = Callable[..., Cluster]
STREAMD = ["streamd"] * 3


@pytest.fixture
def new_cluster(tmp_path: Path) -> Iterator[NewCluster]:
    """Start data nodes and one Sentinel that decides alone, so that fail-overs begin at once."""
    started: list[Cluster] = []

    def start(kinds: Sequence[str] = STREAMD, **options: Any) -> Cluster:
        # Nothing here waits for a Sentinel to notice a death: it must not take a busy node for dead, nor give up too early.
        patience = {"down_after_ms": 30_000, "failover_timeout_ms": 20_000}
        started.append(Cluster(tmp_path, kinds, **{"sentinels": 1, **patience, **options}))
        return started[-1]

    yield start
    for cluster in started:
        cluster.close()


def order_failover(cluster: Cluster) -> Member:
    """SENTINEL FAILOVER; return the new primary as soon as the old one follows it."""
    old = cluster.primary()
    ask_until_ordered(cluster)
    cluster.wait_until_primary_is_not(old)
    cluster.wait_until_in_sync()  # of one primary; Sentinel has closed the connections to all of them
    return cluster.primary()


def ask_until_ordered(cluster: Cluster) -> None:
    """SENTINEL FAILOVER, again while another one is still under way."""

    def is_ordered() -> bool:
        with cluster.sentinels[0].connect() as wire:
            reply = wire.call("SENTINEL", "FAILOVER", SERVICE)
        assert reply.value == b"OK" or reply.value.startswith((b"INPROG", b"NOGOODSLAVE")), reply
        return bool(reply.value == b"OK")

    wait_until(is_ordered, "the Sentinel begins a fail-over")


def listed(cluster: Cluster) -> dict[int, dict[str, str]]:
    """SENTINEL REPLICAS, by port."""
    found = {}
    for flat in cluster.sentinels[0].ask("REPLICAS", SERVICE):
        words = [word.decode() for word in flat]
        fields = dict(zip(words[::2], words[1::2], strict=True))
        found[int(fields["port"])] = fields
    return found


# --- What Sentinels learn -------------------------------------------------------------------------------------------------


def test_sentinels_read_info_of_the_primary_and_its_replicas(new_cluster: NewCluster) -> None:
    cluster = new_cluster()
    primary, *replicas = cluster.members
    wait_until(lambda: cluster.sentinels[0].fields()[b"runid"], "the Sentinel has read INFO")
    wait_until(lambda: all(int(each["slave-repl-offset"]) for each in listed(cluster).values()), "the same of replicas")
    fields = {name.decode(): value.decode() for name, value in cluster.sentinels[0].fields().items()}
    assert fields["runid"] == primary.node.info("server")["run_id"]
    assert (fields["role-reported"], fields["flags"], fields["num-slaves"]) == ("master", "master", "2")
    found = listed(cluster)
    assert found.keys() == {replica.gate for replica in replicas}
    for replica in replicas:
        seen = found[replica.gate]
        assert seen["runid"] == replica.node.info("server")["run_id"]
        assert (seen["ip"], seen["master-host"], seen["master-port"]) == ("127.0.0.1", "127.0.0.1", str(primary.gate))
        assert (seen["role-reported"], seen["flags"], seen["master-link-status"]) == ("slave", "slave", "ok")
        assert (seen["slave-priority"], seen["replica-announced"]) == ("100", "1")
        assert 0 < int(seen["slave-repl-offset"]) <= replica.node.offset


def test_a_replica_that_is_not_announced_is_not_shown_to_clients(new_cluster: NewCluster) -> None:
    cluster = new_cluster(own={2: {"replica-announced": "no"}})
    hidden, shown = cluster.members[2].gate, cluster.members[1].gate
    wait_until(lambda: hidden not in listed(cluster), "the replica disappears")
    assert shown in listed(cluster)
    sentinel = Sentinel(cluster.addresses(), socket_timeout=30)
    assert sentinel.discover_slaves(SERVICE) == [("127.0.0.1", shown)]


# --- Whom they choose -------------------------------------------------------------------------------------------------------


def test_the_lowest_priority_is_promoted_and_0_never(new_cluster: NewCluster) -> None:
    cluster = new_cluster(["streamd"] * 4, own={2: {"replica-priority": "0"}, 3: {"replica-priority": "10"}})
    assert order_failover(cluster) is cluster.members[3]


# --- Clients ----------------------------------------------------------------------------------------------------------------


def test_clients_follow_the_primary_and_read_from_replicas(new_cluster: NewCluster) -> None:
    cluster = new_cluster()
    first = cluster.primary()
    sentinel = Sentinel(cluster.addresses(), socket_timeout=30)
    with sentinel.master_for(SERVICE) as master, sentinel.slave_for(SERVICE, retry=Retry(NoBackoff(), 0)) as replica:
        master.xadd("s", {"n": 1}, id="1-1")
        assert master.wait(2, 30_000) == 2
        assert replica.xrange("s") == [(b"1-1", {b"n": b"1"})]
        with pytest.raises(ReadOnlyError, match="can't write against a read only replica"):
            replica.xadd("s", {"n": 2})

        second = order_failover(cluster)
        assert sentinel.discover_master(SERVICE) == ("127.0.0.1", second.gate)
        assert second is not first
        master.xadd("s", {"n": 3}, id="3-1")  # over a new connection: the old primary has closed the first
        assert master.wait(2, 30_000) == 2
        assert [member.node.must("XLEN", "s").value for member in cluster.members] == [2, 2, 2]
        assert len(replica.xrange("s")) == 2
        assert master.role()[0] == b"master"
        assert replica.role()[0] == b"slave"


# --- Passwords --------------------------------------------------------------------------------------------------------------


def order_all(cluster: Cluster, *commands: tuple[str, ...]) -> None:
    for member in cluster.members:
        for command in commands:
            assert member.node.must(*command).value == b"OK"


def set_for_sentinel(cluster: Cluster, *pairs: str) -> None:
    for name, value in zip(pairs[::2], pairs[1::2], strict=True):
        cluster.sentinels[0].ask("SET", SERVICE, name, value)


def log_in_again(cluster: Cluster) -> None:
    """Close all connections, also those between the nodes, so that everybody has to log in."""
    for member in cluster.members:
        member.node.hang_up()
        for kind in ("normal", "pubsub", "replica", "master"):
            assert not member.node.call("CLIENT", "KILL", "TYPE", kind).is_error


def assert_failover_works(cluster: Cluster, **login: str) -> None:
    cluster.wait_until_in_sync()
    cluster.wait_until_known()
    first = cluster.primary()
    assert order_failover(cluster) is not first
    with Sentinel(cluster.addresses(), socket_timeout=30).master_for(SERVICE, **login) as master:
        master.xadd("s", {"n": 1}, id="1-1")
        assert master.wait(2, 30_000) == 2
    assert [member.node.must("XLEN", "s").value for member in cluster.members] == [1, 1, 1]


def test_everything_works_behind_a_password(new_cluster: NewCluster) -> None:
    cluster = new_cluster()
    order_all(cluster, ("CONFIG", "SET", "masterauth", "secret"), ("CONFIG", "SET", "requirepass", "secret"))
    set_for_sentinel(cluster, "auth-pass", "secret")
    for member in cluster.members:
        member.node.credentials = ("secret",)
    log_in_again(cluster)
    with Wire(cluster.members[0].node.port) as wire:
        assert wire.call("XLEN", "s").value.startswith(b"NOAUTH")
    assert_failover_works(cluster, password="secret")


def test_replicas_and_sentinels_have_users_of_their_own(new_cluster: NewCluster) -> None:
    cluster = new_cluster()
    order_all(
        cluster,
        ("ACL", "SETUSER", "copy", "on", ">one", "+psync", "+replconf", "+ping"),
        ("ACL", "SETUSER", "watch", "on", ">two", "allchannels", "+multi", "+slaveof", "+ping", "+exec", "+subscribe",
         "+config|rewrite", "+role", "+publish", "+info", "+client|setname", "+client|kill", "+script|kill"),
        ("CONFIG", "SET", "masteruser", "copy"),
        ("CONFIG", "SET", "masterauth", "one"),
        ("CONFIG", "SET", "requirepass", "three"),
    )  # fmt: skip
    set_for_sentinel(cluster, "auth-user", "watch", "auth-pass", "two")
    for member in cluster.members:
        member.node.credentials = ("default", "three")
    log_in_again(cluster)
    assert_failover_works(cluster, password="three")


def test_a_wrong_password_keeps_the_replica_out(new_cluster: NewCluster) -> None:
    cluster = new_cluster(["streamd", "streamd"], sentinels=0)
    primary, replica = (member.node for member in cluster.members)
    assert replica.must("CONFIG", "SET", "masterauth", "wrong").value == b"OK"
    assert primary.must("CONFIG", "SET", "requirepass", "right").value == b"OK"
    primary.must("CLIENT", "KILL", "TYPE", "replica")
    wait_until(lambda: "WRONGPASS" in replica.log(), "the replica says why")
    assert not replica.has_link()
    assert replica.must("CONFIG", "SET", "masterauth", "right").value == b"OK"
    wait_until(replica.has_link, "the link")


# --- Promotion --------------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(target_is_redis(), reason="min-replicas-durable is streamd's")
def test_a_promoted_node_answers_sentinel_before_anybody_follows_it(new_node: Callable[..., Node]) -> None:
    primary = new_node("streamd")
    replica = new_node("streamd", appendonly="yes", min_replicas_durable="1")
    primary.must("XADD", "s", "1-1", "f", "v")
    replica.follow(primary)
    wait_until(replica.has_link, "the link")
    for words in (["MULTI"], ["SLAVEOF", "NO", "ONE"], ["CLIENT", "KILL", "TYPE", "normal"]):
        replica.must(*words)
    assert [reply.value for reply in replica.must("EXEC").value] == [b"OK", 0]
    assert replica.info()["role"] == "master"
    refusal = replica.call("XADD", "s", "2-1", "f", "v")
    assert refusal.value.startswith(b"NOREPLICAS")


def test_the_service_is_found_with_every_sentinel_but_one_gone(new_cluster: NewCluster) -> None:
    cluster = new_cluster(["streamd", "streamd"], sentinels=3)
    for sentinel in cluster.sentinels[:2]:
        sentinel.kill()
    with Sentinel(cluster.addresses(), socket_timeout=30, retry=Retry(NoBackoff(), 0)).master_for(SERVICE) as master:
        assert isinstance(master, redis.Redis)
        assert master.ping()


@pytest.mark.skipif(target_is_redis(), reason="min-replicas-durable is streamd's")
def test_sentinels_that_come_back_as_others_do_not_count_twice(new_cluster: NewCluster) -> None:
    cluster = new_cluster(sentinels=3, mode=LOSS_FREE)
    primary = cluster.primary().node

    def is_served() -> bool:
        return primary.info()["durable_sentinels_heard"] == "1" and not primary.call("GET", "k").is_error

    for number in range(3):
        cluster.replace_sentinel(number)
        wait_until(is_served, f"service after {number + 1} of the Sentinels were replaced")
    for number in range(3):
        cluster.sentinels[number].kill()
    wait_until(lambda: primary.info()["durable_sentinels_heard"] == "0", "the silence of the new ones")
