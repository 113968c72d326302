"""Connections to a server: streamd, Redis or Valkey, by TCP, TLS, unix socket, Sentinel or a cluster.

dial(place)              a Connection (wire.py), at the first attempt: prompt, health checks, doctor, top, import
connect(options)         a Connection, after as many attempts as the options allow
run(options, action)     call `action(connection)`, again on a new connection when the old one broke; for work that may
                         be done twice (reading, transactions with a marker)
Link(options)            a connection that is kept, and reopened for work that is repeated because it broke
server_features(conn)    what the server is, and what it can do
server_ms(conn)          its clock
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from streamd.client.client_errors import OptionError, ServerError, UnreachableError
from streamd.client.features import Features
from streamd.client.place import CertificateFileError, open_socket
from streamd.client.replies import clock_ms
from streamd.client.wire import Connection, Reply, Request, dial, log_in, pack_command, reason_of

if TYPE_CHECKING:  # the prompt and health checks start at once, without options
    from streamd.client.cluster_requests import Topology
    from streamd.client.url_options import Address, ConnectionOptions

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

T = TypeVar("T")

TEMPORARY_CODES = frozenset(
    {"LOADING", "MASTERDOWN", "READONLY", "TRYAGAIN", "CLUSTERDOWN", "BUSY", "UNBLOCKED", "MOVED", "ASK"}
)
"""Error codes after which the same request may succeed later: during a start, a failover, a script, while a slot moves. A new
connection is made to the node that serves the slot by then."""


# --- Opening --------------------------------------------------------------------------------------------------------------


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
    as long as a fail-over may take. After progress, `reset` starts the count again.
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
        log_in(connection, username, password)
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
    """Connect to the primary of a cluster that serves the key of the options, or else to all primaries."""
    from streamd.client.cluster_requests import RoutedConnection

    topology = find_topology(options)
    if options.key is not None:
        return open_node(options, topology.owner_of(options.key))
    routed = RoutedConnection(options.place, topology, lambda node: open_node(options, node))
    routed.options = options
    return routed


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
    from streamd.client.cluster_requests import Topology

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
    from streamd.client.url_options import Address

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
