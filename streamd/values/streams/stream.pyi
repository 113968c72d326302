from collections.abc import Iterable, Mapping
from typing import Literal, final

from streamd.values.streams.group import Group
from streamd.values.streams.idempotency import Idempotency
from streamd.values.streams.stream_remains import StreamRemains

_ID = tuple[int, int]
_Entry = tuple[_ID, list[tuple[bytes, bytes]]]
_Policy = Literal["keepref", "delref", "acked"]

@final
class Stream:
    idempotency: Idempotency | None
    def __init__(
        self,
        node_max_bytes: int = 4096,
        node_max_entries: int = 100,
        idmp_duration: int = 100,
        idmp_maxsize: int = 100,
    ) -> None: ...
    @property
    def length(self) -> int: ...
    @property
    def entries_added(self) -> int: ...
    @property
    def groups(self) -> dict[bytes, Group]: ...
    @property
    def idmp_maxsize(self) -> int: ...
    @property
    def last_generated_id(self) -> _ID: ...
    @property
    def last_entry_id(self) -> _ID: ...
    def __len__(self) -> int: ...
    def __contains__(self, id: object, /) -> bool: ...
    def append(
        self,
        fields: Iterable[tuple[bytes, bytes]] | Mapping[bytes, bytes],
        id: _ID | None = None,
        *,
        now_ms: int = 0,
    ) -> _ID: ...
    def range(
        self, first: _ID = ..., last: _ID = ..., *, reverse: bool = False, count: int | None = None
    ) -> list[_Entry]: ...
    def delete(self, id: _ID, *, policy: _Policy = "keepref") -> Literal["deleted", "referenced", "missing"]: ...
    def trim(
        self,
        *,
        max_length: int | None = None,
        min_id: _ID | None = None,
        approximate: bool = False,
        limit: int = 0,
        policy: _Policy = "keepref",
    ) -> int: ...
    def copy(self) -> Stream: ...
    def memory_usage(self) -> int: ...
    def free_effort(self) -> int: ...
    def detach(self) -> StreamRemains: ...
    def check_invariants(self) -> None: ...
