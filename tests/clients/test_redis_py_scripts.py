"""redis-py's locks and registered scripts, sync and asyncio, in pipelines too."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
import redis.asyncio
from redis.exceptions import LockError, LockNotOwnedError, NoScriptError
from support.servers import Server, python_environment


@pytest.fixture
def client(server: Server, protocol: int | None) -> Iterator[redis.Redis]:
    client = redis.Redis(port=server.port, protocol=protocol) if protocol else redis.Redis(port=server.port)
    with client:
        client.script_flush()
        yield client


def test_a_lock_is_held_by_one(client: redis.Redis) -> None:
    lock, other = client.lock("job", timeout=30), client.lock("job", timeout=30)
    assert lock.acquire()
    assert not other.acquire(blocking=False)
    assert lock.locked()
    assert lock.owned()
    assert not other.owned()
    lock.release()
    assert other.acquire(blocking=False)
    other.release()
    with pytest.raises(LockError, match="not owned or is already unlocked"):
        other.release()


def test_a_lock_is_extended_and_reacquired(client: redis.Redis) -> None:
    lock = client.lock("job", timeout=1000)
    assert lock.acquire()
    assert lock.extend(2000)
    assert 2_000_000 < client.pttl("job") <= 3_000_000
    assert lock.extend(500, replace_ttl=True)
    assert 0 < client.pttl("job") <= 500_000
    assert lock.reacquire()
    assert 500_000 < client.pttl("job") <= 1_000_000
    lock.release()


def test_a_lock_of_another_is_not_released(client: redis.Redis) -> None:
    lock = client.lock("job", timeout=1000)
    assert lock.acquire()
    client.set("job", "another's token")
    for act in (lock.release, lock.reacquire, lambda: lock.extend(5)):
        lock.local.token = lock.local.token or b"mine"
        with pytest.raises(LockNotOwnedError, match="no longer owned"):
            act()
    assert client.get("job") == b"another's token"


def test_a_waiting_lock_is_acquired_when_it_is_released(client: redis.Redis) -> None:
    first, second = client.lock("job", timeout=60), client.lock("job", timeout=60, sleep=0.01, thread_local=False)
    assert first.acquire()
    got = threading.Event()

    def wait() -> None:
        if second.acquire(blocking=True, blocking_timeout=60):
            got.set()

    thread = threading.Thread(target=wait)
    thread.start()
    assert not got.is_set()
    first.release()
    thread.join(60)
    assert got.is_set()
    second.release()
    assert not client.lock("job", blocking_timeout=0.05).locked()


def test_a_lock_expires(client: redis.Redis) -> None:
    lock = client.lock("job", timeout=0.02)
    assert lock.acquire()
    deadline = time.monotonic() + 30
    while client.exists("job"):
        assert time.monotonic() < deadline
    with pytest.raises(LockNotOwnedError, match="no longer owned"):
        lock.release()


def test_asyncio_locks_and_scripts(server: Server) -> None:
    async def run() -> None:
        async with redis.asyncio.Redis(port=server.port) as client:
            await client.script_flush()
            order: list[int] = []

            async def work(number: int) -> None:
                async with client.lock("job", timeout=60, sleep=0.005):
                    order.append(number)
                    await asyncio.sleep(0)
                    order.append(number)

            await asyncio.gather(*(work(number) for number in range(5)))
            assert [order[i] == order[i + 1] for i in range(0, 10, 2)] == [True] * 5
            lock = client.lock("job", timeout=1000)
            assert await lock.acquire()
            assert await lock.extend(10)
            assert await lock.reacquire()
            await lock.release()
            add = client.register_script("return redis.call('INCRBY', KEYS[1], ARGV[1])")
            assert await add(keys=["n"], args=[5]) == 5
            pipe = client.pipeline()
            await add(keys=["n"], args=[1], client=pipe)
            pipe.get("n")
            assert await pipe.execute() == [6, b"6"]

    asyncio.run(run())


def test_registered_scripts_in_pipelines(client: redis.Redis) -> None:
    add = client.register_script("return redis.call('XADD', KEYS[1], '*', 'n', ARGV[1])")
    assert client.script_exists(add.sha) == [False]
    assert add(keys=["s"], args=[1]).endswith(b"-0")
    assert client.script_exists(add.sha) == [True]
    client.script_flush()
    for transaction in (True, False):
        pipe = client.pipeline(transaction=transaction)
        pipe.set("k", 1)
        add(keys=["s"], args=[2], client=pipe)
        add(keys=["s"], args=[3], client=pipe)
        pipe.xlen("s")
        assert pipe.execute()[3] == (3 if transaction else 5)
        client.script_flush()
    with pytest.raises(NoScriptError, match="No matching script"):
        client.evalsha(add.sha, 1, "s", 4)


def test_a_rate_limiter(client: redis.Redis) -> None:
    """A window of a thousand seconds with two calls."""
    allow = client.register_script("""
        local n = redis.call('INCR', KEYS[1])
        if n == 1 then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
        return {n <= tonumber(ARGV[1]) and 1 or 0, redis.call('PTTL', KEYS[1])}
    """)
    answers = [allow(keys=["calls"], args=[2, 1_000_000]) for _ in range(3)]
    assert [allowed for allowed, _ in answers] == [1, 1, 0]
    assert all(0 < left <= 1_000_000 for _, left in answers)


@pytest.mark.parametrize("absent", ["lupa", "greenlet"])
def test_without_the_interpreter_there_is_one_clear_error(absent: str, tmp_path: Path) -> None:
    program = f"""
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == {absent!r}:
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, Absent())
import streamd.embedded

with streamd.embedded.start() as server, server.client() as client:
    for ask in (lambda: client.eval("return 1", 0), lambda: client.function_load("#!lua name=a\\nredis.register_function('f', print)")):
        try:
            ask()
        except Exception as error:
            print(error)
    print(client.ping(), client.script_exists("a" * 40))
"""
    found = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env=python_environment(),
        cwd=tmp_path,
        check=False,
    )
    said = "Scripts need the Python packages lupa (Lua 5.1) and greenlet, which this server does not have"
    assert (found.stdout.splitlines(), found.stderr) == ([said, said, "True [False]"], "")
