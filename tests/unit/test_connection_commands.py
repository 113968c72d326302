"""The connection commands, against a client and a server that only remember what was asked of them."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import hiredis
import pytest

from streamd import REDIS_VERSION
from streamd.clients import connection_commands as connection
from streamd.clients.connection_commands import HelloOptions, KillFilter, describe
from streamd.core.spec import table
from streamd.errors import CommandError
from streamd.protocol.reply import ReplyWriter
from streamd.serve.families import load_all
from streamd.settings.config import Config
from streamd.users.acl import Acl

NOT_A_NAME = "cannot contain spaces, newlines or special characters."


class FakeClient:
    def __init__(self, number: int, reply: ReplyWriter | None = None, **changes: Any) -> None:
        self.id = number
        self.reply = ReplyWriter() if reply is None else reply
        self.name = self.lib_name = self.lib_ver = b""
        self.user: Any = SimpleNamespace(name=b"default", is_nopass=True)
        self.authenticated = True
        self.no_evict = self.no_touch = self.close_after_reply = False
        self.is_unix = self.is_congested = False
        self.db_index = 0
        self.address = f"127.0.0.1:{50000 + number}"
        self.local_address = "127.0.0.1:6379"
        self.fileno = 7 + number
        self.created_at = self.last_interaction = time.clock_gettime(time.CLOCK_MONOTONIC)
        self.blocked = self.postponed = None
        self.query_buffer_size = self.query_buffer_free = self.args_size = self.output_size = 0
        self.is_subscribed = self.is_monitor = self.is_dirty = False
        self.channels = self.patterns = self.shard_channels = frozenset[bytes]()
        self.output_class = 0
        self.transaction = self.watched = self.tracking = None
        self.total_net_in = self.total_net_out = self.total_commands = 0
        self.read_events = self.batches = self.batched_commands = 0
        self.last_command: Any = None
        self.reply_mode = b"ON"
        self.__dict__.update(changes)

    def memory_usage(self) -> int:
        return 1234

    def set_authenticated(self, authenticated: bool, user: Any) -> None:
        self.authenticated = authenticated
        self.user = user

    def follow_user(self) -> None:
        pass

    def set_reply_mode(self, mode: bytes) -> None:
        self.reply_mode = mode


class FakeServer:
    def __init__(self) -> None:
        self.clients: dict[int, FakeClient] = {}
        self.calls: list[tuple[Any, ...]] = []
        self.config = Config()
        self.dispatcher = SimpleNamespace(entries={}, tracking=SimpleNamespace(broadcast=lambda: 0))
        self.acl = Acl(self)

    def set_password(self, password: str) -> None:
        self.config.requirepass = password
        self.acl.set_password()

    def add(self, number: int, **changes: Any) -> FakeClient:
        self.clients[number] = FakeClient(number, **changes)
        return self.clients[number]

    def select(self, client: FakeClient, index: int) -> None:
        client.db_index = index

    def reset(self, client: FakeClient) -> None:
        self.calls.append(("reset", client.id))
        client.reply.resp = 2

    def kill(self, client: FakeClient) -> None:
        self.calls.append(("kill", client.id))

    def unblock(self, client: FakeClient, error: str | None) -> bool:
        self.calls.append(("unblock", client.id, error))
        return client.blocked is not None

    def pause(self, until: float, *, writes_only: bool) -> None:
        self.calls.append(("pause", round(until - time.monotonic()), writes_only))

    def unpause(self) -> None:
        self.calls.append(("unpause",))


HandlerContext = Any

load_all()


@pytest.fixture
def ctx() -> HandlerContext:
    """A context of client 5, which is authenticated; no password is needed."""
    server = FakeServer()
    client = server.add(5)
    return SimpleNamespace(
        server=server,
        client=client,
        reply=client.reply,
        databases=[object()] * 16,
        config=server.config,
        now_ms=1_700_000_000_000,
    )


def run_raw(ctx: HandlerContext, *args: str | bytes) -> Any:
    """Run a request; its reply as hiredis reads it."""
    request = [arg if isinstance(arg, bytes) else arg.encode() for arg in args]
    found = table.find(request)
    assert found is not None
    assert found.handler is not None
    try:
        found.handler(ctx, request)
    except CommandError as error:
        ctx.reply.clear()
        return hiredis.ReplyError(str(error))
    reader = hiredis.Reader()
    reader.feed(ctx.reply.take())
    reply = reader.gets()
    assert reply is not False
    assert reader.gets() is False, "one request, one reply"
    return reply


def run(ctx: HandlerContext, line: str) -> Any:
    """Run a request given as words; an error as its text, after `-`."""
    reply = run_raw(ctx, *line.split(" "))
    return f"-{reply}" if isinstance(reply, hiredis.ReplyError) else reply


# --- PING, ECHO, SELECT, QUIT, RESET -------------------------------------------------------------------------------------


def test_ping_answers_pong_or_what_it_was_given(ctx: HandlerContext) -> None:
    assert run(ctx, "PING") == b"PONG"
    assert run(ctx, "PING hello") == b"hello"
    assert run(ctx, "PING a b") == "-ERR wrong number of arguments for 'ping' command"


def test_echo(ctx: HandlerContext) -> None:
    assert run_raw(ctx, "ECHO", b"a\r\n\x00") == b"a\r\n\x00"


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
def test_select(ctx: HandlerContext, index: str, reply: Any) -> None:
    ctx.client.db_index = 3
    assert run(ctx, f"SELECT {index}") == reply
    assert ctx.client.db_index == (int(index) if reply == b"OK" else 3)


def test_quit_answers_and_closes(ctx: HandlerContext) -> None:
    assert run(ctx, "QUIT now please") == b"OK"
    assert ctx.client.close_after_reply


def test_reset_answers_in_the_protocol_of_a_new_connection(ctx: HandlerContext) -> None:
    ctx.reply.resp = 3
    assert run(ctx, "RESET") == b"RESET"
    assert ctx.server.calls == [("reset", 5)]
    assert ctx.reply.resp == 2


@pytest.mark.parametrize("name", ["READONLY", "READWRITE"])
def test_there_is_no_cluster(ctx: HandlerContext, name: str) -> None:
    assert run(ctx, name) == "-ERR This instance has cluster support disabled"


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
def test_auth_with_a_password(ctx: HandlerContext, line: str, reply: Any) -> None:
    ctx.server.set_password("secret")
    ctx.client.authenticated = False
    assert run(ctx, line) == reply
    assert ctx.client.authenticated is (reply == b"OK")
    assert ctx.reply.resp == 2


def test_a_wrong_password_leaves_who_was_authenticated(ctx: HandlerContext) -> None:
    ctx.server.set_password("secret")
    assert run(ctx, "AUTH wrong") == WRONG_PASSWORD
    assert ctx.client.authenticated


def test_auth_without_a_password(ctx: HandlerContext) -> None:
    assert run(ctx, "AUTH any") == NO_PASSWORD_SET
    assert run(ctx, "AUTH default any") == b"OK"
    assert run(ctx, "AUTH other any") == WRONG_PASSWORD


def test_hello_tells_about_the_server(ctx: HandlerContext) -> None:
    about = [
        b"server", b"redis", b"version", REDIS_VERSION.encode(), b"proto", 2, b"id", 5,
        b"mode", b"standalone", b"role", b"master", b"modules", [],
    ]  # fmt: skip
    assert run(ctx, "HELLO") == about
    assert run(ctx, "HELLO 2") == about
    about[5] = 3
    assert run(ctx, "HELLO 3") == dict(zip(about[::2], about[1::2], strict=True))
    assert run(ctx, "HELLO")[b"proto"] == 3
    assert run(ctx, "HELLO 2")[5] == 2


def test_hello_does_all_or_nothing(ctx: HandlerContext) -> None:
    ctx.server.set_password("secret")
    ctx.client.authenticated = False
    for line in ("HELLO 3 SETNAME x AUTH default no", "HELLO 3 SETNAME x AUTH default secret FOO", "HELLO 3 SETNAME x"):
        assert isinstance(run(ctx, line), str)
        assert (ctx.client.name, ctx.reply.resp, ctx.client.authenticated) == (b"", 2, False)
    assert run(ctx, "HELLO 3 SETNAME x AUTH default secret")[b"proto"] == 3
    assert (ctx.client.name, ctx.reply.resp, ctx.client.authenticated) == (b"x", 3, True)


NOT_AUTHENTICATED = (
    "-NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass>"
    " option can be used to authenticate the client and select the RESP protocol version at the same time"
)


@pytest.mark.parametrize("line", ["HELLO", "HELLO 2", "HELLO 3", "HELLO 3 SETNAME a"])
def test_hello_needs_authentication(ctx: HandlerContext, line: str) -> None:
    ctx.server.set_password("secret")
    ctx.client.authenticated = False
    assert run(ctx, line) == NOT_AUTHENTICATED


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
    with pytest.raises(CommandError) as raised:
        HelloOptions.parse(line.encode().split(b" "))
    assert str(raised.value) == error


def test_hello_takes_the_last_of_two_options() -> None:
    options = HelloOptions.parse(b"HELLO 3 SETNAME a AUTH u p setname b auth v q".split())
    assert options == HelloOptions(3, (b"v", b"q"), b"b")


# --- CLIENT: names and switches --------------------------------------------------------------------------------------------


def test_client_names(ctx: HandlerContext) -> None:
    assert run(ctx, "CLIENT ID") == 5
    assert run(ctx, "CLIENT GETNAME") is None
    assert run(ctx, "CLIENT SETNAME !~") == b"OK"
    assert run(ctx, "CLIENT GETNAME") == b"!~"
    for name in (b"a b", b"\n", b"\x7f", b"\xc3\xa9"):
        assert str(run_raw(ctx, "CLIENT", "SETNAME", name)) == f"ERR Client names {NOT_A_NAME}"
    assert run(ctx, "CLIENT GETNAME") == b"!~"
    assert run_raw(ctx, "CLIENT", "SETNAME", "") == b"OK"
    assert run(ctx, "CLIENT GETNAME") is None


def test_client_setinfo(ctx: HandlerContext) -> None:
    assert run(ctx, "CLIENT SETINFO lib-name redis-py") == b"OK"
    assert run(ctx, "CLIENT SETINFO LIB-VER 8.1.0") == b"OK"
    assert (ctx.client.lib_name, ctx.client.lib_ver) == (b"redis-py", b"8.1.0")
    assert str(run_raw(ctx, "CLIENT", "SETINFO", "Lib-Ver", "a b")) == f"ERR Lib-Ver {NOT_A_NAME}"
    assert str(run_raw(ctx, "CLIENT", "SETINFO", "foo", "a b")) == "ERR Unrecognized option 'foo'"
    assert run_raw(ctx, "CLIENT", "SETINFO", "LIB-NAME", "") == b"OK"
    assert ctx.client.lib_name == b""


@pytest.mark.parametrize("mode", ["on", "OFF", "Skip"])
def test_client_reply_answers_only_when_replies_are_on(ctx: HandlerContext, mode: str) -> None:
    table["CLIENT"].subcommands["REPLY"].handler(ctx, [b"CLIENT", b"REPLY", mode.encode()])  # type: ignore[misc]
    assert ctx.client.reply_mode == mode.upper().encode()
    assert ctx.reply.take() == (b"+OK\r\n" if mode == "on" else b"")


def test_client_switches(ctx: HandlerContext) -> None:
    for line, attribute in (("NO-EVICT", "no_evict"), ("NO-TOUCH", "no_touch")):
        assert run(ctx, f"CLIENT {line} on") == b"OK"
        assert getattr(ctx.client, attribute) is True
        assert run(ctx, f"CLIENT {line} OFF") == b"OK"
        assert getattr(ctx.client, attribute) is False
        assert run(ctx, f"CLIENT {line} yes") == "-ERR syntax error"
    assert run(ctx, "CLIENT REPLY maybe") == "-ERR syntax error"


# --- CLIENT LIST, INFO -----------------------------------------------------------------------------------------------------


def test_the_line_of_a_client() -> None:
    client = FakeClient(
        3, created_at=100.0, last_interaction=107.9, name=b"worker", lib_name=b"redis-py", lib_ver=b"8.1.0", db_index=2,
        last_command=table["CLIENT"].subcommands["LIST"], query_buffer_size=11, total_net_in=12, total_net_out=13,
        total_commands=14, read_events=16, batched_commands=17, batches=18, output_size=15, reply=ReplyWriter(3),
    )  # fmt: skip
    assert describe(client, 110.5) == (
        b"id=3 addr=127.0.0.1:50003 laddr=127.0.0.1:6379 fd=10 name=worker age=10 idle=2 flags=N db=2 sub=0 psub=0 ssub=0"
        b" multi=-1 watch=0 qbuf=11 qbuf-free=0 argv-mem=0 multi-mem=0 rbs=15 rbp=15 obl=15 oll=0 omem=0 tot-mem=1234"
        b" events=r cmd=client|list user=default redir=-1 resp=3 lib-name=redis-py lib-ver=8.1.0 io-thread=0 tot-net-in=12"
        b" tot-net-out=13 tot-cmds=14 read-events=16 parse-batch-cmd-sum=17 parse-batch-cnt=18"
    )


@pytest.mark.parametrize(
    ("changes", "flags"),
    [
        ({}, b"N"),
        ({"blocked": object()}, b"b"),
        ({"is_unix": True, "no_touch": True, "no_evict": True}, b"UeT"),
        ({"close_after_reply": True, "is_unix": True}, b"cU"),
    ],
)
def test_flags_of_a_client(changes: dict[str, Any], flags: bytes) -> None:
    assert b" flags=" + flags + b" " in describe(FakeClient(1, **changes), 0.0)


def test_unsent_replies_fill_the_buffer_and_then_the_list() -> None:
    line = describe(FakeClient(1, output_size=16384 + 16384 + 1, is_congested=True), 0.0)
    assert b" obl=16384 oll=2 omem=16385 " in line
    assert b" events=rw " in line


def test_ages_are_never_negative() -> None:
    assert b" age=0 idle=0 " in describe(FakeClient(1, created_at=5.0, last_interaction=5.0), 1.0)


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
def test_client_list(ctx: HandlerContext, words: str, ids: list[int]) -> None:
    ctx.server.add(6)
    ctx.server.add(9)
    reply = run(ctx, f"CLIENT LIST{words}")
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
def test_client_list_errors(ctx: HandlerContext, words: str, error: str) -> None:
    assert run(ctx, f"CLIENT LIST {words}") == f"-{error}"


def test_client_info_is_verbatim_text_in_resp3(ctx: HandlerContext) -> None:
    ctx.server.add(6)
    ctx.reply.resp = 3
    connection.client_info(ctx, [b"CLIENT", b"INFO"])
    sent = ctx.reply.take()
    assert sent.startswith(b"=")
    assert b"\r\ntxt:id=5 " in sent
    assert sent.endswith(b"\n\r\n")


# --- CLIENT KILL, UNBLOCK, PAUSE ---------------------------------------------------------------------------------------------


@pytest.fixture
def others(ctx: HandlerContext) -> HandlerContext:
    """The context, with clients 6 and 9 besides 5; 9 is older and from elsewhere."""
    ctx.server.add(6)
    ctx.server.add(9, address="10.0.0.1:1", local_address="10.0.0.2:2", created_at=ctx.client.created_at - 100)
    return ctx


@pytest.mark.parametrize(
    ("words", "killed"),
    [
        ("ID 6 SKIPME yes", [6]),
        ("ID 5", None),
        ("ID 5 SKIPME no", [5]),
        ("ID 5 SKIPME yes", []),
        ("ID 7 ID 6", [6]),
        ("TYPE normal SKIPME no", [5, 6, 9]),
        ("TYPE normal", None),
        ("TYPE pubsub SKIPME no", []),
        ("USER default SKIPME yes", [6, 9]),
        ("ADDR 10.0.0.1:1 SKIPME yes", [9]),
        ("LADDR 127.0.0.1:6379 SKIPME yes", [6]),
        ("LADDR 127.0.0.1:6379 ADDR 10.0.0.1:1", []),
        ("MAXAGE 100 SKIPME no", [9]),
        ("MAXAGE 1 SKIPME no", [9]),
        ("maxage 101 skipme NO", []),
        ("SKIPME yes SKIPME no", [5, 6, 9]),
    ],
)
def test_client_kill_goes_by_all_its_filters(others: HandlerContext, words: str, killed: list[int] | None) -> None:
    expected = [6, 9] if words == "TYPE normal" else killed or []
    assert run(others, f"CLIENT KILL {words}") == len(expected)
    assert others.server.calls == [("kill", number) for number in expected]


def test_client_kill_by_address_closes_one_and_may_be_oneself(others: HandlerContext) -> None:
    assert run(others, "CLIENT KILL 127.0.0.1:50005") == b"OK"
    others.server.clients[6].address = "10.0.0.1:1"
    assert run(others, "CLIENT KILL 10.0.0.1:1") == b"OK"
    assert others.server.calls == [("kill", 5), ("kill", 6)]
    assert run(others, "CLIENT KILL 1.2.3.4:5") == "-ERR No such client"


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
def test_client_kill_errors(others: HandlerContext, words: str, error: str) -> None:
    assert run(others, f"CLIENT KILL {words}") == f"-{error}"
    assert others.server.calls == []


def test_a_kill_filter_without_conditions_fits_every_client() -> None:
    assert KillFilter().fits(FakeClient(1), 0.0)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("", None),
        (" TIMEOUT", None),
        (" timeout", None),
        (" Error", "UNBLOCKED client unblocked via CLIENT UNBLOCK"),
    ],
)
def test_client_unblock(ctx: HandlerContext, words: str, error: str | None) -> None:
    ctx.server.add(6, blocked=object())
    ctx.server.add(7)
    assert run(ctx, f"CLIENT UNBLOCK 6{words}") == 1
    assert run(ctx, f"CLIENT UNBLOCK 7{words}") == 0
    assert run(ctx, f"CLIENT UNBLOCK 8{words}") == 0
    assert ctx.server.calls == [("unblock", 6, error), ("unblock", 7, error)]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("a", "ERR value is not an integer or out of range"),
        ("a foo", "ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR"),
        ("1 ERROR x", "ERR unknown subcommand or wrong number of arguments for 'UNBLOCK'. Try CLIENT HELP."),
    ],
)
def test_client_unblock_errors(ctx: HandlerContext, words: str, error: str) -> None:
    assert run(ctx, f"CLIENT UNBLOCK {words}") == f"-{error}"


def test_client_pause(ctx: HandlerContext) -> None:
    for words in ("60000", "60000 all", "60000 WRITE"):
        assert run(ctx, f"CLIENT PAUSE {words}") == b"OK"
    assert run(ctx, "CLIENT UNPAUSE") == b"OK"
    assert ctx.server.calls == [("pause", 60, False), ("pause", 60, False), ("pause", 60, True), ("unpause",)]


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
def test_client_pause_errors(ctx: HandlerContext, words: str, error: str) -> None:
    assert run(ctx, f"CLIENT PAUSE {words}") == f"-{error}"
    assert ctx.server.calls == []


# --- HELP ------------------------------------------------------------------------------------------------------------------


def test_help_names_every_subcommand(ctx: HandlerContext) -> None:
    lines = [line.decode() for line in run(ctx, "client HELP")]
    assert lines[0] == "CLIENT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"
    assert lines[-2:] == ["HELP", "    Print this help."]
    assert {line.split()[0] for line in lines[1:] if not line.startswith(" ")} == set(table["CLIENT"].subcommands)


# --- The fakes themselves ------------------------------------------------------------------------------------------------


def test_fakes_have_what_the_handlers_are_promised() -> None:
    promised = {name for name in dir(connection.Client) if not name.startswith("_")}
    promised |= set(connection.Client.__annotations__)
    assert promised <= set(dir(FakeClient(1)))
    assert {name for name in dir(connection.Server) if not name.startswith("_")} <= set(dir(FakeServer()))
