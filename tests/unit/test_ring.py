"""The ring between a thread and the loop (streamd/sockets/ring.pxd), as a C program of its own: ring_model.c."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("ring_model.c")
RING = Path(__file__).parents[2] / "streamd/sockets/ring.pxd"

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the model waits for an eventfd"),
    pytest.mark.skipif(not shutil.which("cc"), reason="there is no C compiler"),
]

Build = Callable[[str, str], Path]

BUGS = {
    "the reader is looked for before the record is shown": (
        "__atomic_store_n(&ring->tail, ring->writing, __ATOMIC_SEQ_CST);\n"
        "        if (__atomic_load_n(&ring->is_asleep, __ATOMIC_SEQ_CST)",
        "int slept = __atomic_load_n(&ring->is_asleep, __ATOMIC_SEQ_CST);\n"
        "        __atomic_store_n(&ring->tail, ring->writing, __ATOMIC_SEQ_CST);\n        if (slept",
    ),
    "the reader sleeps without a last look": (
        "if (__atomic_load_n(&ring->tail, __ATOMIC_SEQ_CST) == ring->reading)",
        "if (ring->seen_tail == ring->reading)",
    ),
    "the writer sleeps without a last look": (
        "return __atomic_load_n(&ring->head, __ATOMIC_SEQ_CST) == ring->seen_head;",
        "return 1;",
    ),
    "room is given back that is still read": (
        "size_t left = ring->size - (ring->writing - ring->seen_head);",
        "size_t left = ring->size - (ring->writing - ring->seen_head) + 64;",
    ),
    "the room of a record is given back before it is used": (
        "__atomic_store_n(&ring->head, position, __ATOMIC_SEQ_CST);",
        "__atomic_store_n(&ring->head, ring->reading, __ATOMIC_SEQ_CST);",
    ),
    "what wraps around has no mark": ("record->kind = RING_SKIP;", "record->kind = 1;"),
}  # fmt: skip


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Compiles the model, with a piece of the ring replaced by another."""
    code = RING.read_text().split('cdef extern from *:\n    """\n')[1].split('    """\n')[0]

    def make(old: str, new: str) -> Path:
        assert old in code
        folder = tmp_path_factory.mktemp("ring")
        (folder / "ring.h").write_text(code.replace(old, new))
        program = folder / "model"
        subprocess.run(["cc", "-O2", "-pthread", f"-I{folder}", "-o", program, SOURCE], check=True, timeout=300)
        return program

    return make


def run(program: Path, seed: int, size: int, patience_s: int) -> tuple[int, str]:
    """Its exit status, and what it reports."""
    done = subprocess.run(
        [program, *map(str, (seed, 20_000, size, 1000 * patience_s))],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done.returncode, done.stderr


def test_every_record_comes_once_and_whole(build: Build) -> None:
    program = build("", "")
    for seed in range(10):
        for size in (256, 4096):
            assert run(program, seed, size, 100) == (0, ""), f"seed {seed}, a ring of {size} bytes"


@pytest.mark.parametrize("bug", BUGS)
def test_planted_bugs_are_found(bug: str, build: Build) -> None:
    program = build(*BUGS[bug])
    found = next((seed for seed in range(50) if run(program, seed, 256, 3)[0]), None)
    assert found is not None
