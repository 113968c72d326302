from typing import Self

from typing_extensions import disjoint_base

@disjoint_base
class Glob:
    text: bytes
    def __new__(cls, pattern: bytes, nocase: bool = False) -> Self: ...
    def match(self, text: bytes) -> bool: ...
