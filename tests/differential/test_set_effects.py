"""What commands on sets propagate, the events they report and the keys they touch: as a real Redis. Marked `real`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.commands.observed import OBSERVING, ServerObserver, compare_told
from support.compare.differential import parse_script
from support.servers import start_redis, start_streamd

pytestmark = pytest.mark.real

Observers = tuple[ServerObserver, ServerObserver]

KEYS = [b"s", b"t", b"u", b"dst"]

STORIES = {
    "members": """
        SADD s a b
        SADD s a
        SADD s a c
        sadd t 1 2
        SREM s nothing
        SREM s a nothing
        SREM s b c
        SREM s b
        SREM t 1 2 3
    """,
    "moving": """
        SADD s a b c
        SADD t c
        SMOVE s t a
        SMOVE s t nothing
        SMOVE s s b
        SMOVE s t c
        SMOVE s u b
        SMOVE none t a
        SMOVE u u b
        SMOVE u s b
    """,
    "popping": """
        SADD s a
        SPOP s
        SADD s a
        SPOP s 1
        SADD s a b
        SPOP s 0
        SPOP s 9
        SPOP s
        SPOP s 2
        CONFIG SET lazyfree-lazy-server-del yes
        SADD s a b
        SPOP s 2
        CONFIG SET lazyfree-lazy-server-del no
        SRANDMEMBER s
    """,
    "storing": """
        SADD s a b 1
        SADD t b 1 2
        SINTERSTORE dst s t
        SINTERSTORE dst s t
        SUNIONSTORE dst s t
        SDIFFSTORE dst s t
        SDIFFSTORE dst s s
        SDIFFSTORE dst s s
        SET dst v
        SUNIONSTORE dst s t
        SET dst v
        SINTERSTORE dst s none
        SUNIONSTORE s s t
        EXPIRE s 1000
        SUNIONSTORE s s t
    """,
    "in transactions and scripts": """
        MULTI
        SADD s a b
        SREM s a
        SPOP s
        EXEC
        EVAL "redis.call('sadd', 's', 'x') redis.call('smove', 's', 't', 'x') return redis.call('spop', 't')" 0
        EVAL "redis.call('sadd', 's', 'x', 'y') return redis.call('spop', 's', 2)" 0
    """,
}


@pytest.fixture(scope="module")
def observers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Observers]:
    servers = [
        start(tmp_path_factory.mktemp(start.__name__), OBSERVING | {"notify-keyspace-events": "EA"})
        for start in (start_streamd, start_redis)
    ]
    both = ServerObserver(servers[0]), ServerObserver(servers[1])
    yield both
    for observer in both:
        observer.close()
        observer.server.stop()
    assert "Traceback" not in servers[0].log()


@pytest.mark.parametrize("name", STORIES)
def test_effects_events_and_touched_keys(observers: Observers, name: str) -> None:
    requests = parse_script(STORIES[name])
    both = []
    for observer in observers:
        observer.start_over()
        both.append(observer.run(requests, KEYS))
    compare_told(requests, *both)


@pytest.mark.parametrize(("size", "count"), [(3000, 1200), (3000, 2900), (100, 60), (100, 95)])
def test_members_popped_are_propagated_as_removed(observers: Observers, size: int, count: int) -> None:
    """Which they are differs from server to server; how they are cut into commands does not."""
    script = [(b"SADD", b"s", *(b"%d" % number for number in range(size))), (b"SPOP", b"s", b"%d" % count)]
    shapes = []
    for observer in observers:
        observer.start_over()
        told = observer.run(script, KEYS)
        shapes.append([[(effect[0], len(effect)) for effect in each.effects] for each in told])
    assert shapes[0] == shapes[1]
