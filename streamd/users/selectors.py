"""Selectors: rules in brackets, joined from the words of a request or a line."""

from __future__ import annotations

from collections.abc import Sequence

from streamd.errors import UnmatchedError

__all__ = ["merge_selectors"]


def merge_selectors(words: Sequence[bytes]) -> list[bytes]:
    """Join words between `(` and `)` into one rule; raises UnmatchedError."""
    merged: list[bytes] = []
    opened_at: int | None = None
    for at, word in enumerate(words):
        if opened_at is not None:
            merged[-1] += b" " + word
            if word.endswith(b")"):
                opened_at = None
        else:
            merged.append(word)
            if word.startswith(b"(") and not word.endswith(b")"):
                opened_at = at
    if opened_at is not None:
        raise UnmatchedError(opened_at)
    return merged
