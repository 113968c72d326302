"""What a stream costs that replicas do not read, on streamd and on a real Redis. Marked `real`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import pytest
from support.memory import MB, resident
from support.replicas.nodes import Node, wait_until
from support.replicas.raw_replica import RawReplica

pytestmark = [pytest.mark.long, pytest.mark.real]

REPLICAS = 50
WRITTEN = 60 * MB


@pytest.mark.parametrize("kind", ["streamd", "redis"])
def test_what_replicas_do_not_read_is_kept_once_and_given_back(kind: str, new_node: Callable[..., Node]) -> None:
    node = new_node(kind, save="", repl_timeout="3600")
    node.must("CONFIG", "SET", "client-output-buffer-limit", "replica 0 0 0")
    before = resident(node)
    with ExitStack() as stack:
        replicas = [stack.enter_context(RawReplica(node)) for _ in range(REPLICAS)]
        for replica in replicas:
            replica.introduce("eof", "psync2")
            replica.send("PSYNC", "?", "-1")
        wait_until(lambda: str(node.info()).count("state=online") == REPLICAS, "replicas online")
        for replica in replicas:
            replica.ack(0)
        for _ in range(WRITTEN // (500 * 1000)):
            node.must("SET", "k", b"x" * 500)
            assert node.wire is not None
            node.wire.pipeline([("SET", "k", b"x" * 1000)] * 500)
        memory = node.info("memory")
        kept = int(memory["mem_total_replication_buffers"])
        assert WRITTEN / 2 < kept < 1.2 * WRITTEN
        assert kept - 2 * MB < int(memory["mem_clients_slaves"]) < kept + MB, "what they share counts once"
        assert resident(node) - before < 1.4 * kept
    wait_until(lambda: resident(node) - before < kept / 2, "the memory given back")
