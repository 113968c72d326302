from collections.abc import Hashable
from typing import Any

from typing_extensions import disjoint_base

@disjoint_base
class Question:
    @property
    def line(self) -> Hashable: ...
    @property
    def passes(self) -> bool: ...
    def __init__(self, value_class: type[Any], line: Hashable = None, passes: bool = False) -> None: ...
