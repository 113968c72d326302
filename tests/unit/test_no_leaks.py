"""Rounds of create, fill, trim and free must not make a process grow. Each kind of object has a process of its own.

What counts is the memory in use after each round: after the first rounds it must stay where it is. A round makes a few
big objects and many small ones, so that both a lost listpack and a lost head of something add up.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

WARM_UP = 10
ROUNDS = 100
ALLOWED_BYTES = 1_000_000
"""Growth that is not a leak: malloc need not find the same holes each time."""

HARNESS = """
import gc, resource, sys

def used_bytes():
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except FileNotFoundError:
        # No /proc here: the most that has been used so far grows with a leak too. (On Linux it begins with what the
        # parent process used, which would hide one.)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024

def measure(play):
    gc.disable()        # nothing here may need the cycle collector to be freed
    for _ in range({warm_up}):
        play()
    before = used_bytes()
    for _ in range({rounds}):
        play()
    print(used_bytes() - before)
"""

RAX = """
from support.compiled import compiled

RaxMap = compiled("rax_map").RaxMap

def play():
    for size in (3000, *[5] * 1000):
        tree = RaxMap(16)
        for n in range(size):
            tree.insert((n * 2654435761 % 2**32).to_bytes(16, "big"), n)
        for n in range(0, size, 2):
            tree.remove((n * 2654435761 % 2**32).to_bytes(16, "big"))
        tree.replace((2654435761).to_bytes(16, "big"), 7)
        assert len(tree) == size // 2
    tree.clear()
"""

PEL = """
from support.compiled import compiled

PelProbe = compiled("pel_probe").PelProbe

def play():
    for size in (3000, *[5] * 300):
        pel = PelProbe()
        owners = [pel.add_owner() for _ in range(3)]
        for n in range(size):
            pel.insert((n * 7919 % size, n), owners[n % 3], n // 10)
        for n in range(0, size, 2):
            pel.set_time((n * 7919 % size, n), size - n)
            pel.assign((n * 7919 % size, n), owners[0])
        for n in range(0, size, 3):
            pel.remove((n * 7919 % size, n))
        walk = pel.walk()
        next(walk, None)
        pel.drop_owner(owners[1])
        owners[1] = pel.add_owner()
    pel.clear()
"""

STREAM = """
from streamd.values.streams.group import Group
from streamd.values.streams.stream import Stream

def play():
    for size in (2000, *[5] * 200):
        stream = Stream(node_max_entries=10)
        group = stream.groups[b"group"] = Group(b"group")
        consumers = [b"one", b"two"]
        for name in consumers:
            group.create_consumer(name, now_ms=1)
        for n in range(1, size + 1):
            stream.append([(b"field", b"%d" % n), (b"other" * (n % 3), b"value" * 10)], (n, n))
            group.restore_pending((n, n), consumers[n % 2], delivery_ms=n, delivery_count=1)
        for n in range(1, size, 4):
            stream.delete((n, n), policy="delref")
        group.acknowledge([(n, n) for n in range(1, size, 3)])
        stream.range((2, 0), reverse=True, count=50)
        stream.trim(max_length=size // 2)
        stream.copy()
        group.delete_consumer(b"one")
        assert len(stream) == size // 2
        if size % 2:
            stream.detach().free()
        else:
            stream.detach()
"""

RDB = """
import io

import streamd.values
from streamd.keyspace.database import Database
from streamd.values.streams.group import Group
from streamd.values.streams.stream import Stream
from streamd.errors import CorruptFileError
from streamd.persistence.rdb.read import RdbReader
from streamd.persistence.rdb.write import RdbWriter

stream = Stream(node_max_entries=10)
group = stream.groups[b"g"] = Group(b"g")
group.create_consumer(b"c", now_ms=5)
for n in range(300):
    group.restore_pending(stream.append([(b"f", b"value" * 9)], id=(5, n)), b"c", delivery_ms=5, delivery_count=1)
db = Database(0)
db.add(b"s", stream)
db.add(b"t", b"text" * 1000)

def play():
    file = io.BytesIO()
    for _ in range(20):
        file = io.BytesIO()
        RdbWriter(file).write([db], now_ms=5)
    data = file.getvalue()
    for size in range(0, len(data), 61):
        reader = RdbReader(io.BytesIO(data[:size]), [Database(0)])
        try:
            reader.load()
        except CorruptFileError:
            pass
    steps = RdbReader(data, [Database(0)]).steps(1000)
    next(steps)
"""


@pytest.mark.parametrize("script", [RAX, PEL, STREAM, RDB], ids=["rax", "pel", "stream", "rdb"])
def test_memory_does_not_grow(script: str) -> None:
    harness = HARNESS.format(warm_up=WARM_UP, rounds=ROUNDS)
    done = subprocess.run(
        [sys.executable, "-c", f"{harness}\n{script}\nmeasure(play)"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        timeout=360,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < ALLOWED_BYTES
