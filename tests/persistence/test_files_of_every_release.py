"""Files with all types, as each release since Redis 5.0 writes them: loaded, saved, and loaded by Redis again.

Older files are written byte by byte by support/files/old_forms.py; that the newest Redis loads them proves them right.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.files.old_forms import old_file
from support.files.real_files import RealRedis, all_oracles
from support.servers import Server, find_oracle
from support.wire import Wire

pytestmark = [pytest.mark.long, pytest.mark.real(since="8.6")]

StartServer = Callable[..., Server]
REAL = {".".join(map(str, oracle.version)): oracle for oracle in all_oracles()}
MANY = range(700)


def fill(wire: Wire, version: tuple[int, ...]) -> None:
    """Values of every type in every encoding that a release has."""
    requests: list[tuple[object, ...]] = [
        ("SET", "int", 12), ("SET", "embstr", "abc"), ("PEXPIRE", "embstr", 10_000_000), ("SETBIT", "raw", 4000, 1),
        ("SET", "compressed", "abc" * 1000), ("PFADD", "sparse", *range(20)), ("PFADD", "dense", *range(5000)),
        ("HSET", "hash", "f", "v", "n", 5), ("HSET", "large hash", *(word for n in MANY for word in (f"f{n}", n))),
        ("RPUSH", "list", "a", 1, "b"), ("RPUSH", "long list", *("e" * (n % 90) + str(n) for n in range(3000)), "x" * 20_000),
        ("SADD", "intset", 3, 1, 70_000, 2**40), ("SADD", "set", "a", "1"), ("SADD", "large set", *(f"m{n}" for n in MANY)),
        ("ZADD", "zset", 1, "a", "-inf", "b", 0.1, "c"),
        ("ZADD", "large zset", *(word for n in MANY for word in (n / 3, f"m{n}"))),
        *(("XADD", "stream", f"1-{n + 1}", "f", n) for n in MANY), ("XDEL", "stream", "1-5"),
        ("XGROUP", "CREATE", "stream", "g", 0), ("XREADGROUP", "GROUP", "g", "c", "COUNT", 9, "STREAMS", "stream", ">"),
    ]  # fmt: skip
    if version >= (7, 4):
        for key in ("hash", "large hash"):
            requests += [("COPY", key, f"{key} with times"), ("HEXPIRE", f"{key} with times", 10_000, "FIELDS", 1, "f" if key == "hash" else "f7")]  # fmt: skip
    for words in requests:
        wire.call(*map(str, words)).plain()


def made_by(release: str, folder: Path) -> bytes:
    if release == "5.0":
        return old_file(9)
    if release == "7.4 candidates":
        return old_file(12)
    with RealRedis(REAL[release], folder, appendonly="no") as redis, Wire(redis.port) as wire:
        fill(wire, REAL[release].version)
        assert wire.call("SAVE").plain() == b"OK"
    return (folder / "dump.rdb").read_bytes()


def look(wire: Wire) -> tuple[object, ...]:
    """How many keys there are, their digest, and the times of fields."""
    times = [
        wire.call("HPEXPIRETIME", f"{key} with times", "FIELDS", 2, "f", "f7").plain() for key in ("hash", "large hash")
    ]
    return wire.call("DBSIZE").plain(), wire.call("DEBUG", "DIGEST").plain(), times


def seen_by_redis(folder: Path) -> tuple[object, ...]:
    newest = find_oracle()
    assert newest is not None
    with RealRedis(newest, folder, appendonly="no", enable_debug_command="yes") as redis:
        assert redis.started, redis.log
        with Wire(redis.port) as wire:
            return look(wire)


@pytest.mark.parametrize("release", ["5.0", "7.4 candidates", *REAL])
def test_files_of_all_types_come_back_the_same(release: str, tmp_path: Path, new_streamd: StartServer) -> None:
    (tmp_path / "dump.rdb").write_bytes(made_by(release, tmp_path))
    wanted = seen_by_redis(tmp_path)
    assert wanted[0], "Redis takes the file"
    server = new_streamd(dir=str(tmp_path), enable_debug_command="yes")
    with server.connect() as wire:
        assert look(wire) == wanted
        (tmp_path / "dump.rdb").unlink()
        assert wire.call("SAVE").plain() == b"OK"
    server.stop()
    assert seen_by_redis(tmp_path) == wanted
