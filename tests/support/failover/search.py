"""The search of protocol.py for many states: in C (search.c), compiled when it is first used.

    python -m tests.support.failover.search --faults 3 --writes 1

The answers of the program are the bytes of its structs. A way to a loss comes as states; the Python model says which steps these are.
"""

from __future__ import annotations

import atexit
import functools
import itertools
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path

from streamd.replication.standing import NONE, View

from ..files.fsync_shim import find_compiler
from .protocol import Anything, Found, Guard, Model, Node, State, canonical, main, name_of, retrace

__all__ = ["Packed", "find_steps_compiled", "pack", "search_compiled", "unpack"]

NODE = struct.Struct("BbB16s???3bbbBB")
GUARD = struct.Struct("BB?BB??")
REST = struct.Struct("BBBBB")
SIZE = 3 * NODE.size + 3 * GUARD.size + REST.size
WRITE = 64
NOBODY = -1

Packed = bytes
"""A tidy state, as the C program has it."""


@functools.cache
def build() -> Path:
    """The program, compiled once for each run of the tests."""
    compiler = find_compiler()
    assert compiler is not None, "the caller must have looked for a compiler"
    folder = Path(tempfile.mkdtemp(prefix="failover-search-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    program = folder / "search"
    source = Path(__file__).with_suffix(".c")
    subprocess.run([compiler, "-O3", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-o", program, source], check=True)
    return program


def run(model: Model, *mode: str, states: bytes = b"") -> bytes:
    assert not any((isinstance(model, Anything), model.watches, model.calm)), "these are in the Python model alone"
    off = ",".join(each.name for each in fields(model.rules) if not getattr(model.rules, each.name))
    numbers = map(str, (model.durable, model.faults, model.writes))
    return subprocess.run(
        [build(), *numbers, ",".join(model.kinds), off, *mode], input=states, stdout=subprocess.PIPE, check=True
    ).stdout


def search_compiled(model: Model) -> Found:
    """The same as `search`."""
    answer = run(model)
    (count,) = struct.unpack_from("=Q", answer)
    way = [name_of(canonical(state)) for state in _split(answer[8:])]
    return Found(count, retrace(model, dict(itertools.pairwise([*way[::-1], 0])), way[-1]) if way else [])


def find_steps_compiled(model: Model, states: Sequence[State]) -> Iterator[list[Packed | None]]:
    """Of each tidy state, what it leads to; None: a promise is broken there."""
    answer = run(model, "steps", states=b"".join(map(pack, states)))
    at = 0
    for _ in states:
        (count,) = struct.unpack_from("=i", answer, at)
        found = [answer[start : start + SIZE] for start in range(at + 4, at + 4 + count * SIZE, SIZE)]
        yield [None if each[-2] else each for each in found]
        at += 4 + count * SIZE


def _split(answer: bytes) -> list[State]:
    return [unpack(answer[at : at + SIZE]) for at in range(0, len(answer), SIZE)]


def pack(state: State) -> Packed:
    parts = []
    for node in state.nodes:
        log = bytes(_pack_view(each) if isinstance(each, View) else WRITE + each for each in node.log)
        parts.append(
            NODE.pack(
                node.life, node.follows, len(log), log, node.linked, node.fresh, node.established, *node.facks,
                *(node.pending or (NOBODY, 0)), _pack_view(node.promised), _pack_view(node.own or NONE),
            )
        )  # fmt: skip
    parts += [GUARD.pack(each.view, each.epoch, bool(each.task), *(each.task or (0, 0, 0, 0))) for each in state.guards]
    parts.append(REST.pack(state.cuts, state.acked, state.writes, bool(state.wrong), state.faults))
    return b"".join(parts)


def unpack(packed: Packed) -> State:
    nodes, guards = [], []
    for at in range(0, 3 * NODE.size, NODE.size):
        life, follows, length, log, linked, fresh, established, *rest = NODE.unpack_from(packed, at)
        *facks, primary, confirmed, promised, own = rest
        entries = tuple(_unpack_view(each) if each < WRITE else each - WRITE for each in log[:length])
        pending = () if primary == NOBODY else (primary, confirmed)
        begun = _unpack_view(own) if own else None
        nodes.append(
            Node(
                life, follows, entries, linked, fresh, facks=tuple(facks), pending=pending,
                promised=_unpack_view(promised), own=begun, established=established,
            )
        )  # fmt: skip
    for at in range(3 * NODE.size, SIZE - REST.size, GUARD.size):
        view, epoch, has_task, *task = GUARD.unpack_from(packed, at)
        guards.append(Guard(view, epoch, tuple(map(int, task)) if has_task else ()))
    cuts, acked, writes, _, faults = REST.unpack_from(packed, SIZE - REST.size)
    return State(tuple(nodes), tuple(guards), cuts, acked, writes, faults)


def _pack_view(view: View) -> int:
    """Views of tidy states are multiples of 10 there, and of 2 here."""
    return view.number // 5


def _unpack_view(number: int) -> View:
    return View(number * 5, "")


if __name__ == "__main__":
    main(search_compiled)
