"""Who may be the primary, and which of two servers has more: what replication/standing.py decides, without servers."""

from __future__ import annotations

import pytest

from streamd.replication.standing import NONE, Greeting, Position, Standing, Verdict, View


def server(data: View = NONE, promised: View = NONE) -> Standing:
    standing = Standing()
    standing.data = data
    standing.join(max(promised, data))
    return standing


def primary(data: View = NONE, offset: int = 0, promised: View = NONE, *, is_established: bool = False) -> Standing:
    standing = server(data, promised)
    standing.begin(offset, "own")
    if is_established:
        standing.establish()
    return standing


def greets(data: View, offset: int, promised: View = NONE) -> Greeting:
    return Greeting(max(promised, data), Position(data, offset))


ONE, TWO, NINE = View(1, "a"), View(2, "a"), View(9, "a")


def test_a_view_is_later_than_all_that_a_server_knows() -> None:
    standing = primary(ONE, promised=NINE)
    assert standing.own is not None
    assert standing.own > NINE
    assert standing.own == standing.promised
    above = View(standing.own.number + 5, "z")
    assert standing.begin(0, "next", above) > above


@pytest.mark.parametrize(
    ("greeting", "verdict"),
    [
        (greets(ONE, 100), Verdict.JOIN),
        (greets(ONE, 99), Verdict.JOIN),
        (greets(ONE, 101), Verdict.FOLLOW),
        (greets(TWO, 1), Verdict.FOLLOW),
        (greets(NONE, 10**9), Verdict.JOIN),
        (greets(ONE, 100, promised=NINE), Verdict.BEGIN),
    ],
)
def test_who_may_join_a_primary_that_is_not_established(greeting: Greeting, verdict: Verdict) -> None:
    assert primary(ONE, 100).judge(greeting, 100) is verdict


def test_after_a_later_view_is_begun_the_one_who_has_its_data_is_followed() -> None:
    standing = primary(ONE, 100, is_established=True)
    greeting = greets(NINE, 5)
    assert standing.judge(greeting, 700) is Verdict.BEGIN
    standing.begin(700, "next", above=greeting.promised)
    assert standing.judge(greeting, 700) is Verdict.FOLLOW


def test_an_established_primary_follows_nobody_of_its_own_view_or_before() -> None:
    standing = primary(ONE, 100, is_established=True)
    assert standing.own is not None
    for greeting in (greets(ONE, 10**9), greets(standing.own, 10**9)):
        assert standing.judge(greeting, 200) is Verdict.JOIN


def test_the_bytes_of_a_primary_that_is_not_established_do_not_count() -> None:
    standing = primary(ONE, 100)
    assert standing.position(500) == Position(ONE, 100)
    standing.establish()
    assert standing.position(500) == Position(standing.promised, 500)


def test_a_view_is_never_left_for_an_earlier_one() -> None:
    standing = server(promised=NINE)
    standing.join(TWO)
    assert standing.promised == NINE


def test_greetings_survive_the_wire() -> None:
    for greeting in (greets(NONE, 0), greets(TWO, 77, promised=NINE)):
        assert Greeting.parse(str(greeting)) == greeting
    for text in ("", "1:a", "1:a 1:a x", "a b 3", "1:a 1:a 3 4"):
        with pytest.raises(ValueError, match=r"."):
            Greeting.parse(text)
