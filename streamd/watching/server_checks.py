"""What can be wrong with a server: its files, network access, settings, commands, large keys and replicas. Each check takes a `Case`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from ipaddress import ip_address

from streamd.watching.case import Case
from streamd.watching.findings import Finding, counted, duration, number, per_second, size, word

__all__ = ["SERVER_CHECKS", "replication_lags"]

SECOND_US = 1_000_000
RECENT_S = 3600
"""How far back the slow log is looked at."""
FIELDS_SAMPLED = 20
"""Fields of a hash, drawn at random, whose expiry is looked at."""


# --- Files -----------------------------------------------------------------------------------------------------------


def keys_of(case: Case) -> int:
    return sum(
        int(value[5:].partition(",")[0])
        for name, value in case.look.info.items()
        if re.fullmatch(r"db\d+", name) and value.startswith("keys=")
    )


def longest_save_s(points: str) -> int | None:
    """The longest time after which a change is saved, in seconds, by the setting `save`; None: none is."""
    return max((int(each) for each in points.split()[::2]), default=None)


def persistence(case: Case) -> Iterator[Finding]:
    """What a crash would lose."""
    look, settings = case.look, case.settings
    keys = keys_of(case)
    writes = writes_per_s(case)
    if look.info.get("aof_enabled") == "1":
        policy = settings.get("appendfsync", "everysec")
        if policy == "no":
            yield Finding(
                "warning", "persistence", "appendfsync no",
                f"The system writes the append-only file to disk at its own pace, about every 30 s; {per_second(writes)} writes"
                " come each second.",
                "A power loss loses every write acknowledged since then.",
                ("CONFIG SET appendfsync everysec",), values={"appendfsync": policy, "loses_s": 30},
            )  # fmt: skip
        elif policy == "everysec":
            yield Finding(
                "notice", "persistence", "appendfsync everysec",
                f"A power loss loses up to 2 s of acknowledged writes, about {number(2 * writes)} at the present rate.",
                "The disk lags a second behind, or two when it is slow; a crash of the process alone loses nothing.",
                ("CONFIG SET appendfsync always", "# if that is too much to lose"),
                values={"appendfsync": policy, "loses_s": 2, "writes_per_s": writes},
            )  # fmt: skip
        return
    if "save" not in settings:
        return
    longest_s = longest_save_s(settings["save"])
    changes, since_s = (
        look.number("rdb_changes_since_last_save"),
        look.now_ms / 1000 - look.number("rdb_last_save_time"),
    )
    if longest_s is None:
        yield Finding(
            "critical" if keys and not look.is_replica else "notice", "persistence", "no files",
            f"Neither append-only file nor snapshots: a restart loses {counted(keys, 'key')}.",
            "Data that is only in memory is lost when the process ends.",
            ("CONFIG SET appendonly yes", "CONFIG REWRITE"), values={"keys": keys, "loses_s": None},
        )  # fmt: skip
    else:
        yield Finding(
            "warning", "persistence", "snapshots only",
            f"{number(changes)} changes are in no file; the last snapshot is {duration(since_s)} old, and up to"
            f" {duration(longest_s)} may pass between two.",
            "A crash loses every change since the last snapshot, acknowledged or not.",
            ("CONFIG SET appendonly yes", "CONFIG REWRITE"), changes,
            {"changes": changes, "since_s": round(since_s), "loses_s": longest_s},
        )  # fmt: skip


def writes_per_s(case: Case) -> float:
    """Changes of data each second while watched."""
    return max(
        0, case.look.number("rdb_changes_since_last_save") - case.looks[0].number("rdb_changes_since_last_save")
    ) / (case.seconds or 1.0)


FAILURES = {
    "rdb_last_bgsave_status": ("the last snapshot", "BGSAVE"),
    "aof_last_write_status": ("the last write to the append-only file", "INFO persistence"),
    "aof_last_bgrewrite_status": ("the last rewrite of the append-only file", "BGREWRITEAOF"),
}


def files_fail(case: Case) -> Iterator[Finding]:
    """Files that could not be written."""
    for field, (what, command) in FAILURES.items():
        if case.look.info.get(field, "ok") != "ok":
            yield Finding(
                "critical", "files-fail", what, f"{what.capitalize()} failed ({field}:{case.look.info[field]}).",
                "A crash loses the data that the files lack, and writes may be refused until it succeeds.",
                ("CONFIG GET dir", command, "# after checking the log and the free space on that disk"),
            )  # fmt: skip


# --- The door --------------------------------------------------------------------------------------------------------


def is_loopback(address: str) -> bool:
    try:
        return ip_address(address.removeprefix("-")).is_loopback
    except ValueError:
        return address.removeprefix("-") == "localhost"


def no_password(case: Case) -> Iterator[Finding]:
    """A port that others can reach, and no password."""
    if not case.is_open:
        return
    settings, place = case.settings, case.place
    addresses = settings.get("bind", "").split()
    reached = place.unix_path is None and not is_loopback(place.host)
    is_bound_here = bool(addresses) and all(map(is_loopback, addresses))
    if not settings and not reached:
        return
    if not reached and (is_bound_here or not (case.setting("port") or case.setting("tls-port"))):
        return
    where = " ".join(addresses) or "all addresses"
    is_protected = not reached and settings.get("protected-mode") == "yes"
    yield Finding(
        "notice" if is_protected else "critical", "no-password", f"listens on {where}",
        "The default user needs no password"
        + ("; while protected mode is on, it refuses other machines." if is_protected else ", from any machine."),
        "Anyone who can connect to the port can read and delete everything, and write files as the server can.",
        ("CONFIG SET requirepass <password>", "# or: CONFIG SET bind 127.0.0.1"),
        values={"bind": where, "protected_mode": settings.get("protected-mode")},
    )  # fmt: skip


# --- Settings that fight each other --------------------------------------------------------------------------------------


def replica_limits(text: str) -> tuple[int, int]:
    """The hard and the soft limit of the class `replica` (`slave`) of client-output-buffer-limit, in bytes."""
    words = text.split()
    for at, name in enumerate(words):
        if name in ("replica", "slave"):
            return int(words[at + 1]), int(words[at + 2])
    return 0, 0


def conflicts(case: Case) -> Iterator[tuple[str, str, str, str]]:
    """Of each conflict: the settings, what they do together, why that matters, what fixes it."""
    settings, look = case.settings, case.look
    limit, policy = case.setting("maxmemory"), settings.get("maxmemory-policy", "noeviction")
    machine = look.number("total_system_memory")
    expiring = sum(
        int(found[1])
        for name, value in look.info.items()
        if name.startswith("db") and (found := re.search(r"expires=(\d+)", value))
    )
    if not limit and policy != "noeviction":
        yield (
            f"maxmemory 0, maxmemory-policy {policy}", "Without a limit nothing is ever evicted.",
            "The server grows until the memory of the machine is used up.", "CONFIG SET maxmemory <bytes>",
        )  # fmt: skip
    if limit and policy.startswith("allkeys-") and look.streams:
        yield (
            f"maxmemory {limit}, maxmemory-policy {policy}",
            f"Above {size(limit)} streams are evicted with their groups and pending entries; {size(look.number('used_memory'))} are used.",
            "An evicted stream is lost without an error for its producers and consumers.", "CONFIG SET maxmemory-policy noeviction",
        )  # fmt: skip
    if limit and policy.startswith("volatile-") and not expiring:
        yield (
            f"maxmemory-policy {policy}", "No key expires, so this policy can evict nothing.",
            f"Writes are refused above {size(limit)}, as with noeviction.", "CONFIG SET maxmemory-policy noeviction",
        )  # fmt: skip
    if machine and limit > machine:
        yield (
            f"maxmemory {limit}", f"The limit is above the {size(machine)} of the machine.",
            "The system kills the server before the limit takes effect.", f"CONFIG SET maxmemory {machine * 3 // 4}",
        )  # fmt: skip
    if settings.get("appendonly") == "no" and settings.get("appendfsync") == "always":
        yield (
            "appendonly no, appendfsync always", "No append-only file exists that could be synced.",
            "Acknowledged writes are not on the disk, though it looks as if they were.", "CONFIG SET appendonly yes",
        )  # fmt: skip
    if settings.get("appendfsync") == "always" and settings.get("no-appendfsync-on-rewrite") == "yes":
        yield (
            "appendfsync always, no-appendfsync-on-rewrite yes", "While a file is rewritten nothing is synced.",
            "During that time, the promise of `always` does not hold.", "CONFIG SET no-appendfsync-on-rewrite no",
        )  # fmt: skip
    if (
        settings.get("save")
        and settings.get("stop-writes-on-bgsave-error") == "no"
        and settings.get("appendonly") == "no"
    ):
        yield (
            "save, stop-writes-on-bgsave-error no", "Writes continue when snapshots, the only files, fail.",
            "Nobody notices that nothing is saved any more.", "CONFIG SET stop-writes-on-bgsave-error yes",
        )  # fmt: skip
    needed, most_lag = case.setting("min-replicas-to-write"), case.setting("min-replicas-max-lag")
    if needed and not most_lag:
        yield (
            f"min-replicas-to-write {needed}, min-replicas-max-lag 0", "A lag of 0 disables the condition.",
            "Writes continue without any replica.", "CONFIG SET min-replicas-max-lag 10",
        )  # fmt: skip
    if needed > look.number("connected_slaves") and most_lag and not look.is_replica:
        yield (
            f"min-replicas-to-write {needed}", f"{look.number('connected_slaves')} replicas are connected.",
            "All writes are refused (NOREPLICAS).", f"CONFIG SET min-replicas-to-write {look.number('connected_slaves')}",
        )  # fmt: skip
    ping_s, timeout_s = case.setting("repl-ping-replica-period"), case.setting("repl-timeout")
    if ping_s and timeout_s and timeout_s <= ping_s:
        yield (
            f"repl-timeout {timeout_s}, repl-ping-replica-period {ping_s}", "A link that is silent between two pings counts as dead.",
            "Replicas disconnect again and again while nothing is written.", f"CONFIG SET repl-timeout {6 * ping_s}",
        )  # fmt: skip
    hard, soft = replica_limits(settings.get("client-output-buffer-limit", ""))
    backlog = case.setting("repl-backlog-size")
    low = min((each for each in (hard, soft) if each), default=0)
    if low and low < backlog:
        yield (
            f"client-output-buffer-limit replica, repl-backlog-size {backlog}",
            f"A replica is closed at {size(low)} unsent, less than the backlog of {size(backlog)}.",
            "A replica that could have continued from the backlog is disconnected, and may need a full resynchronisation.",
            f'CONFIG SET client-output-buffer-limit "replica {4 * backlog} {backlog} 60"',
        )  # fmt: skip
    if case.settings and not case.setting("stream-node-max-bytes") and not case.setting("stream-node-max-entries") and (
        {"stream-node-max-bytes", "stream-node-max-entries"} <= case.settings.keys()
    ):  # fmt: skip
        yield (
            "stream-node-max-bytes 0, stream-node-max-entries 0", "The only limit of a node of a stream is 1 GiB.",
            "MAXLEN ~ and MINID ~ remove whole nodes only, and so remove nothing.", "CONFIG SET stream-node-max-entries 100",
        )  # fmt: skip
    if settings.get("slowlog-log-slower-than") == "-1" or settings.get("slowlog-max-len") == "0":
        yield (
            "slowlog-log-slower-than -1" if settings.get("slowlog-log-slower-than") == "-1" else "slowlog-max-len 0",
            "The slow log is off.", "Slow commands leave no trace, for you or for this page.",
            "CONFIG SET slowlog-log-slower-than 10000" if settings.get("slowlog-max-len") != "0" else "CONFIG SET slowlog-max-len 128",
        )  # fmt: skip


def settings_conflict(case: Case) -> Iterator[Finding]:
    for names, together, why, fix in conflicts(case):
        severity = "critical" if "NOREPLICAS" in why else "warning"
        yield Finding(severity, "settings-conflict", names, together, why, (fix,), values={"settings": names})


# --- Commands --------------------------------------------------------------------------------------------------------


ADVICE = {
    "keys": "# SCAN with COUNT instead of KEYS",
    "xrange": "# XRANGE with COUNT, in pages",
    "xrevrange": "# XREVRANGE with COUNT, in pages",
    "xread": "# XREAD with a COUNT",
    "xreadgroup": "# XREADGROUP with a COUNT",
    "xautoclaim": "# XAUTOCLAIM with a smaller COUNT",
    "xtrim": "# XTRIM with ~, and with a LIMIT",
    "flushall": "# FLUSHALL ASYNC",
    "flushdb": "# FLUSHDB ASYNC",
    "del": "# UNLINK instead of DEL for long streams",
}


def slow_commands(case: Case) -> Iterator[Finding]:
    """Commands of the slow log, of the last hour."""
    now_s = case.look.now_ms // 1000
    by_name: dict[str, list[int]] = {}
    for line in case.slow_commands:
        if line.took_us >= case.thresholds.slow_ms * 1000 and now_s - line.at_s <= RECENT_S and line.words:
            by_name.setdefault(line.words[0].decode("utf-8", "replace").lower(), []).append(line.took_us)
    for name, took in by_name.items():
        longest = max(took)
        count = "Once" if len(took) == 1 else f"{number(len(took))} times"
        yield Finding(
            "critical" if longest >= SECOND_US else "warning", "slow-command", name.upper(),
            f"{count} in the last hour above {case.thresholds.slow_ms:g} ms; the longest took {longest / 1000:,.1f} ms.",
            "Commands run one after another: all clients wait for a slow one.",
            ("SLOWLOG GET 10", *((ADVICE[name],) if name in ADVICE else ())), longest,
            {"count": len(took), "longest_ms": longest / 1000},
        )  # fmt: skip


# --- Large keys ------------------------------------------------------------------------------------------------------

IN_PAGES = {"hash": "HSCAN", "list": "LRANGE", "set": "SSCAN", "zset": "ZRANGE"}
"""How a type is read piece by piece."""


def large_keys(case: Case) -> Iterator[Finding]:
    """Keys with so many elements that a command about all of them is slow."""
    for each in case.large_keys:
        if each.elements < case.thresholds.elements:
            continue
        used = "" if each.bytes is None else f", {size(each.bytes)}"
        yield Finding(
            "warning", "key-large", f"{each.type} {word(each.key)}", f"{number(each.elements)} elements{used}.",
            "A command about all of it holds up every other client, and it cannot be spread over the nodes of a cluster.",
            (f"# {IN_PAGES[each.type]} in pages, UNLINK instead of DEL; or several keys",), each.elements,
            {"key": each.key.decode("utf-8", "backslashreplace"), "elements": each.elements, "bytes": each.bytes},
        )  # fmt: skip


def unbounded_hashes(case: Case) -> Iterator[Finding]:
    """Large hashes that nothing makes smaller: neither key nor fields expire."""
    hashes = [each for each in case.large_keys if each.type == "hash" and each.ttl_ms is None]
    sampled = case.reader.ask(("HRANDFIELD", each.key, FIELDS_SAMPLED) for each in hashes)
    asked = [(each, fields) for each, fields in zip(hashes, sampled, strict=True) if fields]
    ttls = case.reader.ask(("HPTTL", each.key, "FIELDS", len(fields), *fields) for each, fields in asked)
    for (each, _), found in zip(asked, ttls, strict=True):
        if found is not None and max(found) >= 0:
            continue
        yield Finding(
            "notice", "hash-unbounded", f"hash {word(each.key)}",
            f"{number(each.elements)} fields; neither the key nor any of {FIELDS_SAMPLED} fields that were looked at expires.",
            "If a field is added for each request or job, it grows until memory ends.",
            (f"EXPIRE {word(each.key)} 86400", f"# or, for each field: HEXPIRE {word(each.key)} 86400 FIELDS 1 <field>"), each.elements,
            {"key": each.key.decode("utf-8", "backslashreplace"), "elements": each.elements},
        )  # fmt: skip


# --- Replication -----------------------------------------------------------------------------------------------------


def replication_lags(case: Case) -> Iterator[Finding]:
    """Replicas that are behind, seen from either side."""
    look = case.look
    if look.is_replica:
        yield from link_of_replica(case)
    if not look.number("connected_slaves"):
        return
    offset = look.number("master_repl_offset")
    for name, text in look.info.items():
        if not re.fullmatch(r"slave\d+", name):
            continue
        told = dict(each.split("=", 1) for each in text.split(",") if "=" in each)
        behind, heard_s = offset - int(told.get("offset", offset)), int(told.get("lag", 0))
        if told.get("state") == "online" and heard_s < case.thresholds.replica_s:
            continue
        yield Finding(
            "warning", "replication-lag", f"replica {told.get('ip')}:{told.get('port')}",
            f"Last heard from {duration(heard_s)} ago, {size(behind)} behind; its state is {told.get('state')}.",
            "A fail-over to it loses the data that it lacks, and the data kept for it uses memory.",
            ("INFO replication", f"# and on {told.get('ip')}:{told.get('port')}: INFO replication"), heard_s,
            {"behind_bytes": behind, "heard_s": heard_s, "state": told.get("state")},
        )  # fmt: skip


def link_of_replica(case: Case) -> Iterator[Finding]:
    look = case.look
    primary = f"{look.info.get('master_host')}:{look.info.get('master_port')}"
    heard_s = look.number("master_last_io_seconds_ago")
    if look.info.get("master_link_status") != "up":
        down_s = look.number("master_link_down_since_seconds")
        since = f" for {duration(down_s)}" if down_s > 0 else ""
        yield Finding(
            "critical", "replication-lag", f"primary {primary}", f"The link to the primary is down{since}.",
            "Readers here see old data, and a fail-over to this replica loses all writes since then.",
            ("INFO replication", f"# or, when that primary is gone for good: REPLICAOF NO ONE; it is {primary}"),
            values={"down_s": down_s},
        )  # fmt: skip
    elif heard_s >= case.thresholds.replica_s:
        yield Finding(
            "warning", "replication-lag", f"primary {primary}", f"The primary has been silent for {duration(heard_s)}.",
            "It should send a ping every few seconds: it hangs, or the network does.", ("INFO replication",),
            values={"heard_s": heard_s},
        )  # fmt: skip


SERVER_CHECKS = (
    persistence, files_fail, no_password, settings_conflict, slow_commands, large_keys, unbounded_hashes, replication_lags,
)  # fmt: skip
