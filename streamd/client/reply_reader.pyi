from typing import Any, final

__all__ = ["ReplyReader"]

@final
class ReplyReader:
    def feed(self, data: bytes) -> None: ...
    def next(self) -> Any: ...
