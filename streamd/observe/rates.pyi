from typing import final

__all__ = ["Rate", "RecentMost"]

@final
class RecentMost:
    def sample(self, now: float, value: int) -> None: ...
    @property
    def most(self) -> int: ...

@final
class Rate:
    def sample(self, now: float, value: int) -> None: ...
    def per_second(self) -> float: ...
