"""What a request that waits for keys asks of their values: core/question.pyx, and core/context.pyx for the request."""

from __future__ import annotations

import pytest

from streamd.core.context import BlockRequest
from streamd.core.question import Question


def test_types_of_value_do_not_share_lines() -> None:
    assert Question(list, line=b"first").line == Question(list, line=b"first").line
    assert Question(list, line=b"first").line != Question(dict, line=b"first").line
    assert Question(list).line is None


def test_a_wait_for_keys_needs_a_question() -> None:
    with pytest.raises(ValueError, match="needs a question"):
        BlockRequest([b"k"], [b"GET", b"k"], 0)
    assert BlockRequest([b"k"], [b"GET", b"k"], 0, Question(list)).keys == [b"k"]
    assert BlockRequest([], [b"WAIT"], 0).question is None
