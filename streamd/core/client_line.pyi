from collections.abc import Iterable, Sequence

from streamd.core.client import Client

__all__ = ["describe", "describe_all"]

def describe(client: Client, now: float, request: Sequence[bytes] = ()) -> bytes: ...
def describe_all(clients: Iterable[Client], now: float, caller: Client | None, request: Sequence[bytes]) -> bytes: ...
