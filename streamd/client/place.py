"""Where a server is, and a connected socket to it: TCP, TLS or a unix socket. All programs that speak to a server begin here.

Not by redis-py, on purpose. `import redis` takes 0.16 s of processor time, most of it for its asyncio and cluster clients; everything
that a program here imports to connect takes 0.05 s. Every health check would pay for it, and every process that Spark starts for a
query. And the compiled coders need the bare socket, to which redis-py has no public way.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, unquote, urlsplit

from streamd.errors import StreamdError

if TYPE_CHECKING:
    import ssl

__all__ = ["BadUrlError", "CertificateFileError", "Place", "open_socket"]

DEFAULT_PORT = 6379


class BadUrlError(StreamdError):
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
        """`redis://[[user]:password@]host[:port][/db]`, `rediss://` for TLS, `unix://[[user]:password@]path[?db=n]`.

        Of redis-py's options after `?`, those about certificates are supported. Raises BadUrlError.
        """
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise BadUrlError(f"{without_secrets(url)}: {error}") from None
        if parts.scheme not in ("redis", "rediss", "unix"):
            raise BadUrlError(
                f"{without_secrets(url)}: a URL begins with redis://, rediss:// (TLS) or unix:// (a socket's path)"
            )
        options = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        place = cls(
            username=unquote(parts.username) if parts.username else options.get("username"),
            password=unquote(parts.password) if parts.password else options.get("password"),
            is_tls=parts.scheme == "rediss",
            ca_file=options.get("ssl_ca_certs"),
            cert_file=options.get("ssl_certfile"),
            key_file=options.get("ssl_keyfile"),
            is_verified=options.get("ssl_cert_reqs", "required") != "none",
            checks_host=options.get("ssl_check_hostname", "true").lower() not in ("false", "no", "0"),
        )
        name = options.get("db", "")
        if parts.scheme == "unix":
            place = replace(place, unix_path=unquote(parts.path))
        else:
            place = replace(place, host=parts.hostname or place.host, port=port or place.port)
            name = parts.path.strip("/") or name
        if name and not name.isdecimal():
            raise BadUrlError(f"{without_secrets(url)}: the database is a number, not {name!r}")
        return replace(place, db=int(name or 0))


def without_secrets(url: str) -> str:
    """A URL for messages: without a login, and without what follows `?`."""
    scheme, separator, rest = url.partition("?")[0].rpartition("://")
    return scheme + separator + rest.rpartition("@")[2]


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
