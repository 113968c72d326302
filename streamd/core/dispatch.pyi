import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

from typing_extensions import disjoint_base

from streamd.core.blocking import BlockedClients
from streamd.core.capability import Capability
from streamd.core.client import Client
from streamd.core.context import Context
from streamd.core.key_changes import KeyChanges
from streamd.core.route import Route, Routes
from streamd.core.spec import Command
from streamd.core.transaction import Transactions
from streamd.core.turn import Turn
from streamd.keyspace.database import Database
from streamd.protocol.reply import ReplyWriter

SERVER_STATES: dict[str, int]

@disjoint_base
class ServerContext(Context):
    def begin_transaction(self) -> None: ...
    def end_transaction(self) -> None: ...
    def run_transaction(self) -> None: ...
    def watch(self, key: bytes) -> None: ...
    def unwatch(self) -> None: ...
    def confirmations(self) -> ReplyWriter: ...

@disjoint_base
class Dispatcher(Turn):
    context: ServerContext
    routes: Routes
    errorstats: dict[str, int]
    blocked: BlockedClients
    transactions: Transactions
    key_changes: KeyChanges
    capabilities: tuple[Capability, ...]
    monitor: Capability | None
    router: Capability | None
    trusts_scripts: bool
    pause_keeper: Any
    tracks_latency: bool
    pause: int
    is_replica: bool
    keeps_keys: bool
    is_refusing: bool
    batches: int
    query_buffer_limit: int
    total_commands: int
    total_error_replies: int
    @property
    def reply_size(self) -> int: ...
    def __new__(
        cls, commands: Mapping[str, Command], databases: list[Database], loop: asyncio.AbstractEventLoop
    ) -> Self: ...
    def take_capabilities(self, capabilities: Iterable[Capability]) -> None: ...
    def follow_capabilities(self) -> None: ...
    def reset_stats(self) -> None: ...
    def run_postponed(self, client: Client) -> None: ...
    @property
    def is_busy(self) -> bool: ...
    def serve_held_back(self) -> None: ...
    def change_state(self, state: int, is_on: bool) -> int: ...
    def ask_before_replies(self) -> int: ...
    def is_write(self, client: Client, route: Route) -> bool: ...
    def cron(self) -> None: ...
    def running(self) -> tuple[Client | None, Route | None, Sequence[bytes]]: ...
    def replay(self, client: Client, args: list[bytes]) -> None: ...

def overrides(capability: Capability, name: str) -> bool: ...
