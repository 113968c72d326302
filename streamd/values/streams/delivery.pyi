from collections.abc import Iterable

from streamd.values.streams.group import Group
from streamd.values.streams.stream import Stream

_ID = tuple[int, int]

def lag(stream: Stream, group: Group) -> int | None: ...
def next_unread(stream: Stream, group: Group) -> _ID | None: ...
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
