"""Random scripts about client-side caching, played on streamd and on a real Redis. Marked `real`.

Each seed is a script of its own. `pytest -m slow` plays thousands.
"""

from __future__ import annotations

import random

import pytest
from support.commands.caching_scripts import compare_script, make_script
from support.servers import Server

pytestmark = pytest.mark.real

SAMPLE = 40
MANY = 3000
PIECE = 250
ATTEMPTS = 4
"""A client with a long pipeline has its share of a turn: on a busy machine chance decides what comes first."""


def compare_seeds(ours: Server, theirs: Server, seeds: range) -> None:
    for seed in seeds:
        for attempt in range(ATTEMPTS):
            try:
                compare_script(ours, theirs, make_script(random.Random(seed)))
                break
            except AssertionError as error:
                if attempt == ATTEMPTS - 1:
                    raise AssertionError(f"seed {seed}: {error}") from error


def test_a_sample(streamd_server: Server, redis_server: Server) -> None:
    compare_seeds(streamd_server, redis_server, range(SAMPLE))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(SAMPLE, MANY, PIECE))
def test_many(streamd_server: Server, redis_server: Server, first: int) -> None:
    compare_seeds(streamd_server, redis_server, range(first, first + PIECE))
