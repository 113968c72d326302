from typing_extensions import disjoint_base

from streamd.engine.database import Database, KeyspaceListener
from streamd.server.client import Client
from streamd.server.dispatch import Dispatcher

__all__ = ["Keyspace"]

@disjoint_base
class Keyspace(KeyspaceListener):
    watching_clients: int
    def __init__(self, dispatcher: Dispatcher) -> None: ...
    @property
    def total_watched_keys(self) -> int: ...
    def watch(self, client: Client, db: Database, key: bytes) -> None: ...
    def unwatch(self, client: Client) -> None: ...
    def is_stale(self, client: Client) -> bool: ...
