from typing_extensions import disjoint_base

from streamd.core.capability import Capability
from streamd.core.client import ClientHost
from streamd.core.effects import Effects
from streamd.keyspace.listener import KeyspaceListener

@disjoint_base
class KeyChanges(KeyspaceListener):
    observers: tuple[Capability, ...]
    def __init__(self, host: ClientHost, effects: Effects) -> None: ...
    def key_removed(self, db: object, key: bytes) -> int: ...
    def observe(self, capability: Capability, is_on: bool) -> None: ...
