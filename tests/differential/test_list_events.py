"""Keyspace events of the commands on lists, and what they propagate, compared with a real Redis. Marked `real`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.commands.observed import OBSERVING, ServerObserver, compare_told
from support.compare.differential import parse_script
from support.compare.events import ALL_EVENTS, EventWatch
from support.servers import start_redis, start_streamd

pytestmark = pytest.mark.real

STORIES = {
    "pushing and popping": """
        LPUSH l a b
        RPUSH l c
        LPUSHX l d
        RPUSHX none d
        LPOP l
        RPOP l 0
        RPOP l 2
        LPOP l 9
        LPOP l
        LPOP l 2
    """,
    "editing": """
        RPUSH l a b c d a
        LSET l 0 a
        LSET l 9 a
        LINSERT l BEFORE a x
        LINSERT l BEFORE none x
        LREM l 0 none
        LREM l 1 a
        LTRIM l 0 -1
        LTRIM l 1 2
        LTRIM l 5 6
        LTRIM l 0 1
        RPUSH l a
        LREM l 0 a
    """,
    "moving": """
        RPUSH l a b c
        LMOVE l m LEFT RIGHT
        LMOVE l l LEFT RIGHT
        RPOPLPUSH l m
        RPOPLPUSH l m
        LMOVE l m LEFT LEFT
        BLMOVE m n LEFT LEFT 0
        BRPOPLPUSH m n 0
        BLMOVE none n LEFT LEFT 0.001
    """,
    "several": """
        RPUSH l a b c d e
        LMPOP 2 none l LEFT COUNT 2
        LMPOP 1 none LEFT
        BLMPOP 0 2 none l RIGHT COUNT 1
        BLPOP none l 0
        BRPOP l 0
        BLPOP l 0.001
    """,
    "in a transaction": """
        MULTI
        RPUSH l a b c
        BLPOP l 0
        LMPOP 1 l LEFT
        BLMOVE l m LEFT LEFT 0
        BLPOP l 0
        EXEC
    """,
}


@pytest.mark.parametrize("name", STORIES)
def test_events_are_alike(watch: EventWatch, name: str) -> None:
    assert watch.compare(STORIES[name], ALL_EVENTS)


@pytest.mark.parametrize("letters", ["Kl", "El", "KEg", "KEA"])
def test_only_events_of_the_chosen_classes_are_published(watch: EventWatch, letters: str) -> None:
    watch.compare(STORIES["moving"], letters)


Observers = tuple[ServerObserver, ServerObserver]


@pytest.fixture(scope="module")
def observers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Observers]:
    servers = [start(tmp_path_factory.mktemp(start.__name__), OBSERVING) for start in (start_streamd, start_redis)]
    both = ServerObserver(servers[0]), ServerObserver(servers[1])
    yield both
    for observer in both:
        observer.close()
        observer.server.stop()


@pytest.mark.parametrize("name", [name for name in STORIES if name != "in a transaction"])
def test_effects_touched_keys_and_changes_are_alike(observers: Observers, name: str) -> None:
    requests = parse_script(STORIES[name])
    told = []
    for observer in observers:
        observer.start_over()
        told.append(observer.run(requests, [b"l", b"m", b"n"]))
    compare_told(requests, *told)
