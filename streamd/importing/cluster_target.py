"""A cluster that gets keys: which primary each request goes to, and which of its slots may have lost what they were sent."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

from streamd.client.client_errors import ServerError, UnreachableError
from streamd.client.connection import Connection, Reply, dial
from streamd.client.key_slots import SLOT_COUNT
from streamd.client.place import Place
from streamd.client.redirection import find_redirection
from streamd.client.replies import as_text
from streamd.client.shards import Shard, parse_shards
from streamd.client.wire import Request
from streamd.importing.peers import ImportFailedError, Peer, keys_of, parse_info

__all__ = ["TEMPORARY_CODES", "ClusterTarget", "Routed", "check_cluster"]

TIMEOUT_S = 5.0
"""How long a reply is waited for; a primary that does not answer in this time is asked again, or replaced by then."""

TEMPORARY_CODES = frozenset(
    (
        "ASK",
        "BUSY",
        "CLUSTERDOWN",
        "LOADING",
        "MASTERDOWN",
        "MOVED",
        "NOREPLICAS",
        "READONLY",
        "TRYAGAIN",
        "UNREACHABLE",
    )
)
"""Codes of error replies after which the same request can succeed later. UNREACHABLE is our own."""

Routed = tuple[int, Request]
"""A request, and the slot of its keys."""

Address = tuple[str, int]


class ClusterTarget:
    """The primaries of a cluster, with a connection to each.

    owners   the primary of each slot
    is_down  slots are not served, or their primary does not answer: `refresh` is to be called until that is over
    lost     slots that may have lost acknowledged requests, and that `refresh` has not returned yet
    """

    def __init__(self, seed: Place) -> None:
        self.seed = seed
        self.is_down = True
        self._places: dict[Address, Place] = {address_of(seed): seed}  # all nodes that were ever seen
        self.owners: dict[int, Address] = {}
        self._connections: dict[Address, Connection] = {}
        self.lost: set[int] = set()

    def __str__(self) -> str:
        return f"The cluster of {self.seed}"

    def refresh(self) -> set[int]:
        """Read who serves what, and connect.

        Returns the slots that may have lost acknowledged requests: those of a primary whose connection broke, or that is a primary no
        more. A slot that was moved from one primary to another has lost nothing.
        """
        self.is_down = True
        shards = self._read_shards()
        if shards is None:
            return set()
        owners: dict[int, Address] = {}
        primaries: set[Address] = set()
        for shard in shards:
            for node in shard.nodes:
                self._places[address_of(node.place)] = node.place
            if shard.primary is not None:
                primary = address_of(shard.primary.place)
                primaries.add(primary)
                owners |= {slot: primary for first, last in shard.ranges for slot in range(first, last + 1)}
        lost = self.lost | {slot for slot, owner in self.owners.items() if owner not in primaries}
        for address in self._connections.keys() - primaries:
            self._connections.pop(address).close()
        self.owners, self.lost = owners, lost
        for address in set(owners.values()) - self._connections.keys():
            try:
                self._connections[address] = dial(self._places[address], timeout_s=TIMEOUT_S)
            except (UnreachableError, ServerError):
                return set()  # its data are looked at once it serves
        states = self._ask_all(("CLUSTER", "INFO"))
        is_complete = len(owners) == SLOT_COUNT and set(owners.values()) <= self._connections.keys()
        if not is_complete or not all(isinstance(each, bytes) and b"cluster_state:ok" in each for each in states):
            return set()
        self.is_down = False
        lost, self.lost = self.lost, set()
        return lost

    def _read_shards(self) -> list[Shard] | None:
        """What a node says that answers, another one each time, since its view may be old; None: none does."""
        for address, place in list(self._places.items()):
            self._places[address] = self._places.pop(address)
            try:
                if (connection := self._connections.get(address)) is None:
                    with dial(place, timeout_s=TIMEOUT_S) as asked:
                        return parse_shards(asked.command("CLUSTER", "SHARDS"), place)
                return parse_shards(connection.command("CLUSTER", "SHARDS"), place)
            except UnreachableError:
                self._lose(address)
            except ServerError as error:
                if error.code not in TEMPORARY_CODES:
                    raise ImportFailedError(f"{self} refuses CLUSTER SHARDS: {error}") from None
        return None

    def _lose(self, address: Address) -> None:
        """The connection to a node broke: what was sent over it may not have been done, and what was done may be lost."""
        self.is_down = True
        if address in self._connections:
            self._connections.pop(address).close()
            self.lost |= {slot for slot, owner in self.owners.items() if owner == address}

    # --- Requests ----------------------------------------------------------------------------------------------------

    def send(self, requests: Sequence[Routed]) -> list[Reply]:
        """The replies to requests, which each go to the primary of their slot, in order; errors among them."""
        by_node: dict[Address | None, list[int]] = {}
        for at, (slot, _) in enumerate(requests):
            by_node.setdefault(self.owners.get(slot), []).append(at)
        found: list[Reply] = [ServerError("UNREACHABLE")] * len(requests)
        sent = []
        for address, places in by_node.items():
            if address is not None and address in self._connections:
                with self._losing(address):
                    self._connections[address].send_all([requests[at][1] for at in places])
                    sent.append((address, places))
        for address, places in sent:
            with self._losing(address):
                connection = self._connections[address]
                for at in places:
                    found[at] = connection.read()
        if any(isinstance(reply, ServerError) and reply.code in TEMPORARY_CODES - {"ASK"} for reply in found):
            self.is_down = True
        return found

    def send_again(self, request: Routed, reply: Reply) -> Reply:
        """The reply of the node that an ASK names, or this reply if it is not an ASK."""
        redirection = find_redirection(reply)
        if redirection is None or not redirection.is_ask:
            return reply
        owner = self.owners[request[0]]
        address = (redirection.host or owner[0], redirection.port)
        if address not in self._connections:
            return reply
        with self._losing(address):
            return self._connections[address].pipeline([("ASKING",), request[1]], raise_errors=False)[1]
        return reply

    def keys(self) -> int:
        """How many keys the primaries hold; also notices primaries that no longer answer."""
        total = 0
        for reply in self._ask_all(("INFO", "keyspace")):
            total += sum(keys_of(parse_info(reply)).values()) if isinstance(reply, bytes) else 0
        return total

    def has_node(self, name: str) -> bool:
        """Whether a node of this ID is a member."""
        return any(name in as_text(reply) for reply in self._ask_all(("CLUSTER", "NODES")))

    def scan(self) -> Iterator[list[bytes]]:
        """The keys of all primaries, in batches; ends early when one fails, after which `is_down` is true."""
        for address in sorted(self._connections):
            cursor = b"0"
            while address in self._connections:
                keys: list[bytes] = []
                with self._losing(address):
                    try:
                        cursor, keys = self._connections[address].command("SCAN", cursor, "COUNT", 1000)
                    except ServerError as error:
                        if error.code not in TEMPORARY_CODES:
                            raise ImportFailedError(f"{self} refuses SCAN: {error}") from None
                        self._lose(address)
                yield keys
                if cursor == b"0":
                    break

    def on_all(self, *words: bytes | str) -> None:
        """Send a request without keys to all primaries. Raises ServerError."""
        for reply in self._ask_all(words):
            if isinstance(reply, ServerError):
                raise reply

    def publish(self, words: Request) -> None:
        """Send a message, which any node passes on to all."""
        for address in list(self._connections)[:1]:
            with self._losing(address):
                self._connections[address].pipeline([words], raise_errors=False)

    def _ask_all(self, words: Request) -> list[Reply]:
        found: list[Reply] = []
        for address in sorted(self._connections):
            with self._losing(address):
                found += self._connections[address].pipeline([words], raise_errors=False)
        return found

    @contextmanager
    def _losing(self, address: Address) -> Iterator[None]:
        """Note that a connection breaks within the block."""
        try:
            yield
        except UnreachableError:
            self._lose(address)

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()


def address_of(place: Place) -> Address:
    return place.host, place.port


def check_cluster(
    target: ClusterTarget,
    source: Peer,
    info: dict[str, str],
    slots: Collection[int],
    database: int | None,
    *,
    replace: bool,
) -> int:
    """The number of keys that will be replaced. Raises ImportFailedError when the cluster cannot take the data.

    info      the INFO of the source
    slots     those that the source has
    database  the one that is wanted; None: all
    """
    target.refresh()
    if target.is_down:
        raise ImportFailedError(
            f"{target} does not serve all slots: `redis-cli --cluster check {target.seed}` shows why"
        )
    if not slots:
        raise ImportFailedError(f"{source} is a node without slots: it has no keys")
    if info.get("cluster_enabled") == "1" and target.has_node(as_text(source.call("CLUSTER", "MYID"))):
        raise ImportFailedError(
            f"{source} is itself a node of that cluster: redis-cli --cluster reshard moves its slots"
        )
    if database is None and (beyond := [db for db in keys_of(info) if db]):
        raise ImportFailedError(
            f"{target} has only database 0, the source uses number {max(beyond)}: name the one to import in the URL, such as /0"
        )
    replies = target.send([(slot, ("CLUSTER", "COUNTKEYSINSLOT", slot)) for slot in slots])
    count = sum(reply for reply in replies if isinstance(reply, int))
    if count and not replace:
        raise ImportFailedError(f"{target} holds {count:,} keys of these slots: --replace drops them")
    return count
