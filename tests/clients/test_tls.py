"""TLS, as clients meet it: certificates asked for and shown, changed while the server runs, and everything else as without.

Each test runs against streamd and, to prove the test, against a real Redis. The certificates are made with the openssl
program; without it the tests are skipped.
"""

from __future__ import annotations

import re
import shutil
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import redis
from support.certificates import OPENSSL, Certificates, make_certificates
from support.servers import Server, eventually, find_oracle, free_port, python_environment
from support.wire import ReplyReader, encode_request

from benchmarks.latency import Load, Target, measure

StartServer = Callable[..., Server]
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(OPENSSL is None, reason="no openssl program to make certificates with"),
]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


# --- A server that speaks TLS, and ways to talk to it -------------------------------------------------------------------


@dataclass
class TlsServer:
    """A running server, its port for TLS, and the certificates."""

    server: Server
    port: int
    certificates: Certificates

    def context(self, name: str | None = "client", version: ssl.TLSVersion | None = None) -> ssl.SSLContext:
        """What a client connects with: showing the certificate `name`, or none; speaking one version only, or any."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.load_verify_locations(self.certificates.certificate("ca"))
        if name is not None:
            context.load_cert_chain(self.certificates.certificate(name), self.certificates.key(name))
        if version is not None:
            context.minimum_version = context.maximum_version = version
        return context

    def connect(
        self, name: str | None = "client", version: ssl.TLSVersion | None = None, session: ssl.SSLSession | None = None,
        context: ssl.SSLContext | None = None,
    ) -> ssl.SSLSocket:  # fmt: skip
        raw = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        try:
            return (context or self.context(name, version)).wrap_socket(raw, session=session)
        except BaseException:
            raw.close()
            raise

    def redis(self, name: str | None = "client", **more: Any) -> Any:
        shown = (
            {"ssl_certfile": self.certificates.certificate(name), "ssl_keyfile": self.certificates.key(name)}
            if name
            else {}
        )
        return redis.Redis(
            port=self.port,
            ssl=True,
            ssl_ca_certs=self.certificates.certificate("ca"),
            ssl_check_hostname=False,
            **shown,
            **more,
        )

    def config(self, *pairs: str) -> Any:
        """CONFIG SET, without TLS."""
        with self.server.connect() as wire:
            return wire.call("CONFIG", "SET", *pairs)


class Talk:
    """Requests and replies over a socket."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.reader = ReplyReader()

    def __enter__(self) -> Talk:
        return self

    def __exit__(self, *exc: object) -> None:
        self.sock.close()

    def send(self, *args: str | bytes) -> None:
        self.sock.sendall(encode_request(args))

    def read(self) -> Any:
        while (reply := self.reader.next_reply()) is None:
            data = self.sock.recv(65536)
            assert data, "the connection was closed"
            self.reader.feed(data)
        return reply.value

    def call(self, *args: str | bytes) -> Any:
        self.send(*args)
        return self.read()


def is_refused(connect: Callable[[], ssl.SSLSocket]) -> bool:
    """Whether a server does not talk to this client. With TLS 1.3 a client only learns it when it reads."""
    try:
        with Talk(connect()) as talk:
            talk.call("PING")
    except (OSError, AssertionError):
        return True
    return False


@pytest.fixture(params=["streamd", pytest.param("redis", marks=pytest.mark.real)])
def start(request: pytest.FixtureRequest, certificates: Certificates) -> Callable[..., TlsServer]:
    """Start a server that speaks TLS, with what its settings are to be besides."""
    start_one: StartServer = request.getfixturevalue(f"new_{request.param}")

    def start_with_tls(**directives: str) -> TlsServer:
        port = free_port()
        server = start_one(tls_port=str(port), **(certificates.directives | directives))
        return TlsServer(server, port, certificates)

    return start_with_tls


@pytest.fixture
def tls(start: Callable[..., TlsServer]) -> TlsServer:
    return start()


# --- As without TLS -----------------------------------------------------------------------------------------------------


def test_long_messages_reach_encrypted_and_plain_subscribers(start: Callable[..., TlsServer]) -> None:
    server = start()
    payloads = [b"%d:" % at + b"m" * size for at, size in enumerate((10, 5000, 300_000, 20, 3000))] * 10
    with Talk(server.connect()) as encrypted, Talk(server.connect()) as late, server.server.connect() as plain:
        for each in (encrypted, late, plain):
            each.call("SUBSCRIBE", "c")
        with server.server.connect() as publisher:
            for payload in payloads:
                assert publisher.call("PUBLISH", "c", payload).value == 3
        for payload in payloads:
            assert encrypted.read()[2].value == payload
            assert plain.read().value[2].value == payload
        for payload in payloads:
            assert late.read()[2].value == payload


@pytest.mark.parametrize("protocol", [2, 3])
def test_redis_py_works_as_without_tls(tls: TlsServer, protocol: int) -> None:
    with tls.redis(protocol=protocol) as client:
        assert client.ping()
        first = client.xadd("s", {"a": "1"})
        assert client.xrange("s") == [(first, {b"a": b"1"})]
        with client.pipeline(transaction=False) as pipeline:
            for number in range(10_000):
                pipeline.xadd("s", {"n": number})
            assert len(pipeline.execute()) == 10_000
        value = bytes(range(256)) * 20_000
        client.set("big", value)
        assert client.get("big") == value
        with client.pubsub(ignore_subscribe_messages=True) as listener:
            listener.subscribe("news")
            assert listener.get_message(timeout=60) is None
            assert client.publish("news", "x") == 1
            assert listener.get_message(timeout=60)["data"] == b"x"


def test_a_reader_that_waits_is_woken(tls: TlsServer) -> None:
    with Talk(tls.connect()) as reader, tls.redis() as client:
        reader.send("XREAD", "BLOCK", "0", "STREAMS", "s", "$")
        eventually(lambda: client.info("clients")["blocked_clients"] == 1)
        added = client.xadd("s", {"a": "1"})
        assert reader.read()[0].value[1].value[0].value[0].value == added


@pytest.mark.skipif(shutil.which("cc") is None, reason="the load needs a C compiler")
def test_the_latency_test_measures_through_its_relay(tls: TlsServer) -> None:
    files = tls.certificates
    url = f"rediss://127.0.0.1:{tls.port}/0?ssl_check_hostname=false&ssl_ca_certs={files.certificate('ca')}"
    target = Target("over TLS", url + f"&ssl_certfile={files.certificate('client')}&ssl_keyfile={files.key('client')}")
    target.rounds["new"] = []
    key = target.make_group("new", 20_000)
    done = measure(target, key, Load(rate=2000, seconds=0.5, count=100))
    assert min(done.delays_ns) > 0
    assert target.client.xpending(key, "workers")["pending"] == 20_000
    target.clean_up()


def test_a_slow_reader_gets_every_reply(tls: TlsServer) -> None:
    with Talk(tls.connect()) as talk:
        value = b"x" * 100_000
        assert talk.call("SET", "big", value) == b"OK"
        sender = threading.Thread(target=lambda: [talk.send("GET", "big") for _ in range(300)])
        sender.start()
        sender.join()
        with tls.redis() as client:
            assert client.ping(), "others are served"
        for _ in range(300):
            assert talk.read() == value


def test_the_last_reply_comes_before_the_end(tls: TlsServer) -> None:
    for request, reply in (
        (b"PING\r\nQUIT\r\nPING\r\n", b"+PONG\r\n+OK\r\n"),
        (b"*1\r\n:1\r\n", b"-ERR Protocol error: expected '$', got ':'\r\n"),
    ):
        with tls.connect() as sock:
            sock.sendall(request)
            said = b""
            while data := sock.recv(4096):
                said += data
            assert said == reply


def test_a_subscriber_that_does_not_read_is_closed(start: Callable[..., TlsServer]) -> None:
    tls = start(client_output_buffer_limit="pubsub 2mb 1mb 1")
    with tls.redis() as publisher, Talk(tls.connect()) as subscriber:
        assert subscriber.call("SUBSCRIBE", "news")
        payload = b"x" * 100_000

        def has_given_up() -> bool:
            return publisher.publish("news", payload) == 0

        eventually(has_given_up, timeout_s=60, what="the subscriber's end")
        eventually(lambda: publisher.info("clients")["connected_clients"] == 1, what="the end of its connection")


def test_many_connections_at_once(tls: TlsServer) -> None:
    talks = [Talk(tls.connect()) for _ in range(50)]
    for number, talk in enumerate(talks):
        talk.send("ECHO", str(number))
    assert [talk.read() for talk in talks] == [str(number).encode() for number in range(50)]
    for talk in talks:
        talk.sock.close()
    with tls.redis() as client:
        eventually(lambda: client.info("clients")["connected_clients"] == 1)


# --- Who may connect ------------------------------------------------------------------------------------------------------


def test_clients_must_show_a_certificate_unless_configured_otherwise(tls: TlsServer) -> None:
    for asked, without, of_nobody in (("yes", True, True), ("optional", False, True), ("no", False, False)):
        assert tls.config("tls-auth-clients", asked).value == b"OK"
        assert not is_refused(lambda: tls.connect("client"))
        assert is_refused(lambda: tls.connect(None)) == without, asked
        assert is_refused(lambda: tls.connect("stranger")) == of_nobody, asked


def test_who_does_not_speak_tls_is_not_answered(tls: TlsServer) -> None:
    with socket.create_connection(("127.0.0.1", tls.port), timeout=60) as sock:
        sock.sendall(b"PING\r\n")
        said = b""
        try:
            while data := sock.recv(4096):
                said += data
        except ConnectionResetError:
            pass
        assert b"PONG" not in said
    assert not is_refused(tls.connect)


def test_the_user_is_the_one_that_the_certificate_names(tls: TlsServer) -> None:
    assert tls.config("tls-auth-clients-user", "CN").value == b"OK"
    with tls.server.connect() as admin:
        admin.call("ACL", "SETUSER", "alice", "on", ">secret", "+@all", "~a*")
        with Talk(tls.connect("alice")) as talk:
            assert talk.call("ACL", "WHOAMI") == b"alice"
            assert talk.call("GET", "b") == b"NOPERM No permissions to access a key"
        with Talk(tls.connect("client")) as talk:
            assert talk.call("ACL", "WHOAMI") == b"default"
        admin.call("ACL", "SETUSER", "client", "off", "nopass", "+@all")
        admin.call("CONFIG", "SET", "requirepass", "foobar")
        with Talk(tls.connect("client")) as talk:
            assert talk.call("PING") == b"NOAUTH Authentication required."
        logged = dict(zip(*[iter(admin.call("ACL", "LOG").plain()[0])] * 2, strict=True))
        assert [logged[name] for name in (b"reason", b"object", b"username", b"count")] == [
            b"tls-cert",
            b"",
            b"client",
            2,
        ]
        assert b"acl_access_denied_tls_cert:2\r\n" in admin.call("INFO", "stats").value
        assert tls.config("tls-auth-clients-user", "off").is_error


def test_a_password_is_asked_for_as_without_tls(start: Callable[..., TlsServer]) -> None:
    tls = start(requirepass="foobar")
    with Talk(tls.connect()) as talk:
        assert talk.call("PING") == b"NOAUTH Authentication required."
        assert talk.call("AUTH", "foobar") == b"OK"
    with tls.redis(password="foobar") as client:
        assert client.ping()


# --- How it is spoken -------------------------------------------------------------------------------------------------------


def test_versions_and_ciphers_are_those_of_the_settings(tls: TlsServer) -> None:
    old, new = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3

    def spoken(version: ssl.TLSVersion) -> tuple[str, str] | None:
        try:
            with tls.connect(version=version) as sock:
                cipher = sock.cipher()
                return None if cipher is None else (cipher[1], cipher[0])
        except OSError:
            return None

    assert (spoken(old), spoken(new)) != (None, None)
    tls.config("tls-ciphers", "ECDHE-RSA-AES256-GCM-SHA384", "tls-ciphersuites", "TLS_AES_128_GCM_SHA256")
    assert spoken(old) == ("TLSv1.2", "ECDHE-RSA-AES256-GCM-SHA384")
    assert spoken(new) == ("TLSv1.3", "TLS_AES_128_GCM_SHA256")
    tls.config("tls-ciphersuites", "TLS_CHACHA20_POLY1305_SHA256")
    assert spoken(new) == ("TLSv1.3", "TLS_CHACHA20_POLY1305_SHA256")
    tls.config("tls-protocols", "TLSv1.3")
    assert spoken(old) is None
    assert spoken(new) is not None
    tls.config("tls-protocols", "tlsv1.2")
    assert spoken(old) is not None
    assert spoken(new) is None


def test_sessions_are_resumed_unless_that_is_turned_off(tls: TlsServer) -> None:
    # Redis 8.6.3 fails to resume a session of a client with a certificate.
    for asked, is_resumed in (("yes", True), ("no", False)):
        tls.config("tls-session-caching", asked, "tls-auth-clients", "no")
        context = tls.context(None, ssl.TLSVersion.TLSv1_2)
        with tls.connect(context=context) as first:
            session = first.session
        with tls.connect(context=context, session=session) as second:
            # What a client brings along in a ticket, Redis takes all the same.
            assert second.session_reused == (is_resumed or tls.server.name == "redis")


def test_certificates_are_changed_while_the_server_runs(tls: TlsServer) -> None:
    def shown() -> str:
        with tls.connect() as sock:
            certificate: Any = sock.getpeercert()
            return str(certificate["subject"][0][0][1])

    files = tls.certificates
    with Talk(tls.connect()) as early:
        assert shown() == "server"
        changed = tls.config("tls-cert-file", files.certificate("other"), "tls-key-file", files.key("other"))
        assert changed.value == b"OK"
        assert shown() == "other"
        assert early.call("PING") == b"PONG"
        for pairs in (
            ("tls-cert-file", files.certificate("server")),
            ("tls-cert-file", "/nonexistent"),
            ("tls-key-file", "/nonexistent"),
            ("tls-protocols", "TLSv9"),
            ("tls-ciphers", "none"),
            ("tls-ciphersuites", "none"),
            ("tls-ca-cert-file", ""),
            ("tls-dh-params-file", "/nonexistent"),
        ):
            assert tls.config(*pairs).value == (
                b"ERR CONFIG SET failed (possibly related to argument '%b') - Unable to update TLS configuration. Check server"
                b" logs." % pairs[0].encode()
            )
        assert shown() == "other"


def test_a_locked_key_is_opened_with_its_password(start: Callable[..., TlsServer], certificates: Certificates) -> None:
    tls = start(tls_key_file=certificates.key("locked"), tls_key_file_pass="secret")
    with tls.redis() as client:
        assert client.ping()
    assert tls.config("tls-key-file-pass", "wrong").is_error
    with tls.redis() as client:
        assert client.ping()


def test_the_port_is_opened_moved_and_closed(tls: TlsServer) -> None:
    with Talk(tls.connect()) as early:
        old, tls.port = tls.port, free_port()
        assert tls.config("tls-port", str(tls.port)).value == b"OK"
        assert not is_refused(tls.connect)
        assert tls.config("tls-port", str(tls.server.port)).value == (
            b"ERR CONFIG SET failed (possibly related to argument 'tls-port') - Unable to listen on this port. Check server logs."
        )
        assert not is_refused(tls.connect)
        with pytest.raises(ConnectionRefusedError, match="Connection refused"):
            socket.create_connection(("127.0.0.1", old), timeout=60)
        assert tls.config("tls-port", "0").value == b"OK"
        assert is_refused(tls.connect)
        assert early.call("PING") == b"PONG"
        assert tls.config("tls-port", str(tls.port), "tls-auth-clients", "no").value == b"OK"
        assert not is_refused(lambda: tls.connect(None))


def test_a_server_may_listen_for_tls_only(tls: TlsServer) -> None:
    assert tls.config("port", "0").value == b"OK"
    with tls.redis() as client:
        about = client.info("server")
        assert about["tcp_port"] == tls.port
        assert f"port={tls.port}" in str(about["listener2"]) or about["listener2"]["port"] == tls.port
        client.config_set("port", tls.server.port)


# --- At the start -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("program", ["streamd", pytest.param("redis", marks=pytest.mark.real)])
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"tls_cert_file": ""}, "No tls-cert-file configured!"),
        ({"tls_key_file": ""}, "No tls-key-file configured!"),
        ({"tls_ca_cert_file": ""}, "Either tls-ca-cert-file or tls-ca-cert-dir must be specified"),
        ({"tls_cert_file": "nosuch"}, "No such file or directory"),
        ({"tls_key_file": "nosuch"}, "No such file or directory"),
        ({"tls_protocols": "TLSv1.2 foo"}, "Invalid tls-protocols specified"),
        ({"tls_ciphers": "foo"}, "Failed to configure ciphers: foo"),
        ({"tls_ciphersuites": "foo"}, "Failed to configure ciphersuites: foo"),
    ],
)
def test_a_server_that_cannot_speak_tls_does_not_start(
    program: str, changes: dict[str, str], reason: str, certificates: Certificates, tmp_path: Path
) -> None:
    oracle = find_oracle()
    command = [sys.executable, "-m", "streamd", "server"] if program == "streamd" or oracle is None else [oracle.server]
    directives = certificates.directives | changes
    words = [word for name, value in directives.items() if value for word in (f"--{name.replace('_', '-')}", value)]
    ended = subprocess.run(
        [*command, "--port", str(free_port()), "--tls-port", str(free_port()), "--save", "", *words],
        capture_output=True, text=True, timeout=60, cwd=tmp_path, env=python_environment(),
    )  # fmt: skip
    assert ended.returncode == 1
    assert reason in ended.stdout
    assert "Failed to configure TLS. Check logs for more info." in ended.stdout


def test_the_log_says_that_tls_is_ready(tls: TlsServer) -> None:
    said = [re.sub(r"^.* \* ", "", line) for line in tls.server.log().splitlines()]
    tcp = said.index("Ready to accept connections tcp")
    assert said[tcp + 1] == "Ready to accept connections tls"


# --- redis-cli ------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def cli() -> Iterator[str]:
    oracle = find_oracle()
    if oracle is None:
        pytest.skip("no redis-cli")
    if "--tls" not in subprocess.run([oracle.cli, "--help"], capture_output=True, text=True, check=False).stdout:
        pytest.skip("this redis-cli was built without TLS")
    return oracle.cli


@pytest.mark.real
def test_redis_cli_speaks_tls(tls: TlsServer, cli: str) -> None:
    files = tls.certificates

    def run(*arguments: str) -> str:
        ended = subprocess.run(
            [cli, "-p", str(tls.port), "--tls", "--cacert", files.certificate("ca"), *arguments],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        return ended.stdout + ended.stderr

    mine = ("--cert", files.certificate("client"), "--key", files.key("client"))
    assert run(*mine, "PING") == "PONG\n"
    assert run(*mine, "-3", "HELLO").startswith("server redis")
    assert "PONG" not in run("PING")  # what it says instead depends on when it learns of the refusal
