"""`streamd cli`: beside redis-cli, in pipes, with URLs, and what it says when something is wrong."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.pages.terminals import open_terminal
from support.servers import Server, find_oracle, free_port, python_environment

import streamd.embedded
from streamd.client.connection import dial
from streamd.client.place import BadUrlError, Place
from streamd.embedded import EmbeddedCluster
from streamd.shell.hints import Commands

REQUESTS = [
    ["PING"],
    ["SET", "k", 'a"b\\c\n\x01'],
    ["GET", "k"],
    ["GET", "missing"],
    ["INCR", "n"],
    ["INCR", "k"],
    ["XADD", "s", "1-1", "f", "v", "g", "w"],
    ["XADD", "s", "2-1", "f", "v"],
    ["XRANGE", "s", "-", "+"],
    ["XREAD", "STREAMS", "s", "0"],
    ["XRANGE", "s", "5", "+"],
    ["XINFO", "STREAM", "s"],
    ["CONFIG", "GET", "maxmemory*"],
    ["COMMAND", "INFO", "GET", "nothing"],
    ["MGET", *"abcdefghijkl"],
    ["XREAD", "STREAMS", "missing", "0"],
    ["NOSUCH"],
    ["CLIENT", "TRACKINGINFO"],
    ["ACL", "GETUSER", "default"],
    ["FUNCTION", "STATS"],
    ["INFO", "keyspace"],
    ["info", "KEYSPACE", "Keyspace"],
    ["INFO", "nothing"],
    ["MEMORY", "DOCTOR"],
    ["LATENCY", "DOCTOR"],
    ["DEBUG", "HTSTATS", "0"],
    ["ECHO", "a\n"],
    ["ECHO", "INFO"],
    ["EVAL", "redis.setresp(3) return {map={a={1}}}", "0"],
    ["EVAL", "redis.setresp(3) return {map={a={map={b={}}}}}", "0"],
    ["EVAL", "redis.setresp(3) return {map={a={map={b={}, c={map={}}}}}}", "0"],
    ["EVAL", "redis.setresp(3) return {1, {map={a={map={b={2}}}}}}", "0"],
    ["EVAL", "redis.setresp(3) return {{set={a=1}}, {map={a={set={b=1}}}}}", "0"],
]


def run(*arguments: str, port: int = 0, stdin: str | bytes = b"", **env: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "streamd", "cli", *(["-p", str(port)] if port else []), *arguments]
    data = stdin.encode() if isinstance(stdin, str) else stdin
    return subprocess.run(command, input=data, capture_output=True, env=python_environment() | env)


@pytest.mark.real
@pytest.mark.parametrize("protocol", ["-2", "-3"])
@pytest.mark.parametrize("form", ["--no-raw", "--raw"])
def test_replies_look_as_in_redis_cli(streamd_server: Server, protocol: str, form: str) -> None:
    oracle = find_oracle()
    assert oracle is not None
    lines = "".join(" ".join(map(quoted, request)) + "\n" for request in REQUESTS)
    said = []
    for command in ([oracle.cli], [sys.executable, "-m", "streamd", "cli"]):
        full = [*command, "-p", str(streamd_server.port), protocol, form]
        subprocess.run([oracle.cli, "-p", str(streamd_server.port), "FLUSHALL"], check=True, capture_output=True)
        ran = subprocess.run(
            full, input=lines.encode("latin-1"), capture_output=True, env=python_environment(), check=True
        )
        # MEMORY DOCTOR says how much memory is in use, which the requests before have changed.
        text = re.sub(r"(Peak: )\d+( bytes were used at most, now )\d+", r"\1N\2N", ran.stdout.decode("latin-1"))
        # LATENCY DOCTOR says how often a spike comes, which changes with each second.
        text = re.sub(r"(every )\d+\.\d+( s)", r"\1N\2", text)
        said.append(text.splitlines())
    assert said[1] == said[0]


def quoted(word: str) -> str:
    shown = (char if 32 <= ord(char) < 127 and char not in '"\\' else f"\\x{ord(char):02x}" for char in word)
    return f'"{"".join(shown)}"'


def test_json_is_a_line_a_reply(streamd_server: Server) -> None:
    run("FLUSHALL", port=streamd_server.port)
    stdin = "XADD s 1-1 f v\nXRANGE s - +\nGET missing\nNOSUCH\nXINFO STREAM s\n"
    lines = run("--json", port=streamd_server.port, stdin=stdin).stdout.splitlines()
    added, entries, missing, error, info = map(json.loads, lines)
    assert (added, entries, missing) == ("1-1", [["1-1", ["f", "v"]]], None)
    assert error["error"].startswith("ERR unknown command")
    assert info["length"] == 1


def test_the_last_argument_may_be_the_standard_input(streamd_server: Server) -> None:
    run("-x", "SET", "k", port=streamd_server.port, stdin=b"\x00\xff\r\n")
    assert run("GET", "k", port=streamd_server.port).stdout == b"\x00\xff\r\n\n"


def test_a_url_has_password_and_database() -> None:
    with streamd.embedded.start(requirepass="p@ss") as server:
        assert run("-u", f"{server.url}/3", "SET", "k", "v").stdout == b"OK\n"
        assert server.client(db=3).get("k") == b"v"
        assert run("PING", port=server.port, REDISCLI_AUTH="p@ss").stdout == b"PONG\n"
        assert run("-a", "p@ss", "PING", port=server.port).stdout == b"PONG\n"
        assert run("PING", STREAMD_URL=server.url).stdout == b"PONG\n"


def test_a_unix_socket(tmp_path: Path) -> None:
    with streamd.embedded.start(port=0, unixsocket=tmp_path / "socket") as server:
        assert run("-s", str(tmp_path / "socket"), "PING").stdout == b"PONG\n"
        assert run("-u", server.url, "PING").stdout == b"PONG\n"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["-p", "PORT", "PING"], "Could not connect to 127.0.0.1:PORT: Connection refused\n"),
        (
            ["-u", "http://x", "PING"],
            "http://x: a URL begins with redis://, rediss:// (TLS) or unix:// (a socket's path)\n",
        ),
        (["-u", "redis://x/a", "PING"], "redis://x/a: the database is a number, not 'a'\n"),
        (["-u", "redis://x:99999", "PING"], "redis://x:99999: the port is not a number from 0 to 65535\n"),
        (["-s", "/no/such", "PING"], "Could not connect to /no/such: No such file or directory\n"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(arguments: list[str], text: str) -> None:
    port = str(free_port())
    said = run(*[port if word == "PORT" else word for word in arguments])
    assert (said.returncode, said.stdout) == (1, b"")
    assert said.stderr.decode() == text.replace("PORT", port)


def test_a_wrong_password_is_said_in_one_line() -> None:
    with streamd.embedded.start(requirepass="x") as server:
        said = run("-a", "y", "PING", port=server.port)
    assert said.returncode == 1
    assert said.stderr.decode() == (
        f"127.0.0.1:{server.port}: WRONGPASS invalid username-password pair or user is disabled.\n"
    )


def test_exit_status_tells_of_errors_when_asked(streamd_server: Server) -> None:
    assert run("NOSUCH", port=streamd_server.port).returncode == 0
    assert run("-e", "NOSUCH", port=streamd_server.port).returncode == 1
    assert run("-e", "PING", port=streamd_server.port).returncode == 0


# --- Clusters ----------------------------------------------------------------------------------------------------------

CLUSTER_LINES = """set foo 1
get foo
get bar
get baz
del foo
mget foo bar
incr {foo}n
multi
set foo 2
exec
get foo
"""


@pytest.mark.real
@pytest.mark.parametrize("options", [("--raw",), ("--no-raw",), ("-3", "--no-raw"), ("-3", "--raw")])
def test_redirections_are_followed_and_shown_as_by_redis_cli(
    streamd_cluster: EmbeddedCluster, options: tuple[str, ...]
) -> None:
    oracle = find_oracle()
    assert oracle is not None
    # A slot that is being moved, whose keys are asked for at both nodes.
    with contextlib.ExitStack() as stack:
        source, target = (
            stack.enter_context(node.client(decode_responses=True)) for node in streamd_cluster.nodes[2:0:-1]
        )
        ids = [node.execute_command("CLUSTER MYID") for node in (source, target)]
        slot = source.cluster("KEYSLOT", "foo")
        said = []
        for program in ([oracle.cli], [sys.executable, "-m", "streamd", "cli"]):
            streamd_cluster.flush()
            command = [*program, "-c", "-p", str(streamd_cluster.nodes[0].port), *options]
            text = ""
            for is_moving in (False, True):
                if is_moving:
                    target.execute_command("CLUSTER SETSLOT", slot, "IMPORTING", ids[0])
                    source.execute_command("CLUSTER SETSLOT", slot, "MIGRATING", ids[1])
                ran = subprocess.run(
                    command, input=CLUSTER_LINES, capture_output=True, env=python_environment(), text=True
                )
                assert ran.returncode == 0, ran.stderr
                text += ran.stdout
                for node in (source, target):
                    node.execute_command("CLUSTER SETSLOT", slot, "STABLE")
            said.append(text)
    assert said[0].count(f"-> Redirected to slot [{slot}] located at 127.0.0.1:{streamd_cluster.nodes[1].port}") > 1
    assert said[1] == said[0]


def test_a_request_of_the_command_line_is_redirected_silently(streamd_cluster: EmbeddedCluster) -> None:
    for node in streamd_cluster.nodes:
        assert run("-c", "SET", "foo", "1", port=node.port).stdout == b"OK\n"
        assert run("-c", "--json", "GET", "foo", port=node.port).stdout == b'"1"\n'
    moved = run("GET", "foo", port=streamd_cluster.nodes[0].port).stdout
    assert moved.startswith(b"MOVED 12182 127.0.0.1:")


def test_the_prompt_names_the_node_that_it_was_led_to(streamd_cluster: EmbeddedCluster, tmp_path: Path) -> None:
    first, third = streamd_cluster.nodes[0].port, streamd_cluster.nodes[2].port
    with at_prompt("-c", "-p", str(first), history=tmp_path / "history") as prompt:
        prompt.until(f"127.0.0.1:{first}>".encode())
        prompt.type(b"set foo 1\r")
        prompt.until(f"-> Redirected to slot [12182] located at 127.0.0.1:{third}".encode())
        prompt.until(f"127.0.0.1:{third}>".encode())
        prompt.type(b"quit\r")
        prompt.read_to_end()


def test_the_node_of_a_redirection_that_does_not_answer_is_named(streamd_cluster: EmbeddedCluster) -> None:
    dead = streamd_cluster.nodes[2].port
    streamd_cluster.nodes[2].kill()
    ran = run("-c", port=streamd_cluster.nodes[0].port, stdin="get foo\n")
    assert ran.stdout.decode() == f"-> Redirected to slot [12182] located at 127.0.0.1:{dead}\n"
    assert ran.stderr.decode() == f"Could not connect to 127.0.0.1:{dead}: Connection refused\n"
    assert ran.returncode == 1


def test_messages_are_shown_as_they_come(streamd_server: Server) -> None:
    command = [sys.executable, "-m", "streamd", "cli", "-p", str(streamd_server.port), "SUBSCRIBE", "c"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=python_environment()) as listening:
        assert listening.stdout is not None
        assert [listening.stdout.readline() for _ in range(3)] == [b"subscribe\n", b"c\n", b"1\n"]
        run("PUBLISH", "c", "hello", port=streamd_server.port)
        assert [listening.stdout.readline() for _ in range(3)] == [b"message\n", b"c\n", b"hello\n"]
        listening.terminate()


# --- The prompt -----------------------------------------------------------------------------------------------------------


def test_hints_follow_the_words(streamd_server: Server) -> None:
    with dial(Place(port=streamd_server.port)) as connection:
        commands = Commands.ask(connection)
    assert [each.name for each in commands.beginning_with("xg")] == ["XGROUP"]
    assert "XINFO STREAM" in [each.name for each in commands.beginning_with("xinfo ")]
    assert commands.rest_of(["xlen"]) == "key"
    assert commands.rest_of(["xlen", "k"]) == ""
    assert commands.rest_of(["xack", "k"]) == "group id [id ...]"
    assert commands.rest_of(["xgroup", "destroy"]) == "key group"
    assert commands.rest_of(["nothing"]) == ""


class Prompt:
    """Our end of a terminal at which a prompt runs."""

    def __init__(self, terminal: int, process: subprocess.Popen[bytes]) -> None:
        self._terminal = terminal
        self._process = process
        self.said = b""

    def type(self, keys: bytes) -> None:
        os.write(self._terminal, keys)

    def until(self, wanted: bytes) -> None:
        """Read until a text has appeared."""
        while wanted not in self.said:
            assert select.select([self._terminal], [], [], 100)[0], f"no {wanted!r} in {self.said!r}"
            self.said += os.read(self._terminal, 65536)

    def read_to_end(self) -> None:
        """It draws until it ends, and who does not read keeps it from that."""
        with contextlib.suppress(OSError):
            while select.select([self._terminal], [], [], 100)[0] and os.read(self._terminal, 65536):
                pass
        assert self._process.wait(100) == 0


@contextlib.contextmanager
def at_prompt(*arguments: str, history: Path) -> Iterator[Prompt]:
    pytest.importorskip("prompt_toolkit")
    env = python_environment() | {"STREAMD_CLI_HISTORY": str(history), "TERM": "xterm"}
    parent, child = open_terminal()
    command = [sys.executable, "-m", "streamd", "cli", *arguments]
    with (
        subprocess.Popen(command, stdin=child, stdout=child, stderr=child, env=env) as process,
        contextlib.ExitStack() as kill_in_the_end,
    ):
        os.close(child)
        kill_in_the_end.callback(process.kill)
        yield Prompt(parent, process)
    os.close(parent)


def test_the_prompt_completes_and_keeps_a_history_without_passwords(streamd_server: Server, tmp_path: Path) -> None:
    history = tmp_path / "history"
    with at_prompt("-p", str(streamd_server.port), history=history) as prompt:
        prompt.until(b">")
        prompt.type(b"xad\t")
        prompt.until(b"XADD")
        prompt.type(b" readings 7-1 a b\r")
        prompt.until(b'"7-1"')
        prompt.type(b"auth wrong\r")
        prompt.until(b"(error)")
        prompt.type(b"quit\r")
        prompt.read_to_end()
    assert "XADD readings 7-1 a b" in history.read_text()
    assert "wrong" not in history.read_text()


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("redis://h", Place("h")),
        ("redis://h:1/2", Place("h", 1, db=2)),
        ("redis://u:p%40@[::1]:1", Place("::1", 1, username="u", password="p@")),
        ("unix://:p@/a%20b?db=3", Place(unix_path="/a b", password="p", db=3)),
        ("rediss://h?ssl_cert_reqs=none&ssl_ca_certs=/c", Place("h", is_tls=True, is_verified=False, ca_file="/c")),
    ],
)
def test_urls(url: str, place: Place) -> None:
    assert Place.from_url(url) == place


def test_a_url_that_names_no_server_is_refused() -> None:
    with pytest.raises(BadUrlError, match=r"localhost:6379"):
        Place.from_url("localhost:6379")
