from typing import final

from streamd.core.capability import Capability
from streamd.core.client import Client, ClientHost
from streamd.core.keyspace import Keyspace
from streamd.core.route import Route
from streamd.engine.database import Database

__all__ = ["Transaction", "Transactions"]

@final
class Transaction:
    requests: list[tuple[Route, list[bytes]]]
    is_aborted: bool
    size: int
    objects_size: int
    def __len__(self) -> int: ...

@final
class Transactions(Capability):
    watching_clients: int
    def __init__(self, host: ClientHost, keyspace: Keyspace) -> None: ...
    @property
    def total_watched_keys(self) -> int: ...
    def begin(self, client: Client) -> None: ...
    def end(self, client: Client) -> None: ...
    def watch(self, client: Client, db: Database, key: bytes) -> None: ...
    def unwatch(self, client: Client) -> None: ...
    def is_stale(self, client: Client) -> bool: ...
