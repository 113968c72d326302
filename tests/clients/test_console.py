"""`http-port`: what the console answers, to whom, and what it does to the server; without a browser."""

from __future__ import annotations

import asyncio
import hashlib
import json
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Any

import pytest
import redis
from support.pages.console import Visitor
from support.servers import Server, eventually, free_port, python_environment

import streamd.console
import streamd.embedded
from streamd.console.asked import ANSWERS, Asked
from streamd.console.console_port import Console
from streamd.console.inner_client import Connection, GoneError
from streamd.core.host import Host
from streamd.embedded.hosts import ThreadHost

pytestmark = pytest.mark.long

StartServer = Callable[..., Server]
DEADLINE_S = 100
FILES = ("/", "/app.js", "/console.css", "/uplot/uPlot.iife.min.js", "/uplot/LICENSE")
READING = ("streams", "overview", "slowlog", "clients", "settings", "memory", "history", "keys", "findings")
OF_A_KEY = (
    "stream",
    "group",
    "entries",
    "entry",
    "value",
    "pending",
    "tail",
    "search",
    "string",
    "rules",
    "waiting",
    "letters",
)


@pytest.fixture
def console(new_streamd: StartServer) -> Callable[..., tuple[redis.Redis, Visitor]]:
    """Starts a server with a console: a client of it, which is closed at the end, and a visitor."""

    def start(**settings: str) -> tuple[redis.Redis, Visitor]:
        port = free_port()
        server = new_streamd(http_port=str(port), **settings)
        return redis.Redis(port=server.port, protocol=2, decode_responses=True), Visitor(port)

    return start


@pytest.fixture(scope="module")
def shared_port(new_shared_node: StartServer) -> tuple[int, int]:
    """The ports of a server that allows writes in its console, one for all tests that configure nothing."""
    port = free_port()
    return new_shared_node("streamd", http_port=str(port), http_allow_writes="yes").port, port


@pytest.fixture
def shared_console(shared_port: tuple[int, int]) -> tuple[redis.Redis, Visitor]:
    """A client of that server, emptied, and a visitor of its console."""
    client = redis.Redis(port=shared_port[0], protocol=2, decode_responses=True)
    client.flushall()
    return client, Visitor(shared_port[1])


def with_group(client: redis.Redis, entries: int = 10, read: int = 3) -> list[str]:
    """A stream with a group of which `alice` has read some; their IDs."""
    for number in range(entries):
        client.xadd("orders", {"number": number})
    client.xgroup_create("orders", "billing", 0)
    return [entry_id for entry_id, _ in client.xreadgroup("billing", "alice", {"orders": ">"}, count=read)[0][1]]


# --- Who gets in ---------------------------------------------------------------------------------------------------------


def test_without_a_password_of_the_server_nobody_is_asked_for_one(console: Any) -> None:
    client, visitor = console()
    with client:
        assert visitor.log_in()["user"] == "default"
        assert visitor.get("session")["user"] == "default"
        cookie = visitor.cookie
        assert [each["name"] for each in visitor.get("clients")["clients"]].count("console") == 1
        visitor.ask("DELETE", "/api/session", {})
        assert visitor.status == 200
        visitor.cookie = cookie
        assert (visitor.get("streams")["error"], visitor.status) == ("Nobody is logged in.", 401)
        assert len(client.client_list()) == 1


def test_a_stranger_without_the_password_gets_nothing(console: Any) -> None:
    client, visitor = console(requirepass="secret")
    client.connection_pool.connection_kwargs["password"] = "secret"
    with client:
        client.xadd("orders", {"a": "hidden-from-strangers"})
        for name in (*READING, *OF_A_KEY, "session"):
            data = visitor.ask("GET", f"/api/{name}?key=orders&id=-&field=0&group=g")
            assert (visitor.status, b"hidden" in data, b"orders" in data) == (401, False, False)
        for name in ("ack", "claim", "claim-all", "trim", "delete-consumer", "set-rule", "redrive", "no-such-thing"):
            visitor.ask("POST", f"/api/{name}", {})
            assert visitor.status == 401
        assert "error" in visitor.log_in()
        assert visitor.status == 401
        assert "WRONGPASS" in visitor.log_in("default", "guessed")["error"]
        assert visitor.status == 401
        assert "Set-Cookie" not in visitor.headers
        assert len(client.client_list()) == 1
        assert visitor.log_in("default", "secret")["user"] == "default"
        assert visitor.get("streams")["streams"][0]["key"] == "orders"


def test_the_cookie_is_kept_from_scripts_and_from_other_sites(console: Any) -> None:
    client, visitor = console()
    with client:
        visitor.log_in()
        parts = {part.strip() for part in visitor.headers["Set-Cookie"].split(";")[1:]}
        assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= parts


def test_a_session_sees_what_its_user_may_and_no_more(console: Any) -> None:
    client, visitor = console(http_allow_writes="yes")
    with client:
        with_group(client)
        client.xadd("private", {"a": "b"})
        client.execute_command(
            "ACL", "SETUSER", "eve", "on", ">word", "~orders", "+@read", "+xinfo", "+scan", "+select", "-@dangerous"
        )
        assert visitor.log_in("eve", "word")["user"] == "eve"
        assert [each["key"] for each in visitor.get("streams")["streams"]] == ["orders"]
        assert visitor.get("stream", key="orders")["may"] == {"trim": False}
        assert visitor.get("group", key="orders", group="billing")["may"] == {
            "ack": False,
            "claim": False,
            "delete_consumer": False,
        }
        for name, parameters in (("stream", {"key": "private"}), ("entries", {"key": "private"}), ("clients", {})):
            assert visitor.get(name, **parameters)["error"].startswith("NOPERM")
            assert visitor.status == 403
        assert visitor.get("settings")["error"].startswith("NOPERM")
        assert visitor.post("trim", key="orders", max_length=0)["error"].startswith("NOPERM")
        assert client.xlen("orders") == 10


def test_a_session_ends_with_its_user_its_connection_and_its_time(console: Any) -> None:
    client, visitor = console()
    with client:
        client.execute_command("ACL", "SETUSER", "eve", "on", ">word", "~*", "+@all")
        visitor.log_in("eve", "word")
        client.execute_command("ACL", "DELUSER", "eve")
        visitor.get("streams")
        assert visitor.status == 401
        visitor.log_in()
        client.client_kill_filter(_id=next(each["id"] for each in client.client_list() if each["name"] == "console"))
        visitor.get("streams")
        assert visitor.status == 401
        client.config_set("http-session-timeout", 1)
        visitor.log_in()
        eventually(lambda: len(client.client_list()) == 1, DEADLINE_S, "the end of the session")
        visitor.get("streams")
        assert visitor.status == 401


def test_protected_mode_holds_for_browsers_of_other_machines(tmp_path: Path) -> None:
    thread = ThreadHost({"dir": str(tmp_path), "save": ""}, any_port=True)

    def refusal(server: Host) -> str:
        with pytest.raises(GoneError, match=r"^DENIED ") as told:
            Connection(server, ("192.0.2.7", 50_000), ("192.0.2.1", 80))
        Connection(server, ("127.0.0.1", 50_000), ("127.0.0.1", 80)).close()
        return str(told.value)

    try:
        thread.wait()
        assert thread.inside(refusal).startswith("DENIED")
        assert thread.inside(lambda server: len(server.clients)) == 0
    finally:
        thread.stop(save=False)


def test_maxclients_holds_for_the_console(console: Any) -> None:
    client, visitor = console()
    with client:
        client.config_set("maxclients", 1)
        assert "max number of clients" in visitor.log_in()["error"]
        assert visitor.status == 403


def test_wrong_passwords_from_one_address_keep_nobody_out_from_another(console: Any) -> None:
    _, visitor = console(requirepass="secret")
    body = b'{"user": "default", "password": "guessed"}'
    head = (
        f"POST /api/session HTTP/1.1\r\nHost: 127.0.0.1:{visitor.port}\r\nOrigin: http://127.0.0.1:{visitor.port}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    guessing = [
        socket.create_connection(("127.0.0.1", visitor.port), DEADLINE_S, source_address=("127.0.0.2", 0))
        for _ in range(40)
    ]
    for each in guessing:
        each.sendall(head.encode() + body)
    # The last of them are told to come later, so all have arrived.
    assert b"Too many logins" in answer_to(guessing[-1])
    assert visitor.log_in("default", "secret")["user"] == "default"
    for each in guessing:
        each.close()


def answer_to(sock: socket.socket) -> bytes:
    """The body of the answer to a request."""
    with HTTPResponse(sock) as response:
        response.begin()
        return response.read()


# --- Requests of other sites ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Host": "evil.example:80"}, 421),
        ({"Host": "127.0.0.1.evil.example"}, 421),
        ({"Host": "localhost"}, 200),
        ({"Host": "[::1]:8080"}, 200),
        ({"Sec_Fetch_Site": "cross-site"}, 403),
        ({"Sec_Fetch_Site": "same-site"}, 403),
        ({"Sec_Fetch_Site": "same-origin"}, 200),
        ({"Sec_Fetch_Site": "none"}, 200),
    ],
)
def test_only_the_consoles_own_page_may_read(shared_console: Any, headers: dict[str, str], status: int) -> None:
    client, visitor = shared_console
    with client:
        visitor.log_in()
        visitor.ask("GET", "/api/overview", **headers)
        assert visitor.status == status
        visitor.ask("GET", "/", **headers)
        assert visitor.status == (421 if "Host" in headers and status != 200 else 200)


def test_a_name_of_the_machine_can_be_allowed(console: Any) -> None:
    client, visitor = console(http_hosts="Machine.example other.example")
    with client:
        visitor.ask("GET", "/", Host="machine.example:8080")
        assert visitor.status == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": None}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Content_Type": "text/plain"}, 415),
        ({"X_Console_Proof": None}, 403),
        ({"X_Console_Proof": "guessed"}, 403),
        ({"X_Console_Proof": "\xff"}, 403),
        ({"Origin": "http://["}, 403),
        ({"Sec_Fetch_Site": "cross-site"}, 403),
        ({}, 200),
    ],
)
def test_only_the_consoles_own_page_may_change_things(
    shared_console: Any, headers: dict[str, str | None], status: int
) -> None:
    client, visitor = shared_console
    with client:
        client.xadd("orders", {"a": 1})
        visitor.log_in()
        visitor.ask("POST", "/api/trim", {"key": "orders", "max_length": 0}, **headers)
        assert (visitor.status, client.xlen("orders")) == (status, 0 if status == 200 else 1)


def test_a_login_cannot_be_forged(console: Any) -> None:
    client, visitor = console()
    with client:
        visitor.ask("POST", "/api/session", {}, Origin="http://evil.example")
        assert visitor.status == 403
        assert len(client.client_list()) == 1


def test_every_answer_has_a_policy_that_allows_no_foreign_content(console: Any) -> None:
    client, visitor = console()
    with client:
        for path in (*FILES, "/api/streams", "/nothing", "/../console/answers.py", "/%2e%2e/answers.py"):
            visitor.ask("GET", path)
            policy = visitor.headers["Content-Security-Policy"]
            assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
            assert "unsafe" not in policy
            assert visitor.headers["X-Content-Type-Options"] == "nosniff"
            assert visitor.headers["X-Frame-Options"] == "DENY"
            assert visitor.status == (200 if path in FILES else 401)


def test_a_bug_is_told_of_with_the_policy_of_every_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(asked: Asked) -> None:
        raise ZeroDivisionError

    async def fail_later(asked: Asked) -> AsyncIterator[str]:
        async def pieces() -> AsyncIterator[str]:
            yield "x" * 100_000
            raise ZeroDivisionError

        return pieces()

    monkeypatch.setitem(ANSWERS, ("GET", "fails"), fail)
    monkeypatch.setitem(ANSWERS, ("GET", "fails-later"), fail_later)
    visitor = Visitor(free_port())
    with streamd.embedded.start(http_port=visitor.port, dir=str(tmp_path), save=""):
        visitor.log_in()
        assert "bug" in visitor.get("fails")["error"]
        assert (visitor.status, visitor.headers["X-Frame-Options"]) == (500, "DENY")
        connection, response = visitor.open("GET", "/api/fails-later")
        with pytest.raises((OSError, HTTPException)):
            response.read()
        response.close()
        connection.close()
        assert visitor.get("session")["user"] == "default"


def test_the_page_has_no_script_or_style_of_its_own_and_nothing_from_elsewhere(console: Any) -> None:
    client, visitor = console()
    with client:
        page = visitor.ask("GET", "/").decode()
        assert page.count("<script") == page.count('<script src="/')
        assert "<style" not in page
        assert "style=" not in page
        assert "//" not in page.replace("<!doctype", "")
        tag = visitor.headers["ETag"]
        visitor.ask("GET", "/", If_None_Match=tag)
        assert visitor.status == 304


def test_what_is_of_others_is_named_with_its_version() -> None:
    folder = Path(streamd.console.__file__).parent / "page" / "uplot"
    head, *lines = (folder / "VERSION").read_text().splitlines()
    assert f"v{head.split()[1].rstrip(',')}" in (folder / "uPlot.iife.min.js").read_text()[:200]
    for line in lines:
        digest, name = line.split()
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest
    assert "MIT" in (folder / "LICENSE").read_text()


# --- What is shown -------------------------------------------------------------------------------------------------------


def test_streams_groups_consumers_and_what_is_pending(console: Any) -> None:
    client, visitor = console()
    with client:
        ids = with_group(client)
        client.set("string", "x")
        visitor.log_in()
        told = visitor.get("streams")
        (stream,) = told["streams"]
        assert told["is_whole"]
        assert (stream["key"], stream["length"], stream["lag"], stream["pending"], stream["groups"]) == (
            "orders",
            10,
            7,
            3,
            1,
        )
        assert stream["bytes"] > 100
        assert 0 <= stream["lag_s"] < DEADLINE_S
        (group,) = visitor.get("stream", key="orders")["groups"]
        assert (group["name"], group["lag"], group["pending"], group["consumers"]) == ("billing", 7, 3, 1)
        (consumer,) = visitor.get("group", key="orders", group="billing")["consumer_list"]
        assert (consumer["name"], consumer["pending"]) == ("alice", 3)
        page = visitor.get("pending", key="orders", group="billing", count=2)
        assert [(each["id"], each["consumer"], each["deliveries"]) for each in page["pending"]] == [
            (each, "alice", 1) for each in ids[:2]
        ]
        rest = visitor.get("pending", key="orders", group="billing", count=2, start=page["next"])
        assert ([each["id"] for each in rest["pending"]], rest["next"]) == (ids[2:], None)
        assert visitor.get("group", key="orders", group="nobody")["error"] == "The group does not exist."
        assert visitor.get("stream", key="nothing")["error"].startswith("ERR no such key")
        assert visitor.get("stream", key="string")["error"].startswith("WRONGTYPE")


def test_entries_are_read_in_pages_both_ways(console: Any) -> None:
    client, visitor = console()
    with client:
        for number in range(1, 251):
            client.xadd("orders", {"n": number}, id=f"{number}-0")
        visitor.log_in()
        for order, expected in (("down", range(250, 0, -1)), ("up", range(1, 251))):
            seen: list[str] = []
            start = ""
            while start is not None:
                page = visitor.get("entries", key="orders", order=order, start=start)
                seen += [each["id"] for each in page["entries"]]
                start = page["next"]
            assert seen == [f"{number}-0" for number in expected]
        assert visitor.get("entries", key="orders", start="7")["entries"][0]["fields"] == [["n", "7"]]


def test_names_of_any_bytes_can_be_asked_for(console: Any) -> None:
    client, visitor = console()
    names = [b"\xff\x00", b'"quoted" <b>&amp;</b>\n', "Bücher/ä?=&#%".encode(), b"%41+ ", b""]
    with client, redis.Redis(port=client.connection_pool.connection_kwargs["port"], protocol=2) as client:
        for name in names:
            client.xadd(name, {b"\xfe": b"\xff\x00"}, id="1-1")
            client.xgroup_create(name, name, 0)
            client.xreadgroup(name, name or b"x", {name: ">"})
        visitor.log_in()
        assert [each["key"] for each in visitor.get("streams")["streams"]] == [
            {"base64": "/wA="} if each == b"\xff\x00" else each.decode() for each in sorted(names)
        ]
        for name in names:
            assert visitor.get("stream", key=name)["length"] == 1
            assert visitor.get("group", key=name, group=name)["pending"] == 1
            assert visitor.get("pending", key=name, group=name, consumer=name or "x")["pending"][0]["id"] == "1-1"
            assert visitor.get("entry", key=name, id="1-1")["fields"] == [[{"base64": "/g=="}, {"base64": "/wA="}]]


def test_a_large_value_is_cut_and_can_be_had_whole(console: Any) -> None:
    client, visitor = console()
    large = ("ä" * 3_000_000).encode() + b"\xff"
    with client:
        client.xadd("orders", {"small": "x", "large": large}, id="1-1")
        visitor.log_in()
        small, shown = visitor.get("entries", key="orders")["entries"][0]["fields"]
        assert small == ["small", "x"]
        assert shown == ["large", {"start": "ä" * 128, "size": len(large)}]
        shown = visitor.get("entry", key="orders", id="1-1")["fields"][1]
        assert len(shown[1]["start"]) == 32 * 1024
        assert visitor.ask("GET", "/api/value?key=orders&id=1-1&field=1") == large
        assert visitor.headers["Content-Disposition"].startswith("attachment")
        assert visitor.headers["Content-Type"] == "application/octet-stream"
        visitor.ask("GET", "/api/value?key=orders&id=1-1&field=2")
        assert visitor.status == 404


def test_an_entry_with_many_large_values_is_cut_short(console: Any) -> None:
    client, visitor = console()
    with client:
        client.xadd("orders", {f"f{number}": "x" * 60_000 for number in range(200)}, id="1-1")
        visitor.log_in()
        assert len(visitor.ask("GET", "/api/entry?key=orders&id=1-1")) < 3_000_000
        found = json.loads(visitor.ask("GET", "/api/entry?key=orders&id=1-1"))
        assert {field[1]["size"] for field in found["fields"]} == {60_000}


def test_passwords_among_the_settings_are_hidden(console: Any) -> None:
    client, visitor = console(masterauth="tell-nobody")
    with client:
        visitor.log_in()
        shown = {each["name"]: each["value"] for each in visitor.get("settings")["settings"]}
        assert (shown["masterauth"], shown["requirepass"], shown["maxmemory"]) == ("(hidden)", "", "0")
        assert "tell-nobody" not in str(shown)


def test_what_is_asked_wrongly_is_refused_with_a_reason(console: Any) -> None:
    client, visitor = console(http_allow_writes="yes")
    with client:
        visitor.log_in()
        for path in ("stream", "entries?key=a&count=1000", "entries?key=a&count=x", "streams?db=-1", "pending?key=a"):
            visitor.ask("GET", f"/api/{path}")
            assert visitor.status == 400, path
        assert "out of range" in visitor.get("streams", db=16)["error"]
        for body in (
            b"no json",
            b"[]",
            b"\xff",
            {"key": 1},
            {"key": "a", "group": "b", "ids": ["x"]},
            {"key": {"base64": "!"}},
        ):
            visitor.ask("POST", "/api/ack", body)
            assert visitor.status == 400, body
        visitor.ask("POST", "/api/ack", b"[" * 60_000)
        assert visitor.status == 400
        visitor.ask("POST", "/api/ack", b'"' + b"x" * 2_000_000 + b'"')
        assert (visitor.status, visitor.headers["X-Frame-Options"]) == (413, "DENY")
        visitor.ask("GET", "/api/nothing")
        assert visitor.status == 404


def test_commands_that_are_renamed_are_missed_aloud(console: Any) -> None:
    client, visitor = console(rename_command="XINFO hidden")
    with client:
        client.xadd("orders", {"a": 1})
        visitor.log_in()
        assert "unknown command 'XINFO'" in visitor.get("streams")["error"]
        assert visitor.status == 409
        assert "unknown command 'XINFO'" in visitor.get("stream", key="orders")["error"]
        assert visitor.get("entries", key="orders")["entries"][0]["fields"] == [["a", "1"]]


def test_streams_beyond_the_limit_are_told_of(console: Any) -> None:
    client, visitor = console(http_max_streams="7")
    with client:
        for number in range(20):
            client.xadd(f"stream:{number}", {"a": 1})
        visitor.log_in()
        told = visitor.get("streams")
        assert (len(told["streams"]), told["is_whole"]) == (7, False)
        told = visitor.get("streams", match="stream:1?")
        assert (len(told["streams"]), told["is_whole"]) == (7, False)
        told = visitor.get("streams", match="stream:[3-5]")
        assert ([each["key"] for each in told["streams"]], told["is_whole"]) == (
            ["stream:3", "stream:4", "stream:5"],
            True,
        )


def test_other_databases_are_shown_too(console: Any) -> None:
    client, visitor = console()
    with client, redis.Redis(port=client.connection_pool.connection_kwargs["port"], db=3) as other:
        other.xadd("there", {"a": 1})
        client.xadd("here", {"a": 1})
        visitor.log_in()
        for db, key in ((3, "there"), (0, "here"), (3, "there")):
            assert [each["key"] for each in visitor.get("streams", db=db)["streams"]] == [key]
            assert visitor.get("stream", db=db, key=key)["length"] == 1
        assert visitor.get("overview")["keys"] == {"0": 1, "3": 1}


def test_who_does_not_read_is_given_up_and_others_are_served(console: Any) -> None:
    client, visitor = console()
    with client:
        client.xadd("orders", {"large": "x" * 50_000_000}, id="1-1")
        visitor.log_in()
        stuck = [visitor.open("GET", "/api/value?key=orders&id=1-1&field=0") for _ in range(3)]  # and they do not read
        assert visitor.get("overview")["keys"] == {"0": 1}
        for connection, response in stuck:
            response.close()
            connection.close()
        assert visitor.get("overview")["keys"] == {"0": 1}


def test_connections_that_keep_silent_make_room_for_others(console: Any) -> None:
    client, visitor = console()
    with client:
        idle = [socket.create_connection(("127.0.0.1", visitor.port), DEADLINE_S) for _ in range(300)]
        assert visitor.log_in()["user"] == "default"
        assert idle[0].recv(1) == b""
        for each in idle:
            each.close()
        assert visitor.get("session")["user"] == "default"


def test_connections_of_a_burst_make_room_for_others(new_streamd: StartServer) -> None:
    port = free_port()
    server = new_streamd(http_port=str(port))
    server.process.send_signal(signal.SIGSTOP)  # so that they are accepted together
    burst = [socket.create_connection(("127.0.0.1", port), DEADLINE_S) for _ in range(400)]
    server.process.send_signal(signal.SIGCONT)
    assert Visitor(port).log_in()["user"] == "default"
    for each in burst[: 400 - 255]:
        assert each.recv(1) == b""
    for each in burst:
        each.close()
    assert Visitor(port).log_in()["user"] == "default"


def test_an_entry_is_read_alone_even_by_a_part_of_its_id(console: Any) -> None:
    client, visitor = console()
    with client:
        for number in range(3):
            client.xadd("orders", {"n": number}, id=f"5-{number}")
        visitor.log_in()
        client.config_set("slowlog-log-slower-than", 0)
        assert visitor.get("entry", key="orders", id="5")["id"] == "5-0"
        assert visitor.ask("GET", "/api/value?key=orders&id=5&field=0") == b"0"
        asked = [each["command"] for each in client.slowlog_get() if each["command"].startswith(b"XRANGE")]
        assert asked == [b"XRANGE orders 5 5 COUNT 1"] * 2


# --- What may be changed -------------------------------------------------------------------------------------------------


def test_nothing_can_be_changed_unless_it_is_allowed(console: Any) -> None:
    client, visitor = console()
    with client:
        ids = with_group(client)
        assert visitor.log_in()["writes"] is False
        for name, body in (
            ("ack", {"ids": ids}),
            ("claim", {"ids": ids, "consumer": "bob"}),
            ("claim-all", {"from": "alice", "consumer": "bob"}),
            ("delete-consumer", {"consumer": "alice"}),
            ("trim", {"max_length": 0}),
        ):
            assert "http-allow-writes" in visitor.post(name, key="orders", group="billing", **body)["error"]
            assert visitor.status == 403
        assert client.xlen("orders") == 10
        assert client.xpending("orders", "billing")["pending"] == 3


def test_entries_are_acknowledged_claimed_and_trimmed_and_consumers_removed(console: Any) -> None:
    client, visitor = console(http_allow_writes="yes", slowlog_log_slower_than="60000000")
    with client:
        ids = with_group(client)
        visitor.log_in()
        of: dict[str, Any] = {"key": "orders", "group": "billing"}
        assert visitor.post("ack", **of, ids=ids[:1]) == {"done": 1}
        assert visitor.post("claim", **of, ids=ids, consumer="bob") == {"done": 2}
        assert [(each["message_id"], each["consumer"], each["times_delivered"]) for each in client.xpending_range(
            "orders", "billing", "-", "+", 10)] == [(each, "bob", 1) for each in ids[1:]]  # fmt: skip
        assert visitor.post("delete-consumer", **of, consumer="alice") == {"done": 0}
        assert [each["name"] for each in client.xinfo_consumers("orders", "billing")] == ["bob"]
        assert visitor.post("trim", key="orders", max_length=6) == {"done": 4}
        assert visitor.post("trim", key="orders", min_id=client.xrevrange("orders", count=1)[0][0]) == {"done": 5}
        assert client.xlen("orders") == 1
        shown = {" ".join(each["words"][:2]) for each in visitor.get("slowlog")["slow"]}
        assert "XTRIM orders" not in shown
        client.config_set("slowlog-log-slower-than", 0)
        visitor.post("trim", key="orders", max_length=0)
        line = next(each for each in visitor.get("slowlog")["slow"] if each["words"][0] == "XTRIM")
        assert line["name"] == "console"


# --- A stream followed live ----------------------------------------------------------------------------------------------


def test_a_stream_is_followed(console: Any) -> None:
    client, visitor = console()
    with client:
        client.xadd("orders", {"n": 0}, id="1-0")
        visitor.log_in()
        connection, response = visitor.open("GET", "/api/tail?key=orders")
        assert (visitor.status, visitor.headers["Content-Type"]) == (200, "text/event-stream")
        assert response.readline().startswith(b":")
        client.xadd("orders", {"n": 1}, id="2-0")
        assert next(line for line in response if line.startswith(b"data")) == (
            b'data: {"entries": [{"id": "2-0", "fields": [["n", "1"]], "more_fields": 0}], "skipped": false}\n'
        )
        with client.pipeline() as pipe:
            for number in range(1, 501):
                pipe.xadd("orders", {"n": number}, id=f"3-{number}")
            pipe.execute()
        line = next(line for line in response if line.startswith(b"data"))
        assert (line.count(b'"id"'), b'"3-500"' in line, b'"skipped": true' in line) == (50, True, True)
        response.close()
        connection.close()
        client.xadd("orders", {"n": 2})
        visitor.ask("DELETE", "/api/session", {})
        eventually(lambda: len(client.client_list()) == 1, DEADLINE_S, "the end of its connections")


def test_who_was_cut_off_gets_what_came_meanwhile(console: Any) -> None:
    client, visitor = console()
    with client:
        client.xadd("orders", {"n": 1}, id="1-0")
        visitor.log_in()
        connection, response = visitor.open("GET", "/api/tail?key=orders")
        seen = next(line for line in response if line.startswith(b"id:"))
        response.close()
        connection.close()
        client.xadd("orders", {"n": 2}, id="2-0")
        last_id = seen.decode().partition(": ")[2].strip()
        assert last_id == "1-0"
        connection, response = visitor.open("GET", "/api/tail?key=orders", Last_Event_ID=last_id)
        event = [next(line for line in response if line.startswith(b"event"))] + [response.readline() for _ in range(2)]
        assert event[:2] == [b"event: entries\n", b"id: 2-0\n"]
        assert b'"id": "2-0"' in event[2]
        response.close()
        connection.close()
        visitor.ask("GET", "/api/tail?key=orders", Last_Event_ID="x\xff")
        assert visitor.status == 400


def test_a_stream_is_followed_as_the_user_of_the_session(console: Any) -> None:
    client, visitor = console()
    with client:
        client.xadd("orders", {"n": 0})
        client.execute_command("ACL", "SETUSER", "eve", "on", ">word", "~*", "+@read", "+xinfo")
        client.execute_command("ACL", "SETUSER", "carl", "on", ">word", "~*", "+@all", "-xread")
        visitor.log_in("eve", "word")
        connection, response = visitor.open("GET", "/api/tail?key=orders")
        eventually(
            lambda: [each["user"] for each in client.client_list() if each["cmd"] == "xread"] == ["eve"], DEADLINE_S
        )
        client.execute_command("ACL", "DELUSER", "eve")
        assert any(b"event: refused" in line for line in response)
        response.close()
        connection.close()
        visitor.log_in("carl", "word")
        assert b"NOPERM" in visitor.ask("GET", "/api/tail?key=orders")


def test_no_more_streams_are_followed_than_a_session_may(console: Any) -> None:
    client, visitor = console()
    with client:
        client.xadd("orders", {"n": 0})
        visitor.log_in()
        followed = [visitor.open("GET", "/api/tail?key=orders") for _ in range(4)]
        visitor.ask("GET", "/api/tail?key=orders")
        assert visitor.status == 409
        client.execute_command("ACL", "SETUSER", "default", "-xread")
        client.xadd("orders", {"n": 1})
        for connection, response in followed:
            assert any(b"NOPERM" in line for line in response)
            response.close()
            connection.close()


# --- The port ------------------------------------------------------------------------------------------------------------


def test_the_port_is_opened_and_closed_while_the_server_runs(console: Any) -> None:
    client, visitor = console()
    with client:
        visitor.log_in()
        client.config_set("http-port", 0)
        with pytest.raises(OSError, match="refused"):
            visitor.get("session")
        client.config_set("http-port", visitor.port)
        visitor.get("session")
        assert visitor.status == 401
        assert visitor.log_in()["user"] == "default"
        assert client.config_get("http-bind") == {"http-bind": "127.0.0.1 -::1"}


def test_nobody_is_shown_anything_after_the_port_was_closed(console: Any) -> None:
    client, visitor = console()
    with client:
        client.xadd("orders", {"n": 0})
        visitor.log_in()
        connection, response = visitor.open("GET", "/api/tail?key=orders")
        client.config_set("http-port", 0)
        client.xadd("orders", {"n": 1})
        with suppress(OSError, HTTPException):
            assert b"entries" not in response.read()
        response.close()
        connection.close()
        eventually(lambda: len(client.client_list()) == 1, DEADLINE_S, "the end of its connections")


@pytest.mark.parametrize("sent", [b"\x16\x03\x01\x00\xa5garbage\r\n\r\n", b"PING\r\n\r\n", b"GET / HTTP/1.1\r\nHost"])
def test_what_is_not_http_is_no_reason_for_a_traceback(new_streamd: StartServer, sent: bytes) -> None:
    port = free_port()
    server = new_streamd(http_port=str(port))
    with socket.create_connection(("127.0.0.1", port), DEADLINE_S) as sock:
        sock.sendall(sent)
        sock.shutdown(socket.SHUT_WR)
        while sock.recv(1000):
            pass
    assert Visitor(port).log_in()["user"] == "default"
    assert "aiohttp" not in server.log()


def test_without_a_port_nothing_is_imported_and_without_the_extra_it_says_so() -> None:
    program = (
        "import sys, streamd.embedded\n"
        "with streamd.embedded.start() as server:\n"
        "    server.client().ping()\n"
        "    print([name for name in ('aiohttp', 'streamd.console.answers') if name in sys.modules])\n"
        "    sys.modules['aiohttp'] = None\n"
        "    try: server.client().config_set('http-port', 1234)\n"
        "    except Exception as error: print(error)\n"
    )
    said = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env=python_environment(),
        timeout=DEADLINE_S,
        check=False,
    ).stdout.splitlines()
    assert said[0] == "[]"
    assert "./install '.[console]'" in said[1]


def test_an_embedded_server_has_a_console_and_closes_it() -> None:
    port = free_port()
    visitor = Visitor(port)
    with streamd.embedded.start(http_port=port) as server:
        server.client().xadd("orders", {"a": 1})
        visitor.log_in()
        assert visitor.get("streams")["streams"][0]["key"] == "orders"
        connection, response = visitor.open("GET", "/api/tail?key=orders")
    response.close()
    connection.close()
    with pytest.raises(OSError, match="refused"):
        visitor.get("session")


# --- The last hour, keys, search, findings -----------------------------------------------------------------------------------


def test_the_last_hour_is_known_before_anybody_looks(console: Any) -> None:
    client, visitor = console()
    with client:
        with_group(client)
        visitor.log_in()
        eventually(
            lambda: len(visitor.get("history", key="orders")["added"]) >= 1, DEADLINE_S, "a sample of the stream"
        )
        kept = visitor.get("history", key="orders")
        assert (kept["added"][-1], kept["lags"]) == (10, [{"name": "billing", "values": [7.0] * len(kept["times"])}])
        server = visitor.get("history")
        assert len(server["times"]) == len(server["used_memory"]) >= 1
        assert server["connected_clients"][-1] >= 1
        assert visitor.get("history", key="nothing")["times"] == []


def test_the_last_hour_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamd.observe.last_hour.SAMPLES", 3)
    monkeypatch.setattr("streamd.values.streams.stream_samples.STREAMS", 2)
    thread = ThreadHost({"dir": str(tmp_path), "save": ""}, any_port=True)
    try:
        thread.wait()
        with redis.Redis(port=thread.port) as client:
            for number in range(5):
                client.xadd(f"s{number}", {"a": 1})
            history = thread.inside(lambda server: server.get(Console).history)

            def sample() -> None:
                asyncio.run_coroutine_threadsafe(history.sample(), thread.inside(lambda server: server.loop)).result()

            for _ in range(5):
                sample()
            assert (len(history.times), len(history.values[b"stream"].streams)) == (3, 2)
            assert {len(each.added) for each in history.values[b"stream"].streams.values()} == {3}
            client.flushall()
            sample()
            assert history.values[b"stream"].streams == {}
    finally:
        thread.stop(save=False)


def test_the_last_hour_is_for_those_who_may_ask_for_it(console: Any) -> None:
    client, visitor = console()
    with client:
        client.xadd("private", {"a": 1})
        client.execute_command("ACL", "SETUSER", "eve", "on", ">word", "~orders", "+@read", "-@dangerous")
        visitor.log_in("eve", "word")
        for parameters in ({}, {"key": "private"}):
            assert visitor.get("history", **parameters)["error"].startswith("NOPERM")
            assert visitor.status == 403


def test_entries_are_found_by_what_is_in_their_fields(console: Any) -> None:
    client, visitor = console()
    with client:
        with client.pipeline(transaction=False) as pipe:
            for number in range(25_000):
                pipe.xadd("orders", {"customer": f"C{number}", "note": "same"}, id=f"1-{number + 1}")
            pipe.execute()
        visitor.log_in()

        def ids(text: str, start: str = "") -> tuple[list[str], int, str | None]:
            found = visitor.get("search", key="orders", text=text, start=start)
            return [each["id"] for each in found["entries"]], found["looked"], found["next"]

        first, looked, following = ids("c24999")
        assert (first, looked >= 20_000, following is not None) == (["1-25000"], True, True)
        assert ids("customer=C3", "(1-6") == (["1-4"], 5, None)
        assert ids("note=C3", "(1-6") == ([], 5, None)
        found, _, following = ids("SAME")
        assert (len(found), following) == (100, "(1-24901")
        visitor.get("search", key="orders", text="")
        assert visitor.status == 400


def test_keys_that_are_no_streams_are_listed(console: Any) -> None:
    client, visitor = console()
    with client:
        client.xadd("orders", {"a": 1})
        client.set("config", '{"a": [1, 2]}', ex=1000)
        client.set("", "empty name")
        visitor.log_in()
        found = visitor.get("keys")
        assert [(each["key"], each["type"]) for each in found["keys"]] == [("", "string"), ("config", "string")]
        assert found["keys"][0]["ttl_ms"] is None
        assert 0 < found["keys"][1]["ttl_ms"] <= 1_000_000
        assert found["is_whole"]
        assert visitor.get("contents", key="config") == {
            "type": "string",
            "value": '{"a": [1, 2]}',
            "size": 13,
            "next": None,
        }
        assert visitor.get("contents", key="nothing")["error"] == "The key does not exist."
        assert visitor.get("contents", key="orders")["error"] == "A stream is not shown here."
        client.execute_command("ACL", "SETUSER", "eve", "on", ">word", "~other*", "+@all")
        visitor.log_in("eve", "word")
        assert visitor.get("keys")["keys"] == []


def test_what_keys_hold_is_shown_page_by_page(console: Any) -> None:
    client, visitor = console()
    with client:
        client.rpush("list", *range(250))
        client.zadd("scores", {f"m{at:03}": at + 0.5 for at in range(250)})
        client.sadd("set", *(f"member-{at}" for at in range(2000)))
        client.hset("hash", mapping={f"field-{at}": at for at in range(2000)})
        client.hset("small", mapping={"a": b"\xff", "b": "x" * 2000})
        client.hpexpire("small", 1_000_000, "a")
        visitor.log_in()
        assert visitor.get("contents", key="list")["rows"][:2] == [[0, "0"], [1, "1"]]
        last = visitor.get("contents", key="list", start="200")
        assert (last["type"], last["size"], len(last["rows"]), last["rows"][-1], last["next"]) == (
            "list",
            250,
            50,
            [249, "249"],
            None,
        )
        page = visitor.get("contents", key="scores", start="100")
        assert (page["type"], page["rows"][0], page["next"]) == ("zset", ["m100", "100.5"], 200)
        for key in ("set", "hash"):
            seen, start = set(), "0"
            while start is not None:
                page = visitor.get("contents", key=key, start=start)
                assert len(page["rows"]) < 400
                seen |= {row[0] for row in page["rows"]}
                start = page["next"]
            assert (page["type"], page["size"], len(seen)) == (key, 2000, 2000)
        (first, second) = sorted(visitor.get("contents", key="small")["rows"], key=lambda row: str(row[0]))
        assert first[:2] == ["a", {"base64": "/w=="}]
        assert 0 < first[2] <= 1_000_000
        assert second == ["b", {"start": "x" * 1000, "size": 2000}, None]
        client.execute_command("ACL", "SETUSER", "eve", "on", ">word", "~*", "+@all", "-hscan")
        visitor.log_in("eve", "word")
        assert visitor.get("contents", key="hash")["error"].startswith("NOPERM")


def test_keys_are_deleted_where_writes_are_allowed(console: Any) -> None:
    client, visitor = console(http_allow_writes="yes")
    with client:
        client.set("config", "1")
        visitor.log_in()
        assert visitor.post("delete-key", key="config") == {"done": 1}
        assert client.exists("config") == 0


def test_all_that_is_pending_of_a_consumer_is_claimed(console: Any) -> None:
    client, visitor = console(http_allow_writes="yes")
    with client:
        with client.pipeline(transaction=False) as pipe:
            for _ in range(1200):
                pipe.xadd("orders", {"a": 1})
            pipe.xgroup_create("orders", "billing", 0)
            pipe.xreadgroup("billing", "", {"orders": ">"}, count=1150)
            pipe.xreadgroup("billing", "bob", {"orders": ">"}, count=50)
            pipe.execute()
        visitor.log_in()
        body = {"key": "orders", "group": "billing", "from": "", "consumer": "carol"}
        assert visitor.post("claim-all", **body) == {"done": 1150, "next": None}
        pending = {each["name"]: each["pending"] for each in client.xinfo_consumers("orders", "billing")}
        assert pending == {"": 0, "bob": 50, "carol": 1150}
        assert visitor.post("claim-all", **body, start="-") == {"done": 0, "next": None}
        visitor.post("claim-all", **{**body, "consumer": ""})
        assert visitor.status == 400


def test_what_the_doctor_finds_is_told_as_the_user_of_the_session(console: Any) -> None:
    client, visitor = console(slowlog_log_slower_than="-1")
    with client:
        visitor.log_in()
        found = visitor.get("findings")
        kinds = {each["kind"]: each for each in found["findings"]}
        assert kinds["settings-conflict"]["fix"]
        assert found["refused"] == {}
        client.execute_command("ACL", "SETUSER", "eve", "on", ">word", "~*", "+@read", "+info", "+time", "-config")
        visitor.log_in("eve", "word")
        found = visitor.get("findings")
        assert found["refused"]
        eventually(lambda: len(client.client_list()) == 2, DEADLINE_S, "the end of the connection that examined")


def test_it_is_known_whether_snapshots_are_written(console: Any) -> None:
    client, visitor = console()
    with client:
        visitor.log_in()
        client.config_set("save", "")
        assert visitor.get("overview")["save"] == ""
        client.config_set("save", "100 1")
        assert visitor.get("overview")["save"] == "100 1"
        client.execute_command("ACL", "SETUSER", "eve", "on", ">word", "~*", "+info")
        visitor.log_in("eve", "word")
        assert visitor.get("overview")["save"] is None


# --- Rules ---------------------------------------------------------------------------------------------------------------


def test_rules_are_shown_and_set(shared_console: Any) -> None:
    client, visitor = shared_console
    with client:
        with_group(client)
        visitor.log_in()
        found = visitor.get("rules", key="orders")
        assert (found["rule"]["options"], found["may"], found["groups"][0]["rule"]["options"]) == (
            "",
            {"set": True},
            "",
        )
        of = {"key": "orders", "group": "billing"}
        options = 'DEADLETTER "no stream" MAXDELIVERIES 1 BACKOFF 60000 FACTOR 1.5'
        assert visitor.post("set-rule", **of, options=options.lower().replace('"no', '"no')) == {"done": 1}
        assert visitor.get("rules", **of)["rule"]["options"] == options
        assert visitor.get("rules", key="orders")["groups"] == [
            {"name": "billing", "rule": visitor.get("rules", **of)["rule"]}
        ]
        visitor.post("set-rule", **of, options="MAXPENDING 3 DEADLETTER dead")
        assert visitor.get("rules", **of)["rule"]["values"] == {"deadletter": "dead", "maxpending": 3}
        visitor.post("set-rule", key="orders", options="RETAIN LENGTH 100 ACKED EXPIRES until")
        visitor.post("set-rule", key="orders", options="RETAIN AGE 3600000")
        assert visitor.get("rules", key="orders")["rule"]["options"] == "RETAIN AGE 3600000"
        assert visitor.get("rules", **of)["rule"]["options"] == "DEADLETTER dead MAXPENDING 3"
        for wrong, reason in (
            ("RETAIN", "RETAIN needs LENGTH, BYTES, AGE or ACKED"),
            ("NOSUCH 1", "unknown option 'NOSUCH'"),
            ('EXPIRES "x', "A quote in the options is not closed."),
        ):
            assert reason in visitor.post("set-rule", key="orders", options=wrong)["error"]
        assert visitor.get("rules", key="orders")["rule"]["options"] == "RETAIN AGE 3600000"
        client.set("dead", "no stream")
        visitor.post("set-rule", **of, options="DEADLETTER dead MAXDELIVERIES 1")
        client.xautoclaim("orders", "billing", "bob", 0)
        rule = visitor.get("rules", **of)["rule"]
        assert rule["error"].startswith("WRONGTYPE")
        assert rule["figures"] == [["not moved", 3]]
        visitor.post("set-rule", **of, options="")
        visitor.post("set-rule", key="orders", options=" ")
        assert client.keys("streamd:rules:*") == []


def test_rules_of_the_configuration_are_shown_as_such(console: Any) -> None:
    client, visitor = console(http_allow_writes="yes")
    with client:
        client.config_set("group-rule", "* * MAXPENDING 3 ISOLATE 2")
        with_group(client)
        visitor.log_in()
        of = {"key": "orders", "group": "billing"}
        rule = visitor.get("rules", **of)["rule"]
        assert (rule["options"], rule["is_default"]) == ("ISOLATE 2 MAXPENDING 3", True)
        visitor.post("set-rule", **of, options="MAXPENDING 4")
        rule = visitor.get("rules", **of)["rule"]
        assert (rule["options"], rule["is_default"]) == ("MAXPENDING 4", False)


def test_what_waits_is_shown_in_the_order_in_which_it_is_due(shared_console: Any) -> None:
    client, visitor = shared_console
    with client:
        client.execute_command("STREAMD.STREAM", "SET", "later", "FEEDS", "jobs", "DUE", "at")
        far_ms = 10**15
        ids = [client.xadd("later", {"at": due, "job": 1}) for due in (far_ms + 2, "x", far_ms)]
        visitor.log_in()
        found = visitor.get("waiting", key="later", field="at")
        assert [(each["id"], each["due_ms"]) for each in found["waiting"]] == [
            (ids[2], far_ms), (ids[0], far_ms + 2), (ids[1], None),
        ]  # fmt: skip
        assert found["is_whole"]


def test_dead_letters_are_shown_and_redriven(shared_console: Any) -> None:
    client, visitor = shared_console
    with client:
        client.execute_command(
            *["STREAMD.GROUP", "SET", "orders", "billing", "MAXDELIVERIES", "1", "DEADLETTER", "dead"]
        )
        ids = with_group(client)
        client.xadd("dead", {"dlq.stream": "orders", "dlq.group": "other", "dlq.id": "1-1"})
        client.execute_command("XNACK", "orders", "billing", "FATAL", "IDS", 1, ids[0])
        client.xautoclaim("orders", "billing", "bob", 0)
        visitor.log_in()
        of = {"key": "orders", "group": "billing", "dead": "dead"}
        letters = visitor.get("letters", **of)["letters"]
        assert sorted((each["entry"], each["reason"], each["deliveries"]) for each in letters) == [
            (ids[0], "fatal", "1"), (ids[1], "max-deliveries", "1"), (ids[2], "max-deliveries", "1"),
        ]  # fmt: skip
        assert visitor.get("rules", key="orders", group="billing")["dead_lettered"] == 3
        one = next(each["id"] for each in letters if each["entry"] == ids[1])
        assert visitor.post("redrive", **of, ids=[one]) == {"done": 1}
        assert [each["message_id"] for each in client.xpending_range("orders", "billing", "-", "+", 9)] == [ids[1]]
        client.xdel("orders", ids[0])
        assert visitor.post("redrive", **of) == {"done": 1}
        assert visitor.post("redrive", **of, adds=True) == {"done": 1}
        assert client.xrevrange("orders", count=1)[0][1] == {"number": "0"}
        assert client.xlen("dead") == 1, "that of another group"


def test_rules_are_for_those_who_may(console: Any) -> None:
    client, visitor = console()
    with client:
        with_group(client)
        visitor.log_in()
        assert visitor.get("rules", key="orders")["may"] == {"set": False}
        for name in ("set-rule", "redrive"):
            assert (
                "http-allow-writes" in visitor.post(name, key="orders", group="billing", dead="d", options="")["error"]
            )
        client.config_set("http-allow-writes", "yes")
        client.acl_setuser("guest", enabled=True, nopass=True, keys=["orders"], commands=["+@read", "+@connection"])
        visitor.log_in("guest", "x")
        assert visitor.get("rules", key="orders", group="billing")["may"] == {"set": False, "redrive": False}
        assert visitor.post("set-rule", key="orders", options="RETAIN LENGTH 1")["error"].startswith("NOPERM")
        assert visitor.get("letters", key="orders", group="billing", dead="dead")["error"].startswith("NOPERM")
