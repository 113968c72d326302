"""The two servers of an import, and what makes an import between them impossible.

    source   the server whose data are wanted; it is only read, and its writes are paused if the user asks for that
    target   the server that gets them

A `Peer` is either of them. All requests that it is asked for can be repeated, so it connects again when its connection broke.
"""

from __future__ import annotations

from collections.abc import Sequence

from streamd.client.client_errors import ServerError, UnreachableError
from streamd.client.connection import Connection, Reply, dial
from streamd.client.key_slots import SLOT_COUNT
from streamd.client.place import Place
from streamd.client.replies import as_text
from streamd.errors import StreamdError

__all__ = [
    "ImportFailedError",
    "Peer",
    "PeerLostError",
    "check_source",
    "check_target",
    "keys_of",
    "parse_info",
    "source_slots",
    "version_of",
]

TIMEOUT_S = 30.0
"""How long a reply is waited for; a server that loads a snapshot may be slow to answer."""
DEFAULT_DATABASES = 16


class ImportFailedError(StreamdError):
    """Why an import cannot be done, or did not succeed; str() is the line to print."""


class PeerLostError(ImportFailedError):
    """A server that does not answer."""


class Peer:
    """One of the two servers.

    role   `source` or `target`, for messages
    place  where it is
    """

    def __init__(self, role: str, place: Place) -> None:
        self.role = role
        self.place = place
        self._connection: Connection | None = None

    def __str__(self) -> str:
        return f"The {self.role} {self.place}"

    def call(self, *words: str | bytes | int) -> Reply:
        """The reply to a request. Raises ImportFailedError when there is no connection, ServerError for an error reply."""
        return raised(self.ask([words])[0])

    def ask(self, requests: Sequence[Sequence[str | bytes | int]]) -> list[Reply]:
        """Send requests in one go; their replies in order, errors among them. Raises PeerLostError, ImportFailedError."""
        try:
            try:
                return self._asked(requests)
            except UnreachableError:
                self.close()
                return self._asked(requests)
        except UnreachableError as error:
            self.close()
            raise PeerLostError(f"{self}: {error}") from None

    def _asked(self, requests: Sequence[Sequence[str | bytes | int]]) -> list[Reply]:
        return self.send(requests).replies(len(requests), raise_errors=False)

    def send(self, requests: Sequence[Sequence[str | bytes | int]]) -> Connection:
        """Send requests whose replies the returned connection will read, in order. Raises UnreachableError."""
        connection = self._connection or self._connected()
        connection.send_all(requests)
        return connection

    def _connected(self) -> Connection:
        try:
            self._connection = dial(self.place, timeout_s=TIMEOUT_S)
        except ServerError as error:
            raise ImportFailedError(f"{self} does not accept the login: {error}") from None
        return self._connection

    def info(self) -> dict[str, str]:
        """The fields of INFO; the names of modules, separated by commas, are the field `modules`."""
        try:
            text = self.call("INFO")
        except ServerError as error:
            raise ImportFailedError(f"{self} refuses INFO: {error}") from None
        fields = parse_info(text)
        if "redis_version" not in fields:
            raise ImportFailedError(f"{self} is not a Redis: INFO has no redis_version")
        return fields

    def offset(self) -> int:
        """How many bytes its stream of replication has: of a primary what it has sent, of a replica what it has applied."""
        return self.position()[1]

    def position(self) -> tuple[str, int]:
        """The replication ID of its stream, which is another one when it has started again, and its offset."""
        fields = self.info()
        offset = fields["slave_repl_offset" if fields["role"] == "slave" else "master_repl_offset"]
        return fields.get("master_replid", fields["run_id"]), int(offset)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def raised(reply: Reply) -> Reply:
    if isinstance(reply, ServerError):
        raise reply
    return reply


def parse_info(text: Reply) -> dict[str, str]:
    """The fields of INFO, with the names of modules, separated by commas, as the field `modules`."""
    lines = text.decode("utf-8", "replace").splitlines() if isinstance(text, bytes) else []
    fields = dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("#"))
    modules = [line.partition("name=")[2].partition(",")[0] for line in lines if line.startswith("module:")]
    return fields | {"modules": ",".join(modules)}


def version_of(fields: dict[str, str]) -> tuple[int, ...]:
    """The Redis release that a server speaks: (8, 6)."""
    return tuple(int(part) for part in fields["redis_version"].split(".")[:2] if part.isdecimal())


def keys_of(fields: dict[str, str]) -> dict[int, int]:
    """The number of keys of each database that has any, from INFO."""
    found = {}
    for name, value in fields.items():
        if name.startswith("db") and name[2:].isdecimal() and value.startswith("keys="):
            found[int(name[2:])] = int(value[5:].partition(",")[0])
    return found


# --- What makes an import impossible -----------------------------------------------------------------------------------------


def check_source(source: Peer) -> dict[str, str]:
    """The source's INFO. Raises ImportFailedError when its data cannot be taken."""
    fields = source.info()
    if "sentinel_masters" in fields:
        raise ImportFailedError(f"{source} is a Sentinel: give the address of the primary")
    if version_of(fields) < (2, 8):
        raise ImportFailedError(f"{source} is Redis {fields['redis_version']}: SCAN and replication need 2.8 or newer")
    if fields.get("loading") == "1":
        raise ImportFailedError(f"{source} is still loading its data: try again later")
    if fields["role"] == "slave" and fields.get("master_link_status") != "up":
        raise ImportFailedError(f"{source} is a replica that has lost its primary: its data is stale")
    return fields


def check_target(target: Peer, source: dict[str, str], *, replace: bool) -> dict[str, str]:
    """The target's INFO. Raises ImportFailedError when it cannot take the data.

    source   the INFO of the source
    replace  what the target holds may be dropped
    """
    fields = target.info()
    if source.get("cluster_enabled") == "1":
        raise ImportFailedError(
            f"The source is a node of a cluster, and holds only a part of the keys: they can go only into a cluster, not to {target.place}"
        )
    if fields["run_id"] == source["run_id"]:
        raise ImportFailedError(f"{target} and the source are the same server")
    if fields["role"] == "slave":
        upstream = f"{fields['master_host']}:{fields['master_port']}"
        raise ImportFailedError(f"{target} is a replica of {upstream}: REPLICAOF NO ONE makes it a primary")
    if fields.get("master_replid") == source.get("master_replid"):
        raise ImportFailedError(f"{target} is the primary of the source")
    if fields.get("loading") == "1":
        raise ImportFailedError(f"{target} is still loading its data: try again later")
    count = sum(keys_of(fields).values())
    if count and not replace:
        raise ImportFailedError(f"{target} holds {count:,} keys: --replace drops them")
    databases = number_of_databases(target)
    beyond = [db for db in keys_of(source) if db >= databases]
    if beyond:
        raise ImportFailedError(
            f"{target} has {databases} databases, the source uses number {max(beyond)}: set `databases`"
        )
    return fields


def source_slots(source: Peer) -> frozenset[int]:
    """The slots whose keys the source has: all, unless it is a node of a cluster. Raises ImportFailedError."""
    try:
        lines = [line.split(" ") for line in as_text(source.call("CLUSTER", "NODES")).splitlines()]
    except ServerError as error:
        if error.code != "ERR":
            raise PeerLostError(f"{source}: {error}") from None
        if source.info().get("cluster_enabled") == "1":
            raise ImportFailedError(f"{source} refuses CLUSTER NODES: {error}") from None
        return frozenset(range(SLOT_COUNT))
    itself = next(words for words in lines if "myself" in words[2].split(","))
    owner = itself[0] if itself[3] == "-" else itself[3]
    return frozenset(
        slot
        for words in lines
        if words[0] == owner
        for first, _, last in (run.partition("-") for run in words[8:] if not run.startswith("["))  # "[": it moves
        for slot in range(int(first), int(last or first) + 1)
    )


def number_of_databases(peer: Peer) -> int:
    try:
        return int(peer.call("CONFIG", "GET", "databases")[1])
    except (ServerError, IndexError):
        return DEFAULT_DATABASES
