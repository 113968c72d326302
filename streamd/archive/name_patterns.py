"""Patterns of keys, as SCAN MATCH takes them, for keys that are not asked of a server."""

from __future__ import annotations

import re

__all__ = ["pattern_of"]


def pattern_of(glob: str) -> str:
    """A pattern of SCAN MATCH as a regular expression."""
    out, at = [], 0
    while at < len(glob):
        char = glob[at]
        at += 1
        if char == "*":
            out.append(".*")
        elif char == "?":
            out.append(".")
        elif char == "\\" and at < len(glob):
            out.append(re.escape(glob[at]))
            at += 1
        elif char == "[":
            chosen, at = chosen_of(glob, at)
            out.append(chosen)
        else:
            out.append(re.escape(char))
    return "".join(out)


def chosen_of(glob: str, at: int) -> tuple[str, int]:
    """The `[...]` whose content starts at `at`, as a regular expression, and where the pattern continues.

    As servers read it: `]` always ends it, a backslash escapes the next character, ranges may be reversed, and one that is
    not closed extends to the end.
    """
    is_negated = glob[at : at + 1] == "^"
    at += is_negated
    chosen = ""
    while at < len(glob) and glob[at] != "]":
        if glob[at] == "\\" and at + 1 < len(glob):
            chosen += re.escape(glob[at + 1])
            at += 2
        elif glob[at + 1 : at + 2] == "-" and at + 2 < len(glob):
            low, high = sorted((glob[at], glob[at + 2]))
            chosen += f"{re.escape(low)}-{re.escape(high)}"
            at += 3
        else:
            chosen += re.escape(glob[at])
            at += 1
    if not chosen:
        return ("." if is_negated else "(?!)"), at + 1
    return f"[{'^' if is_negated else ''}{chosen}]", at + 1
