"""The replication offset of a server without replicas, which the manifest of the append-only file names."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.servers import Server, eventually
from support.wire import Wire

StartServer = Callable[..., Server]

REQUESTS = [
    [],
    ["SET a 1", "GET a", "XADD s 1-1 f v"],
    ["MULTI", "SET a 2", "SET b 2", "EXEC"],
    ["MULTI", "SET a 3", "EXEC"],
    ["SELECT 3", "SET a 1", "SELECT 0"],
    ["PUBLISH channel message"],
    ["CONFIG SET appendonly no", "SET a 4", "CONFIG SET appendonly yes"],
    ["SET a 5"],
    ["BGREWRITEAOF"],
    ["SET a 6"],
]


def info(wire: Wire, section: str) -> dict[str, str]:
    lines = wire.call("INFO", section).value.decode().split("\r\n")
    return dict(line.split(":", 1) for line in lines if ":" in line)


def wait_for_rewrite(wire: Wire) -> None:
    def is_over() -> bool:
        fields = info(wire, "persistence")
        return fields["aof_rewrite_in_progress"] == fields["aof_rewrite_scheduled"] == "0"

    eventually(is_over)


def offset(wire: Wire) -> str:
    reported = info(wire, "replication")["master_repl_offset"]
    assert wire.call("ROLE").plain() == [b"master", int(reported), []]
    return reported


def manifest(server: Server) -> str:
    return (server.folder / "appendonlydir" / "appendonly.aof.manifest").read_text()


def story(server: Server) -> list[tuple[str, str]]:
    """Offset, as INFO and ROLE report it, and manifest after each step, and after a restart."""
    seen: list[tuple[str, str]] = []
    for requests in REQUESTS:
        with server.connect() as wire:
            wire.pipeline([request.split() for request in requests])
            wait_for_rewrite(wire)
            seen.append((offset(wire), manifest(server)))
    server.restart()
    with server.connect() as wire:
        seen.append((offset(wire), manifest(server)))
        wire.call("SET", "a", "7")
        seen.append((offset(wire), manifest(server)))
    server.stop()
    return [*seen, ("", manifest(server))]


@pytest.mark.real
def test_offsets_count_what_goes_to_the_append_only_file(new_streamd: StartServer, new_redis: StartServer) -> None:
    ours, theirs = (story(start(appendonly="yes")) for start in (new_streamd, new_redis))
    assert ours == theirs
