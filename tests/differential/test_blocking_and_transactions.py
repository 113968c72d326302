"""Readers that would wait inside a transaction, and those that wait while one runs. Marked `real`.

Nothing waits inside MULTI. Clients that wait are served after the whole transaction: they see what it has left, not what
its single commands did.
"""

from __future__ import annotations

import pytest
from support.compare.differential import Tally
from support.compare.stories import Stage, compare_story
from support.servers import Server

pytestmark = pytest.mark.real


def transaction(s: Stage, *lines: str, who: str = "main") -> None:
    for line in ("MULTI", *lines, "EXEC"):
        s.do(line, who)


# --- Inside ---------------------------------------------------------------------------------------------------------


def test_nothing_waits_inside(streamd_server: Server, redis_server: Server, tally: Tally) -> None:
    def story(s: Stage) -> None:
        s.do("XADD s 1-1 f v")
        s.do("XGROUP CREATE s g $")
        transaction(
            s,
            "XREAD BLOCK 0 STREAMS s $",
            "XREAD BLOCK 0 STREAMS none 0",
            "XREAD BLOCK 0 STREAMS s 0",
            "XREADGROUP GROUP g a BLOCK 0 STREAMS s >",
            "XREADGROUP GROUP g b NOACK BLOCK 0 CLAIM 1000 STREAMS s >",
            "XADD s 1-2 f v",
            "XREAD BLOCK 0 STREAMS s 1-1",
            "XREADGROUP GROUP g a BLOCK 0 STREAMS s >",
            "XREADGROUP GROUP none a BLOCK 0 STREAMS s >",
            "XREAD BLOCK -1 STREAMS s $",
            "XREAD BLOCK x STREAMS s $",
        )
        s.do("XINFO CONSUMERS s g")
        s.counters()

    play(story, streamd_server, redis_server, tally)


def test_all_of_a_transaction_has_one_time(streamd_server: Server, redis_server: Server, tally: Tally) -> None:
    def story(s: Stage) -> None:
        transaction(s, *["XADD s * f v"] * 3)
        reply = s.wire("main").call("XRANGE", "s", "-", "+")
        ids = [entry.value[0].value.split(b"-") for entry in reply.value]
        assert len({ms for ms, _ in ids}) == 1
        s.note(f"{[seq for _, seq in ids]}")

    play(story, streamd_server, redis_server, tally)


# --- Outside --------------------------------------------------------------------------------------------------------


def several_entries_in_one_transaction(s: Stage) -> None:
    s.do("XGROUP CREATE s g $ MKSTREAM")
    s.block("a", "XREADGROUP GROUP g a BLOCK 0 STREAMS s >")
    s.block("b", "XREADGROUP GROUP g b BLOCK 0 STREAMS s >")
    s.block("r", "XREAD BLOCK 0 STREAMS s $")
    s.block("q", "XREAD COUNT 1 BLOCK 0 STREAMS s t $ $")
    transaction(s, "XADD s 1-1 f v", "XADD t 5-5 f v", "XADD s 1-2 f v", "XADD s 1-3 f v")
    s.served("a", "r", "q")
    s.still_waits("b")
    s.do("XPENDING s g - + 10")


def count_shares_a_transaction_among_consumers(s: Stage) -> None:
    s.do("XGROUP CREATE s g $ MKSTREAM")
    for who in "abcd":
        s.block(who, f"XREADGROUP GROUP g {who} COUNT 1 BLOCK 0 STREAMS s >")
    transaction(s, "XADD s 1-1 f v", "XADD s 1-2 f v", "XADD s 1-3 f v")
    s.served("a", "b", "c")
    s.still_waits("d")
    s.do("XPENDING s g - + 10")


def entries_that_the_transaction_takes_away_again(s: Stage) -> None:
    s.do("XGROUP CREATE s g $ MKSTREAM")
    s.block("a", "XREADGROUP GROUP g a BLOCK 0 STREAMS s >")
    s.block("r", "XREAD BLOCK 0 STREAMS s $")
    transaction(s, "XADD s 1-1 f v", "XDEL s 1-1")
    transaction(s, "XADD s 1-2 f v", "XTRIM s MAXLEN 0")
    s.still_waits("a", "r")
    transaction(s, "XADD s 1-3 f v", "XADD s 1-4 f v", "XDEL s 1-3")
    s.served("a", "r")


def the_transaction_reads_for_the_group_itself(s: Stage) -> None:
    s.do("XGROUP CREATE s g $ MKSTREAM")
    s.block("a", "XREADGROUP GROUP g a BLOCK 0 STREAMS s >")
    s.block("r", "XREAD BLOCK 0 STREAMS s $")
    transaction(s, "XADD s 1-1 f v", "XREADGROUP GROUP g main STREAMS s >")
    s.served("r")
    s.still_waits("a")
    transaction(s, "XADD s 1-2 f v", "XGROUP SETID s g 1-2")
    s.still_waits("a")


def added_and_deleted(s: Stage) -> None:
    s.block("r", "XREAD BLOCK 0 STREAMS s $")
    transaction(s, "XADD s 1-1 f v", "DEL s")
    s.still_waits("r")
    transaction(s, "XADD s 1-1 f v", "DEL s", "SET s value")
    s.still_waits("r")
    transaction(s, "DEL s", "XADD s 1-1 f v")
    s.served("r")


def deleted_and_added_for_a_group(s: Stage) -> None:
    """The stream is there again, but the group is not."""
    s.do("XGROUP CREATE s g $ MKSTREAM")
    s.block("a", "XREADGROUP GROUP g a BLOCK 0 STREAMS s >")
    transaction(s, "DEL s", "XADD s 1-1 f v")
    s.served("a")
    s.do("DEL s")
    s.do("XGROUP CREATE s g $ MKSTREAM")
    s.block("a", "XREADGROUP GROUP g a BLOCK 0 STREAMS s >")
    transaction(s, "XADD s 1-1 f v", "DEL s")
    s.served("a")


def deleted_and_made_again_with_the_group(s: Stage) -> None:
    s.do("XGROUP CREATE s g $ MKSTREAM")
    s.block("a", "XREADGROUP GROUP g a BLOCK 0 STREAMS s >")
    transaction(s, "DEL s", "XGROUP CREATE s g $ MKSTREAM")
    s.still_waits("a")
    transaction(s, "DEL s", "XADD s 1-1 f v", "XGROUP CREATE s g 0")
    s.served("a")
    s.do("XPENDING s g")


def the_group_is_destroyed_and_made_again(s: Stage) -> None:
    s.do("XADD s 1-1 f v")
    s.do("XGROUP CREATE s g $")
    s.block("a", "XREADGROUP GROUP g a BLOCK 0 STREAMS s >")
    transaction(s, "XGROUP DESTROY s g", "XGROUP CREATE s g $")
    s.still_waits("a")
    transaction(s, "XGROUP DESTROY s g", "XGROUP CREATE s g 0")
    s.served("a")
    s.block("a", "XREADGROUP GROUP g a BLOCK 0 STREAMS s >")
    transaction(s, "XADD s 1-2 f v", "XGROUP DESTROY s g")
    s.served("a")


def keys_in_the_order_in_which_they_were_touched(s: Stage) -> None:
    for key in "stu":
        s.do(f"XGROUP CREATE {key} g $ MKSTREAM")
    s.block("a", "XREADGROUP GROUP g a COUNT 1 BLOCK 0 STREAMS s t u > > >")
    s.block("b", "XREADGROUP GROUP g b COUNT 1 BLOCK 0 STREAMS u s t > > >")
    s.block("c", "XREADGROUP GROUP g c COUNT 1 BLOCK 0 STREAMS t >")
    transaction(s, "XADD t 1-1 f v", "XADD u 1-1 f v", "XADD s 1-1 f v")
    s.served("a")
    s.still_waits("b", "c")
    transaction(s, "XADD u 1-2 f v", "XADD t 1-2 f v", "XADD t 1-3 f v")
    s.served("b", "c")
    for key in "stu":
        s.do(f"XPENDING {key} g - + 10")
        s.do(f"XINFO GROUPS {key}")


def a_transaction_of_someone_who_had_waited(s: Stage) -> None:
    s.block("a", "XREAD BLOCK 0 STREAMS s $")
    s.send_lines("b", b"MULTI\r\nXADD s 1-1 f v\r\nXREAD BLOCK 0 STREAMS s 0\r\nEXEC\r\nPING\r\n")
    s.reads("b", 5)
    s.served("a")
    transaction(s, "XADD s 1-2 f v", who="a")


def requests_behind_a_wait_make_a_transaction(s: Stage) -> None:
    """Those who waited go on with what they had sent: a transaction, which serves the next."""
    s.send_lines(
        "a",
        b"XREAD BLOCK 0 STREAMS s $\r\nMULTI\r\nXADD t 1-1 f v\r\nXREAD BLOCK 0 STREAMS t $\r\nEXEC\r\n",
        last="XREAD",
    )
    s.count_blocked(+1)
    s.block("b", "XREAD BLOCK 0 STREAMS t $")
    s.do("XADD s 1-1 f v")
    s.reads("a", 5)
    s.reads("b")
    s.count_blocked(-2)


def an_aborted_transaction_wakes_nobody(s: Stage) -> None:
    s.block("a", "XREAD BLOCK 0 STREAMS s $")
    transaction(s, "XADD s 1-1 f v", "XADD s")
    s.do("WATCH s")
    s.do("SET other value", "other")
    s.do("XADD t 1-1 f v", "other")
    s.do("SET s value", "other")
    transaction(s, "DEL s", "XADD s 1-1 f v")
    s.do("MULTI")
    s.do("DEL s")
    s.do("XADD s 1-1 f v")
    s.do("DISCARD")
    s.still_waits("a")
    transaction(s, "DEL s", "XADD s 1-1 f v")
    s.served("a")


def whole_databases(s: Stage) -> None:
    s.do("XGROUP CREATE s g $ MKSTREAM")
    s.block("a", "XREADGROUP GROUP g a BLOCK 0 STREAMS s >")
    s.block("r", "XREAD BLOCK 0 STREAMS s $")
    transaction(s, "FLUSHALL", "XADD s 1-1 f v", "XGROUP CREATE s g 0")
    s.served("a", "r")
    s.block("a", "XREADGROUP GROUP g a BLOCK 0 STREAMS s >")
    s.block("r", "XREAD BLOCK 0 STREAMS s $")
    transaction(s, "SELECT 1", "XADD s 9-9 f v", "XGROUP CREATE s g 0", "SWAPDB 0 1", "SELECT 0")
    s.served("a", "r")
    s.block("a", "XREADGROUP GROUP g a BLOCK 0 STREAMS s >")
    transaction(s, "SWAPDB 0 1", "SWAPDB 0 1")
    s.still_waits("a")


def renamed_over_the_key(s: Stage) -> None:
    s.do("XGROUP CREATE s g $ MKSTREAM")
    s.block("a", "XREADGROUP GROUP g a BLOCK 0 STREAMS s >")
    s.block("r", "XREAD BLOCK 0 STREAMS s $")
    transaction(s, "XADD t 1-1 f v", "XGROUP CREATE t g 0", "RENAME t s", "XADD s 1-2 f v")
    s.served("a", "r")
    s.block("a", "XREADGROUP GROUP g a BLOCK 0 STREAMS s >")
    transaction(s, "RENAME s t", "RENAME t s")
    s.still_waits("a")


STORIES = [
    several_entries_in_one_transaction,
    count_shares_a_transaction_among_consumers,
    entries_that_the_transaction_takes_away_again,
    the_transaction_reads_for_the_group_itself,
    added_and_deleted,
    deleted_and_added_for_a_group,
    deleted_and_made_again_with_the_group,
    the_group_is_destroyed_and_made_again,
    keys_in_the_order_in_which_they_were_touched,
    a_transaction_of_someone_who_had_waited,
    requests_behind_a_wait_make_a_transaction,
    an_aborted_transaction_wakes_nobody,
    whole_databases,
    renamed_over_the_key,
]


@pytest.mark.parametrize("protocol", [2, 3], ids=["RESP2", "RESP3"])
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_story(story: object, protocol: int, streamd_server: Server, redis_server: Server, tally: Tally) -> None:
    assert callable(story)
    compare_story(story, (streamd_server, redis_server), protocol)
    tally.stories += 1


def play(story: object, streamd_server: Server, redis_server: Server, tally: Tally) -> None:
    for protocol in (2, 3):
        test_story(story, protocol, streamd_server, redis_server, tally)
