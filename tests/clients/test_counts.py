"""Exact counts of a running server: after a restart, in a script, and in XINFO with `stream-exact-lag yes`."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.servers import Server

StartServer = Callable[..., Server]

REDIS_LAG, EXACT_LAG = None, 347


@pytest.mark.parametrize("appendonly", ["no", "yes"])
def test_counts_survive_a_restart(new_streamd: StartServer, appendonly: str) -> None:
    server = new_streamd(appendonly=appendonly, save="3600 1", stream_node_max_entries="10")
    with server.connect() as wire:
        for number in range(1, 401):
            wire.call("XADD", "s", f"{number}-0", "f", "v")
        wire.call("XDEL", "s", "200-0", "203-0", "400-0")
        wire.call("XTRIM", "s", "MAXLEN", "390")
        wire.call("XGROUP", "CREATE", "s", "g", "50-0")
    server.stop()
    server.restart()
    with server.connect() as wire:
        assert wire.call("STREAMD.COUNT", "s", "100", "250").value == 149
        assert wire.call("EVAL", "return redis.call('STREAMD.LAG', KEYS[1], 'g')[2]", "1", "s").value == EXACT_LAG
        assert wire.call("XDEL", "s", "60-0").value == 1
        wire.call("XADD", "s", "500-0", "f", "v")
        assert wire.call("STREAMD.COUNT", "s").value == 390
        assert wire.call("STREAMD.COUNT", "s", "51", "+").value == EXACT_LAG


def test_the_lag_of_xinfo_is_counted_on_request(new_streamd: StartServer) -> None:
    with new_streamd().connect(protocol=3) as wire:
        for number in range(1, 351):
            wire.call("XADD", "s", f"{number}-0", "f", "v")
        wire.call("XGROUP", "CREATE", "s", "g", "0")
        wire.call("XDEL", "s", "10-0", "20-0", "30-0")
        for setting, lag in (("no", REDIS_LAG), ("yes", EXACT_LAG)):
            assert wire.call("CONFIG", "SET", "stream-exact-lag", setting).value == b"OK"
            groups = wire.line("XINFO GROUPS s").plain()
            assert groups[0][b"lag"] == lag
            assert wire.line("XINFO STREAM s FULL").plain()[b"groups"][0][b"lag"] == lag
