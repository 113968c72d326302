"""Transcripts under transcripts/ played against streamd, and against a real Redis to prove them.

Each is played line by line as written, and with every request cut byte by byte. The runs against streamd always run;
those against Redis are marked `real`. Redis 8.6.3 falls silent at errors in bulk headers that come in pieces: transcripts
that say so (`@redis whole`) are played to it whole only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.compare.transcripts import Story, load, play
from support.servers import Server, target_is_redis

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


def runs(*, on_redis: bool) -> pytest.MarkDecorator:
    """Every transcript with every way to cut it that the server answers."""
    return pytest.mark.parametrize(
        ("story", "cut"),
        [
            pytest.param(
                story,
                cut,
                id=f"{story.name}-{cut.__name__}",
                marks=pytest.mark.real(since=story.since) if on_redis else (),
            )
            for story in STORIES
            for cut in (whole, byte_by_byte)
            if cut is whole or not (on_redis and story.redis_needs_whole)
        ],
    )


@runs(on_redis=False)
def test_streamd_keeps_to_the_transcript(
    story: Story, cut: Callable[[bytes], Iterator[bytes]], request: pytest.FixtureRequest
) -> None:
    if target_is_redis() and story.redis_needs_whole and cut is not whole:
        pytest.skip("Redis falls silent here")
    play(story, server_for(story, "streamd", request), cut)


@runs(on_redis=True)
def test_redis_keeps_to_the_transcript(
    story: Story, cut: Callable[[bytes], Iterator[bytes]], request: pytest.FixtureRequest
) -> None:
    play(story, server_for(story, "redis", request), cut)


def server_for(story: Story, kind: str, request: pytest.FixtureRequest) -> Server:
    """The shared server, emptied, or one of the story's own when it asks for directives."""
    if story.directives:
        own: Server = request.getfixturevalue(f"new_{kind}")(**story.directives)
        return own
    server: Server = request.getfixturevalue(f"{kind}_server")
    with server.connect() as wire:
        assert wire.call("FLUSHALL").value == b"OK"
    return server
