"""A rate limiter: each user may send a burst of requests, and then a fixed number per second.

    python examples/rate_limiter.py                          its own server
    python examples/rate_limiter.py --url redis://host:6379

Each user has a bucket of tokens, which fills at a steady rate; a request removes one. The state is one string, which expires when
the bucket is full again. The script reads, decides and writes in one step, so any number of web servers may call it.
Needs redis-py, which `./install` installs.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass

import redis

import streamd.embedded

TAKE = """
-- KEYS: the bucket. ARGV: its size, tokens a second. Returns whether a token was available, and the ms until the next one.
local size, rate = tonumber(ARGV[1]), tonumber(ARGV[2])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local tokens, since = size, now
local state = redis.call('GET', KEYS[1])
if state then
    tokens, since = struct.unpack('dd', state)
    tokens = math.min(size, tokens + (now - since) * rate / 1000)
end

local is_allowed = tokens >= 1
if is_allowed then
    tokens = tokens - 1
end
local full_in = math.ceil((size - tokens) * 1000 / rate)
redis.call('SET', KEYS[1], struct.pack('dd', tokens, now), 'PX', math.max(full_in, 1))
return {is_allowed and 1 or 0, is_allowed and 0 or math.ceil((1 - tokens) * 1000 / rate)}
"""


class RateLimiter:
    """Buckets of `size` tokens that get `rate` new ones a second."""

    def __init__(self, client: redis.Redis, size: int, rate: float) -> None:
        self.size = size
        self.rate = rate
        self._take = client.register_script(TAKE)

    def take(self, user: str) -> float:
        """Take a token of a user: 0 if there was one, else the seconds until there is."""
        is_allowed, wait_ms = self._take(keys=[f"bucket:{user}"], args=[self.size, self.rate])
        return 0.0 if is_allowed else wait_ms / 1000


@dataclass
class Summary:
    """What happened."""

    at_once: int  # requests of a burst that were allowed
    refused: int  # the others of the burst
    wait_s: float  # how long the last one was told to wait
    after_wait: int  # requests that were allowed after that


def run(client: redis.Redis, *, burst: int = 50) -> Summary:
    """A burst of requests of one user, and one more after the wait that was asked for."""
    limiter = RateLimiter(client, size=10, rate=5)
    client.delete("bucket:alice")
    waits = [limiter.take("alice") for _ in range(burst)]
    allowed = waits.count(0.0)
    wait_s = waits[-1]
    time.sleep(wait_s)
    return Summary(allowed, burst - allowed, wait_s, int(limiter.take("alice") == 0.0))


@contextlib.contextmanager
def connected(url: str | None) -> Iterator[redis.Redis]:
    """A client of the server at `url`, or of one of its own."""
    if url is not None:
        with redis.Redis.from_url(url) as client:
            yield client
        return
    with streamd.embedded.start() as server, server.client() as client:
        yield client


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--url", help="the server; one of its own by default")
    with connected(parser.parse_args().url) as client:
        found = run(client)
    print(f"{found.at_once} requests passed at once, {found.refused} were refused")
    print(f"{found.after_wait} passed after the {found.wait_s:.3f} s that the last one was told to wait")


if __name__ == "__main__":
    main()
