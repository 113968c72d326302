from streamd.engine.stream import Stream

__all__ = ["split"]

_ID = tuple[int, int]

def split(
    stream: Stream, parts: int, first: _ID = ..., last: _ID = ..., *, limit: int | None = None
) -> list[tuple[_ID, _ID, int]]: ...
