"""The options of CLIENT TRACKING, read and checked without a server."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any

import pytest

from streamd.caching.tracking import ClientTracking
from streamd.caching.tracking_commands import TrackingOptions, find_overlapping
from streamd.errors import CommandError


def asked_before(*, prefixes: Sequence[bytes] = (), **modes: bool) -> ClientTracking:
    record = ClientTracking(**modes)
    record.prefixes.extend(prefixes)
    return record


def parse(text: str) -> TrackingOptions:
    return TrackingOptions.parse([word.encode() for word in f"CLIENT TRACKING {text}".split()], {7})


def test_all_options() -> None:
    assert parse("on redirect 7 bcast prefix b PREFIX a noloop") == TrackingOptions(
        is_on=True, redirect=7, is_bcast=True, is_noloop=True, prefixes=[b"b", b"a"]
    )
    assert parse("OFF OPTIN OPTOUT") == TrackingOptions(is_on=False, is_optin=True, is_optout=True)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("maybe", "ERR syntax error"),
        ("on prefix", "ERR syntax error"),
        ("on redirect", "ERR syntax error"),
        ("on redirect x", "ERR value is not an integer or out of range"),
        ("on redirect 8", "ERR The client ID you want redirect to does not exist"),
        ("on redirect 7 redirect 7", "ERR A client can only redirect to a single other client"),
    ],
)
def test_requests_that_cannot_be_read(text: str, error: str) -> None:
    with pytest.raises(CommandError, match=f"^{re.escape(error)}$"):
        parse(text)


@pytest.mark.parametrize(
    ("text", "old", "error"),
    [
        ("on prefix a", {}, "ERR PREFIX option requires BCAST"),
        ("on bcast", {"is_optin": False}, "ERR You can't switch BCAST mode"),
        ("on bcast optin", {"is_bcast": True}, "ERR OPTIN and OPTOUT are not compatible with BCAST"),
        ("on optin optout", {}, "ERR You can't specify both OPTIN mode and OPTOUT mode"),
        ("on optin", {"is_optout": True}, "ERR You can't switch OPTIN/OPTOUT mode"),
        ("on optout", {"is_optin": True}, "ERR You can't switch OPTIN/OPTOUT mode"),
        ("on bcast prefix ab", {"is_bcast": True, "prefixes": [b"a"]}, "ERR Prefix 'ab' overlaps with an existing"),
        (
            "on bcast prefix a prefix ab",
            {"is_bcast": True},
            "ERR Prefix 'a' overlaps with another provided prefix 'ab'",
        ),
    ],
)
def test_options_that_do_not_go_together(text: str, old: dict[str, Any], error: str) -> None:
    with pytest.raises(CommandError, match=f"^{re.escape(error)}"):
        parse(text).check(asked_before(**old))


def test_options_that_do() -> None:
    parse("on bcast prefix a prefix b").check(None)
    parse("on bcast prefix b").check(asked_before(is_bcast=True, prefixes=[b"a"]))
    parse("on optin").check(asked_before(is_optin=True))


def test_the_first_prefix_that_overlaps_is_found() -> None:
    chance = random.Random(7)

    def overlap(one: bytes, other: bytes) -> bool:
        return one.startswith(other) or other.startswith(one)

    def some(most: int, length: int) -> list[bytes]:
        return [
            "".join(chance.choices("ab", k=chance.randrange(length))).encode() for _ in range(chance.randrange(most))
        ]

    for _ in range(3000):
        existing: list[bytes] = []
        for prefix in some(4, 6):
            if not any(overlap(prefix, other) for other in existing):
                existing.append(prefix)
        prefixes = some(6, 9)
        wanted = next(
            (
                at
                for at, prefix in enumerate(prefixes)
                if any(overlap(prefix, other) for other in [*existing, *prefixes[at + 1 :]])
            ),
            None,
        )
        assert find_overlapping(prefixes, sorted(existing)) == wanted, (prefixes, existing)


def test_many_prefixes_are_compared_in_less_than_quadratic_time() -> None:
    # Each with each would be ten thousand million comparisons.
    assert find_overlapping([b"prefix:%d:" % number for number in range(100_000)], []) is None
