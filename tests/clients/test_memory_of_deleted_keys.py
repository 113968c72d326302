"""The memory of small collections and strings goes back to the system when their keys are deleted, in any order."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import redis
from support.memory import MB, resident
from support.servers import Server, eventually

pytestmark = pytest.mark.long

KEYS = 200_000
"""Of each type; small strings are more."""
PER_REQUEST = 1000
LEFT = 0.35
"""The part of their memory that may stay: what is free but too scattered to be returned at once."""

WORDS = [f"member:{at:05}" for at in range(10)]
FILLINGS = {
    "hash": ["HSET", *(word for at, value in enumerate(WORDS) for word in (f"f{at}", value))],
    "list": ["RPUSH", *WORDS],
    "set": ["SADD", *WORDS],
    "set of integers": ["SADD", *map(str, range(10))],
    "string": ["SET", WORDS[0] * 6],
    "integer": ["SET", "1234567"],
    "sorted set": ["ZADD", *(word for at, value in enumerate(WORDS) for word in (str(at), value))],
}


def fill(client: redis.Redis, kind: str, prefix: str, number: int) -> None:
    name, *words = FILLINGS[kind]
    for first in range(0, number, PER_REQUEST):
        pipe = client.pipeline(transaction=False)
        for at in range(first, first + PER_REQUEST):
            pipe.execute_command(name, f"{prefix}:{at}", *words)
        pipe.execute()


@pytest.mark.parametrize("kind", FILLINGS)
def test_the_memory_of_deleted_keys_goes_back_to_the_system(new_streamd: Callable[..., Server], kind: str) -> None:
    number = 3 * KEYS if kind == "integer" else KEYS
    server = new_streamd(save="")
    with redis.Redis(port=server.port) as client:
        fill(client, kind, "warm", 2 * PER_REQUEST)
        before = resident(server)
        fill(client, kind, "keys", number)
        full = resident(server)
        assert full > before + 15 * MB
        for first in range(0, number, PER_REQUEST):  # 7919 is a prime number: each key has its turn
            some = [f"keys:{at * 7919 % number}" for at in range(first, first + PER_REQUEST)]
            assert client.delete(*some) == PER_REQUEST
    eventually(lambda: resident(server) < before + LEFT * (full - before), what="that its memory is returned")
