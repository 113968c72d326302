import asyncio
from collections.abc import KeysView
from typing import Any, Self

from typing_extensions import disjoint_base

from streamd.core.identity import Identity
from streamd.core.spec import Command
from streamd.engine.database import Database
from streamd.protocol.reply import ReplyWriter
from streamd.protocol.request import RequestParser

__all__ = ["CLIENT_STATES", "Client", "ClientHost"]

CLIENT_STATES: dict[str, int]

@disjoint_base
class ClientHost:
    clients: dict[int, Client]
    databases: list[Database]
    executing: Client | None
    names_size: int
    needs_password: bool
    default_user: Identity | None
    max_bulk_len: int
    net_input_bytes: int
    net_output_bytes: int
    total_reads: int
    total_writes: int
    def new_client_id(self) -> int: ...
    def take_peaks(self) -> tuple[int, int]: ...

@disjoint_base
class Client(asyncio.Protocol):
    id: int
    parser: RequestParser
    reply: ReplyWriter
    transport: Any
    is_unix: bool
    is_congested: bool
    authenticated: bool
    transaction: Any  # Transaction | None
    watched: dict[tuple[Database, bytes], bool] | None
    is_dirty: bool
    output_class: int
    tracking: Any  # state of the caching room
    close_after_reply: bool
    no_evict: bool
    no_touch: bool
    blocked: Any  # Blocked | None
    postponed: list[bytes] | None
    name: bytes
    lib_name: bytes
    lib_ver: bytes
    @property
    def user(self) -> Identity | None: ...
    total_net_in: int
    total_net_out: int
    total_commands: int
    @property
    def read_events(self) -> int: ...
    @property
    def batches(self) -> int: ...
    @property
    def batched_commands(self) -> int: ...
    last_command: Command | None
    def __new__(cls, host: ClientHost, is_unix: bool = ...) -> Self: ...
    @property
    def is_subscribed(self) -> bool: ...
    @property
    def channels(self) -> KeysView[bytes]: ...
    @property
    def patterns(self) -> KeysView[bytes]: ...
    @property
    def shard_channels(self) -> KeysView[bytes]: ...
    @property
    def is_monitor(self) -> bool: ...
    @property
    def created_at(self) -> float: ...
    @property
    def last_interaction(self) -> float: ...
    @property
    def db_index(self) -> int: ...
    @property
    def address(self) -> str: ...
    @property
    def is_local(self) -> bool: ...
    @property
    def local_address(self) -> str: ...
    @property
    def fileno(self) -> int: ...
    @property
    def query_buffer_size(self) -> int: ...
    @property
    def query_buffer_free(self) -> int: ...
    @property
    def args_size(self) -> int: ...
    @property
    def output_size(self) -> int: ...
    def memory_usage(self) -> int: ...
    def select(self, db: Database) -> None: ...
    def set_reply_mode(self, mode: bytes) -> None: ...
    def set_authenticated(self, authenticated: bool, user: Identity | None = None) -> None: ...
    def follow_user(self) -> None: ...
    def reset(self, *, needs_password: bool) -> None: ...
    def shut_down(self) -> None: ...
    def close(self) -> None: ...
