"""Connections to a server: streamd, Redis or Valkey, by TCP, TLS, unix socket, Sentinel or a cluster.

    dial(place)              a Connection, at the first attempt: prompt, health checks, doctor, top, import
    connect(options)         a Connection, after as many attempts as the options allow
    run(options, action)     call `action(connection)`, again on a new connection when the old one broke; for work that may
                             be done twice (reading, transactions with a marker)
    Link(options)            a connection that is kept, and reopened for work that is repeated because it broke
    server_features(conn)    what the server is, and what it can do
    server_ms(conn)          its clock

A Connection blocks, and speaks RESP2 unless another protocol is asked for. It has two interfaces, not to be mixed while replies are outstanding: `command`,
`pipeline`, `read` and `replies` decode replies to Python values; `socket_send` and `receive` move raw bytes for the compiled
coders.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, cast

from streamd.client.client_errors import OptionError, ServerError, UnreachableError
from streamd.client.place import CertificateFileError, Place, open_socket
from streamd.client.replies import clock_ms
from streamd.client.reply_reader import ReplyReader
from streamd.client.reply_types import UNREAD, Push
from streamd.errors import ProtocolError
from streamd.protocol.request_bytes import encode_request

if TYPE_CHECKING:  # the prompt and health checks start at once, without options
    from streamd.client.cluster import Topology
    from streamd.client.options import Address, ConnectionOptions

__all__ = [
    "Attempts",
    "Connection",
    "Features",
    "Link",
    "Reply",
    "Request",
    "connect",
    "dial",
    "find_topology",
    "open_node",
    "pack_command",
    "repeated",
    "run",
    "server_features",
    "server_ms",
]

Argument = bytes | str | int
Request = Sequence[Argument]
Reply = Any
"""See reply_reader.pyx; ServerError from `read`, and in the lists of `pipeline` and `replies` with `raise_errors=False`."""

T = TypeVar("T")

RECEIVE_BYTES = 256 * 1024
"""Bytes to receive from the socket at a time."""

TEMPORARY_CODES = frozenset(
    {"LOADING", "MASTERDOWN", "READONLY", "TRYAGAIN", "CLUSTERDOWN", "BUSY", "UNBLOCKED", "MOVED", "ASK"}
)
"""Error codes after which the same request may succeed later: during a start, a failover, a script, while a slot moves. A new
connection is made to the node that serves the slot by then."""


def pack_command(args: Request) -> bytes:
    """A request as bytes."""
    return encode_request(*args)


class Connection:
    """An open connection. Made by `dial` or `connect`; closed at the end of its `with` block, or by `close`.

    place    the server, for messages
    options  those that it was opened with, by `connect`
    is_only  it was inherited, and another one cannot be opened
    """

    options: ConnectionOptions
    is_only = False

    def __init__(self, place: str, sock: socket.socket) -> None:
        self.place = place
        self.socket = sock
        self._reader = ReplyReader()
        self.features: Features | None = None  # once `server_features` has asked

    def command(self, *args: Argument) -> Reply:
        """Send one request, return its reply. Raises ServerError, UnreachableError when the connection breaks."""
        self.socket_send(pack_command(args))
        reply = self.read()
        while type(reply) is Push:
            reply = self.read()
        return self._raised(reply)

    def pipeline(self, requests: Sequence[Request], *, raise_errors: bool = True) -> list[Reply]:
        """Send requests at once, return their replies in order.

        raise_errors  raise the first error reply (after all have been read); otherwise errors are elements of the list
        """
        if not requests:
            return []
        self.send_all(requests)
        return self.replies(len(requests), raise_errors=raise_errors)

    def send_all(self, requests: Sequence[Request]) -> None:
        """Send requests, whose replies `read` or `replies` will return. Raises UnreachableError."""
        self.socket_send(b"".join(map(pack_command, requests)))

    def replies(self, count: int, *, raise_errors: bool = True) -> list[Reply]:
        """The next replies, to requests that were sent; errors as in `pipeline`."""
        found = [self.read() for _ in range(count)]
        if raise_errors:
            for each in found:
                self._raised(each)
        return found

    def read(self) -> Reply:
        """The next reply, or message; an error reply is returned, not raised. Raises UnreachableError."""
        try:
            while (reply := self._reader.next()) is UNREAD:
                self._reader.feed(self._receive())
        except ProtocolError as error:
            self.close()
            raise UnreachableError(f"{self.place} does not speak the protocol of Redis: it sent {error}") from None
        return reply

    def expect(self, expected: bytes) -> bool:
        """Receive replies to requests that were sent with `socket_send`, and drop these bytes, if they begin with them.

        Otherwise `replies` has all of them. No reply may be outstanding that was sent before.
        """
        held = b""
        while len(held) < len(expected) and expected.startswith(held):
            held += self._receive()
        is_expected = held.startswith(expected)
        self._reader.feed(held[len(expected) :] if is_expected else held)
        return is_expected

    def transaction(self, requests: Sequence[Request]) -> list[Reply] | None:
        """MULTI, the requests and EXEC at once: the replies, or None when a watched key was touched.

        Raises ServerError for a request that is refused (nothing was done), or that failed (the others were done).
        """
        *queued, done = self.pipeline([("MULTI",), *requests, ("EXEC",)], raise_errors=False)
        for each in queued:
            self._raised(each)
        self._raised(done)
        for each in done or ():
            self._raised(each)
        return cast("list[Reply] | None", done)

    def socket_send(self, data: bytes | bytearray | memoryview) -> None:
        """Send raw bytes. Raises UnreachableError."""
        try:
            self.socket.sendall(data)
        except OSError as error:
            raise self._lost(error) from None

    def receive(self, buffer: bytearray | memoryview) -> int:
        """Receive raw bytes into a buffer, at least one; return how many. Raises UnreachableError."""
        try:
            count = self.socket.recv_into(buffer)
        except OSError as error:
            raise self._lost(error) from None
        if count == 0:
            raise self._lost(None)
        return count

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Connection to {self.place}>"

    def _receive(self) -> bytes:
        try:
            data = self.socket.recv(RECEIVE_BYTES)
        except OSError as error:
            raise self._lost(error) from None
        if not data:
            raise self._lost(None)
        return data

    def _raised(self, reply: Reply) -> Reply:
        if isinstance(reply, ServerError):
            raise reply
        return reply

    def _lost(self, error: OSError | None) -> UnreachableError:
        """What to raise when the connection broke; it is closed, since replies may be outstanding."""
        if isinstance(error, TimeoutError):
            reason = f"No reply from {self.place} within {round(1000 * (self.socket.gettimeout() or 0))} ms"
        else:
            why = "it was closed by the server" if error is None else reason_of(error)
            reason = f"The connection to {self.place} broke: {why}"
        self.close()
        return UnreachableError(reason)


def reason_of(error: OSError) -> str:
    return "timed out" if isinstance(error, TimeoutError) else error.strerror or str(error)


# --- Opening --------------------------------------------------------------------------------------------------------------


def dial(place: Place, *, protocol: int = 2, timeout_s: float | None = 10.0) -> Connection:
    """Open a connection: socket, TLS, AUTH, SELECT. Raises UnreachableError, ServerError when the login is refused.

    protocol   2 or 3
    timeout_s  how long to wait for the connection, and then for each reply; None: forever
    """
    try:
        connection = Connection(str(place), open_socket(place, timeout_s))
    except OSError as error:
        raise UnreachableError(f"Could not connect to {place}: {reason_of(error)}") from None
    try:
        _log_in(connection, place.username, place.password, protocol)
        if place.db:
            connection.command("SELECT", place.db)
    except BaseException:
        connection.close()
        raise
    return connection


def _log_in(connection: Connection, username: str | None, password: str | None, protocol: int = 2) -> None:
    login = [] if password is None else ["AUTH", username or "default", password]
    if protocol == 3:
        connection.command("HELLO", 3, *login)
    elif login:
        connection.command("AUTH", *(login[1:] if username else login[2:]))


def connect(options: ConnectionOptions) -> Connection:
    """Open a connection: socket, TLS, AUTH, CLIENT SETNAME, SELECT.

    Attempts are repeated, with growing waits, while nobody listens, the server is loading, or no Sentinel knows of a
    primary. Raises UnreachableError when the last one failed, ServerError immediately for permanent errors (a wrong
    password).
    """
    return repeated(options, lambda: _open(options))


def run(options: ConnectionOptions, action: Callable[[Connection], T]) -> T:
    """Return `action(connection)`, which is called again, on a new connection, when its connection broke or the server
    was not ready (TEMPORARY_CODES). The action must be repeatable from its start."""

    def attempt() -> T:
        with _open(options) as connection:
            return action(connection)

    return repeated(options, attempt)


class Link:
    """A connection that is opened when it is first needed, kept, and reopened when it broke. Used by one thread.

    temporary  codes of error replies after which an action is called again
    """

    def __init__(self, options: ConnectionOptions, temporary: frozenset[str] = TEMPORARY_CODES) -> None:
        self.options = options
        self._temporary = temporary
        self._connection: Connection | None = None

    def ask(self, action: Callable[[Connection], T]) -> T:
        """Return `action(connection)`, which is called again as in `run`."""

        def attempt() -> T:
            if self._connection is None:
                self._connection = _open(self.options)
            try:
                return action(self._connection)
            except BaseException:
                self.close()  # replies may be outstanding
                raise

        return repeated(self.options, attempt, self._temporary)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class Attempts:
    """What decides whether a piece of work is tried again, and waits before that.

    There are as many further attempts as the options say; where Sentinels or a cluster are asked for the primary, at least for
    as long as a fail-over may take. `reset` begins anew, after progress.
    """

    def __init__(self, options: ConnectionOptions) -> None:
        self._options = options
        self.reset()

    def reset(self) -> None:
        self._failures = 0
        self._wait_ms = self._options.retry_backoff_ms
        self._deadline: float | None = None

    def wait(self) -> bool:
        """Wait before the next attempt; False, at once, when there is to be none."""
        options, now = self._options, time.monotonic()
        if self._deadline is None:
            has_failover = options.sentinels or options.cluster_nodes
            self._deadline = now + (options.failover_timeout_ms / 1000 if has_failover else 0)
        if self._failures >= options.retries and now >= self._deadline:
            return False
        self._failures += 1
        import random

        # Partly random, so that the tasks of a job do not reconnect all at once.
        time.sleep(self._wait_ms / 1000 * random.uniform(0.5, 1.0))
        self._wait_ms = min(self._wait_ms * 2, options.retry_max_backoff_ms)
        return True


def repeated(options: ConnectionOptions, attempt: Callable[[], T], temporary: frozenset[str] = TEMPORARY_CODES) -> T:
    """Return `attempt()`, which is called again as often as the options allow while it fails for a time only."""
    attempts = Attempts(options)
    while True:
        try:
            return attempt()
        except ServerError as error:
            if error.code not in temporary or not attempts.wait():
                raise
        except UnreachableError:
            if not attempts.wait():
                raise


def _open(options: ConnectionOptions) -> Connection:
    if options.sentinels:
        return _open_primary(options)
    if options.cluster_nodes:
        return _open_node(options)
    return _greeted(options, options.username, options.find_password(), _socket_to(options, None), is_sentinel=False)


def _socket_to(options: ConnectionOptions, address: Address | None) -> socket.socket:
    """A connected socket: to the address, or to where the options say; TLS when they say so."""
    try:
        sock = open_socket(options.place_at(address), options.connect_timeout_ms / 1000)
    except CertificateFileError as error:
        raise OptionError("tlsCaFile" if error.field == "ca_file" else "tlsCertFile", str(error)) from None
    except OSError as error:
        if options.tls and _is_refused_certificate(error):
            # Retrying would not help.
            raise OptionError("tls", f"the certificate of {address or options.place} is refused: {error}") from None
        raise UnreachableError(f"Could not connect to {address or options.place}: {reason_of(error)}") from None
    sock.settimeout(options.read_timeout_ms / 1000)
    return sock


def _is_refused_certificate(error: OSError) -> bool:
    import ssl

    return isinstance(error, ssl.SSLCertVerificationError)


def _greeted(
    options: ConnectionOptions, username: str | None, password: str | None, sock: socket.socket, *, is_sentinel: bool
) -> Connection:
    """A connection that is logged in, with its name and database set."""
    connection = Connection(options.place, sock)
    connection.options = options
    try:
        _log_in(connection, username, password)
        if not is_sentinel:
            # Both are optional: an access control list may forbid setting a name, and only streamd reads archives.
            greeting: list[Request] = [("CLIENT", "SETNAME", options.client_name)]
            if options.is_live_only:
                greeting.append(("STREAMD.NOARCHIVE", "ON"))
            connection.pipeline(greeting, raise_errors=False)
            if options.db:
                connection.command("SELECT", options.db)
    except BaseException:
        connection.close()
        raise
    return connection


def _open_node(options: ConnectionOptions) -> Connection:
    """Connect to the primary of a cluster that serves the key of the options, or else to any."""
    topology = find_topology(options)
    if options.key is not None:
        return open_node(options, topology.owner_of(options.key))
    failure = UnreachableError(f"no primary of {options.place} has slots")
    for node in topology.primaries:
        try:
            return open_node(options, node)
        except UnreachableError as error:
            failure = error
    raise failure


def open_node(options: ConnectionOptions, node: Address) -> Connection:
    """Connect to a node of a cluster, at the first attempt."""
    connection = _greeted(
        options, options.username, options.find_password(), _socket_to(options, node), is_sentinel=False
    )
    connection.place = str(node)
    return connection


def find_topology(options: ConnectionOptions) -> Topology:
    """Ask the nodes of the options who serves what, in order, until one answers. Raises UnreachableError, ServerError.

    It is never kept: connections are opened seldom, and one that broke, or was answered with MOVED, is opened again because the
    topology has changed.
    """
    from streamd.client.cluster import Topology

    failures: list[str] = []
    for node in options.cluster_nodes:
        try:
            with open_node(options, node) as connection:
                return Topology.read(connection.command("CLUSTER", "SHARDS"), options.place_at(node))
        except UnreachableError as error:
            failures.append(str(error))
        except ServerError as error:
            if error.code not in TEMPORARY_CODES:
                raise
            failures.append(f"{node}: {error}")
    raise UnreachableError(f"no node of {options.place} describes the cluster: {'; '.join(failures)}")


def _open_primary(options: ConnectionOptions) -> Connection:
    """Ask the Sentinels, in order, for the primary, and connect to the first one that reports itself as primary."""
    from streamd.client.options import Address

    name = options.sentinel_master or ""
    failures: list[str] = []
    strangers = 0
    for sentinel in options.sentinels:
        try:
            sock = _socket_to(options, sentinel)
            password = options.find_sentinel_password()
            with _greeted(options, options.sentinel_username, password, sock, is_sentinel=True) as asked:
                found = asked.command("SENTINEL", "get-master-addr-by-name", name)
            if found is None:
                failures.append(f"{sentinel} does not know {name}")
                strangers += 1
                continue
            primary = Address(found[0].decode(), int(found[1]))
            sock = _socket_to(options, primary)
            connection = _greeted(options, options.username, options.find_password(), sock, is_sentinel=False)
            # During a fail-over a Sentinel may still name the old primary, which is a replica by now.
            role = connection.pipeline([("ROLE",)], raise_errors=False)[0]
            if isinstance(role, list) and role[0] != b"master":
                connection.close()
                failures.append(f"{primary}, named by {sentinel}, is not a primary")
                continue
            connection.place = f"{name} at {primary}"
            return connection
        except UnreachableError as error:
            failures.append(str(error))
    if strangers == len(options.sentinels):
        # Sentinels do not forget what they monitor: retrying would not help.
        raise OptionError("sentinelMaster", f"no Sentinel knows {name}")
    raise UnreachableError(f"no primary {name}: {'; '.join(failures)}")


# --- What the server is ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Features:
    """What a server is, and which features that differ between servers it has.

    name            `streamd`, `redis` or `valkey`
    version         its own version
    redis_version   the Redis release that it claims compatibility with
    """

    name: str
    version: tuple[int, ...]
    redis_version: tuple[int, ...]
    has_idmp: bool
    """XADD with IDMP and IDMPAUTO, XCFGSET (Redis 8.6)."""
    has_acked_trim: bool
    """KEEPREF, DELREF and ACKED for XADD and XTRIM, XDELEX, XACKDEL (Redis 8.2)."""
    has_streamd_helpers: bool
    """Commands of streamd's own that Redis does not have, among them the cheap split of a stream; as far as is known, this
    user may call them (`SplitForbiddenError`)."""

    def __str__(self) -> str:
        return f"{self.name} {'.'.join(map(str, self.version))}"


SPLIT_COMMAND = "STREAMD.SPLIT"
"""The IDs that cut a range of a stream into parts of equal length; where a server has it."""


def server_features(connection: Connection) -> Features:
    """What a server is: one round trip per connection. A server that forbids the questions is treated as an old Redis."""
    if connection.features is not None:
        return connection.features
    info, commands = connection.pipeline(
        [("INFO", "server"), ("COMMAND", "INFO", "XCFGSET", "XDELEX", SPLIT_COMMAND)], raise_errors=False
    )
    fields = {}
    if isinstance(info, bytes):
        lines = (line.partition(":") for line in info.decode(errors="replace").splitlines())
        fields = {name: value for name, colon, value in lines if colon}
    known = [bool(each) for each in commands] if isinstance(commands, list) else [False] * 3
    name = next((each for each in ("streamd", "valkey") if f"{each}_version" in fields), "redis")
    connection.features = Features(
        name=name,
        version=_version(fields.get(f"{name}_version", "")),
        redis_version=_version(fields.get("redis_version", "")),
        has_idmp=known[0],
        has_acked_trim=known[1],
        has_streamd_helpers=known[2],
    )
    return connection.features


def server_ms(connection: Connection) -> int:
    """The server's clock: Unix time in milliseconds."""
    return clock_ms(connection.command("TIME"))


def _version(text: str) -> tuple[int, ...]:
    numbers = []
    for part in text.split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
    return tuple(numbers)
