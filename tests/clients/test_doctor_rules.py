"""`streamd doctor` on the rules of streams and groups: each fault is made, is found, and goes when what is said is done."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import redis
from support.pages.illnesses import HEALTHY, LOW, client_of, examine, fix, kinds, make_poison, the
from support.servers import Server, eventually

from streamd.delivery.rules import key_of_rules
from streamd.protocol.inline import split_line
from streamd.watching.case import Thresholds

pytestmark = pytest.mark.long

StartServer = Callable[..., Server]


@pytest.fixture
def server(new_streamd: StartServer) -> Server:
    return new_streamd(**HEALTHY)


@pytest.fixture
def client(server: Server) -> Iterator[redis.Redis]:
    with client_of(server) as made:
        yield made


def set_rule(client: redis.Redis, text: str) -> None:
    client.execute_command(*text.split())


def deliver(client: redis.Redis, entry_id: str = "*") -> str:
    client.xgroup_create("orders", "billing", "$", mkstream=True)
    delivered: bytes = client.xadd("orders", {"a": 1}, id=entry_id)
    client.xreadgroup("billing", "alice", {"orders": ">"})
    return delivered.decode()


def failing(server: Server) -> list[str]:
    return [each.subject for each in examine(server).findings if each.kind == "rule-fails"]


def test_a_group_whose_entries_go_round_gets_a_limit(server: Server, client: redis.Redis) -> None:
    make_poison(client)
    finding = the("poison-entry", examine(server))
    assert "no limit of deliveries" in finding.why
    assert finding.fix[0] == "STREAMD.GROUP SET orders billing MAXDELIVERIES 5 DEADLETTER {orders}:dead"
    fix(server, finding)
    make = Thresholds(deliveries=0)
    finding = the("poison-entry", examine(server, make))
    assert "no limit" not in finding.why
    assert not finding.values["has_no_limit"]


def test_rules_that_do_not_parse(server: Server, client: redis.Redis) -> None:
    client.xadd("or[d]ers", {"a": 1})
    key = key_of_rules(b"or[d]ers")
    client.set(key, "GROUP billing NOSUCH 5")
    finding = the("rules-do-not-parse", examine(server))
    assert "unknown option 'NOSUCH'" in finding.figure
    with server.connect() as wire:
        assert wire.call(*split_line(finding.fix[0].encode())).plain()[1] == [key]
    client.delete(key)
    assert "rules-do-not-parse" not in kinds(examine(server))


def test_targets_that_cannot_be_written(server: Server, client: redis.Redis) -> None:
    set_rule(client, "STREAMD.GROUP SET orders billing MAXDELIVERIES 1 DEADLETTER dead")
    entry_id = deliver(client)
    client.set("dead", "no stream")
    client.set("jobs", "no stream")
    client.execute_command("XNACK", "orders", "billing", "FATAL", "IDS", 1, entry_id)
    finding = the("rule-fails", examine(server))
    assert (finding.severity, finding.values["not_moved"], finding.values["target"]) == ("critical", 1, "dead")
    fix(server, finding)
    client.delete("dead")
    set_rule(client, "STREAMD.STREAM SET later FEEDS jobs DUE due")
    client.xadd("later", {"due": 0})
    eventually(lambda: failing(server) == ["stream later"])
    client.delete("jobs")
    eventually(lambda: failing(server) == [])


def test_dead_letters_that_nobody_reads(server: Server, client: redis.Redis) -> None:
    set_rule(client, "STREAMD.GROUP SET orders billing MAXDELIVERIES 1 DEADLETTER dead")
    entry_id = deliver(client)
    assert "dead-letters-unread" not in kinds(examine(server))
    client.execute_command("XNACK", "orders", "billing", "FATAL", "IDS", 1, entry_id)
    finding = the("dead-letters-unread", examine(server))
    assert (finding.severity, finding.subject) == ("warning", "stream dead")
    assert finding.fix[-1].endswith("STREAMD.REDRIVE orders billing dead")
    fix(server, finding)
    assert "dead-letters-unread" not in kinds(examine(server))


def test_a_group_that_holds_retention(server: Server, client: redis.Redis) -> None:
    set_rule(client, "STREAMD.STREAM SET orders RETAIN LENGTH 10 ACKED")
    now_ms = 1000 * client.time()[0]
    deliver(client, f"{now_ms - 7_200_000}-0")
    client.xgroup_create("orders", "audit", "$")
    finding = the("retention-held", examine(server, LOW))
    assert finding.subject == "stream orders, group billing"
    said = finding.fix[-1].partition(": ")[2]
    assert said.startswith("STREAMD.STREAM SET orders RETAIN LENGTH 10 ACKED ATMOST 720")
    set_rule(client, said)
    assert "retention-held" not in kinds(examine(server, LOW))
    assert "retention-held" not in kinds(examine(server))


def test_a_group_that_is_ordered_by_key_gets_a_limit(server: Server, client: redis.Redis) -> None:
    deliver(client)
    set_rule(client, "STREAMD.GROUP SET orders billing KEYED account")
    finding = the("keyed-without-limit", examine(server))
    assert finding.subject == "stream orders, group billing"
    fix(server, finding)
    assert "keyed-without-limit" not in kinds(examine(server))
