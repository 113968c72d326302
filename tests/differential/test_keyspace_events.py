"""Keyspace events: which classes are published where, against a real Redis. What each command tells is tested beside it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.compare.differential import Pair
from support.compare.events import Event, EventWatch
from support.servers import Server

pytestmark = pytest.mark.real


@pytest.fixture
def watch(streamd_server: Server, redis_server: Server) -> Iterator[EventWatch]:
    with EventWatch(streamd_server, redis_server) as watch:
        yield watch


STORY = """
SET s one
XADD x 1-1 f v
XADD x 2-1 f v
XADD s 1-1 f v
GET missing
EXPIRE s 100
PERSIST s
RENAME s other
SET x two
DEL x other missing
"""


@pytest.mark.parametrize(
    "letters",
    ["", "K", "E", "A", "KEA", "KA", "EA", "KEAmnoc", "KEg", "KE$", "KEt", "Km", "En", "Eo", "Kc", "KEgt", "El", "Kd", "Eshz"],
)  # fmt: skip
def test_only_the_classes_asked_for_are_published(watch: EventWatch, letters: str) -> None:
    watch.compare(STORY, letters)


def test_each_event_comes_by_key_and_then_by_name(watch: EventWatch) -> None:
    assert watch.compare("XADD key 1-1 f v\nDEL key", "KEA") == [Event(0, b"xadd", b"key"), Event(0, b"del", b"key")]


def test_the_channel_names_the_database(watch: EventWatch) -> None:
    events = watch.compare("SELECT 3\nSET a 1\nMOVE a 4\nSELECT 0\nSET a 2")
    assert {event.db for event in events} == {0, 3, 4}


def test_keys_of_any_bytes_are_notified(watch: EventWatch) -> None:
    watch.compare([("SET", b"\r\n\x00\xff*[a]", "x"), ("SET", b"", "x"), ("XADD", b"%d%b%s", "1-1", "f", "v")])


def test_a_key_that_expires_by_itself_is_reported_when_it_goes(watch: EventWatch) -> None:
    assert watch.compare("SET k v PX 20", "KEx", waits_for=(b"expired", b"k")) == [Event(0, b"expired", b"k")]


def test_events_of_a_transaction_come_in_the_order_of_its_commands(watch: EventWatch) -> None:
    watch.compare("MULTI\nSET a 1\nXADD b 1-1 f v\nDEL a\nEXEC\nMULTI\nSET a 1\nDISCARD")


def test_a_client_reads_the_events_of_its_own_command_after_the_reply(pair: Pair) -> None:
    script = [("CONFIG", "SET", "notify-keyspace-events", "KEA")]
    if pair.protocol == 3:
        script += [("PSUBSCRIBE", "__key*@0__:*"), ("SET", "k", "v"), ("DEL", "k"), ("MULTI",), ("SET", "k", "v"), ("PING",), ("EXEC",)]  # fmt: skip
    else:
        script += [("MULTI",), ("PSUBSCRIBE", "__key*@0__:*"), ("SET", "k", "v"), ("DEL", "k"), ("EXEC",)]
    try:
        both = []
        for wire in pair.wires:
            for request in (*script, ("RESET",)):
                wire.send(*request)
            said = []
            while not said or said[-1].value != b"RESET":
                said.append(wire.read())
            both.append(said)
        assert both[0] == both[1]
    finally:
        for server in pair.servers:
            with server.connect() as wire:
                wire.call("CONFIG", "SET", "notify-keyspace-events", "")


@pytest.mark.parametrize(
    "letters", ["", "A", "AKE", "KEA", "mKEA", "noc", "Anoc", "KEg$lshzxetdmnoc", "g$lshzxetd", "dtxz", "x x", "Q", "KE1", "kea"]
)  # fmt: skip
def test_the_setting_shows_letters_as_redis_does(pair: Pair, letters: str) -> None:
    script = (("CONFIG", "SET", "notify-keyspace-events", letters), ("CONFIG", "GET", "notify-keyspace-events"))
    try:
        pair.run(script)
    finally:
        pair.run([("CONFIG", "SET", "notify-keyspace-events", "")])
