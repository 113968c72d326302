"""FEEDS, DUE, UNIQUE and EXPIRES: entries that wait in one stream until they move to another, and those that expire."""

from __future__ import annotations

import hiredis
import pytest
from support.commands.handler import START_MS, make_context, run, set_time

from streamd.core.spec import keys_of, table
from streamd.delivery.progress import all_progress
from streamd.delivery.rules import key_of_rules, read_all_rules
from streamd.serve.families import load_all
from streamd.values.streams.delays import Delays

load_all()

FAR_US = 2**62


class Stage:
    """A stream `later` with a rule, and the server's own work for it."""

    def __init__(self, rule: str) -> None:
        self.ctx = make_context(resp=3)
        self.ctx.is_propagating = True
        assert run(self.ctx, "STREAMD.STREAM", "SET", "later", *rule.split()) == b"OK"
        self.delays = Delays(b"later", read_all_rules(self.ctx.db, b"later").stream)

    def add(self, *fields: object, id: str = "*") -> str:
        reply: bytes = run(self.ctx, "XADD", "later", id, *fields)
        return reply.decode()

    def at(self, now_ms: int) -> list[list[bytes]]:
        """Do what is to be done at a time; returns the effects."""
        set_time(self.ctx, START_MS + now_ms)
        self.ctx.effects = []
        self.follow()
        return self.ctx.effects or []

    def follow(self, *, may_act: bool = True) -> None:
        if (stream := self.ctx.db.peek(b"later")) is not None:
            while self.delays.follow(self.ctx, stream, FAR_US, may_act):
                pass
            self.delays.check_invariants()

    def entries(self, key: str) -> list[list[bytes]]:
        """The fields of the entries of a stream."""
        return [fields for _, fields in run(self.ctx, "XRANGE", key, "-", "+")]


@pytest.fixture
def stage() -> Stage:
    return Stage("FEEDS jobs DUE due")


def test_an_entry_waits_until_it_is_due_and_moves_without_its_time(stage: Stage) -> None:
    id = stage.add("due", START_MS + 100, "job", "x")
    assert stage.at(99) == []
    assert stage.entries("later") == [[b"due", b"%d" % (START_MS + 100), b"job", b"x"]]
    assert stage.at(100) == [
        [b"XADD", b"jobs", b"%d-0" % (START_MS + 100), b"job", b"x"],
        [b"XDEL", b"later", id.encode()],
    ]
    assert stage.entries("later") == []
    assert stage.entries("jobs") == [[b"job", b"x"]]
    assert stage.at(200) == []


def test_entries_move_by_time_and_then_by_id(stage: Stage) -> None:
    for due, job in ((300, "d"), (100, "a"), (200, "b"), (200, "c"), (-5, "0")):
        stage.add("due", START_MS + due, "job", job)
    stage.at(1000)
    assert [fields[1] for fields in stage.entries("jobs")] == [b"0", b"a", b"b", b"c", b"d"]


def test_the_past_and_a_missing_time_are_now(stage: Stage) -> None:
    stage.add("due", -7, "job", "past")
    stage.add("job", "no time")
    stage.at(0)
    assert [fields[1] for fields in stage.entries("jobs")] == [b"past", b"no time"]


@pytest.mark.parametrize("time", ["soon", "", "1.5", "+5", "007", "99999999999999999999"])
def test_what_is_no_number_stays_and_is_counted(stage: Stage, time: str) -> None:
    stage.add("due", time, "job", "x")
    stage.add("due", START_MS + 1, "job", "y")
    stage.at(10**9)
    assert [fields[3] for fields in stage.entries("later")] == [b"x"]
    assert run(stage.ctx, "STREAMD.STREAM", "GET", "later")[b"unreadable"] == 1


def test_the_time_is_moved_if_an_entry_has_nothing_else(stage: Stage) -> None:
    stage.add("due", 5)
    stage.at(0)
    assert stage.entries("jobs") == [[b"due", b"5"]]


def test_a_deleted_entry_is_cancelled_and_a_trimmed_one_too(stage: Stage) -> None:
    first = stage.add("due", START_MS + 5, "job", "x")
    stage.at(0)
    stage.add("due", START_MS + 5, "job", "y")
    stage.add("due", START_MS + 5, "job", "z")
    run(stage.ctx, "XDEL", "later", first)
    stage.at(1)
    run(stage.ctx, "XTRIM", "later", "MAXLEN", 1)
    stage.at(5)
    assert stage.entries("jobs") == [[b"job", b"z"]]


def test_a_stream_that_was_replaced_or_set_back_is_read_again(stage: Stage) -> None:
    stage.add("due", START_MS + 5, "job", "a", id="9-0")
    stage.at(0)
    run(stage.ctx, "XTRIM", "later", "MAXLEN", 0)
    run(stage.ctx, "XSETID", "later", "1-0")
    stage.add("due", START_MS + 8, "job", "b", id="5-0")
    stage.add("due", START_MS + 9, "job", "c", id="9-0")
    stage.at(7)
    assert stage.entries("jobs") == []
    stage.at(9)
    assert [fields[1] for fields in stage.entries("jobs")] == [b"b", b"c"]
    run(stage.ctx, "DEL", "later")
    run(stage.ctx, "RENAME", "jobs", "later")
    stage.at(10)
    assert [fields[1] for fields in stage.entries("jobs")] == [b"b", b"c"]


def test_a_target_of_another_type_keeps_entries_waiting(stage: Stage) -> None:
    stage.add("due", START_MS + 1, "job", "x")
    stage.add("due", START_MS + 2, "job", "y")
    run(stage.ctx, "SET", "jobs", "no stream")
    assert stage.at(2) == []
    assert run(stage.ctx, "STREAMD.STREAM", "GET", "later")[b"last-error"].startswith(b"WRONGTYPE")
    assert all_progress(stage.ctx).sums()[-1] == 1
    run(stage.ctx, "DEL", "jobs")
    assert stage.at(3) == []  # it is tried again after a second
    stage.at(1002)
    assert [fields[1] for fields in stage.entries("jobs")] == [b"x", b"y"]
    shown = run(stage.ctx, "STREAMD.STREAM", "GET", "later")
    assert shown == {b"feeds": b"jobs", b"due": b"due", b"moved": 2}


def test_a_later_entry_replaces_the_waiting_one() -> None:
    stage = Stage("FEEDS jobs DUE due UNIQUE user")
    first = stage.add("due", START_MS + 100, "user", 7, "n", 1)
    stage.add("due", START_MS + 100, "user", 8, "n", 2)
    stage.add("due", START_MS + 100, "n", 3)
    stage.at(0)
    stage.add("due", START_MS + 150, "user", 7, "n", 4)
    assert stage.at(1) == [[b"XDEL", b"later", first.encode()]]
    stage.at(120)
    assert [fields[-1] for fields in stage.entries("jobs")] == [b"2", b"3"]
    stage.at(150)
    stage.add("due", START_MS + 200, "user", 7, "n", 5)  # the one before it does not wait any more
    assert stage.at(151) == []
    stage.at(200)
    assert [fields[-1] for fields in stage.entries("jobs")] == [b"2", b"3", b"4", b"5"]
    assert run(stage.ctx, "STREAMD.STREAM", "GET", "later")[b"replaced"] == 1


def test_what_was_replaced_while_nothing_might_change_does_not_move() -> None:
    stage = Stage("FEEDS jobs DUE due UNIQUE user")
    first = stage.add("due", START_MS + 200, "user", 7, "n", 1)
    stage.at(0)
    stage.add("due", START_MS + 100, "user", 7, "n", 2)
    stage.follow(may_act=False)  # as on a replica
    assert len(stage.entries("later")) == 2
    assert stage.at(100)[0] == [b"XDEL", b"later", first.encode()]
    stage.at(200)
    assert [fields[-1] for fields in stage.entries("jobs")] == [b"2"]


def test_an_id_that_was_given_anew_is_not_that_of_a_replaced_entry() -> None:
    stage = Stage("FEEDS jobs DUE due UNIQUE user")
    stage.add("due", START_MS + 200, "user", 7, "n", 1, id="5-0")
    stage.add("due", START_MS + 200, "user", 7, "n", 2, id="6-0")
    stage.follow(may_act=False)
    run(stage.ctx, "XTRIM", "later", "MAXLEN", 0)
    run(stage.ctx, "XSETID", "later", "1-0")
    stage.add("due", START_MS + 200, "user", 8, "n", 3, id="5-0")
    stage.add("due", START_MS + 200, "user", 9, "n", 4, id="6-0")
    assert stage.at(0) == []
    assert [fields[-1] for fields in stage.entries("later")] == [b"3", b"4"]


def test_values_of_cancelled_entries_are_forgotten() -> None:
    stage = Stage("FEEDS jobs DUE due UNIQUE user")
    for number in range(3000):
        id = stage.add("due", START_MS + number + 1, "user", number)
        stage.at(number)
        run(stage.ctx, "XDEL", "later", id)
        stage.at(number + 1)
    assert len(stage.delays.waiting.latest) < 1100
    assert stage.entries("jobs") == []


def test_an_entry_expires_for_all_groups() -> None:
    stage = Stage("EXPIRES until")
    run(stage.ctx, "XGROUP", "CREATE", "later", "g", "0", "MKSTREAM")
    first = stage.add("until", START_MS + 100, "n", 1)
    stage.add("n", 2)
    stage.add("until", "never", "n", 3)
    second = stage.add("until", START_MS + 50, "n", 4)
    run(stage.ctx, "XREADGROUP", "GROUP", "g", "c", "STREAMS", "later", ">")
    assert stage.at(49) == []
    assert stage.at(100) == [[b"XDELEX", b"later", b"DELREF", b"IDS", b"2", second.encode(), first.encode()]]
    assert [fields[-1] for fields in stage.entries("later")] == [b"2", b"3"]
    assert run(stage.ctx, "XPENDING", "later", "g")[0] == 2
    assert run(stage.ctx, "STREAMD.STREAM", "GET", "later") == {b"expires": b"until", b"expired": 2, b"unreadable": 1}


def test_what_has_expired_does_not_move() -> None:
    stage = Stage("FEEDS jobs DUE due EXPIRES until")
    stage.add("due", START_MS + 100, "until", START_MS + 100, "n", 1)
    stage.add("due", START_MS + 100, "until", START_MS + 101, "n", 2)
    stage.at(100)
    assert [fields[-1] for fields in stage.entries("jobs")] == [b"2"]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ("FEEDS jobs", "ERR FEEDS needs DUE"),
        ("DUE due", "ERR DUE needs FEEDS"),
        ("UNIQUE f", "ERR UNIQUE needs FEEDS"),
        ("FEEDS jobs DUE f UNIQUE f", "ERR UNIQUE must not be the field of DUE"),
        ("FEEDS new DUE due", "ERR FEEDS 'new' leads back to 'new'"),
        ("FEEDS later DUE due", "ERR FEEDS 'later' leads back to 'new'"),
    ],
)
def test_refused_and_nothing_changed(options: str, error: str) -> None:
    stage = Stage("FEEDS middle DUE due")
    run(stage.ctx, "STREAMD.STREAM", "SET", "middle", "FEEDS", "new", "DUE", "due")
    reply = run(stage.ctx, "STREAMD.STREAM", "SET", "new", *options.split())
    assert isinstance(reply, hiredis.ReplyError)
    assert str(reply) == error
    assert run(stage.ctx, "STREAMD.STREAM", "GET", "new") == {}


def test_the_target_is_a_key_of_the_request() -> None:
    found = table["STREAMD.STREAM"].subcommands["SET"]
    request = b"STREAMD.STREAM SET later RETAIN ACKED LENGTH 5 DUE FEEDS UNIQUE u feeds jobs".split()
    assert [use.position for use in keys_of(found, request)] == [2, 12]
    assert [use.position for use in keys_of(found, request[:7])] == [2]


def test_a_rule_has_a_line_with_all_of_it(stage: Stage) -> None:
    run(stage.ctx, "STREAMD.STREAM", "SET", "later", "RETAIN", "LENGTH", 5, "EXPIRES", "until time", "UNIQUE", "u")
    text = b'STREAM FEEDS jobs DUE due UNIQUE u EXPIRES "until time" RETAIN LENGTH 5'
    assert run(stage.ctx, "GET", key_of_rules(b"later")) == text
    run(stage.ctx, "STREAMD.STREAM", "UNSET", "later", "FEEDS", "DUE", "UNIQUE", "RETAIN")
    assert run(stage.ctx, "GET", key_of_rules(b"later")) == b'STREAM EXPIRES "until time"'
