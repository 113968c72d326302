from collections.abc import Iterable
from typing import Any

from typing_extensions import disjoint_base

from streamd.core.capability import Capability
from streamd.core.client import Client
from streamd.core.host import Host
from streamd.core.route import Route

SLOT_STATES: dict[str, int]

@disjoint_base
class Routing(Capability):
    is_up: bool
    reads_when_down: bool
    channels_when_down: bool
    crosses_slots: bool
    slot: int
    def __init__(self, host: Host) -> None: ...
    def begin(self, topology: Any) -> None: ...
    def is_settled(self, slot: int) -> bool: ...
    def find_wait_refusal(self, client: Client, keys: Iterable[bytes], is_write: bool) -> str | None: ...
    def ask(self, client: Client) -> None: ...
    def read_copies(self, client: Client, is_on: bool) -> None: ...
    def slot_of_request(self, route: Route, args: list[bytes]) -> int: ...
    def slot_of_effect(self, args: list[bytes]) -> int: ...
