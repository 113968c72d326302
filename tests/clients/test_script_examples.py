"""The examples run as they stand: scripts, and a stream in parts."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import redis
from support.servers import Server

from streamd.embedded import EmbeddedCluster

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def example(request: pytest.FixtureRequest) -> Iterator[ModuleType]:
    """The example whose name is the parameter, as a module."""
    spec = importlib.util.spec_from_file_location(request.param, EXAMPLES / f"{request.param}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[request.param] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules[request.param]


@pytest.fixture
def client(streamd_server: Server) -> Iterator[redis.Redis]:
    with redis.Redis(port=streamd_server.port) as client:
        client.flushall()
        yield client


@pytest.mark.parametrize("example", ["rate_limiter"], indirect=True)
def test_the_rate_limiter_lets_a_burst_through_and_then_a_steady_stream(
    client: redis.Redis, example: ModuleType
) -> None:
    found = example.run(client)
    # On a slow machine tokens arrive while the burst is sent.
    assert 10 <= found.at_once <= found.at_once + found.refused == 50
    assert found.refused > 0
    # Nor does the last one wait, where one has arrived just before it; and the bucket goes when it is full.
    assert 0 <= found.wait_s <= 0.2
    assert found.after_wait == 1
    assert client.pttl("bucket:alice") != -1


@pytest.mark.parametrize("example", ["delayed_queue"], indirect=True)
def test_the_delayed_queue_hands_jobs_out_when_they_are_due(client: redis.Redis, example: ModuleType) -> None:
    # With so much in between that a pause while they are added does not change their order.
    found = example.run(client, delays_s=(6.0, 2.0, 4.0, 0.0))
    assert found.order == [f"due after {delay}" for delay in (0.0, 2.0, 4.0, 6.0)]
    # Of two clocks, which are not set to each other.
    assert all(late_s > -0.01 for late_s in found.late_s)
    assert sorted(client.keys()) == [b"{queue}:moved", b"{queue}:ready"]
    assert client.xlen("{queue}:ready") == 0
    assert client.xpending("{queue}:ready", "workers")["pending"] == 0


@pytest.mark.parametrize("example", ["partitions"], indirect=True)
def test_orders_in_parts_are_handled_in_order_while_workers_join_and_leave(
    streamd_cluster: EmbeddedCluster, example: ModuleType
) -> None:
    found = example.run(streamd_cluster.client(decode_responses=True))
    assert sorted(found.by_node.values()) == [4, 4, 4]
    assert {name: sorted(numbers) for name, numbers in found.by_customer.items()} == found.by_customer
    assert sorted(number for numbers in found.by_customer.values() for number in numbers) == list(range(600))
    assert sum(found.by_worker.values()) == 600


@pytest.mark.parametrize("example", ["rate_limiter", "delayed_queue", "partitions"], indirect=True)
def test_an_example_starts_a_server_of_its_own(
    example: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["example"])
    example.main()
    assert capsys.readouterr().out.count("\n") >= 2
