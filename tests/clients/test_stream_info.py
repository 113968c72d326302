"""What consumer groups still need of a stream, when groups come and go while it is asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import redis
from support.servers import Server

from streamd.client.connection import Connection, Request, connect
from streamd.client.stream_info import find_groups
from streamd.client.url_options import ConnectionOptions


@pytest.mark.parametrize("change", ["destroyed", "created"])
def test_groups_that_change_between_two_requests_are_asked_for_again(
    streamd_server: Server, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    with redis.Redis(port=streamd_server.port) as store:
        check(store, ConnectionOptions(port=streamd_server.port), monkeypatch, change)


def check(store: redis.Redis, options: ConnectionOptions, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    store.flushall()
    store.xadd("s", {"f": "v"}, "5-0")
    store.xadd("s", {"f": "v"}, "6-0")
    store.xgroup_create("s", "a", "0")
    store.xgroup_create("s", "b", "6-0")
    store.xreadgroup("a", "c", {"s": ">"}, 1)
    real, calls = Connection.transaction, []

    def change_first(self: Connection, requests: Sequence[Request]) -> list[Any] | None:
        if not calls:
            store.xgroup_destroy("s", "a") if change == "destroyed" else store.xgroup_create("s", "c", "5-0")
        calls.append(requests)
        return real(self, requests)

    monkeypatch.setattr(Connection, "transaction", change_first)
    with connect(options) as connection:
        found = {each.name: each.free_until >> 64 for each in find_groups(connection, b"s")}
        assert find_groups(connection, b"nosuch") == []
    assert found == ({"b": 6} if change == "destroyed" else {"a": 4, "b": 6, "c": 5})
    assert len(calls) == 2
