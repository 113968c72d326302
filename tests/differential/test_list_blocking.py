"""Stories of clients that wait for lists, played on streamd and on a real Redis. Marked `real`."""

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
def the_first_that_waited_is_served_each_gets_one(s: Stage) -> None:
    s.block("a", "BLPOP l 0")
    s.block("b", "BRPOP l 0")
    s.block("c", "BLMPOP 0 1 l LEFT COUNT 10")
    s.block("d", "BLMOVE l m LEFT RIGHT 0")
    s.do("RPUSH l 1")
    s.served("a")
    s.still_waits("b", "c", "d")
    s.do("RPUSH l 2 3 4 5")
    s.served("b", "c")
    s.still_waits("d")
    s.do("LPUSH l 6")
    s.served("d")
    s.do("LRANGE m 0 -1")
    s.counters()


@story
def elements_are_taken_after_the_whole_command(s: Stage) -> None:
    s.block("a", "BLPOP l 0")
    s.do("LPUSH l a b c")
    s.served("a")
    s.do("LRANGE l 0 -1")


@story
def the_keys_count_in_the_order_of_the_request(s: Stage) -> None:
    s.block("a", "BLPOP k1 k2 k1 0")
    s.do("MULTI")
    s.do("RPUSH k2 two")
    s.do("RPUSH k1 one")
    s.do("EXEC")
    s.served("a")
    s.do("LRANGE k2 0 -1")


@story
def what_is_gone_at_the_end_wakes_nobody(s: Stage) -> None:
    s.block("a", "BLPOP l 0")
    s.do("MULTI")
    s.do("RPUSH l x")
    s.do("DEL l")
    s.do("EXEC")
    s.still_waits("a")
    s.do("MULTI")
    s.do("RPUSH l x")
    s.do("DEL l")
    s.do("RPUSH l y")
    s.do("EXEC")
    s.served("a")


@story
def other_types_do_not_wake(s: Stage) -> None:
    s.block("a", "BLPOP l 0")
    s.block("b", "XREAD BLOCK 0 STREAMS l 0")
    s.do("SET l v")
    s.still_waits("a", "b")
    s.do("DEL l")
    s.do("XADD l 1-1 f v")
    s.served("b")
    s.still_waits("a")
    s.do("DEL l")
    s.do("RPUSH l x")
    s.served("a")


@story
def a_chain_of_moves(s: Stage) -> None:
    s.block("c", "BLMOVE l3 l4 LEFT LEFT 0")
    s.block("b", "BRPOPLPUSH l2 l3 0")
    s.block("a", "BLMOVE l1 l2 RIGHT LEFT 0")
    s.block("end", "BLPOP l4 0")
    s.do("RPUSH l1 x")
    s.served("a", "b", "c", "end")
    s.do("EXISTS l1 l2 l3 l4")


@story
def a_move_to_itself(s: Stage) -> None:
    s.block("a", "BLMOVE l l LEFT RIGHT 0")
    s.do("RPUSH l 1 2 3")
    s.served("a")
    s.do("LRANGE l 0 -1")


@story
def a_destination_of_another_type_leaves_the_element_for_the_next(s: Stage) -> None:
    s.do("SET m v")
    s.block("a", "BLMOVE l m LEFT LEFT 0")
    s.block("b", "BLPOP l 0")
    s.do("RPUSH l x")
    s.served("a", "b")


@story
def every_way_in_which_a_list_appears(s: Stage) -> None:
    s.do("RPUSH other a b")
    s.block("a", "BLPOP l 0")
    s.do("RENAME other l")
    s.served("a")
    s.do("RPUSH other a b")
    s.block("b", "BLPOP k 0")
    s.do("COPY other k")
    s.served("b")
    s.block("c", "BLPOP m 0")
    s.do("LMOVE other m LEFT LEFT")
    s.served("c")
    s.do("SELECT 1")
    s.do("RPUSH n a")
    s.do("SELECT 0")
    s.block("d", "BLPOP n 0")
    s.do("SWAPDB 0 1")
    s.served("d")


@story
def unblocking(s: Stage) -> None:
    number = s.client_id("a")
    s.block("a", "BLPOP l 0")
    s.do(f"CLIENT UNBLOCK {number}")
    s.served("a")
    s.block("a", "BLMOVE l m LEFT LEFT 0")
    s.do(f"CLIENT UNBLOCK {number} ERROR")
    s.served("a")
    s.block("a", "BRPOPLPUSH l m 0")
    s.do(f"CLIENT UNBLOCK {number} TIMEOUT")
    s.served("a")
    s.do("RPUSH l x")
    s.do("LLEN l")


@story
def served_by_a_script(s: Stage) -> None:
    s.block("a", "BLPOP l 0")
    s.do("EVAL \"redis.call('RPUSH', 'l', 1, 2); return redis.call('LPOP', 'l')\" 0")
    s.served("a")


@story
def fifty_who_wait_are_served_in_turn(s: Stage) -> None:
    names = [f"c{number:02}" for number in range(50)]
    for name in names:
        s.block(name, "BLPOP l 0")
    for name in names:
        s.do(f"RPUSH l {name}")
        s.served(name)
    s.counters()
