"""Stories of clients that wait for sorted sets, played on streamd and on a real Redis. Marked `real`."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.compare.differential import Tally
from support.compare.stories import Stage, compare_story
from support.servers import Server

pytestmark = pytest.mark.real

Story = Callable[[Stage], None]
STORIES: list[Story] = []


def story(function: Story) -> Story:
    STORIES.append(function)
    return function


@pytest.mark.parametrize("protocol", [2, 3], ids=["RESP2", "RESP3"])
@pytest.mark.parametrize("told", STORIES, ids=lambda function: function.__name__)
def test_story(told: Story, protocol: int, streamd_server: Server, redis_server: Server, tally: Tally) -> None:
    compare_story(told, (streamd_server, redis_server), protocol)
    tally.stories += 1


@story
def the_first_that_waited_is_served(s: Stage) -> None:
    s.block("a", "BZPOPMIN z 0")
    s.block("b", "BZPOPMAX z 0")
    s.do("ZADD z 1 m")
    s.served("a")
    s.still_waits("b")
    s.do("ZADD z 1 m 2 n 3 o")
    s.served("b")
    s.do("ZRANGE z 0 -1 WITHSCORES")


@story
def several_members_serve_several_clients(s: Stage) -> None:
    s.block("a", "BZPOPMIN z 0")
    s.block("b", "BZMPOP 0 2 y z MAX COUNT 2")
    s.block("c", "BZPOPMIN z 0")
    s.do("ZADD z 1 m 2 n 3 o")
    s.served("a", "b")
    s.still_waits("c")
    s.do("EXISTS z")


@story
def the_first_key_of_the_request_is_popped(s: Stage) -> None:
    s.block("a", "BZPOPMIN y z 0")
    for line in ("MULTI", "ZADD z 1 m", "ZADD y 2 n", "EXEC"):
        s.do(line)
    s.served("a")
    s.do("ZRANGE z 0 -1")


@story
def a_key_named_twice_counts_once(s: Stage) -> None:
    s.block("a", "BZPOPMIN z z 0")
    s.do("ZADD z 1 m 2 n")
    s.served("a")
    s.do("ZRANGE z 0 -1")


@story
def what_is_removed_in_the_same_transaction_serves_nobody(s: Stage) -> None:
    s.block("a", "BZPOPMIN z 0")
    for line in ("MULTI", "ZADD z 1 m", "ZREM z m", "EXEC"):
        s.do(line)
    s.still_waits("a")
    s.do("ZADD z 1 n")
    s.served("a")


@story
def a_script_serves_when_it_ends(s: Stage) -> None:
    s.block("a", "BZPOPMIN z 0")
    s.do("EVAL \"redis.call('ZADD', 'z', 5, 'm') redis.call('ZADD', 'z', 1, 'n') return redis.call('ZCARD', 'z')\" 0")
    s.served("a")


@story
def another_type_wakes_nobody(s: Stage) -> None:
    s.block("a", "BZPOPMIN z 0")
    s.do("SET z v")
    s.still_waits("a")
    s.do("DEL z")
    s.do("ZADD z 1 m")
    s.served("a")


@story
def any_way_to_get_a_sorted_set_serves(s: Stage) -> None:
    s.do("ZADD source 1 m 2 n")
    for number, line in enumerate([
        "RENAME source z", "COPY source z", "ZUNIONSTORE z 1 source", "ZINTERSTORE z 1 source", "ZDIFFSTORE z 1 source",
        "ZRANGESTORE z source 0 -1", "ZINCRBY z 4 m",
    ]):  # fmt: skip
        s.block(f"a{number}", "BZPOPMIN z 0")
        s.do(line)
        s.served(f"a{number}")
        s.do("DEL z")
        s.do("ZADD source 1 m 2 n")


@story
def a_set_in_another_database_serves_when_it_is_moved(s: Stage) -> None:
    s.block("a", "BZPOPMIN z 0")
    s.do("SELECT 1")
    s.do("ZADD z 1 m")
    s.still_waits("a")
    s.do("MOVE z 0")
    s.served("a")


@story
def databases_that_are_exchanged_serve(s: Stage) -> None:
    s.block("a", "BZMPOP 0 1 z MIN COUNT 5")
    s.do("SELECT 1")
    s.do("ZADD z 1 m 2 n")
    s.do("SWAPDB 0 1")
    s.served("a")


@story
def a_client_is_unblocked(s: Stage) -> None:
    s.do("CLIENT ID", "a")
    s.block("a", "BZPOPMIN z 0.01")
    s.served("a")
    s.block("a", "BZMPOP 0.01 1 z MIN")
    s.served("a")


@story
def what_it_pops_is_seen_by_the_next_command(s: Stage) -> None:
    s.block("a", "BZPOPMAX z 0")
    for line in ("MULTI", "ZADD z 1 m 2 n", "ZCARD z", "EXEC"):
        s.do(line)
    s.served("a")
    s.do("ZCARD z")
