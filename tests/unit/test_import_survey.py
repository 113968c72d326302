"""How names of keys become patterns, and what a survey counts."""

from __future__ import annotations

import pytest

from streamd.importing import survey
from streamd.importing.survey import OTHERS, Survey, pattern_of


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("session:81", "session:*"),
        ("user:550e8400-e29b-41d4-a716-446655440000:cart", "user:*:cart"),
        ("blob:deadbeef00", "blob:*"),
        ("2031-05-06:hits", "*:hits"),
        ("10.0.0.1:seen", "*:seen"),
        ("facade", "facade"),
        ("feedback:9:1", "feedback:*:*"),
        ("", ""),
    ],
)
def test_what_varies_becomes_a_star(name: str, pattern: str) -> None:
    assert pattern_of(name) == pattern


def test_patterns_are_counted_with_examples() -> None:
    found = Survey()
    for number in range(5):
        found.count(b"a:%d" % number, "vectorset")
    found.count(b"\xff1", "ReJSON-RL")
    found.count(b"s", "stream")
    found.count(b"gone", "none")
    assert [*found.lines()] == [
        "           5  vectorset  a:*   such as a:0, a:1, a:2",
        "           1  ReJSON-RL  \\xff*   such as \\xff1",
    ]
    assert (found.supported, found.unsupported_keys) == (1, 6)


def test_keys_of_every_type_that_streamd_has_are_supported() -> None:
    found = Survey()
    for name in ("hash", "list", "set", "stream", "string", "zset"):
        found.count(b"key", name)
    assert (found.supported, found.unsupported_keys) == (6, 0)


def test_too_many_patterns_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "MAX_PATTERNS", 1)
    found = Survey()
    for name in (b"a", b"b", b"c"):
        found.count(name, "vectorset")
    assert found.unsupported["vectorset", OTHERS].count == 2
