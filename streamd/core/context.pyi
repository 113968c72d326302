from collections.abc import Callable
from typing import Any, Self, TypeVar, final

from typing_extensions import disjoint_base

from streamd.core.client import Client
from streamd.core.question import Question
from streamd.keyspace.database import Database
from streamd.protocol.reply import ReplyWriter
from streamd.settings.config import Config

_T = TypeVar("_T")

@final
class BlockRequest:
    args: list[bytes]
    @property
    def keys(self) -> list[bytes]: ...
    @property
    def timeout_ms(self) -> int: ...
    @property
    def question(self) -> Question | None: ...
    @property
    def timeout_reply(self) -> Callable[[], bytes] | None: ...
    @property
    def can_unblock(self) -> bool: ...
    def __new__(
        cls,
        keys: list[bytes],
        args: list[bytes],
        timeout_ms: int,
        question: Question | None = None,
        ready_at_ms: int = -1,
        timeout_reply: Callable[[], bytes] | None = None,
        can_unblock: bool = True,
    ) -> Self: ...

@disjoint_base
class Context:
    db: Database
    databases: list[Database]
    reply: ReplyWriter
    now_ms: int
    dirty: int
    is_propagating: bool
    effects: list[list[bytes]] | None
    in_transaction: bool
    is_replaying: bool
    client: Client
    config: Config
    parts: dict[type, Any]
    tiers: Any
    stream_node_max_bytes: int
    stream_node_max_entries: int
    stream_idmp_duration: int
    stream_idmp_maxsize: int
    has_xnack: bool
    has_default_rules: bool
    def block_on(self, request: BlockRequest) -> None: ...
    def get(self, kind: type[_T]) -> _T: ...
    def find(self, kind: type[_T]) -> _T | None: ...
    def propagate(self, args: list[bytes]) -> int: ...
    def data_dropped(self) -> None: ...
