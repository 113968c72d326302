"""What the console shows of the server: figures, the slow log, clients, settings, memory."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from streamd.client.client_errors import ServerError
from streamd.client.replies import as_text, text_map
from streamd.console.asked import Asked, answers
from streamd.console.json_bytes import shown, shown_start
from streamd.console.streams import allowed
from streamd.core.slices import Slices
from streamd.settings.declarations import by_name
from streamd.watching.look import parse_info

__all__: list[str] = []

SLOW_SHOWN = 128
CLIENTS_SHOWN = 2000
ARGUMENT_SHOWN = 128

FIELDS = (
    "redis_version", "streamd_version", "role", "uptime_in_seconds", "connected_clients", "blocked_clients", "maxclients",
    "used_memory", "used_memory_peak", "used_memory_rss", "maxmemory", "maxmemory_policy", "evicted_keys", "used_cpu_sys",
    "used_cpu_user", "total_commands_processed", "total_net_input_bytes", "total_net_output_bytes", "total_error_replies",
    "connected_slaves", "master_link_status", "rdb_last_bgsave_status", "rdb_last_save_time", "aof_enabled",
    "rdb_changes_since_last_save", "aof_last_write_status", "aof_last_bgrewrite_status",
)  # fmt: skip
"""The fields of INFO that the page shows."""


@answers("GET", "overview")
async def overview(asked: Asked) -> dict[str, Any]:
    info = parse_info(await asked.connection.call("INFO"))
    (saves,) = await allowed(asked, ("CONFIG", "GET", "save"))
    databases = {name[2:]: value for name, value in info.items() if name[:2] == "db" and name[2:].isdecimal()}
    return {
        "info": {name: info[name] for name in FIELDS if name in info},
        "save": None if saves is None else as_text(text_map(saves).get("save", b"")),
        "keys": {db: int(text.partition(",")[0].removeprefix("keys=")) for db, text in databases.items()},
    }


@answers("GET", "history")
async def history(asked: Asked) -> dict[str, Any]:
    """The last hour: of the server, or of a stream (`key`) for whom may ask for it."""
    kept = asked.history
    if "key" not in asked.query:
        refuse(asked, "INFO")
        return {"times": list(kept.times)} | {name: known(series) for name, series in kept.server.items()}
    key = asked.name("key")
    refuse(asked, "XINFO", "GROUPS", key)
    found = kept.values[b"stream"].streams.get((asked.db, key))
    if found is None:
        return {"times": [], "added": [], "lags": []}
    return {
        "times": list(kept.times)[-len(found.added) :] if found.added else [],
        "added": known(found.added),
        "lags": [{"name": shown(name), "values": known(series)} for name, series in found.lags.items()],
    }


def refuse(asked: Asked, *request: bytes | str) -> None:
    """Raise ServerError if the user may not make a request."""
    denial = asked.connection.denial(*request)
    if denial is not None:
        raise ServerError(denial)


def known(series: Iterable[float]) -> list[float | None]:
    return [None if math.isnan(value) else value for value in series]


@answers("GET", "slowlog")
async def slowlog(asked: Asked) -> dict[str, Any]:
    lines = await asked.connection.call("SLOWLOG", "GET", SLOW_SHOWN)
    return {
        "slow": [
            {
                "id": line[0],
                "at_s": line[1],
                "took_us": line[2],
                "words": [shown_start(word, ARGUMENT_SHOWN) for word in line[3]],
                "client": as_text(line[4]),
                "name": as_text(line[5]),
            }
            for line in lines
        ]
    }


@answers("GET", "clients")
async def clients(asked: Asked) -> dict[str, Any]:
    lines = as_text(await asked.connection.call("CLIENT", "LIST")).splitlines()
    found, slices = [], Slices()
    for line in lines[:CLIENTS_SHOWN]:
        told = dict(part.partition("=")[::2] for part in line.split(" "))
        found.append(
            {name: told.get(name, "") for name in ("addr", "name", "user", "cmd")}
            | {name: int(told.get(name) or 0) for name in ("id", "age", "idle", "db", "tot-mem", "tot-cmds")}
        )
        await slices.breathe()
    return {"clients": found, "more": max(0, len(lines) - CLIENTS_SHOWN)}


@answers("GET", "settings")
async def settings(asked: Asked) -> dict[str, Any]:
    """The settings as CONFIG GET tells them, but for passwords."""
    told = text_map(await asked.connection.call("CONFIG", "GET", "*"))
    found, slices = [], Slices()
    for name, value in sorted(told.items()):
        row = by_name.get(name)
        is_secret = row is not None and row.is_secret
        found.append(
            {
                "name": name,
                "value": ("(hidden)" if value else "") if is_secret else as_text(value),
                "default": "" if row is None or is_secret else row.kind.format(row.default),
                "doc": "" if row is None else row.doc,
            }
        )
        await slices.breathe()
    return {"settings": found}


@answers("GET", "memory")
async def memory(asked: Asked) -> dict[str, Any]:
    """MEMORY STATS, flat."""
    found: dict[str, Any] = {}
    for name, value in text_map(await asked.connection.call("MEMORY", "STATS")).items():
        if isinstance(value, list):
            found |= {f"{name} {inner}": each for inner, each in text_map(value).items()}
        else:
            found[name] = value
    return {"memory": {name: as_text(each) if isinstance(each, bytes) else each for name, each in found.items()}}
