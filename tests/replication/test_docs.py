"""The tests that docs/tests.md shows of replication, run as they stand there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.failover.faults import KILL
from support.failover.rounds import WAITAOF, Cluster, play
from support.pages.reader import block
from support.replicas.nodes import Node, Proxy, assert_same_state, wait_in_sync, wait_until

pytestmark = [pytest.mark.long, pytest.mark.real]

NAMES = {
    each.__name__: each
    for each in (Callable, Cluster, Node, Path, Proxy, assert_same_state, play, wait_in_sync, wait_until)
} | {"KILL": KILL, "WAITAOF": WAITAOF, "pytest": pytest}


def shown(first_line: str) -> Any:
    """The function that a block defines."""
    names: dict[str, Any] = dict(NAMES)
    exec(block("docs/tests.md", first_line), names)
    return next(value for name, value in names.items() if name.startswith("test_"))


def test_a_cut_link(new_node: Callable[..., Node]) -> None:
    shown("@pytest.mark.real")(new_node)


def test_a_round_of_fail_over(tmp_path: Path) -> None:
    shown("def test_nothing_is_lost")(tmp_path)
