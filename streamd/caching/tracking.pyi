from typing import Any

from typing_extensions import disjoint_base

from streamd.core.capability import Capability
from streamd.core.client import Client
from streamd.core.host import Host

@disjoint_base
class ClientTracking:
    redirect: int
    is_bcast: bool
    is_optin: bool
    is_optout: bool
    is_noloop: bool
    is_caching: bool
    is_broken: bool
    prefixes: list[bytes]
    def __init__(self, *args: Any, **kwargs: Any) -> None: ...  # redirect, is_bcast, is_optin, is_optout, is_noloop

def tracking_of(client: Client) -> ClientTracking | None: ...

@disjoint_base
class Tracking(Capability):
    def __init__(self, host: Host) -> None: ...
    def enable(self, client: Client, wanted: ClientTracking, prefixes: list[bytes]) -> None: ...
    def disable(self, client: Client) -> None: ...
    def set_caching(self, client: Client) -> None: ...
    def refresh(self) -> None: ...
    def check_invariants(self) -> None: ...
