"""The benchmark of pauses names every command, as one that can hold everybody up or as one that cannot."""

from __future__ import annotations

from benchmarks.pauses import NARROW, WIDE
from streamd.core.spec import table
from streamd.serve.families import load_all

ELSEWHERE = {"CLUSTER", "XNACK", "BACKUP", "CLIENT MAINT_NOTIFICATIONS"}
"""What a server without a cluster refuses, and what the Redis beside it does not have yet."""


def is_named(name: str) -> bool:
    return name in NARROW or any(wide == name or wide.startswith((f"{name} ", f"{name},")) for wide in WIDE)


def test_every_command_is_measured_or_said_to_be_narrow() -> None:
    load_all()
    names = {each.name for each in table.walk() if each.handler is not None}
    missing = {
        name
        for name in names
        if not is_named(name) and not name.endswith(" HELP") and not {name, name.partition(" ")[0]} & ELSEWHERE
    }
    assert not missing
    assert not {name for name in NARROW if name not in names}
