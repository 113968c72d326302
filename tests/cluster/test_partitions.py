"""Partitions between real nodes: shards with min-replicas-durable lose nothing, whichever way packets are lost.

What a round is, is in support.failover.partitions; `unshare --net python -m tests.support.failover.partitions --rounds 60` plays more.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.failover.partitions import PARTITIONS, missing
from support.servers import python_environment, target_is_redis

pytestmark = [
    pytest.mark.long, pytest.mark.real, pytest.mark.timeout(900),
    pytest.mark.skipif(target_is_redis(), reason="Redis has no min-replicas-durable"),
]  # fmt: skip


def test_shards_that_are_cut_lose_nothing() -> None:
    if why := missing():
        pytest.skip(why)
    done = subprocess.run(
        ["unshare", "--net", sys.executable, "-m", "tests.support.failover.partitions"],
        cwd=Path(__file__).parents[2],
        env=python_environment(),
        capture_output=True,
        text=True,
        timeout=850,
        check=False,
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("lost 0") == len(PARTITIONS)
