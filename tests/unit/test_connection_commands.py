"""The connection commands, on a server without sockets: what they answer, and what becomes of the connections."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

import hiredis
import pytest
from support.commands.hosts import Host, Peer

from streamd import REDIS_VERSION
from streamd.clients.connection_commands import HelloOptions, KillFilter
from streamd.clients.pause import Pause
from streamd.core.client import Client
from streamd.core.client_line import describe
from streamd.core.spec import table
from streamd.errors import CommandError

NOT_A_NAME = "cannot contain spaces, newlines or special characters."


def connect(host: Host, number: int, address: str = "127.0.0.1", own: tuple[str, int] = ("127.0.0.1", 6379)) -> Peer:
    """Make client `number`; no connection that is there has a greater one."""
    for _ in range(max(host.server.clients, default=0) + 1, number):
        host.server.dispatcher.new_client_id()
    peer = host.connect((address, 50000 + number), own)
    assert peer.client.id == number
    return peer


@pytest.fixture
def host() -> Iterator[Host]:
    with Host(protected_mode=False) as host:
        yield host


@pytest.fixture
def locked() -> Iterator[Peer]:
    """A client that is not authenticated; the password is `secret`."""
    with Host(requirepass="secret") as host:
        yield connect(host, 5)


@pytest.fixture
def client(host: Host) -> Peer:
    """Client 5, which is authenticated; no password is needed."""
    return connect(host, 5)


def run(peer: Peer, line: str) -> Any:
    """The reply to a request given as words; an error as its text, after `-`."""
    reply = peer.ask(*line.split(" "))
    return f"-{reply}" if isinstance(reply, hiredis.ReplyError) else reply


def is_open(peer: Peer) -> bool:
    return not peer.transport.is_closed


# --- PING, ECHO, SELECT, QUIT, RESET -------------------------------------------------------------------------------------


def test_ping_answers_pong_or_what_it_was_given(client: Peer) -> None:
    assert run(client, "PING") == b"PONG"
    assert run(client, "PING hello") == b"hello"
    assert run(client, "PING a b") == "-ERR wrong number of arguments for 'ping' command"


def test_echo(client: Peer) -> None:
    assert client.ask("ECHO", b"a\r\n\x00") == b"a\r\n\x00"


@pytest.mark.parametrize(
    ("index", "reply"),
    [
        ("0", b"OK"),
        ("15", b"OK"),
        ("16", "-ERR DB index is out of range"),
        ("-1", "-ERR DB index is out of range"),
        ("a", "-ERR value is not an integer or out of range"),
        ("01", "-ERR value is not an integer or out of range"),
        ("99999999999999999999", "-ERR value is not an integer or out of range"),
        ("2147483648", "-ERR value is out of range, value must between -2147483648 and 2147483647"),
    ],
)
def test_select(client: Peer, index: str, reply: Any) -> None:
    run(client, "SELECT 3")
    assert run(client, f"SELECT {index}") == reply
    assert client.client.db_index == (int(index) if reply == b"OK" else 3)


def test_quit_answers_and_closes(client: Peer) -> None:
    client.send("QUIT", "now", "please")
    client.send("PING")
    assert is_open(client)
    assert client.read() == [b"OK"]
    assert not is_open(client)


def test_reset_answers_in_the_protocol_of_a_new_connection(client: Peer) -> None:
    for line in ("HELLO 3 SETNAME x", "SELECT 2", "CLIENT NO-TOUCH on", "CLIENT TRACKING on", "MULTI"):
        run(client, line)
    assert run(client, "RESET") == b"RESET"
    found = client.client
    assert (found.reply.resp, found.name, found.db_index, found.no_touch) == (2, b"", 0, False)
    assert (found.tracking, found.transaction) == (None, None)
    assert run(client, "PING") == b"PONG"


@pytest.mark.parametrize("name", ["READONLY", "READWRITE"])
def test_there_is_no_cluster(client: Peer, name: str) -> None:
    assert run(client, name) == "-ERR This instance has cluster support disabled"


# --- AUTH, HELLO ---------------------------------------------------------------------------------------------------------

WRONG_PASSWORD = "-WRONGPASS invalid username-password pair or user is disabled."
NO_PASSWORD_SET = (
    "-ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration"
    " is correct?"
)


@pytest.mark.parametrize(
    ("line", "reply"),
    [
        ("AUTH secret", b"OK"),
        ("AUTH default secret", b"OK"),
        ("AUTH wrong", WRONG_PASSWORD),
        ("AUTH secre", WRONG_PASSWORD),
        ("AUTH default wrong", WRONG_PASSWORD),
        ("AUTH Default secret", WRONG_PASSWORD),
        ("AUTH other secret", WRONG_PASSWORD),
        ("AUTH a b c", "-ERR syntax error"),
        ("HELLO 3 AUTH default wrong", WRONG_PASSWORD),
    ],
)
def test_auth_with_a_password(locked: Peer, line: str, reply: Any) -> None:
    assert not locked.client.authenticated
    assert run(locked, line) == reply
    assert locked.client.authenticated is (reply == b"OK")
    assert locked.client.reply.resp == 2


def test_a_wrong_password_leaves_who_was_authenticated(locked: Peer) -> None:
    assert run(locked, "AUTH secret") == b"OK"
    assert run(locked, "AUTH wrong") == WRONG_PASSWORD
    assert locked.client.authenticated


def test_auth_without_a_password(client: Peer) -> None:
    assert run(client, "AUTH any") == NO_PASSWORD_SET
    assert run(client, "AUTH default any") == b"OK"
    assert run(client, "AUTH other any") == WRONG_PASSWORD


def test_hello_tells_about_the_server(client: Peer) -> None:
    about = [
        b"server", b"redis", b"version", REDIS_VERSION.encode(), b"proto", 2, b"id", 5,
        b"mode", b"standalone", b"role", b"master", b"modules", [],
    ]  # fmt: skip
    assert run(client, "HELLO") == about
    assert run(client, "HELLO 2") == about
    about[5] = 3
    assert run(client, "HELLO 3") == dict(zip(about[::2], about[1::2], strict=True))
    assert run(client, "HELLO")[b"proto"] == 3
    assert run(client, "HELLO 2")[5] == 2


def test_hello_does_all_or_nothing(locked: Peer) -> None:
    for line in ("HELLO 3 SETNAME x AUTH default no", "HELLO 3 SETNAME x AUTH default secret FOO", "HELLO 3 SETNAME x"):
        assert isinstance(run(locked, line), str)
        assert (locked.client.name, locked.client.reply.resp, locked.client.authenticated) == (b"", 2, False)
    assert run(locked, "HELLO 3 SETNAME x AUTH default secret")[b"proto"] == 3
    assert (locked.client.name, locked.client.reply.resp, locked.client.authenticated) == (b"x", 3, True)


NOT_AUTHENTICATED = (
    "-NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass>"
    " option can be used to authenticate the client and select the RESP protocol version at the same time"
)


@pytest.mark.parametrize("line", ["HELLO", "HELLO 2", "HELLO 3", "HELLO 3 SETNAME a"])
def test_hello_needs_authentication(locked: Peer, line: str) -> None:
    assert run(locked, line) == NOT_AUTHENTICATED


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("HELLO 4", "NOPROTO unsupported protocol version"),
        ("HELLO 1", "NOPROTO unsupported protocol version"),
        ("HELLO -1", "NOPROTO unsupported protocol version"),
        ("HELLO 4 FOO", "NOPROTO unsupported protocol version"),
        ("HELLO a", "ERR Protocol version is not an integer or out of range"),
        ("HELLO 03", "ERR Protocol version is not an integer or out of range"),
        ("HELLO AUTH a b", "ERR Protocol version is not an integer or out of range"),
        ("HELLO 3 FOO", "ERR Syntax error in HELLO option 'FOO'"),
        ("HELLO 3 fo\r\no", "ERR Syntax error in HELLO option 'fo  o'"),
        ("HELLO 3 auth a", "ERR Syntax error in HELLO option 'auth'"),
        ("HELLO 3 SETNAME", "ERR Syntax error in HELLO option 'SETNAME'"),
        ("HELLO 3 SETNAME \x07 FOO", f"ERR Client names {NOT_A_NAME}"),
    ],
)
def test_hello_errors(line: str, error: str) -> None:
    with pytest.raises(CommandError, match=f"^{re.escape(error)}$"):
        HelloOptions.parse(line.encode().split(b" "))


def test_hello_takes_the_last_of_two_options() -> None:
    options = HelloOptions.parse(b"HELLO 3 SETNAME a AUTH u p setname b auth v q".split())
    assert options == HelloOptions(3, (b"v", b"q"), b"b")


# --- CLIENT: names and switches --------------------------------------------------------------------------------------------


def test_client_names(client: Peer) -> None:
    assert run(client, "CLIENT ID") == 5
    assert run(client, "CLIENT GETNAME") is None
    assert run(client, "CLIENT SETNAME !~") == b"OK"
    assert run(client, "CLIENT GETNAME") == b"!~"
    for name in (b"a b", b"\n", b"\x7f", b"\xc3\xa9"):
        assert str(client.ask("CLIENT", "SETNAME", name)) == f"ERR Client names {NOT_A_NAME}"
    assert run(client, "CLIENT GETNAME") == b"!~"
    assert client.ask("CLIENT", "SETNAME", "") == b"OK"
    assert run(client, "CLIENT GETNAME") is None


def test_client_setinfo(client: Peer) -> None:
    assert run(client, "CLIENT SETINFO lib-name redis-py") == b"OK"
    assert run(client, "CLIENT SETINFO LIB-VER 8.1.0") == b"OK"
    assert (client.client.lib_name, client.client.lib_ver) == (b"redis-py", b"8.1.0")
    assert str(client.ask("CLIENT", "SETINFO", "Lib-Ver", "a b")) == f"ERR Lib-Ver {NOT_A_NAME}"
    assert str(client.ask("CLIENT", "SETINFO", "foo", "a b")) == "ERR Unrecognized option 'foo'"
    assert client.ask("CLIENT", "SETINFO", "LIB-NAME", "") == b"OK"
    assert client.client.lib_name == b""


@pytest.mark.parametrize(
    ("mode", "replies"), [("on", [b"OK", b"1", b"2"]), ("OFF", []), ("Skip", [b"2"])]
)  # fmt: skip
def test_client_reply_answers_only_when_replies_are_on(client: Peer, mode: str, replies: list[bytes]) -> None:
    client.send("CLIENT", "REPLY", mode)
    client.send("ECHO", "1")
    client.send("ECHO", "2")
    assert client.read() == replies
    assert run(client, "CLIENT REPLY on") == b"OK"
    assert run(client, "PING") == b"PONG"


def test_client_switches(client: Peer) -> None:
    for line, attribute in (("NO-EVICT", "no_evict"), ("NO-TOUCH", "no_touch")):
        assert run(client, f"CLIENT {line} on") == b"OK"
        assert getattr(client.client, attribute) is True
        assert run(client, f"CLIENT {line} OFF") == b"OK"
        assert getattr(client.client, attribute) is False
        assert run(client, f"CLIENT {line} yes") == "-ERR syntax error"
    assert run(client, "CLIENT REPLY maybe") == "-ERR syntax error"


# --- CLIENT LIST, INFO -----------------------------------------------------------------------------------------------------


def client_with_a_past(host: Host, number: int) -> tuple[Client, int]:
    """A client with replies that are not sent, and part of a request; and how much was sent to it before."""
    peer = connect(host, number)
    found = peer.client
    while time.clock_gettime(time.CLOCK_MONOTONIC) < found.created_at + 0.001:
        pass
    for line in (
        "CLIENT SETNAME worker", "CLIENT SETINFO lib-name redis-py", "CLIENT SETINFO lib-ver 8.1.0", "SELECT 2", "HELLO 3",
    ):  # fmt: skip
        peer.send(*line.split(" "))
    host.turn()
    sent = len(peer.transport.sent)
    found.data_received(b"PING\r\nPING\r\nPING\r\n")
    found.data_received(b"*2\r\n$3\r\nXX")
    return found, sent


def test_the_line_of_a_client(host: Host) -> None:
    for number in range(3, 100):
        found, sent = client_with_a_past(host, number)
        if (found.batches, found.batched_commands) == (6, 8):
            break  # otherwise it was put off: the machine has taken its time
    # Ten seconds after the middle between its making and its last bytes.
    now = (found.created_at + found.last_interaction) / 2 + 10
    assert describe(found, now) == (
        b"id=%d addr=127.0.0.1:%d laddr=127.0.0.1:6379 fd=-1 name=worker age=%d idle=%d flags=N db=2 sub=0 psub=0 ssub=0"
        b" multi=-1 watch=0 qbuf=2 qbuf-free=254 argv-mem=0 multi-mem=0 rbs=21 rbp=21 obl=21 oll=0 omem=0 tot-mem=1301"
        b" events=r cmd=ping user=default redir=-1 resp=3 lib-name=redis-py lib-ver=8.1.0 io-thread=0 tot-net-in=224"
        b" tot-net-out=%d tot-cmds=8 read-events=7 parse-batch-cmd-sum=8 parse-batch-cnt=6"
    ) % (number, 50_000 + number, now - found.created_at, now - found.last_interaction, sent)  # fmt: skip


@pytest.mark.parametrize(
    ("lines", "is_unix", "flags"),
    [
        ([], False, b"N"),
        (["XREAD BLOCK 0 STREAMS k $"], False, b"b"),
        (["CLIENT NO-TOUCH on", "CLIENT NO-EVICT on"], True, b"UeT"),
        (["QUIT"], True, b"cU"),
        (["WATCH k", "MULTI"], False, b"x"),
        (["CLIENT TRACKING on BCAST"], False, b"tB"),
        (["SUBSCRIBE c"], False, b"P"),
        (["MONITOR"], False, b"O"),
    ],
)
def test_flags_of_a_client(host: Host, lines: list[str], is_unix: bool, flags: bytes) -> None:
    peer = host.connect(is_unix=is_unix)
    for line in lines:
        peer.send(*line.split(" "))
        peer.read()  # ends a turn: on a busy machine the share of one request may have used it up
    assert b" flags=" + flags + b" " in describe(peer.client, 0.0)


def test_unsent_replies_fill_the_buffer_and_then_the_list(client: Peer) -> None:
    client.client.pause_writing()
    client.send("ECHO", "x" * (16384 + 16384 + 1 - len("$32758\r\n\r\n")))
    line = describe(client.client, 0.0)
    assert b" obl=16384 oll=2 omem=16385 " in line
    assert b" events=rw " in line


def test_ages_are_never_negative(client: Peer) -> None:
    assert b" age=0 idle=0 " in describe(client.client, client.client.created_at - 4)


def ids_in(reply: bytes) -> list[int]:
    return [int(line.split()[0].removeprefix(b"id=")) for line in reply.splitlines()]


@pytest.mark.parametrize(
    ("words", "ids"),
    [
        ("", [5, 6, 9]),
        (" TYPE normal", [5, 6, 9]),
        (" type NORMAL", [5, 6, 9]),
        (" TYPE pubsub", []),
        (" TYPE slave", []),
        (" TYPE master", []),
        (" ID 9 6", [9, 6]),
        (" ID 6 6 7 -1 0", [6, 6]),
    ],
)
def test_client_list(client: Peer, words: str, ids: list[int]) -> None:
    connect(client.host, 6)
    connect(client.host, 9)
    reply = run(client, f"CLIENT LIST{words}")
    assert ids_in(reply) == ids
    assert reply.endswith(b"\n") or not ids


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("TYPE foo", "ERR Unknown client type 'foo'"),
        ("TYPE f\noo", "ERR Unknown client type 'f oo'"),
        ("TYPE", "ERR syntax error"),
        ("TYPE normal ID 5", "ERR syntax error"),
        ("ID", "ERR syntax error"),
        ("ID 5 a", "ERR Invalid client ID"),
        ("FOO bar", "ERR syntax error"),
    ],
)
def test_client_list_errors(client: Peer, words: str, error: str) -> None:
    assert run(client, f"CLIENT LIST {words}") == f"-{error}"


def test_client_info_is_verbatim_text_in_resp3(client: Peer) -> None:
    connect(client.host, 6)
    run(client, "HELLO 3")
    client.send("CLIENT", "INFO")
    client.host.turn()
    sent = client.transport.sent
    assert sent.startswith(b"=")
    assert b"\r\ntxt:id=5 " in sent
    assert sent.endswith(b"\n\r\n")


# --- CLIENT KILL, UNBLOCK, PAUSE ---------------------------------------------------------------------------------------------


@pytest.fixture
def others(client: Peer) -> dict[int, Peer]:
    """Clients 5, 6 and 9 by their numbers; 9 is from elsewhere."""
    host = client.host
    return {5: client, 6: connect(host, 6), 9: connect(host, 9, "10.0.0.1", ("10.0.0.2", 2))}


def closed(peers: dict[int, Peer]) -> list[int]:
    """The numbers of the connections that are closed, which no list has any more."""
    numbers = [number for number, peer in peers.items() if peer.transport.is_closed]
    (host,) = {peer.host for peer in peers.values()}
    assert not host.server.clients.keys() & numbers
    return numbers


@pytest.mark.parametrize(
    ("words", "killed"),
    [
        ("ID 6 SKIPME yes", [6]),
        ("ID 5", []),
        ("ID 5 SKIPME no", [5]),
        ("ID 5 SKIPME yes", []),
        ("ID 7 ID 6", [6]),
        ("TYPE normal SKIPME no", [5, 6, 9]),
        ("TYPE normal", [6, 9]),
        ("TYPE pubsub SKIPME no", []),
        ("USER default SKIPME yes", [6, 9]),
        ("ADDR 10.0.0.1:50009 SKIPME yes", [9]),
        ("LADDR 127.0.0.1:6379 SKIPME yes", [6]),
        ("LADDR 127.0.0.1:6379 ADDR 10.0.0.1:50009", []),
        ("MAXAGE 1000 SKIPME no", []),
        ("SKIPME yes SKIPME no", [5, 6, 9]),
    ],
)
def test_client_kill_goes_by_all_its_filters(others: dict[int, Peer], words: str, killed: list[int]) -> None:
    assert run(others[5], f"CLIENT KILL {words}") == len(killed)
    assert closed(others) == killed


def test_client_kill_goes_by_age(client: Peer) -> None:
    old = client.client
    while (new := client.host.connect().client).created_at == old.created_at:
        pass
    now = (old.created_at + new.created_at) / 2 + 100
    assert [KillFilter(max_age_s=100).fits(each, now) for each in (old, new)] == [True, False]
    assert [KillFilter(max_age_s=50).fits(each, now) for each in (old, new)] == [True, True]
    assert [KillFilter(max_age_s=150).fits(each, now) for each in (old, new)] == [False, False]
    parsed = KillFilter.parse(b"CLIENT KILL maxage 101 skipme NO".split(), ())
    assert parsed == KillFilter(max_age_s=101, skip_me=False)


def test_client_kill_by_address_closes_one_and_may_be_oneself(client: Peer) -> None:
    host = client.host
    alike = {7: connect(host, 7), 8: host.connect(("127.0.0.1", 50007))}
    assert run(client, "CLIENT KILL 127.0.0.1:50007") == b"OK"
    assert closed(alike) == [7]
    assert is_open(client)
    assert run(client, "CLIENT KILL 1.2.3.4:5") == "-ERR No such client"
    assert run(client, "CLIENT KILL 127.0.0.1:50005") == b"OK"
    assert not is_open(client)
    assert is_open(alike[8])


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("ID", "ERR No such client"),
        ("ID a", "ERR client-id should be greater than 0"),
        ("ID 0", "ERR client-id should be greater than 0"),
        ("ID -3", "ERR client-id should be greater than 0"),
        ("ID 1 TYPE", "ERR syntax error"),
        ("ID 1 2", "ERR syntax error"),
        ("FOO a", "ERR syntax error"),
        ("ID a FOO b", "ERR client-id should be greater than 0"),
        ("TYPE foo", "ERR Unknown client type 'foo'"),
        ("USER nosuch", "ERR No such user 'nosuch'"),
        ("USER nosuch USER default", "ERR No such user 'nosuch'"),
        ("SKIPME maybe", "ERR syntax error"),
        ("MAXAGE a", "ERR maxage is not an integer or out of range"),
        ("MAXAGE 0", "ERR maxage should be greater than 0"),
        ("MAXAGE -1", "ERR maxage should be greater than 0"),
    ],
)
def test_client_kill_errors(others: dict[int, Peer], words: str, error: str) -> None:
    assert run(others[5], f"CLIENT KILL {words}") == f"-{error}"
    assert closed(others) == []


def test_a_kill_filter_without_conditions_fits_every_client(client: Peer) -> None:
    assert KillFilter().fits(client.client, 0.0)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("", None),
        (" TIMEOUT", None),
        (" timeout", None),
        (" Error", "UNBLOCKED client unblocked via CLIENT UNBLOCK"),
    ],
)
def test_client_unblock(client: Peer, words: str, error: str | None) -> None:
    waiting, other = connect(client.host, 6), connect(client.host, 7)
    waiting.send("XREAD", "BLOCK", "0", "STREAMS", "k", "$")
    assert waiting.read() == []
    assert waiting.client.blocked is not None
    assert run(client, f"CLIENT UNBLOCK 7{words}") == 0
    assert run(client, f"CLIENT UNBLOCK 8{words}") == 0
    assert waiting.read() == other.read() == []
    assert run(client, f"CLIENT UNBLOCK 6{words}") == 1
    (reply,) = waiting.read()
    assert (str(reply) if error else reply) == error
    assert waiting.client.blocked is None
    assert run(waiting, "PING") == run(other, "PING") == b"PONG"
    assert run(client, f"CLIENT UNBLOCK 6{words}") == 0


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("a", "ERR value is not an integer or out of range"),
        ("a foo", "ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR"),
        ("1 ERROR x", "ERR unknown subcommand or wrong number of arguments for 'UNBLOCK'. Try CLIENT HELP."),
    ],
)
def test_client_unblock_errors(client: Peer, words: str, error: str) -> None:
    assert run(client, f"CLIENT UNBLOCK {words}") == f"-{error}"


@pytest.mark.parametrize(("words", "holds_reads"), [("60000", True), ("60000 all", True), ("60000 WRITE", False)])
def test_client_pause(client: Peer, words: str, holds_reads: bool) -> None:
    host = client.host
    pause = host.server.get(Pause)
    reader, writer = connect(host, 6), connect(host, 7)
    before = time.monotonic()
    assert run(client, f"CLIENT PAUSE {words}") == b"OK"
    assert before + 60 <= pause._pauses["client"][0] <= time.monotonic() + 60
    reader.send("PING")
    writer.send("SET", "k", "1")
    assert (reader.read(), writer.read()) == ([] if holds_reads else [b"PONG"], [])
    assert len(pause.held) == (2 if holds_reads else 1)
    if holds_reads:
        pause.end()  # CLIENT UNPAUSE would wait too
    else:
        assert run(client, "CLIENT UNPAUSE") == b"OK"
    assert (reader.read(), writer.read()) == ([b"PONG"] if holds_reads else [], [b"OK"])
    assert run(writer, "SET k 2") == b"OK"


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("a", "ERR timeout is not an integer or out of range"),
        ("-1", "ERR timeout is negative"),
        ("9223372036854775807", "ERR timeout is out of range"),
        ("a foo", "ERR CLIENT PAUSE mode must be WRITE or ALL"),
        ("1 WRITE x", "ERR unknown subcommand or wrong number of arguments for 'PAUSE'. Try CLIENT HELP."),
    ],
)
def test_client_pause_errors(client: Peer, words: str, error: str) -> None:
    assert run(client, f"CLIENT PAUSE {words}") == f"-{error}"
    assert run(client, "SET k 1") == b"OK", "nothing is paused"


# --- HELP ------------------------------------------------------------------------------------------------------------------


def test_help_names_every_subcommand(client: Peer) -> None:
    lines = [line.decode() for line in run(client, "client HELP")]
    assert lines[0] == "CLIENT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"
    assert lines[-2:] == ["HELP", "    Print this help."]
    assert {line.split()[0] for line in lines[1:] if not line.startswith(" ")} == set(table["CLIENT"].subcommands)
