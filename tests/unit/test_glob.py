"""Glob patterns: Redis's rules, the odd ones included, against a recursive twin."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streamd.engine.glob import Glob


def match(pattern: bytes, text: bytes, nocase: bool = False) -> bool:
    return Glob(pattern, nocase).match(text)


def signed(c: int) -> int:
    return c - 256 if c > 127 else c


def lower(c: int) -> int:
    return c + 32 if ord("A") <= c <= ord("Z") else c


def slow_match(pattern: bytes, text: bytes, nocase: bool) -> bool:
    """The obvious recursion, without the limit on stars."""
    if not pattern or not text:
        return not pattern and not text
    rest = pattern[1:]
    if pattern[:1] == b"*":
        rest = pattern.lstrip(b"*")
        return not rest or any(slow_match(rest, text[i:], nocase) for i in range(len(text)))
    c = text[0]
    if pattern[:1] == b"?":
        found = True
    elif pattern[:1] == b"[":
        found, rest = slow_set(rest, c, nocase)
    else:
        if pattern[:1] == b"\\" and len(pattern) > 1:
            pattern, rest = rest, rest[1:]
        found = lower(pattern[0]) == lower(c) if nocase else pattern[0] == c
    if not found:
        return False
    text = text[1:]
    return slow_match(rest if text else rest.lstrip(b"*"), text, nocase)


def slow_set(rest: bytes, c: int, nocase: bool) -> tuple[bool, bytes]:
    negated = rest[:1] == b"^"
    rest = rest.removeprefix(b"^")
    found = False
    while rest and rest[:1] != b"]":
        if rest[:1] == b"\\" and len(rest) > 1:
            found |= rest[1] == c
            rest = rest[2:]
        elif len(rest) > 2 and rest[1:2] == b"-":
            ends = sorted((signed(rest[0]), signed(rest[2])))
            found |= lower(ends[0]) <= lower(signed(c)) <= lower(ends[1]) if nocase else ends[0] <= signed(c) <= ends[1]
            rest = rest[3:]
        else:
            found |= lower(rest[0]) == lower(c) if nocase else rest[0] == c
            rest = rest[1:]
    return found != negated, rest[1:]


# Pattern, texts that match, texts that do not. As a real Redis answers KEYS.
FACTS: list[tuple[bytes, list[bytes], list[bytes]]] = [
    (b"", [b""], [b"a"]),
    (b"abc", [b"abc"], [b"", b"ab", b"abcd", b"ABC"]),
    (b"*", [b"a", b"abc", b"\0"], [b""]),
    (b"**", [b"a"], [b""]),
    (b"?", [b"a", b"\xff", b"\0"], [b"", b"ab"]),
    (b"a*", [b"a", b"ab"], [b"", b"ba"]),
    (b"a**", [b"a", b"abc"], [b"b"]),
    (b"*a", [b"a", b"ba", b"aa"], [b"ab"]),
    (b"*?", [b"a", b"ab"], [b""]),
    (b"a*b*c", [b"abc", b"aXbYc", b"abcbc"], [b"acb", b"ab", b"abcd"]),
    (b"*aab", [b"aaab", b"aabaab"], [b"aaba"]),
    (b"h[ae]llo", [b"hello", b"hallo"], [b"hillo", b"hllo"]),
    (b"h[^e]llo", [b"hallo", b"h^llo"], [b"hello", b"hllo"]),
    (b"h[a-c]llo", [b"hbllo", b"hcllo"], [b"hdllo", b"h-llo"]),
    (b"[z-a]", [b"m", b"a", b"z"], [b"{", b"-"]),
    (b"[a-c-e]", [b"b", b"-", b"e"], [b"d"]),
    (b"[--a]", [b"A", b"-"], [b"b"]),
    (b"[!a]", [b"!", b"a"], [b"b"]),
    (b"[^^]", [b"a"], [b"^"]),
    (b"[[]", [b"["], [b"]"]),
    (b"[a]b", [b"ab"], [b"a]b", b"b"]),
    (b"\\a", [b"a"], [b"\\a"]),
    (b"\\*", [b"*"], [b"a", b"\\*"]),
    (b"\\", [b"\\"], [b"a"]),
    (b"a\\", [b"a\\"], [b"a"]),
    (b"a*\\", [b"ab\\"], [b"a", b"ab"]),
    (b"[\\]]", [b"]"], [b"\\", b"a"]),
    (b"[\\a-c]", [b"a", b"-", b"c"], [b"b", b"\\"]),
    # Sets that do not end, or hold nothing.
    (b"[", [], [b"[", b"a"]),
    (b"[^", [b"a", b"]"], [b""]),
    (b"[a", [b"a"], [b"[", b"", b"[a"]),
    (b"[^a", [b"b"], [b"a"]),
    (b"[]", [], [b"a", b"]"]),
    (b"[]]", [], [b"]"]),
    (b"[^]", [b"a", b"]"], [b""]),
    (b"[a-", [b"a", b"-"], [b"b"]),
    (b"[a-]", [b"_", b"]", b"a"], [b"-", b"b"]),
    (b"[a-]]", [], [b"_]", b"-"]),
    (b"[a-z", [b"a", b"z"], [b"{"]),
    (b"[a-zA", [b"A"], [b"B"]),
    (b"[\\", [b"\\"], [b"a"]),
    (b"[\\]", [b"]"], [b"\\"]),
    (b"[a-\\]", [b"]", b"_", b"a"], [b"b", b"["]),
    (b"[a*", [b"*", b"a"], [b"aa"]),
    (b"a*[", [], [b"a", b"ab"]),
    (b"*[a", [b"xa"], [b"xb"]),
    # Bytes above 127 are negative in a range.
    (b"[\x01-\xff]", [b"\x01", b"\0", b"\xff"], [b"\x02", b"\x80", b"\xfe"]),
    (b"[\x80-\xff]", [b"\x80", b"\x99"], [b"\x7f", b"\0"]),
]


@pytest.mark.parametrize(("pattern", "matching", "other"), FACTS)
def test_a_pattern_matches_what_redis_says(pattern: bytes, matching: list[bytes], other: list[bytes]) -> None:
    assert [text for text in matching + other if match(pattern, text)] == matching
    assert [text for text in matching + other if slow_match(pattern, text, False)] == matching


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        (b"ABC", b"abc", True),
        (b"a?c*", b"ABCD", True),
        (b"\\A", b"a", True),
        (b"[A]cl", b"acl", True),
        (b"[^A]cl", b"acl", False),
        (b"[A-C]cl", b"acl", True),
        (b"[b-A]cl", b"acl", True),
        (b"[Z-A]cl", b"acl", True),
        (b"[\\a]cl", b"acl", True),
        # As a real Redis answers COMMAND LIST FILTERBY PATTERN.
        (b"[\\A]cl", b"acl", False),
        (b"[^\\A]cl", b"acl", True),
        (b"[Z-a]cl", b"acl", False),
        (b"[B-a]cl", b"acl", False),
        (b"[z-A]cl", b"acl", True),
        (b"\xc9", b"\xe9", False),
        (b"@", b"`", False),
        (b"[", b"{", False),
    ],
)
def test_case_is_disregarded_when_asked(pattern: bytes, text: bytes, matches: bool) -> None:
    assert match(pattern, text, nocase=True) is matches
    assert slow_match(pattern, text, True) is matches


_pattern = st.lists(
    st.sampled_from(
        [b"a", b"b", b"c", b"A", b"[", b"]", b"^", b"-", b"\\", b"*", b"?", b"\x80", b"\xff", b"\0", b"[a-c]"]
    ),
    max_size=9,
).map(b"".join)
_text = st.lists(
    st.sampled_from([b"a", b"b", b"c", b"A", b"C", b"[", b"]", b"-", b"\\", b"\x80", b"\xff", b"\0"]), max_size=9
)


@settings(max_examples=600, deadline=None)
@given(pattern=_pattern, text=_text.map(b"".join), nocase=st.booleans())
@example(pattern=b"*a*b", text=b"aab", nocase=False)
def test_patterns_match_as_by_the_twin(pattern: bytes, text: bytes, nocase: bool) -> None:
    assert match(pattern, text, nocase) is slow_match(pattern, text, nocase)


@settings(max_examples=600, deadline=None)
@given(pieces=st.lists(_pattern, min_size=1, max_size=3), text=_text.map(b"".join), data=st.data())
def test_long_sets_and_runs_of_stars_match_as_by_the_twin(
    pieces: list[bytes], text: bytes, data: st.DataObject
) -> None:
    filler = data.draw(st.sampled_from([b"b", b"b-b", b"\\b", b"\\B", b"B-C", b"\x80-\xff", b"z-A"]))
    nocase = data.draw(st.booleans())
    stars = data.draw(st.sampled_from([b"", b"*" * 99]))
    pattern = stars + b"".join(
        piece + data.draw(st.sampled_from([b"[", b"[^", b"*[", b"*[^"])) + filler * 40 for piece in pieces
    )
    pattern += data.draw(st.sampled_from([b"", b"]", b"-]", b"\\", b"]a", b"]*c"]))
    assert match(pattern, text, nocase) is slow_match(pattern, text, nocase)


@settings(max_examples=200, deadline=None)
@given(text=_text.map(b"".join), data=st.data())
def test_a_text_matches_itself_with_parts_replaced_by_stars(text: bytes, data: st.DataObject) -> None:
    parts = [b"\\" + text[i : i + 1] for i in range(len(text))]
    for i in range(len(parts)):
        parts[i] = data.draw(st.sampled_from([parts[i], parts[i], b"?", b"*", parts[i] + b"*"]))
    if text:
        assert match(b"".join(parts), text)


def test_a_thousand_stars_are_the_limit() -> None:
    # One star at the end is not counted. As a real Redis answers KEYS.
    for pattern, limit in ((b"*a", 1000), (b"a*", 1001)):
        for count in (limit - 1, limit):
            assert match(pattern * count, b"a" * count)
            assert match(pattern * count, b"a" * 5000)
        assert not match(pattern * (limit + 1), b"a" * (limit + 1))
    assert not match(b"*a" * 1000, b"a" * 999)


@pytest.mark.parametrize(
    "pattern",
    [
        b"*a" * 900 + b"b",
        b"a*" * 900 + b"b",
        b"*" * 100_000 + b"b",
        b"*?" * 900 + b"b",
        b"*[^b]" * 900 + b"b",
        b"[a" * 50_000,
        b"*[" * 500_000,
        b"*[" + b"b-c" * 300_000 + b"]a",
        b"*[^" + b"\\a" * 500_000 + b"]*",
    ],
)
def test_a_hostile_pattern_takes_bounded_time(pattern: bytes) -> None:
    # A matcher that goes back to every star, or reads long sets again for every byte, would not end.
    assert not match(pattern, b"a" * 20_000)


def test_arguments_must_be_bytes() -> None:
    for arguments in ((None, b""), (b"", None), ("a", b"a")):
        with pytest.raises(TypeError, match="has incorrect type"):
            match(*arguments)
