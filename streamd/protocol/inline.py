"""Lines split into words: inline commands, and the lines of a configuration file. Redis's rule for both.

    SET "a b" 'c' d\\n        ->  SET, a b, c, d\\n            (outside quotes a backslash is itself)
    SET "\\x41\\n" 'it\\'s'     ->  SET, A<newline>, it's
    SET "a"b                 ->  error: a closing quote must be followed by white space or the end

Words are separated by spaces, tabs, CR and LF; a vertical tab or form feed separates only where a word could start. A
quote may open in the middle of a word, and closing it ends the word. A NUL byte ends the line.
"""

from __future__ import annotations

import re

__all__ = ["split_line"]

_ESCAPES = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"a": b"\a"}

_AWKWARD = re.compile(rb"[\"'\0\v\f]")
_GAP = re.compile(rb"[ \t\n\v\f\r]*+")
_BARE = re.compile(rb"[^ \t\n\r\"']*+")
# Both quoted forms are possessive: a missing closing quote costs one scan, not one for every possible position.
_DOUBLE = re.compile(rb'"((?:[^"\\]|\\.)*+)"(?=[ \t\n\v\f\r]|\Z)', re.DOTALL)
_SINGLE = re.compile(rb"'((?:[^'\\]|\\'|\\)*+)'(?=[ \t\n\v\f\r]|\Z)")
_ESCAPE = re.compile(rb"\\(?:x([0-9a-fA-F]{2})|(.))", re.DOTALL)


def _unescape(match: re.Match[bytes]) -> bytes:
    if match[1] is not None:
        return bytes((int(match[1], 16),))
    return _ESCAPES.get(match[2], match[2])


def split_line(line: bytes) -> list[bytes]:
    """The words of one line, without its quotes; empty for a blank line. Linear in the length of the line.

    Raises ValueError when a quote is not closed, or is followed by something other than white space.
    Behaviour: Redis 8.6, as seen on a running server.
    """
    if _AWKWARD.search(line) is None:
        return line.split()
    line = line.partition(b"\0")[0]
    words = []
    at = _end(_GAP, line, 0)
    while at < len(line):
        end = _end(_BARE, line, at)
        word = line[at:end]
        quote = line[end : end + 1]
        if quote == b'"':
            quoted = _DOUBLE.match(line, end)
            if quoted is None:
                raise ValueError("unbalanced quotes")
            word += _ESCAPE.sub(_unescape, quoted[1])
            end = quoted.end()
        elif quote == b"'":
            quoted = _SINGLE.match(line, end)
            if quoted is None:
                raise ValueError("unbalanced quotes")
            word += quoted[1].replace(b"\\'", b"'")
            end = quoted.end()
        words.append(word)
        at = _end(_GAP, line, end)
    return words


def _end(pattern: re.Pattern[bytes], line: bytes, at: int) -> int:
    match = pattern.match(line, at)
    return at if match is None else match.end()
