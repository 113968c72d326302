from collections.abc import Callable
from typing import final

from streamd.core.capability import Capability
from streamd.core.client import Client
from streamd.core.host import Host

READ_ONLY_TEXT: str
STALE_TEXT: str

@final
class ReplicaRefusals(Capability):
    @property
    def is_read_only(self) -> bool: ...
    @property
    def is_stale(self) -> bool: ...
    def __init__(self, host: Host) -> None: ...
    def set_write_errors(self, find_write_error: Callable[[], str]) -> None: ...
    def set_way(self, find_way: Callable[[Client], str | None]) -> None: ...
    def refuse(self, is_read_only: bool, is_stale: bool) -> None: ...
