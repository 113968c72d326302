"""Small blocks of memory: returned to the system when they are freed, used by threads, in a child, and without memory."""

from __future__ import annotations

import gc
import os
import random
import re
import resource
import signal
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.compiled import compiled

from streamd.heap import allocated, describe

blocks = compiled("heap_blocks")

pytestmark = pytest.mark.skipif(not blocks.MOST_SMALL, reason="all blocks come from the C library")

MB = 1 << 20
SLAB = 16 << 10


@pytest.fixture(autouse=True)
def nothing_else_is_freed() -> None:
    """Free what earlier tests left in cycles: the collector might come to it while bytes are counted here."""
    gc.collect()


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def slabs() -> int:
    """Bytes of the slabs in use."""
    found = re.search(r"in slabs of (\d+) bytes", describe())
    assert found is not None
    return int(found[1])


def test_small_blocks_add_nothing_and_large_ones_come_from_the_c_library() -> None:
    before, slabs_before = allocated(), slabs()
    held = [blocks.take(192) for _ in range(10_000)]
    assert allocated() - before == 10_000 * 192
    assert slabs() - slabs_before <= 10_000 * 192 * 1.02 + SLAB
    assert {block % 16 for block in held} == {8}
    large = blocks.take(513)
    assert large % 16 == 0
    for block in (large, *held):
        blocks.release(block)
    assert allocated() == before


@pytest.mark.parametrize("order", ["first to last", "last to first", "any"])
def test_freed_blocks_go_back_to_the_system(order: str) -> None:
    slabs_before = slabs()
    held = [blocks.take(200) for _ in range(300_000)]
    for block in held:
        blocks.write(block, b"x")
    full = resident()
    held.sort(reverse=order == "last to first")
    if order == "any":
        random.Random(1).shuffle(held)
    for block in held:
        blocks.release(block)
    assert slabs() <= slabs_before + SLAB
    assert full - resident() > 55 * MB


def test_a_slab_that_was_emptied_serves_blocks_of_another_size() -> None:
    held = [blocks.take(16) for _ in range(50_000)]
    for block in held:
        blocks.release(block)
    used = slabs()
    places = {block // SLAB for block in held}
    others = [blocks.take(512) for _ in range(1000)]
    assert sum(block // SLAB in places for block in others) > 900
    for block in others:
        blocks.release(block)
    assert slabs() <= used + SLAB


def test_threads_take_and_free_at_the_same_time() -> None:
    before = allocated()
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(blocks.churn, range(1, 9), [100_000] * 8)) == [0] * 8
    assert allocated() == before


def test_a_child_can_use_the_heap_whatever_a_thread_did_when_it_began() -> None:
    before = allocated()
    with ThreadPoolExecutor(1) as pool, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking beside threads
        for seed in range(1, 41):
            churning = pool.submit(blocks.churn, seed, 300_000)
            while allocated() == before and not churning.done():
                pass
            child = os.fork()
            if child == 0:
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.alarm(60)
                os._exit(blocks.churn(1, 1000))
            assert os.waitpid(child, 0)[1] == 0
            assert churning.result() == 0


WITHOUT_MEMORY = """
import resource
from support.compiled import compiled
blocks = compiled("heap_blocks")
soft, hard = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (320 << 20, hard))
last, count = 0, 0
while block := blocks.take(500):  # each holds the address of the one before: nothing else needs memory
    blocks.write(block, last.to_bytes(8, "little"))
    last, count = block, count + 1
resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
kinds = set()
while last:
    assert blocks.room_of(last) >= 500
    kinds.add(last % 16)
    before = int.from_bytes(blocks.read(last, 8), "little")
    blocks.release(last)
    last = before
assert blocks.churn(1, 10000) == 0
print(sorted(kinds), count > 100_000)
"""


def test_without_memory_for_slabs_the_c_library_gives_what_it_has() -> None:
    paths = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_MEMORY], env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout == "[0, 8] True\n", done.stderr
