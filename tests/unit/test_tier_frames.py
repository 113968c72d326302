"""Frames between a server and the processes that read its archive, however their bytes are cut."""

from __future__ import annotations

import pytest

from streamd.client.tier_frames import ANSWER, ASK, READY, REPLIES, Frames, frame

FRAMES = [(READY, b""), (ASK, b"{}"), (REPLIES, b"+OK\r\n" * 300), (ANSWER, b""), (ANSWER, bytes(range(256)))]


@pytest.mark.parametrize("step", [1, 2, 4, 5, 6, 7, 1000, 10_000])
def test_frames_arrive_however_they_are_cut(step: int) -> None:
    sent = b"".join(frame(kind, payload) for kind, payload in FRAMES)
    frames, found = Frames(), []
    for at in range(0, len(sent), step):
        frames.feed(sent[at : at + step])
        while (whole := frames.next()) is not None:
            found.append(whole)
    assert found == FRAMES


def test_a_frame_that_has_begun_is_not_there_yet() -> None:
    frames = Frames()
    for part in (b"", frame(ANSWER, b"abc")[:3], frame(ANSWER, b"abc")[3:7]):
        frames.feed(part)
        assert frames.next() is None
    frames.feed(frame(ANSWER, b"abc")[7:] + frame(ASK, b""))
    assert [frames.next(), frames.next(), frames.next()] == [(ANSWER, b"abc"), (ASK, b""), None]
