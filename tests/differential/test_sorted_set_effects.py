"""What commands of sorted sets are propagated as, seen in the append-only files of both servers. Marked `real`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
from support.commands.observed import OBSERVING, ServerObserver
from support.compare.differential import parse_script
from support.servers import Server, eventually
from support.wire import Reply, Wire

pytestmark = pytest.mark.real

SCRIPTS = {
    "adding": """
        ZADD z 1 a 2 b
        zadd z 1 a
        ZADD z CH 3 a
        ZADD z NX 1 a
        ZADD z GT 9 a
        ZADD z INCR 1 a
        ZADD z INCR 0 a
        ZINCRBY z 0.1 b
        ZINCRBY z 0 b
        ZADD z XX 1 none
    """,
    "removing": """
        ZADD z 1 a 2 b 3 c 4 d 5 e 6 f
        ZREM z none
        ZREM z a none
        ZREMRANGEBYRANK z 100 200
        ZREMRANGEBYRANK z 0 0
        ZREMRANGEBYSCORE z (2 3
        ZREMRANGEBYLEX z [d [d
        ZPOPMIN z 0
        ZPOPMIN z
        ZPOPMAX z 10
        ZPOPMIN z
    """,
    "popping from several": """
        ZADD z 1 a 2 b 3 c 4 d 5 e 6 f
        ZMPOP 2 none z MIN
        ZMPOP 1 z MAX COUNT 2
        BZPOPMIN none z 0
        BZPOPMAX z 0
        BZMPOP 0 1 z MAX COUNT 10
        ZMPOP 1 z MIN
        BZPOPMIN z 0.001
    """,
    "storing": """
        ZADD z 1 a 2 b 3 c
        ZUNIONSTORE dst 1 z
        ZUNIONSTORE dst 1 z
        ZINTERSTORE dst 2 z none
        ZINTERSTORE dst 2 z none
        ZRANGESTORE dst z 0 1
        ZDIFFSTORE dst 2 z z
    """,
    "in transactions": """
        MULTI
        ZADD z 1 a 2 b
        BZPOPMIN z 0
        ZADD z 1 a nan c
        EXEC
        EVAL "redis.call('ZADD', 'z', 1, 'q') return redis.call('ZPOPMAX', 'z')" 0
    """,
}


@pytest.fixture(scope="module")
def observers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ServerObserver]]:
    from support.servers import start_redis, start_streamd

    servers: list[Server] = [
        start(tmp_path_factory.mktemp(f"{name}-log"), OBSERVING)
        for name, start in (("streamd", start_streamd), ("redis", start_redis))
    ]
    found = [ServerObserver(server) for server in servers]
    yield found
    for observer, server in zip(found, servers, strict=True):
        observer.close()
        server.stop()


@pytest.mark.parametrize("name", SCRIPTS)
def test_effects_are_those_of_redis(observers: list[ServerObserver], name: str) -> None:
    logs = []
    for observer in observers:
        with observer.server.connect() as wire:
            assert wire.call("FLUSHALL") == Reply("+", b"OK")
            assert wire.call("SET", "mark", "") == Reply("+", b"OK")
            observer.read_log()
            wire.pipeline(parse_script(SCRIPTS[name]))
            logs.append(observer.read_log())
    assert logs[0] == logs[1]
    assert logs[0]


def has_blocked(wire: Wire) -> bool:
    return b"blocked_clients:1" in wire.call("INFO", "clients").value


@pytest.mark.parametrize("line", ["BZPOPMIN y z 0", "BZPOPMAX z 0", "BZMPOP 0 2 y z MIN COUNT 2"])
def test_a_served_pop_follows_the_command_that_served_it(observers: list[ServerObserver], line: str) -> None:
    logs = []
    for observer in observers:
        with observer.server.connect() as wire, observer.server.connect() as waiting:
            wire.call("FLUSHALL")
            observer.read_log()
            waiting.send(*parse_script(line)[0])
            eventually(partial(has_blocked, wire), what="a client that waits")
            wire.pipeline(parse_script("MULTI\nZADD z 1 a 2 b 3 c\nSET k v\nEXEC\nSET after v"))
            waiting.read()
            logs.append(observer.read_log())
    assert logs[0] == logs[1]
