from streamd.engine.stream import Stream

__all__ = ["count_gathered", "split"]

_ID = tuple[int, int]

def split(
    stream: Stream, parts: int, first: _ID = ..., last: _ID = ..., *, limit: int | None = None
) -> list[tuple[_ID, _ID, int]]: ...
def count_gathered(stream: Stream, first: _ID = ..., last: _ID = ..., *, limit: int | None = None) -> int: ...
