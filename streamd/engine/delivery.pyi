from collections.abc import Iterable

from streamd.engine.group import Group
from streamd.engine.stream import Stream

__all__ = ["claim", "lag", "next_unread", "read_new"]

_ID = tuple[int, int]

def lag(stream: Stream, group: Group) -> int | None: ...
def next_unread(stream: Stream, group: Group) -> _ID | None: ...
def read_new(
    stream: Stream,
    group: Group,
    consumer: bytes,
    *,
    now_ms: int,
    count: int | None = None,
    no_ack: bool = False,
) -> list[tuple[_ID, list[tuple[bytes, bytes]]]]: ...
def claim(
    stream: Stream,
    group: Group,
    consumer: bytes,
    ids: Iterable[_ID],
    *,
    min_idle_ms: int,
    now_ms: int,
    force: bool = False,
) -> list[_ID]: ...
