"""One URL names the same server for all programs: those that must start at once (`dial`) and those with options (`connect`).

Against streamd and a real Redis, with a password, a user, TLS in its forms, a unix socket and a database.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import redis
from support.servers import Server, free_port

from streamd.client.client_errors import OptionError, ServerError, UnreachableError
from streamd.client.connection import Connection, connect, dial
from streamd.client.place import BadUrlError, Place, make_tls_context
from streamd.client.url_options import ConnectionOptions

Open = Callable[[str], Connection]


def open_by_options(url: str) -> Connection:
    return connect(ConnectionOptions.parse({"url": url, "retries": "0"}))


WAYS = pytest.mark.parametrize(
    "open_url", [lambda url: dial(Place.from_url(url)), open_by_options], ids=["dial", "connect"]
)


@dataclass
class Guarded:
    """A server with a password, a user, TLS that asks for a certificate, and a unix socket."""

    port: int
    tls_port: int
    socket: Path
    certificate: Path

    def tls_url(self, scheme: str, host: str, **parameters: str) -> str:
        files = {"ssl_certfile": str(self.certificate), **parameters}
        query = "&".join(f"{name}={quote(value, safe='')}" for name, value in files.items())
        return f"{scheme}://:p%40ss@{host}:{self.tls_port}/2?{query}"


@pytest.fixture(params=["streamd", pytest.param("redis", marks=pytest.mark.real(since="7.0"))])
def guarded(request: pytest.FixtureRequest, tmp_path: Path, certificate: Path) -> Guarded:
    start: Callable[..., Server] = request.getfixturevalue(f"new_{request.param}")
    made = Guarded(0, free_port(), tmp_path / "a b.sock", certificate)
    file = str(certificate)
    tls: dict[str, Any] = {
        "tls_port": str(made.tls_port),
        "tls_cert_file": file,
        "tls_key_file": file,
        "tls_ca_cert_file": file,
    }
    made.port = start(requirepass="p@ss", unixsocket=str(made.socket), **tls).port
    with redis.Redis(port=made.port, password="p@ss", protocol=2) as client:
        client.execute_command("ACL", "SETUSER", "us/er", "on", ">word", "~*", "+@all")
    return made


def seen(connection: Connection) -> tuple[str, str]:
    """The user and the database that the server sees."""
    with connection:
        said = connection.command("CLIENT", "LIST", "ID", connection.command("CLIENT", "ID")).decode()
    fields = dict(field.partition("=")[::2] for field in said.split())
    return fields["user"], fields["db"]


@WAYS
def test_a_url_names_server_user_and_database(guarded: Guarded, open_url: Open) -> None:
    address = f"127.0.0.1:{guarded.port}"
    assert seen(open_url(f"redis://:p%40ss@{address}")) == ("default", "0")
    assert seen(open_url(f"valkey://us%2Fer:word@{address}/3")) == ("us/er", "3")
    assert seen(open_url(f"streamd://{address}?username=us%2Fer&password=word&db=4")) == ("us/er", "4")
    assert seen(open_url(f"unix://us%2Fer:word@{quote(str(guarded.socket))}?db=5")) == ("us/er", "5")
    with pytest.raises(ServerError, match="WRONGPASS"):
        open_url(f"redis://:wrong@{address}")
    with pytest.raises(UnreachableError, match="No such file"):
        open_url("unix:///no/such/socket")


@WAYS
def test_a_url_names_what_tls_trusts(guarded: Guarded, open_url: Open) -> None:
    file = str(guarded.certificate)
    assert seen(open_url(guarded.tls_url("rediss", "localhost", ssl_ca_certs=file))) == ("default", "2")
    assert seen(open_url(guarded.tls_url("valkeys", "127.0.0.1", ssl_ca_certs=file, ssl_check_hostname="false")))
    assert seen(open_url(guarded.tls_url("streamds", "127.0.0.1", ssl_cert_reqs="none"))) == ("default", "2")
    with pytest.raises((UnreachableError, OptionError), match="certificate"):
        open_url(guarded.tls_url("rediss", "localhost"))
    with pytest.raises((UnreachableError, OptionError), match="certificate"):
        open_url(guarded.tls_url("rediss", "127.0.0.1", ssl_ca_certs=file))
    with pytest.raises((UnreachableError, OptionError), match="No such file"):
        open_url(guarded.tls_url("rediss", "localhost", ssl_ca_certs="/no/such/file"))


def test_an_authority_that_is_named_is_the_only_one_trusted(certificate: Path) -> None:
    assert len(make_tls_context(Place(ca_file=str(certificate))).get_ca_certs()) == 1


@pytest.mark.parametrize("protocol", [2, 3])
def test_both_protocols(guarded: Guarded, protocol: int) -> None:
    place = Place.from_url(f"redis://us%2Fer:word@127.0.0.1:{guarded.port}/1")
    with dial(place, protocol=protocol) as connection:
        assert connection.command("CONFIG", "GET", "port") == (
            [b"port", b"%d" % guarded.port] if protocol == 2 else {b"port": b"%d" % guarded.port}
        )
        connection.command("CLIENT", "TRACKING", "on", *(["BCAST"] if protocol == 3 else []))
        assert connection.command("SET", "k", "v") == b"OK"
        assert connection.command("GET", "k") == b"v"  # a message about the key, which RESP3 has first, is no reply


@WAYS
@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://u:secret@h", "a URL begins with redis://"),
        ("h:6379", "a URL begins with redis://"),
        ("unix+sentinel://:secret@h/m", "a URL begins with redis://"),
        ("redis://u:secret@h:port", "the port is not a number"),
        ("redis://u:secret@h:70000", "the port is not a number"),
        ("redis://u:secret@h/abc", "the database is a number, not 'abc'"),
        ("redis://u:secret@h/1/2", "the database is a number, not '1/2'"),
        ("redis://u:secret@[::1", "Invalid IPv6 URL"),
    ],
)
def test_what_is_no_url_is_refused_and_not_repeated(url: str, reason: str, open_url: Open) -> None:
    with pytest.raises((BadUrlError, OptionError)) as raised:
        open_url(url)
    assert reason in str(raised.value)
    assert "secret" not in str(raised.value)
