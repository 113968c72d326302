import asyncio
from collections.abc import Mapping
from typing import Self

from typing_extensions import disjoint_base

from streamd.commands.context import Context
from streamd.commands.spec import Command
from streamd.server.app import Server
from streamd.server.blocking import BlockedClients
from streamd.server.client import Client

__all__ = ["Dispatcher", "Entry", "ServerContext"]

@disjoint_base
class Entry:
    command: Command
    needs_auth: bool
    is_write: bool
    calls: int
    usec: int
    rejected_calls: int
    failed_calls: int
    def __init__(self, command: Command) -> None: ...
    def leaves(self) -> list[Entry]: ...

@disjoint_base
class ServerContext(Context): ...

@disjoint_base
class Dispatcher:
    context: ServerContext
    clients: dict[int, Client]
    entries: dict[str, Entry]
    errorstats: dict[str, int]
    server: Server
    blocked: BlockedClients
    needs_password: bool
    max_bulk_len: int
    query_buffer_limit: int
    pause: int
    total_commands: int
    total_error_replies: int
    unexpected_errors: int
    net_input_bytes: int
    net_output_bytes: int
    def __new__(cls, server: Server, loop: asyncio.AbstractEventLoop) -> Self: ...
    def load_table(self, commands: Mapping[str, Command]) -> None: ...
    def reset_stats(self) -> None: ...
    def new_client_id(self) -> int: ...
    def register(self, client: Client, sock: object) -> None: ...
    def forget(self, client: Client) -> None: ...
    def set_output_limit(self, hard: int, soft: int, soft_seconds: int) -> None: ...
    def before_sleep(self) -> None: ...
    def resume(self, client: Client) -> None: ...
    def run_postponed(self, client: Client) -> None: ...
    def run_again(self, client: Client, args: list[bytes]) -> None: ...
    def write_error(self, client: Client, text: str) -> None: ...
    def finish_blocked(self, client: Client, mark: int) -> None: ...
    def cron(self) -> None: ...
