"""Stories of blocked readers with several connections, played on streamd and on a real Redis. Marked `real`.

The function's name says what the story is about; its docstring, where there is one, what to look for.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.compare.differential import Tally
from support.compare.stories import Stage, compare_story
from support.pages.reader import block
from support.servers import Server

pytestmark = [pytest.mark.long, pytest.mark.real]

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


exec(block("docs/tests.md", "@story"))  # the one that the page shows


# --- XREAD ----------------------------------------------------------------------------------------------------------


@story
def every_reader_gets_the_entry(s: Stage) -> None:
    s.do("XADD s 1-1 f v")
    for who in ("a", "b", "c"):
        s.block(who, "XREAD BLOCK 0 STREAMS s $")
    s.do("XADD s 1-2 f v g w")
    s.served("a", "b", "c")
    s.counters()


@story
def a_reader_waits_for_a_key_that_is_not_there(s: Stage) -> None:
    s.block("a", "XREAD BLOCK 0 STREAMS s 0")
    s.block("b", "XREAD BLOCK 0 STREAMS s $")
    s.do("XADD t 1-1 f v")
    s.still_waits("a", "b")
    s.do("XADD s 1-1 f v")
    s.served("a", "b")


@story
def several_keys_and_the_first_to_be_ready(s: Stage) -> None:
    s.do("XADD t 5-5 f v")
    s.block("a", "XREAD BLOCK 0 STREAMS s t u $ $ $")
    s.counters()
    s.do("XADD u 1-1 f v")
    s.served("a")
    s.block("a", "XREAD COUNT 1 BLOCK 0 STREAMS s t u 0 $ 1-1")
    s.do("XADD t 5-6 f v")
    s.served("a")


@story
def a_key_named_twice(s: Stage) -> None:
    s.block("a", "XREAD BLOCK 0 STREAMS s s 0 5")
    s.do("XADD s 1-1 f v")
    s.served("a")
    s.block("a", "XREAD BLOCK 0 STREAMS s s 5 5")
    s.do("XADD s 6-1 f v")
    s.served("a")


@story
def an_id_that_is_still_ahead(s: Stage) -> None:
    s.block("a", "XREAD BLOCK 0 STREAMS s 5-0")
    s.do("XADD s 1-1 f v")
    s.do("XADD s 5-0 f v")
    s.still_waits("a")
    s.do("XADD s 5-1 f v")
    s.served("a")


@story
def the_last_entry_of_an_empty_stream(s: Stage) -> None:
    s.block("a", "XREAD BLOCK 0 STREAMS s +")
    s.do("XADD s 1-1 f v")
    s.served("a")
    s.do("XADD s 1-2 f v")
    s.do("XDEL s 1-1 1-2")
    s.block("a", "XREAD BLOCK 0 STREAMS s +")
    s.do("XADD s 1-3 f v")
    s.served("a")


@story
def what_can_be_served_at_once_does_not_block(s: Stage) -> None:
    s.do("XADD s 1-1 f v")
    s.do("XREAD BLOCK 0 STREAMS s 0")
    s.do("XREAD BLOCK 0 STREAMS s +")
    s.do("XREAD BLOCK 0 COUNT 1 STREAMS t s $ 0")
    s.do("XREAD BLOCK 0 STREAMS s x")
    s.counters()


@story
def deleting_and_making_again_with_lower_ids(s: Stage) -> None:
    """The `$` was 5-5 when it was read, and stays that."""
    s.do("XADD s 5-5 f v")
    s.block("a", "XREAD BLOCK 0 STREAMS s $")
    s.do("DEL s")
    s.still_waits("a")
    s.do("XADD s 1-1 f v")
    s.still_waits("a")
    s.do("XADD s 5-6 f v")
    s.served("a")


@story
def xread_survives_whatever_happens_to_the_key(s: Stage) -> None:
    s.do("XADD s 1-1 f v")
    s.block("a", "XREAD BLOCK 0 STREAMS s $")
    for line in ("DEL s", "SET s value", "DEL s", "XGROUP CREATE s g 0 MKSTREAM", "XGROUP DESTROY s g", "UNLINK s"):
        s.do(line)
        s.still_waits("a")
    for line in ("FLUSHDB", "FLUSHALL", "FLUSHALL ASYNC", "SWAPDB 0 1", "XADD t 9-9 f v", "EXPIRE s -1"):
        s.do(line)
        s.still_waits("a")
    s.do("XADD s 2-2 f v")
    s.served("a")


@story
def adding_and_trimming_away_in_one_command(s: Stage) -> None:
    s.block("a", "XREAD BLOCK 0 STREAMS s $")
    s.do("XADD s MAXLEN 0 1-1 f v")
    s.still_waits("a")
    s.do("XADD s MAXLEN 1 1-2 f v")
    s.served("a")


@story
def adding_and_deleting_before_anybody_looks(s: Stage) -> None:
    s.do("XADD s 1-1 f v")
    s.block("a", "XREAD BLOCK 0 STREAMS s $")
    s.do("XDEL s 1-1")
    s.do("XTRIM s MAXLEN 0")
    s.do("XSETID s 9-9")
    s.still_waits("a")
    s.do("XADD s 9-10 f v")
    s.served("a")


@story
def an_add_that_is_refused_or_a_duplicate_wakes_nobody(s: Stage) -> None:
    s.do("XADD s 5-5 f v")
    s.block("a", "XREAD BLOCK 0 STREAMS s 5-5")
    s.do("XADD s 5-5 f v")
    s.do("XADD none NOMKSTREAM * f v")
    s.do("XCFGSET s IDMP-MAXSIZE 9")
    s.still_waits("a")
    s.do("XADD s 5-6 f v")
    s.served("a")


@story
def rename_over_the_key_brings_data(s: Stage) -> None:
    s.do("XADD t 5-5 f v")
    s.block("a", "XREAD BLOCK 0 STREAMS s 1")
    s.block("b", "XREAD BLOCK 0 STREAMS s 7")
    s.do("RENAME t s")
    s.served("a")
    s.still_waits("b")
    s.do("RENAME s u")
    s.still_waits("b")
    s.do("XADD u 8-8 f v")
    s.do("RENAMENX u s")
    s.served("b")


@story
def copy_move_and_swapdb_bring_data(s: Stage) -> None:
    s.do("XADD t 5-5 f v")
    s.block("a", "XREAD BLOCK 0 STREAMS s 0")
    s.do("COPY t s")
    s.served("a")
    s.do("DEL s")
    s.block("a", "XREAD BLOCK 0 STREAMS s 0")
    s.do("SELECT 1", "other")
    s.do("XADD s 6-6 f v", "other")
    s.still_waits("a")
    s.do("MOVE s 0", "other")
    s.served("a")
    s.do("DEL s")
    s.block("a", "XREAD BLOCK 0 STREAMS s 0")
    s.do("XADD s 7-7 f v", "other")
    s.still_waits("a")
    s.do("SWAPDB 0 1")
    s.served("a")


@story
def readers_of_the_same_key_in_different_databases(s: Stage) -> None:
    s.do("SELECT 1", "b")
    s.block("a", "XREAD BLOCK 0 STREAMS s 0")
    s.block("b", "XREAD BLOCK 0 STREAMS s 0")
    s.do("XADD s 1-1 f v")
    s.served("a")
    s.still_waits("b")
    s.do("SELECT 1")
    s.do("XADD s 2-2 f v")
    s.served("b")


@story
def a_key_becomes_a_stream_after_being_something_else(s: Stage) -> None:
    s.block("a", "XREAD BLOCK 0 STREAMS s 0")
    s.do("SET s value")
    s.still_waits("a")
    s.do("DEL s")
    s.do("XADD s 1-1 f v")
    s.served("a")


@story
def a_reader_of_two_keys_when_one_turns_into_text(s: Stage) -> None:
    """Waking runs the whole command again, so the type of the other key matters then."""
    s.block("a", "XREAD BLOCK 0 STREAMS s t 0 0")
    s.do("SET t value")
    s.still_waits("a")
    s.do("XADD s 1-1 f v")
    s.served("a")


# --- XREADGROUP -----------------------------------------------------------------------------------------------------


@story
def a_group_hands_each_entry_to_the_one_who_waits_longest(s: Stage) -> None:
    s.do("XGROUP CREATE s g $ MKSTREAM")
    for who in ("a", "b", "c"):
        s.block(who, f"XREADGROUP GROUP g {who} COUNT 1 BLOCK 0 STREAMS s >")
    s.counters()
    s.do("XADD s 1-1 f v")
    s.served("a")
    s.still_waits("b", "c")
    s.block("a", "XREADGROUP GROUP g a COUNT 1 BLOCK 0 STREAMS s >")
    for number in (2, 3, 4):
        s.do(f"XADD s 1-{number} f v")
        s.served("bca"[number - 2])
    s.do("XPENDING s g - + 10")
    s.do("XINFO CONSUMERS s g")


@story
def the_first_takes_all_that_is_there(s: Stage) -> None:
    s.do("XGROUP CREATE s g $ MKSTREAM")
    s.block("a", "XREADGROUP GROUP g a BLOCK 0 STREAMS s >")
    s.block("b", "XREADGROUP GROUP g b BLOCK 0 STREAMS s >")
    s.do("XADD t 1-1 f v")
    s.do("XADD t 1-2 f v")
    s.do("XGROUP CREATE t g 0")
    s.do("RENAME t s")
    s.served("a")
    s.still_waits("b")


@story
def count_leaves_the_rest_to_the_next(s: Stage) -> None:
    s.do("XGROUP CREATE s g $ MKSTREAM")
    s.block("a", "XREADGROUP GROUP g a COUNT 2 BLOCK 0 STREAMS s >")
    s.block("b", "XREADGROUP GROUP g b COUNT 2 BLOCK 0 STREAMS s >")
    s.block("c", "XREADGROUP GROUP g c COUNT 2 BLOCK 0 STREAMS s >")
    for number in (1, 2, 3):
        s.do(f"XADD t 1-{number} f v")
    s.do("XGROUP CREATE t g 0")
    s.do("RENAME t s")
    s.served("a", "b")
    s.still_waits("c")
    s.do("XPENDING s g")


@story
def readers_and_groups_together(s: Stage) -> None:
    s.do("XGROUP CREATE s g $ MKSTREAM")
    s.do("XGROUP CREATE s h $")
    s.block("ga", "XREADGROUP GROUP g ga BLOCK 0 STREAMS s >")
    s.block("r", "XREAD BLOCK 0 STREAMS s $")
    s.block("ha", "XREADGROUP GROUP h ha NOACK BLOCK 0 STREAMS s >")
    s.block("gb", "XREADGROUP GROUP g gb BLOCK 0 STREAMS s >")
    s.do("XADD s 1-1 f v")
    s.served("ga", "r", "ha")
    s.still_waits("gb")
    s.do("XINFO GROUPS s")


@story
def the_consumer_is_there_while_it_waits(s: Stage) -> None:
    s.do("XGROUP CREATE s g $ MKSTREAM")
    s.block("a", "XREADGROUP GROUP g alice BLOCK 0 STREAMS s >")
    s.do("XINFO CONSUMERS s g")
    s.do("XGROUP DELCONSUMER s g alice")
    s.still_waits("a")
    s.do("XADD s 1-1 f v")
    s.served("a")
    s.do("XINFO CONSUMERS s g")


@story
def history_never_waits(s: Stage) -> None:
    s.do("XGROUP CREATE s g $ MKSTREAM")
    s.do("XGROUP CREATE t g $ MKSTREAM")
    s.do("XREADGROUP GROUP g a BLOCK 0 STREAMS s 0")
    s.do("XREADGROUP GROUP g a BLOCK 0 STREAMS s t > 0")
    s.counters()


@story
def deleting_the_key_fails_group_readers(s: Stage) -> None:
    s.do("XGROUP CREATE s g $ MKSTREAM")
    for command in (
        "DEL s",
        "UNLINK s",
        "FLUSHALL",
        "FLUSHDB ASYNC",
        "EXPIRE s -1",
        "RENAME s t",
        "MOVE s 1",
        "SWAPDB 0 3",
    ):
        s.do("XGROUP CREATE s g $ MKSTREAM")
        s.block("a", "XREADGROUP GROUP g a BLOCK 0 STREAMS s >")
        s.block("b", "XREADGROUP GROUP g b BLOCK 0 STREAMS s >")
        s.do(command)
        s.served("a", "b")
        s.do("FLUSHALL")
    s.counters()


@story
def expiry_fails_group_readers(s: Stage) -> None:
    s.do("XGROUP CREATE s g $ MKSTREAM")
    s.block("a", "XREADGROUP GROUP g a BLOCK 0 STREAMS s >")
    s.block("r", "XREAD BLOCK 0 STREAMS s $")
    s.do("PEXPIRE s 20")
    s.served("a")
    s.still_waits("r")


@story
def another_type_fails_group_readers(s: Stage) -> None:
    s.do("XGROUP CREATE s g $ MKSTREAM")
    s.block("a", "XREADGROUP GROUP g a BLOCK 0 STREAMS s >")
    s.block("r", "XREAD BLOCK 0 STREAMS s $")
    s.do("SET s value")
    s.served("a")
    s.still_waits("r")
    s.do("SET t value")
    s.do("DEL s")
    s.do("XGROUP CREATE s g $ MKSTREAM")
    s.block("a", "XREADGROUP GROUP g a BLOCK 0 STREAMS s >")
    s.do("RENAME t s")
    s.served("a")
    s.still_waits("r")


@story
def destroying_the_group_fails_its_readers_only(s: Stage) -> None:
    s.do("XGROUP CREATE s g $ MKSTREAM")
    s.do("XGROUP CREATE s h $")
    s.do("XGROUP CREATE t g $ MKSTREAM")
    s.block("a", "XREADGROUP GROUP g a BLOCK 0 STREAMS s >")
    s.block("b", "XREADGROUP GROUP g b BLOCK 0 STREAMS t s > >")
    s.block("c", "XREADGROUP GROUP h c BLOCK 0 STREAMS s >")
    s.block("r", "XREAD BLOCK 0 STREAMS s $")
    s.do("XGROUP DESTROY s g")
    s.served("a", "b")
    s.still_waits("c", "r")
    s.do("XGROUP CREATE s g $")
    s.do("XADD s 1-1 f v")
    s.served("c", "r")


@story
def a_stream_without_the_group_renamed_over_the_key(s: Stage) -> None:
    s.do("XGROUP CREATE s g $ MKSTREAM")
    s.block("a", "XREADGROUP GROUP g a BLOCK 0 STREAMS s >")
    s.do("XADD t 1-1 f v")
    s.do("RENAME t s")
    s.served("a")


@story
def a_stream_with_the_group_and_nothing_new_renamed_over_the_key(s: Stage) -> None:
    s.do("XGROUP CREATE s g $ MKSTREAM")
    s.block("a", "XREADGROUP GROUP g a BLOCK 0 STREAMS s >")
    s.do("XADD t 1-1 f v")
    s.do("XGROUP CREATE t g $")
    s.do("RENAME t s")
    s.still_waits("a")
    s.do("XADD s 1-2 f v")
    s.served("a")


@story
def setid_back_serves_at_the_next_entry(s: Stage) -> None:
    s.do("XADD s 1-1 f v")
    s.do("XADD s 1-2 f v")
    s.do("XGROUP CREATE s g $")
    s.block("a", "XREADGROUP GROUP g a BLOCK 0 STREAMS s >")
    s.do("XGROUP SETID s g 0")
    s.still_waits("a")
    s.do("XADD s 1-3 f v")
    s.served("a")


@story
def setid_forward_skips_what_comes(s: Stage) -> None:
    s.do("XGROUP CREATE s g $ MKSTREAM")
    s.block("a", "XREADGROUP GROUP g a BLOCK 0 STREAMS s >")
    s.do("XGROUP SETID s g 5-5")
    s.do("XADD s 1-1 f v")
    s.still_waits("a")
    s.do("XADD s 5-6 f v")
    s.served("a")


@story
def xsetid_and_maxlen_zero_wake_no_group(s: Stage) -> None:
    s.do("XGROUP CREATE s g $ MKSTREAM")
    s.block("a", "XREADGROUP GROUP g a BLOCK 0 STREAMS s >")
    s.do("XSETID s 3-3")
    s.do("XADD s MAXLEN 0 4-4 f v")
    s.still_waits("a")
    s.do("XADD s 5-5 f v")
    s.served("a")
    s.do("XINFO GROUPS s")


@story
def several_keys_of_a_group_and_the_whole_command_again(s: Stage) -> None:
    s.do("XGROUP CREATE s g $ MKSTREAM")
    s.do("XGROUP CREATE t g $ MKSTREAM")
    s.block("a", "XREADGROUP GROUP g a BLOCK 0 STREAMS s t > >")
    s.do("XADD t 1-1 f v")
    s.served("a")
    s.block("a", "XREADGROUP GROUP g a BLOCK 0 STREAMS s t > >")
    s.do("DEL t")
    s.served("a")


@story
def noack_while_blocked(s: Stage) -> None:
    s.do("XGROUP CREATE s g $ MKSTREAM")
    s.block("a", "XREADGROUP GROUP g a NOACK BLOCK 0 STREAMS s >")
    s.do("XADD s 1-1 f v")
    s.served("a")
    s.do("XPENDING s g")
    s.do("XINFO CONSUMERS s g")


# --- CLAIM ----------------------------------------------------------------------------------------------------------


@story
def claim_wakes_when_an_entry_is_old_enough(s: Stage) -> None:
    s.do("XADD s 1-1 f v")
    s.do("XGROUP CREATE s g 0")
    s.do("XREADGROUP GROUP g a STREAMS s >")
    s.block("b", "XREADGROUP GROUP g b BLOCK 0 CLAIM 1500 STREAMS s >")
    s.served("b")
    s.do("XPENDING s g - + 10")


@story
def claim_wakes_for_what_became_pending_later(s: Stage) -> None:
    s.do("XGROUP CREATE s g $ MKSTREAM")
    s.block("b", "XREADGROUP GROUP g b BLOCK 0 CLAIM 100 STREAMS s >")
    s.block("a", "XREADGROUP GROUP g a BLOCK 0 STREAMS s >")
    s.do("XADD s 1-1 f v")
    s.served("b")
    s.do("XACK s g 1-1")
    s.block("b", "XREADGROUP GROUP g b BLOCK 0 CLAIM 1500 STREAMS s >")
    s.do("XADD s 1-2 f v")
    s.served("a")
    s.served("b")
    s.do("XPENDING s g - + 10")


@story
def claim_is_served_new_entries_too(s: Stage) -> None:
    """And an entry that XCLAIM makes old does not wake by itself: the waiting goes by the time known before."""
    s.do("XADD s 1-1 f v")
    s.do("XGROUP CREATE s g 0")
    s.do("XREADGROUP GROUP g a STREAMS s >")
    s.block("b", "XREADGROUP GROUP g b BLOCK 0 CLAIM 1000000 STREAMS s >")
    s.do("XADD s 1-2 f v")
    s.served("b")
    s.block("b", "XREADGROUP GROUP g b BLOCK 0 CLAIM 1000000 STREAMS s >")
    s.do("XCLAIM s g a 0 1-1 IDLE 2000000 JUSTID")
    s.still_waits("b")
    s.do("XADD s 1-3 f v")
    s.served("b")


@story
def claim_does_not_wake_for_what_was_acknowledged(s: Stage) -> None:
    s.do("XADD s 1-1 f v")
    s.do("XGROUP CREATE s g 0")
    s.do("XREADGROUP GROUP g a STREAMS s >")
    s.block("b", "XREADGROUP GROUP g b BLOCK 0 CLAIM 1500 STREAMS s >")
    s.do("XACK s g 1-1")
    s.do("DEBUG SLEEP 1.6")
    s.still_waits("b")
    s.do("XADD s 1-2 f v")
    s.served("b")


@story
def claim_runs_into_its_timeout(s: Stage) -> None:
    s.do("XADD s 1-1 f v")
    s.do("XGROUP CREATE s g 0")
    s.do("XREADGROUP GROUP g a STREAMS s >")
    s.timed("b", "XREADGROUP GROUP g b BLOCK 30 CLAIM 1000000 STREAMS s >", 0.03)


# --- Time-outs and being freed --------------------------------------------------------------------------------------


@story
def timeouts(s: Stage) -> None:
    s.do("XGROUP CREATE s g $ MKSTREAM")
    s.timed("a", "XREAD BLOCK 1 STREAMS s $", 0.001)
    s.timed("a", "XREAD BLOCK 20 STREAMS s t u $ $ $", 0.02)
    s.timed("a", "XREAD BLOCK 20 STREAMS none 0", 0.02)
    s.timed("b", "XREADGROUP GROUP g b BLOCK 20 STREAMS s >", 0.02)
    s.do("XINFO CONSUMERS s g")
    s.counters()


@story
def a_timeout_is_kept_through_wakings_that_serve_nothing(s: Stage) -> None:
    s.do("XGROUP CREATE s g $ MKSTREAM")
    s.block("a", "XREADGROUP GROUP g a COUNT 1 BLOCK 0 STREAMS s >")
    s.block("b", "XREADGROUP GROUP g b COUNT 1 BLOCK 2000 STREAMS s >")
    s.do("XADD s 1-1 f v")
    s.served("a")
    s.still_waits("b")
    s.served("b")
    s.do("XPENDING s g")


@story
def many_different_timeouts(s: Stage) -> None:
    waits = (90, 30, 60, 10, 120)
    for number, wait in enumerate(waits):
        s.send(f"c{number}", "XREAD", "BLOCK", str(wait), "STREAMS", "s", "$")
    for number in range(len(waits)):
        s.reads(f"c{number}")
    s.counters()


@story
def client_unblock(s: Stage) -> None:
    s.do("XGROUP CREATE s g $ MKSTREAM")
    numbers = {who: s.client_id(who) for who in ("a", "b", "c", "d")}
    s.block("a", "XREAD BLOCK 0 STREAMS s $")
    s.block("b", "XREAD BLOCK 0 STREAMS s $")
    s.block("c", "XREADGROUP GROUP g c BLOCK 0 STREAMS s >")
    s.block("d", "XREADGROUP GROUP g d BLOCK 0 STREAMS s >")
    s.do(f"CLIENT UNBLOCK {numbers['a']}")
    s.served("a")
    s.do(f"CLIENT UNBLOCK {numbers['a']}")
    s.do(f"CLIENT UNBLOCK {numbers['b']} error")
    s.served("b")
    s.do(f"CLIENT UNBLOCK {numbers['c']} WHAT")
    s.do(f"CLIENT UNBLOCK {numbers['c']} TIMEOUT")
    s.served("c")
    s.do(f"CLIENT UNBLOCK {numbers['d']} ERROR")
    s.served("d")
    s.do("XADD s 1-1 f v")
    s.counters()


@story
def a_blocked_client_that_hangs_up_loses_nothing(s: Stage) -> None:
    s.do("XGROUP CREATE s g $ MKSTREAM")
    s.block("a", "XREADGROUP GROUP g a COUNT 1 BLOCK 0 STREAMS s >")
    s.block("b", "XREADGROUP GROUP g b COUNT 1 BLOCK 0 STREAMS s >")
    s.leave("a")
    s.do("XADD s 1-1 f v")
    s.served("b")
    s.do("XPENDING s g - + 10")
    s.counters()


@story
def a_blocked_client_that_is_killed(s: Stage) -> None:
    number = s.client_id("a")
    s.block("a", "XREAD BLOCK 0 STREAMS s $")
    s.do(f"CLIENT KILL ID {number}")
    s.hung_up("a")
    s.counters()


@story
def requests_behind_a_blocking_one_wait_for_it(s: Stage) -> None:
    read = b"XREAD BLOCK 0 STREAMS s $\r\n"
    s.send_lines("a", read + b"XLEN s\r\nPING\r\n" + read + b"PING last\r\n")
    s.count_blocked(+1)
    s.still_waits("a")
    s.do("XADD s 1-1 f v")
    s.reads("a", 3)
    s.still_waits("a")
    s.do("XADD s 1-2 f v")
    s.reads("a", 2)
    s.count_blocked(-1)


@story
def a_request_cut_in_two_while_blocked(s: Stage) -> None:
    s.block("a", "XREAD BLOCK 0 STREAMS s $")
    s.send_lines("a", b"*2\r\n$4\r\nECHO\r\n$5\r\nhe", last="XREAD")
    s.do("XADD s 1-1 f v")
    s.served("a")
    s.send_lines("a", b"llo\r\n")
    s.reads("a")


@story
def reply_off_while_blocked(s: Stage) -> None:
    s.send("a", "CLIENT", "REPLY", "OFF")
    s.block("a", "XREAD BLOCK 0 STREAMS s $")
    s.do("XADD s 1-1 f v")
    s.count_blocked(-1)
    s.do("CLIENT REPLY ON", "a")


@story
def one_pipeline_feeds_many(s: Stage) -> None:
    """Several entries in one write: each waiting reader is woken by the first, the rest are theirs at the next read."""
    s.do("XGROUP CREATE s g $ MKSTREAM")
    s.block("a", "XREADGROUP GROUP g a BLOCK 0 STREAMS s >")
    s.block("b", "XREADGROUP GROUP g b BLOCK 0 STREAMS s >")
    s.block("r", "XREAD BLOCK 0 STREAMS s $")
    s.send_lines("main", b"XADD s 1-1 f v\r\nXADD s 1-2 f v\r\nXADD s 1-3 f v\r\n")
    s.reads("main", 3)
    s.served("a", "b", "r")
    s.do("XPENDING s g")


@story
def waking_does_not_wait_for_the_end_of_a_pipeline(s: Stage) -> None:
    s.block("a", "XREAD BLOCK 0 STREAMS s $")
    s.send_lines("main", b"XADD s 1-1 f v\r\nXDEL s 1-1\r\nXLEN s\r\n")
    s.reads("main", 3)
    s.served("a")


# --- Many -----------------------------------------------------------------------------------------------------------


@story
def a_hundred_consumers_are_served_in_turn(s: Stage) -> None:
    s.do("XGROUP CREATE s g $ MKSTREAM")
    names = [f"c{number:03}" for number in range(100)]
    for name in names:
        s.block(name, f"XREADGROUP GROUP g {name} COUNT 1 BLOCK 0 STREAMS s >")
    s.counters()
    for number, name in enumerate(names, 1):
        s.do(f"XADD s 1-{number} f v")
        s.served(name)
    s.do("XPENDING s g")


@story
def a_hundred_readers_of_many_keys(s: Stage) -> None:
    keys = " ".join(f"key{number}" for number in range(20))
    for number in range(100):
        s.block(f"c{number}", f"XREAD BLOCK 0 STREAMS {keys} {' '.join(['0'] * 20)}")
    s.do("XADD key13 1-1 f v")
    s.served(*(f"c{number}" for number in range(100)))
    s.counters()


@story
def a_thousand_blocked_clients_do_not_hold_up_others(s: Stage) -> None:
    names = [f"c{number}" for number in range(1000)]
    for name in names:
        s.send(name, "XREAD", "BLOCK", "600000", "STREAMS", "s", "$")
    s.count_blocked(len(names))
    for _ in range(100):
        s.do("PING")
    s.do("XADD s 1-1 f v")
    s.served(*names)
    s.counters()
