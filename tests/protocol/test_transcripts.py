"""Transcripts under transcripts/ played against streamd, and against a real Redis to prove them.

Each is played line by line as written, and with every request cut byte by byte. The runs against streamd always run;
those against Redis are marked `real`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.servers import Server, target_is_redis
from support.transcripts import Story, load, play

STORIES = [load(path) for path in sorted((Path(__file__).parent / "transcripts").glob("*.txt"))]
END_BYTES = 1500


def whole(data: bytes) -> Iterator[bytes]:
    yield data


def byte_by_byte(data: bytes) -> Iterator[bytes]:
    """One byte at a time; of what is long, only the two ends."""
    middle = data[END_BYTES:-END_BYTES]
    for at in range(min(END_BYTES, len(data))):
        yield data[at : at + 1]
    if middle:
        yield middle
    for at in range(max(END_BYTES, len(data) - END_BYTES), len(data)):
        yield data[at : at + 1]


cuts = pytest.mark.parametrize("cut", [whole, byte_by_byte], ids=["whole", "byte_by_byte"])


@cuts
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_streamd_keeps_to_the_transcript(
    story: Story, cut: Callable[[bytes], Iterator[bytes]], request: pytest.FixtureRequest
) -> None:
    if target_is_redis():
        skip_what_redis_cannot(story, cut)
    play(story, server_for(story, "streamd", request), cut)


@cuts
@pytest.mark.parametrize(
    "story", [pytest.param(story, marks=pytest.mark.real(since=story.since), id=story.name) for story in STORIES]
)
def test_redis_keeps_to_the_transcript(
    story: Story, cut: Callable[[bytes], Iterator[bytes]], request: pytest.FixtureRequest
) -> None:
    skip_what_redis_cannot(story, cut)
    play(story, server_for(story, "redis", request), cut)


def skip_what_redis_cannot(story: Story, cut: Callable[[bytes], Iterator[bytes]]) -> None:
    if story.redis_needs_whole and cut is not whole:
        pytest.skip("Redis 8.6.3 falls silent at errors in bulk headers that come in pieces")


def server_for(story: Story, kind: str, request: pytest.FixtureRequest) -> Server:
    """The shared server, emptied, or one of the story's own when it asks for directives."""
    if story.directives:
        own: Server = request.getfixturevalue(f"new_{kind}")(**story.directives)
        return own
    server: Server = request.getfixturevalue(f"{kind}_server")
    with server.connect() as wire:
        assert wire.call("FLUSHALL").value == b"OK"
    return server
