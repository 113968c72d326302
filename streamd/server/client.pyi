import asyncio
from collections.abc import KeysView
from typing import Any, Self

from typing_extensions import disjoint_base

from streamd.commands.spec import Command
from streamd.engine.database import Database
from streamd.protocol.reply import ReplyWriter
from streamd.protocol.request import RequestParser
from streamd.server.acl import User
from streamd.server.blocking import Blocked
from streamd.server.dispatch import Dispatcher, Transaction
from streamd.server.tracking import ClientTracking

__all__ = ["Client"]

@disjoint_base
class Client(asyncio.Protocol):
    id: int
    parser: RequestParser
    reply: ReplyWriter
    transport: Any
    is_unix: bool
    is_congested: bool
    authenticated: bool
    transaction: Transaction | None
    watched: dict[tuple[Database, bytes], bool] | None
    is_dirty: bool
    output_class: int
    tracking: ClientTracking | None
    close_after_reply: bool
    no_evict: bool
    no_touch: bool
    blocked: Blocked | None
    postponed: list[bytes] | None
    name: bytes
    lib_name: bytes
    lib_ver: bytes
    @property
    def user(self) -> User | None: ...
    total_net_in: int
    total_net_out: int
    total_commands: int
    last_command: Command | None
    def __new__(cls, dispatcher: Dispatcher, is_unix: bool = ...) -> Self: ...
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
    def set_authenticated(self, authenticated: bool, user: User | None = None) -> None: ...
    def follow_user(self) -> None: ...
    def reset(self, *, needs_password: bool) -> None: ...
    def shut_down(self) -> None: ...
    def close(self) -> None: ...
