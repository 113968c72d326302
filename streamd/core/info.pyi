from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from typing_extensions import disjoint_base

__all__ = ["Field", "Fields", "Item", "Lines", "Section", "human_size", "ratio"]

_C = TypeVar("_C")

@disjoint_base
class Item(Generic[_C]):
    name: str

@disjoint_base
class Field(Item[_C]):
    def __init__(self, name: str, value: Callable[[_C], object] | str | int) -> None: ...

@disjoint_base
class Lines(Item[_C]):
    def __init__(self, name: str, read: Callable[[_C], Iterable[str]]) -> None: ...

@disjoint_base
class Fields(Generic[_C]):
    find: Callable[[_C], object]
    fields: tuple[Item[Any], ...]
    def __init__(self, find: Callable[[_C], object], fields: tuple[Item[Any], ...]) -> None: ...

@disjoint_base
class Section:
    title: str
    name: str
    def __init__(self, title: str, subjects: list[Callable[[], Any]], items: list[tuple[int, Item[Any]]]) -> None: ...
    def text(self) -> bytes: ...
    def lines(self) -> list[str]: ...

def human_size(size: float) -> str: ...
def ratio(part: float, whole: float) -> float: ...
