from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from typing_extensions import disjoint_base

_C = TypeVar("_C")

@disjoint_base
class Part(Generic[_C]):
    names: tuple[str, ...]
    read: Callable[[_C], object] | None

class Field(Part[_C]):
    def __init__(self, name: str, value: Callable[[_C], object] | str | int) -> None: ...

class Fields(Part[_C]):
    def __init__(self, names: str, read: Callable[[_C], tuple[object, ...] | None]) -> None: ...

class Lines(Part[_C]):
    def __init__(self, name: str, read: Callable[[_C], Iterable[str]]) -> None: ...

@disjoint_base
class Section:
    title: str
    name: str
    def __init__(self, title: str, order: Iterable[str], parts: Iterable[tuple[object, Part[Any]]]) -> None: ...
    def lines(self) -> list[str]: ...

def render(sections: list[Section]) -> bytes: ...
def human_size(size: float) -> str: ...
def ratio(part: float, whole: float) -> float: ...
