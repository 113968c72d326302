"""Publish/subscribe against a real Redis: what every connection of a story reads, byte for byte and in order.

A story is a list of lines `name: COMMAND ...`, where each name is a connection of its own. After each line all
connections are read until they have said all they have to say. To know that they have, each is sent a PING: its answer
comes after all that was published before. What stands in no fixed order (which of two patterns of
one connection gets a message first) is sorted.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.compare.differential import Pair, parse_script
from support.compare.mask import mask
from support.servers import Server, eventually
from support.wire import ConnectionClosed, Reply, Wire, show, split_line

pytestmark = pytest.mark.real

MARK = b"that is all"


def is_mark(reply: Reply) -> bool:
    """Whether this is the answer to the PING that ends what a connection says."""
    return reply == Reply("$", MARK) or (
        reply.kind == "*" and reply.value is not None and [part.value for part in reply.value] == [b"pong", MARK]
    )


class Cast:
    """The connections of a story on one server."""

    def __init__(self, server: Server, protocol: int) -> None:
        self.server = server
        self.protocol = protocol
        self.wires: dict[str, Wire] = {}
        self.record: list[str] = []

    def wire(self, who: str) -> Wire:
        if who not in self.wires:
            # A name may end in its protocol: `s2`, `s3`.
            protocol = int(who[-1]) if who[-1] in "23" else self.protocol
            self.wires[who] = self.server.connect(protocol)
        return self.wires[who]

    def play(self, story: str, sort: bool) -> list[str]:
        for line in story.strip().splitlines():
            who, _, text = line.strip().partition(": ")
            args = split_line(text)
            self.wire(who).send(*args)
            self.wire(who).send("PING", MARK)
            heard = self.hear(who, args)
            for name in sorted(self.wires):
                if name != who:
                    self.wires[name].send("PING", MARK)
                    heard += self.hear(name, [b"PING"])
            self.record += [f"after {line.strip()}:", *(sorted(heard) if sort else heard)]
        return self.record

    def hear(self, who: str, args: list[bytes]) -> list[str]:
        """What a connection says to a request, and until it has answered the PING after that."""
        wire = self.wires[who]
        heard: list[str] = []
        while True:
            try:
                reply = wire.read()
            except ConnectionClosed:
                self.wires.pop(who).close()
                return [*heard, f"{who}: closed"]
            if is_mark(reply):
                return heard
            is_greeting = args[0] == b"HELLO" and reply.kind in "*%"  # lists modules, which only a Redis has
            heard.append(f"{who}: {'is greeted' if is_greeting else show(mask(args, reply))}")

    def close(self) -> None:
        for wire in self.wires.values():
            wire.close()


Compare = Callable[..., list[str]]


@pytest.fixture(params=[2, 3], ids=["RESP2", "RESP3"])
def compare(request: pytest.FixtureRequest, streamd_server: Server, redis_server: Server) -> Compare:
    """Play a story on both servers; the record, which must be the same."""

    def play(story: str, *, sort: bool = False, protocol: int = request.param) -> list[str]:
        records = []
        for server in (streamd_server, redis_server):
            with server.connect() as wire:
                assert wire.call("FLUSHALL") == Reply("+", b"OK")
            cast = Cast(server, protocol)
            try:
                records.append(cast.play(story, sort))
            finally:
                cast.close()
            with server.connect() as wire:
                for kind in ("CHANNELS", "SHARDCHANNELS", "NUMPAT"):
                    eventually(lambda kind=kind, wire=wire: not wire.call("PUBSUB", kind).value, what=f"no {kind}")
        assert records[0] == records[1]
        return records[0]

    return play


# --- Who hears what ------------------------------------------------------------------------------------------------


def test_a_message_reaches_the_subscribers_of_its_channel(compare: Compare) -> None:
    record = compare(
        """
        a: SUBSCRIBE news sports
        b: SUBSCRIBE news
        p: PUBLISH news hello
        p: PUBLISH sports 1:0
        p: PUBLISH weather rain
        b: UNSUBSCRIBE news
        p: PUBLISH news again
        a: UNSUBSCRIBE sports news
        p: PUBLISH news nobody
        """,
        sort=True,
    )
    assert "p: :2" in record


def test_a_client_that_matches_twice_hears_twice(compare: Compare) -> None:
    compare(
        """
        a: PSUBSCRIBE n* news [mn]ews x*
        a: SUBSCRIBE news
        p: PUBLISH news hello
        p: PUBLISH names hello
        a: PUNSUBSCRIBE n*
        p: PUBLISH news hello
        a: PUNSUBSCRIBE x* news [mn]ews
        p: PUBLISH news hello
        """,
        sort=True,
    )


@pytest.mark.parametrize(
    ("pattern", "channels"),
    [
        ("*", ["", "a", "\\r\\n"]),
        ("", ["", "a"]),
        ("h?llo", ["hello", "hllo", "heello"]),
        ("h[ae]llo", ["hello", "hallo", "hillo"]),
        ("h[^e]llo", ["hello", "hallo"]),
        ("news.sport.*", ["news.sport.", "news.sport", "news.sporx.y", "news.sport.football"]),
        ("exactly this", ["exactly this", "exactly that", "exactly", "exactly this one"]),
        ("exact", ["exact", "exac", "exact "]),
        ("12345678", ["12345678", "123456789", "1234567"]),
        ("\\\\*", ["*", "a", "\\\\*"]),
        ("a\\\\?c", ["a?c", "abc"]),
        ("[a-c]*z", ["az", "bzz", "dz", "c"]),
        ("a\\x00*", ["a\\x00", "a", "a\\x00b"]),
        ("\\x00", ["\\x00", "", "\\x00\\x00"]),
        ("\\xff*", ["\\xff", "\\xfe", "\\xff\\xff"]),
    ],
)  # fmt: skip
def test_patterns_match_by_redis_rules(compare: Compare, pattern: str, channels: list[str]) -> None:
    compare("\n".join([f'a: PSUBSCRIBE "{pattern}"', *(f'p: PUBLISH "{channel}" x' for channel in channels)]))


def test_patterns_and_channels_are_counted_together_and_shard_channels_apart(compare: Compare) -> None:
    compare(
        """
        a: SUBSCRIBE one two one
        a: PSUBSCRIBE one* one*
        a: SSUBSCRIBE one two one
        p: PUBSUB NUMPAT
        p: PUBSUB NUMSUB one two three
        p: PUBSUB SHARDNUMSUB one two three
        p: PUBLISH one channel
        p: SPUBLISH one shard
        a: UNSUBSCRIBE never
        a: PUNSUBSCRIBE never
        a: SUNSUBSCRIBE never
        a: SUNSUBSCRIBE one
        a: UNSUBSCRIBE one
        p: SPUBLISH one shard
        p: SPUBLISH two shard
        a: SUNSUBSCRIBE
        a: PUNSUBSCRIBE
        a: UNSUBSCRIBE
        a: UNSUBSCRIBE
        a: PUNSUBSCRIBE
        a: SUNSUBSCRIBE
        a: GET key
        """
    )


def test_unsubscribing_from_everything_tells_of_each(compare: Compare) -> None:
    record = compare(
        "a: SUBSCRIBE a\na: PSUBSCRIBE b\na: SSUBSCRIBE c\na: UNSUBSCRIBE\na: PUNSUBSCRIBE\na: SUNSUBSCRIBE"
    )
    assert sum("unsubscribe" in line for line in record if line.startswith("a: ")) == 3


def test_names_may_end_in_any_order_but_the_counts_go_down(pair: Pair) -> None:
    """Redis goes through them in the order of a hash table."""
    both = []
    for wire in pair.wires:
        wire.send("SUBSCRIBE", "b", "a", "c")
        wire.send("UNSUBSCRIBE")
        said = [wire.read().value for _ in range(6)]
        both.append(({reply[1].value for reply in said[3:]}, [reply[2].value for reply in said]))
    assert both[0] == both[1] == ({b"a", b"b", b"c"}, [1, 2, 3, 2, 1, 0])


def test_names_and_messages_may_be_any_bytes(compare: Compare) -> None:
    compare(
        """
        a: SUBSCRIBE "" "\\r\\n" "\\x00\\xff"
        p: PUBLISH "" ""
        p: PUBLISH "\\r\\n" "\\r\\n"
        p: PUBLISH "\\x00\\xff" "\\xff\\x00"
        p: PUBSUB NUMSUB "" "\\r\\n"
        """
    )


def test_two_protocols_listen_to_one_channel(compare: Compare) -> None:
    compare(
        """
        a2: SUBSCRIBE c
        b3: SUBSCRIBE c
        c2: PSUBSCRIBE c*
        d3: PSUBSCRIBE c*
        e3: SSUBSCRIBE c
        p: PUBLISH c hello
        p: SPUBLISH c hello
        b3: HELLO 2
        p: PUBLISH c hello
        """
    )


def test_a_long_message_and_many_subscriptions(compare: Compare) -> None:
    names = " ".join(f"channel:{i}" for i in range(300))
    compare(f"a: SUBSCRIBE {names}\nb: PSUBSCRIBE {names}\np: PUBLISH channel:7 {'x' * 100_000}\np: PUBSUB NUMPAT")


def test_events_do_not_cross_databases_but_messages_do(compare: Compare) -> None:
    compare("a: SELECT 3\na: SUBSCRIBE c\np: PUBLISH c hello")


# --- What a subscriber may say ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("subscribe", ["SUBSCRIBE x", "PSUBSCRIBE x*", "SSUBSCRIBE x"])
def test_a_subscriber_may_say_little_in_resp2(compare: Compare, subscribe: str) -> None:
    record = compare(
        f"""
        a2: {subscribe}
        a2: PING
        a2: PING hello
        a2: PING one two
        a2: GET key
        a2: XADD s * f v
        a2: CLIENT ID
        a2: CLIENT NOSUCH
        a2: HELLO 3
        a2: MULTI
        a2: EXEC
        a2: PUBLISH x y
        a2: NOSUCH
        a2: GET
        a2: QUIT now
        """,
    )
    assert record[-1] == "a2: closed"


def test_reset_ends_subscriptions(compare: Compare) -> None:
    compare(
        """
        a: SUBSCRIBE x
        a: PSUBSCRIBE x*
        a: SSUBSCRIBE x
        a: RESET
        p: PUBLISH x hello
        p: SPUBLISH x hello
        p: PUBSUB NUMPAT
        p: PUBSUB CHANNELS
        a: GET key
        """
    )


def test_hello_2_puts_a_subscriber_in_the_restricted_mode(compare: Compare) -> None:
    compare(
        """
        a3: SUBSCRIBE x
        a3: HELLO 2 SETNAME n
        a3: GET key
        a3: HELLO 3
        a3: PING
        p: PUBLISH x hello
        a3: UNSUBSCRIBE x
        a3: GET key
        a3: PING
        """
    )


def test_subscriptions_end_with_the_connection(compare: Compare) -> None:
    compare("a: SUBSCRIBE x\na: PSUBSCRIBE y*\na: SSUBSCRIBE z\na: QUIT")


# --- Order, and what silences what -----------------------------------------------------------------------------------


OWN_MESSAGES = """
SUBSCRIBE a
PSUBSCRIBE a*
PUBLISH a one
PUBLISH a two
XADD s 1-1 f v
MULTI
PUBLISH a three
XLEN s
PUBLISH a four
EXEC
PING
"""

IN_TRANSACTIONS = [
    "MULTI\nSUBSCRIBE a b\nPSUBSCRIBE a*\nPUBLISH a one\nPING\nEXEC",
    "MULTI\nSUBSCRIBE a\nPUBLISH a one\nSSUBSCRIBE s\nSUNSUBSCRIBE s\nPUBLISH a two\nGET key\nUNSUBSCRIBE a\nPING\nEXEC",
    "SUBSCRIBE a\nMULTI\nUNSUBSCRIBE a\nGET key\nEXEC",
    "MULTI\nUNSUBSCRIBE\nPUNSUBSCRIBE\nSUNSUBSCRIBE\nEXEC",
    "MULTI\nSUBSCRIBE a\nDISCARD\nPUBLISH a nobody",
    "MULTI\nSUBSCRIBE a\nNOSUCH\nEXEC\nPUBLISH a nobody",
    "MULTI\nPUBLISH a nobody\nSPUBLISH a nobody\nEXEC",
]

SILENCED = [
    "CLIENT REPLY OFF\nSUBSCRIBE a b\nPUBLISH a one\nPING\nPUBLISH a two\nUNSUBSCRIBE b\nPING\nCLIENT REPLY ON\nPING",
    "CLIENT REPLY SKIP\nSUBSCRIBE a\nPUBLISH a one\nCLIENT REPLY SKIP\nPUBLISH a two\nPING\nUNSUBSCRIBE",
    "CLIENT REPLY OFF\nMULTI\nSUBSCRIBE a\nPUBLISH a 1\nSUBSCRIBE b\nPUBLISH b 2\nPING\nEXEC\nCLIENT REPLY ON",
    "CLIENT REPLY SKIP\nMULTI\nSUBSCRIBE a\nEXEC\nUNSUBSCRIBE",
    "SUBSCRIBE a\nCLIENT REPLY OFF\nPUBLISH a 1\nXADD s 1-1 f v\nPUBLISH a 2\nCLIENT REPLY ON",
    "MULTI\nCLIENT REPLY OFF\nEXEC\nSUBSCRIBE a\nPUBLISH a 1\nUNSUBSCRIBE\nCLIENT REPLY ON\nPING",
    "CLIENT REPLY OFF\nUNSUBSCRIBE\nPUNSUBSCRIBE\nSUNSUBSCRIBE\nCLIENT REPLY ON",
]

BROKEN_ARRAYS = [
    "MULTI\nSUBSCRIBE a\nCLIENT REPLY OFF\nPUBLISH a 1\nSUBSCRIBE b\nPUBLISH b 2\nPING\nCLIENT REPLY ON\nPUBLISH a 3\nEXEC",
    "MULTI\nCLIENT REPLY SKIP\nSUBSCRIBE a\nPUBLISH a 1\nPING\nEXEC",
]
"""Transactions whose reply has fewer elements than it says, in Redis too: compared as bytes."""


def said_by(wire: Wire, script: str) -> bytes:
    """The bytes of all that a connection says to a script, sent whole, up to the reply of a RESET.

    The PING before takes what is left of a CLIENT REPLY SKIP upon itself.
    """
    for request in [*parse_script(script), (b"PING",), (b"RESET",)]:
        wire.send(*request)
    said = b""
    while not said.endswith(b"+RESET\r\n"):
        said += wire.read_bytes(1)
    return said


@pytest.mark.parametrize("script", [OWN_MESSAGES, *IN_TRANSACTIONS, *SILENCED, *BROKEN_ARRAYS])
def test_a_publisher_that_listens_reads_replies_and_messages_in_order(pair: Pair, script: str) -> None:
    ours, theirs = (said_by(wire, script) for wire in pair.wires)
    assert ours == theirs


def test_messages_of_one_publisher_keep_their_order(streamd_server: Server) -> None:
    with streamd_server.connect() as publisher, streamd_server.connect(3) as listener:
        listener.send("SUBSCRIBE", "a")
        listener.send("PSUBSCRIBE", "b*")
        publisher.pipeline([("PING",)])
        assert [listener.read().kind for _ in range(2)] == [">", ">"]
        publisher.pipeline([("PUBLISH", "a" if i % 3 else "b", str(i)) for i in range(5000)])
        heard = [listener.read().value[-1].value for _ in range(5000)]
        assert heard == [b"%d" % i for i in range(5000)]


def test_a_blocked_client_continues_hearing_messages(streamd_server: Server, redis_server: Server) -> None:
    """In RESP3: in RESP2 a subscriber may not ask for what blocks."""
    records = []
    for server in (streamd_server, redis_server):
        with server.connect() as other, server.connect(3) as listener:
            other.call("DEL", "s")
            listener.send("SUBSCRIBE", "a")
            listener.send("XREAD", "BLOCK", "0", "STREAMS", "s", "$")
            field = b"blocked_clients:1\r\n"
            eventually(lambda other=other, field=field: field in other.call("INFO", "clients").value, what="blocked")
            other.pipeline([("PUBLISH", "a", "one"), ("XADD", "s", "1-1", "f", "v"), ("PUBLISH", "a", "two")])
            records.append([show(listener.read()) for _ in range(4)])
    assert records[0] == records[1]


# --- PUBSUB ----------------------------------------------------------------------------------------------------------


def test_pubsub_answers_as_redis_does(pair: Pair) -> None:
    pair.run_text(
        """
        PUBSUB CHANNELS
        PUBSUB CHANNELS *
        PUBSUB CHANNELS a b
        PUBSUB NUMSUB
        PUBSUB NUMSUB a b a
        PUBSUB NUMPAT
        PUBSUB NUMPAT a
        PUBSUB SHARDCHANNELS
        PUBSUB SHARDCHANNELS a b
        PUBSUB shardchannels a b
        PUBSUB SHARDNUMSUB
        PUBSUB SHARDNUMSUB a
        PUBSUB
        PUBSUB NOSUCH
        PUBSUB HELP more
        PUBLISH a
        PUBLISH a b c
        SPUBLISH a
        SUBSCRIBE
        PSUBSCRIBE
        SSUBSCRIBE
        """
    )


@pytest.mark.parametrize("pattern", ["*", "", "c?annel", "c*[1-3]", "nosuch"])
def test_channels_in_use_are_listed_by_pattern(compare: Compare, pattern: str) -> None:
    compare(
        f"""
        a: SUBSCRIBE channel
        b: SSUBSCRIBE shard
        p: PUBSUB CHANNELS "{pattern}"
        p: PUBSUB SHARDCHANNELS "{pattern}"
        """
    )


def test_help_names_the_same_subcommands(pair: Pair) -> None:
    texts = [[line.value for line in wire.call("PUBSUB", "HELP").value] for wire in pair.wires]
    ours, theirs = ([line for line in text if not line.startswith(b" ")] for text in texts)
    assert ours == theirs
