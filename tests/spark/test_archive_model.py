"""Random stories of a stream, its copies and two archives: nothing is lost, doubled or changed without a word; see support.archives.model."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="archives need streamd-server[spark]")

from support.archives.model import Story
from support.servers import Server

MINUTES = 20


@pytest.mark.parametrize("seed", range(1, 7))
def test_a_short_story_loses_nothing(seed: int, streamd_server: Server, tmp_path: Path) -> None:
    Story(streamd_server.port, tmp_path, seed).play(20)


@pytest.mark.slow
@pytest.mark.timeout(60 * MINUTES + 600)
def test_many_long_stories_lose_nothing(streamd_server: Server, tmp_path: Path) -> None:
    end, counts, seed = time.monotonic() + 60 * MINUTES, Counter[str](), 1000
    while time.monotonic() < end:
        folder = tmp_path / str(seed)
        folder.mkdir()
        story = Story(streamd_server.port, folder, seed)
        story.play(40)
        counts += story.counts
        seed += 1
    print(f"{seed - 1000} stories: {dict(sorted(counts.items()))}")
    assert (
        min(counts[each] for each in ("archived", "killed", "IncarnationError", "DataLossError", "write_again", "fork"))
        > 0
    )
