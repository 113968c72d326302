"""Where a server is, and a connected socket to it: TCP, TLS or a unix socket. All programs that speak to a server begin here.

It reads URLs for all of them. Not by redis-py, on purpose: docs/architecture.md, "The client", has what was measured.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit

from streamd.errors import StreamdError

if TYPE_CHECKING:
    import ssl

__all__ = ["BadUrlError", "CertificateFileError", "Place", "open_socket"]

DEFAULT_PORT = 6379


class BadUrlError(StreamdError, ValueError):
    """A URL that does not name a server; str() says what is wrong with it."""


class CertificateFileError(OSError):
    """A file of certificates that cannot be used. `field` is that of Place which names it."""

    def __init__(self, field: str, error: OSError) -> None:
        super().__init__(error.errno, error.strerror, error.filename)
        self.field = field
        self.text = str(error)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Place:
    """Where a server is, and how to log in there.

    unix_path   path of a unix socket, which is then used instead of host and port
    ca_file     certificates to verify the server's with, instead of the system's
    cert_file, key_file, key_password  the client's own
    server_name the host that the server's certificate must be for, if it is not `host`
    """

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    unix_path: str | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    db: int = 0
    is_tls: bool = False
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    key_password: str | None = field(default=None, repr=False)
    server_name: str | None = None
    is_verified: bool = True
    checks_host: bool = True

    def __str__(self) -> str:
        return self.unix_path or (f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}")

    @classmethod
    def from_url(cls, url: str) -> Place:
        """The place that a URL names; parameters that are options of other clients are ignored. Raises BadUrlError."""
        try:
            parts = parse_url(url)
            if parts.sentinels is not None:
                raise BadUrlError("Sentinels are asked only by archive, export, load, history, report and Spark")
            if parts.nodes is not None:
                raise BadUrlError("give the redis:// URL of one of the nodes: it names the others")
        except BadUrlError as error:
            before, separator, rest = url.partition("?")[0].rpartition("://")
            raise BadUrlError(f"{before}{separator}{rest.rpartition('@')[2]}: {error}") from None
        return cls(**parts.fields)


@dataclass(frozen=True)
class UrlParts:
    """What a URL says.

    fields     of Place, as far as it names them
    sentinels  the addresses of Sentinels, as they are written there; None: the URL names a server
    master     the name under which they monitor it
    nodes      the addresses of nodes of a cluster, likewise
    unknown    parameters that have no meaning here
    """

    fields: dict[str, Any]
    sentinels: str | None
    master: str
    nodes: str | None
    unknown: set[str]


SCHEMES = {"redis": False, "valkey": False, "streamd": False, "rediss": True, "valkeys": True, "streamds": True}
"""And whether they mean TLS."""

SENTINEL = "+sentinel"
"""The end of a scheme whose addresses are those of Sentinels."""

CLUSTER = "+cluster"
"""The end of a scheme whose addresses are those of nodes of a cluster."""

PARAMETERS = {
    "username": "username",
    "password": "password",
    "ssl_ca_certs": "ca_file",
    "ssl_certfile": "cert_file",
    "ssl_keyfile": "key_file",
    "ssl_password": "key_password",
}
"""What may follow `?`, by redis-py's names; db, ssl_cert_reqs and ssl_check_hostname may, too."""


def parse_url(url: str) -> UrlParts:
    """Read a URL; see docs/moving-data.md and docs/cluster.md. Raises BadUrlError, which does not repeat it: it may hold a password.

    redis://[[user]:password@]host[:port][/db]            rediss:// for TLS; also valkey://, streamd://
    redis+sentinel://[[user]:password@]host[:port],.../master[/db]
    redis+cluster://[[user]:password@]host[:port],...
    unix://[[user]:password@]path[?db=n]
    """
    scheme, _, rest = url.partition("://")
    netloc = re.split("[/?#]", rest, maxsplit=1)[0]
    kind = scheme.lower().removesuffix(SENTINEL).removesuffix(CLUSTER)
    has_sentinels = scheme.lower().endswith(SENTINEL)
    has_nodes = scheme.lower().endswith(CLUSTER)
    has_several = has_sentinels or has_nodes
    if "://" not in url or (kind not in SCHEMES and (kind != "unix" or has_several)):
        raise BadUrlError("a URL begins with redis://, rediss:// (TLS) or unix:// (a socket's path)")
    login, _, places = netloc.rpartition("@")
    username, _, password = login.partition(":")
    try:
        # Of several addresses urlsplit refuses those in brackets.
        parts = urlsplit(f"//{'' if has_several else places}{rest[len(netloc) :]}")
        host, port = parts.hostname, parts.port
    except ValueError as error:
        reason = "the port is not a number from 0 to 65535" if "port" in str(error).lower() else str(error)
        raise BadUrlError(reason) from None
    query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    fields: dict[str, Any] = {PARAMETERS[name]: value for name, value in query.items() if name in PARAMETERS}
    if username:
        fields["username"] = unquote(username)
    if password:
        fields["password"] = unquote(password)
    if "ssl_cert_reqs" in query:
        fields["is_verified"] = query["ssl_cert_reqs"] != "none"
    if "ssl_check_hostname" in query:
        fields["checks_host"] = query["ssl_check_hostname"].lower() not in ("false", "no", "0")
    path, master = parts.path.strip("/"), ""
    if kind == "unix":
        fields["unix_path"], path = unquote(parts.path), ""
    else:
        fields["is_tls"] = SCHEMES[kind]
        if has_sentinels:
            master, _, path = path.partition("/")
        elif not has_nodes:
            fields |= {"host": unquote(host)} if host else {}
            fields |= {"port": port} if port else {}
    if db := query.get("db") or path:
        if not (db.isascii() and db.isdecimal()):
            raise BadUrlError(f"the database is a number, not {db!r}")
        fields["db"] = int(db)
        if has_nodes and int(db):
            raise BadUrlError("a cluster has only the database 0")
    unknown = query.keys() - PARAMETERS.keys() - {"db", "ssl_cert_reqs", "ssl_check_hostname"}
    return UrlParts(fields, places if has_sentinels else None, unquote(master), places if has_nodes else None, unknown)


def open_socket(place: Place, timeout_s: float | None) -> socket.socket:
    """A connected socket, with TLS where the place says so. Raises OSError, among them CertificateFileError."""
    if place.unix_path is not None:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.settimeout(timeout_s)
            sock.connect(place.unix_path)
        except BaseException:
            sock.close()
            raise
        return sock
    sock = socket.create_connection((place.host, place.port), timeout_s)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if not place.is_tls:
            return sock
        return make_tls_context(place).wrap_socket(sock, server_hostname=place.server_name or place.host)
    except BaseException:
        sock.close()
        raise


def make_tls_context(place: Place) -> ssl.SSLContext:
    import ssl  # imported here: Spark starts processes for each query, and this is a tenth of their import time

    with naming("ca_file"):
        if place.ca_file is not None:
            os.stat(place.ca_file)  # for an error that names the file
        context = ssl.create_default_context(cafile=place.ca_file)
    if not (place.is_verified and place.checks_host):
        context.check_hostname = False
    if not place.is_verified:
        context.verify_mode = ssl.CERT_NONE
    if place.cert_file is not None:
        with naming("cert_file"):
            for name in (place.cert_file, place.key_file or place.cert_file):
                os.stat(name)
            context.load_cert_chain(place.cert_file, place.key_file, place.key_password)
    return context


@contextmanager
def naming(field: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CertificateFileError(field, error) from error
