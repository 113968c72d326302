from streamd.engine.stream import Stream

__all__ = ["range_reply"]

def range_reply(
    stream: Stream, first: tuple[int, int], last: tuple[int, int], *, reverse: bool = False, limit: int = -1
) -> bytes: ...
