"""What the tests of redis-py need beyond redis-py."""

from __future__ import annotations

from typing import Any

__all__ = ["connection_arguments", "read_entries"]


def connection_arguments(port: int, protocol: int | None, **more: Any) -> dict[str, Any]:
    """Keyword arguments for a client; `protocol` None: the library's default."""
    chosen = {} if protocol is None else {"protocol": protocol}
    return {"host": "127.0.0.1", "port": port, "decode_responses": True, "socket_timeout": 60, **chosen, **more}


def read_entries(reply: Any) -> dict[str, list[Any]]:
    """Results of XREAD and XREADGROUP as key to entries, whichever shape the library uses for the protocol."""
    if isinstance(reply, dict):
        return {key: [entry for part in parts for entry in part] for key, parts in reply.items()}
    return dict(reply)
