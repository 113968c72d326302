"""What the jobs of every library do, and the acts of a story about them.

    python LIBRARY.py work PORT      a worker, until SIGTERM or SIGINT
    python LIBRARY.py first PORT     a job with a result, and one that fails at first and is tried again
    python LIBRARY.py late PORT      a job that nobody works on yet
    python LIBRARY.py second PORT    that job has been done
    python LIBRARY.py poison PORT    a job that ends every worker that begins it, on libraries that have it

Each act prints a line for what it has seen. A library's program calls `play` with two functions: `work()`, and `submit(name, *arguments)`.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

import redis

PORT = int(sys.argv[2])
URL = f"redis://127.0.0.1:{PORT}/0"
DEADLINE_S = 100

client = redis.Redis(port=PORT, decode_responses=True)


def add(x: int, y: int) -> int:
    client.set("result:add", x + y)
    return x + y


def flaky() -> str:
    tries = client.incr("result:tries")
    if tries < 2:
        raise RuntimeError("the first try fails")
    client.set("result:flaky", tries)
    return "done"


def late(x: int) -> int:
    client.set("result:late", x * x)
    return x * x


def poison() -> None:
    client.incr("result:begun")
    os._exit(3)


def wait_for(name: str) -> str:
    deadline = time.monotonic() + DEADLINE_S
    while (found := client.get(f"result:{name}")) is None:
        if time.monotonic() > deadline:
            sys.exit(f"no result of {name} within {DEADLINE_S} s")
        time.sleep(0.05)
    return str(found)


def play(work: Callable[[], object], submit: Callable[..., object]) -> None:
    act = sys.argv[1]
    if act == "work":
        work()
    elif act == "first":
        submit("add", 2, 3)
        print("add:", wait_for("add"))
        submit("flaky")
        print("tries:", wait_for("flaky"))
    elif act == "late":
        submit("late", 9)
        print("late: submitted")
    elif act == "poison":
        submit("poison")
        print("poison: submitted")
    elif act == "second":
        print("late:", wait_for("late"))
    else:
        sys.exit(f"no act {act}")
