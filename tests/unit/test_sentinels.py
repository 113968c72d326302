"""Which Sentinels count: replication/sentinels.py, without connections."""

from __future__ import annotations

from typing import Any, cast

import pytest

from streamd.core.client import Client
from streamd.replication.sentinels import GONE_S, Hello, Sentinels

OWN = ("10.0.0.1", 6379)
OTHER = ("10.0.0.2", 6379)


class Connection:
    """What is asked of a client."""

    def __init__(self, heard_at: float, name: bytes = b"") -> None:
        self.last_interaction = heard_at
        self.name = name
        self.transport: Any = object()


def hear(
    sentinels: Sentinels, number: int, at: float, *, primary: tuple[str, int] = OWN, epoch: int = 1, ip: str = ""
) -> None:
    hello = Hello((ip or f"10.0.1.{number}", 26379), f"{number:040x}", primary, epoch)
    sentinels.hear(hello, cast(Client, Connection(at)), OWN, at)


def numbers(sentinels: Sentinels) -> set[int]:
    return {int(run_id, 16) for run_id in sentinels.known}


def test_a_newcomer_takes_the_place_of_the_one_that_is_gone_the_longest() -> None:
    sentinels = Sentinels()
    for number, at in ((1, 0.0), (2, 0.0), (3, 0.0), (2, 1.0), (3, GONE_S + 3)):
        hear(sentinels, number, at)
    hear(sentinels, 4, GONE_S + 3)
    assert numbers(sentinels) == {2, 3, 4}
    hear(sentinels, 5, GONE_S + 3)
    assert numbers(sentinels) == {3, 4, 5}
    hear(sentinels, 6, GONE_S + 3)
    assert numbers(sentinels) == {3, 4, 5, 6}, "nobody else is gone"


def test_a_newcomer_that_comes_soon_takes_the_place_later() -> None:
    sentinels = Sentinels()
    for number, at in ((1, 0.0), (2, 0.0), (3, 0.0), (2, 2.0), (3, 2.0), (4, 2.0)):
        hear(sentinels, number, at)
    assert numbers(sentinels) == {1, 2, 3, 4}
    for number, at in ((2, 3.0), (3, 3.0), (4, GONE_S + 1)):
        hear(sentinels, number, at)
    assert numbers(sentinels) == {2, 3, 4}
    hear(sentinels, 4, 100.0)
    assert numbers(sentinels) == {2, 3, 4}, "one newcomer, one place"


def test_a_newcomer_at_a_known_address_is_the_same_one_again() -> None:
    sentinels = Sentinels()
    hear(sentinels, 1, 0.0)
    hear(sentinels, 2, 0.0)
    hear(sentinels, 3, 0.1, ip="10.0.1.2")
    assert numbers(sentinels) == {1, 3}


def test_those_that_are_gone_count_until_others_come() -> None:
    sentinels = Sentinels()
    for number in (1, 2, 3):
        hear(sentinels, number, 0.0)
    hear(sentinels, 1, 100.0)
    assert not sentinels.is_majority_heard(since=99.0)
    hear(sentinels, 4, 100.0)
    assert sentinels.is_majority_heard(since=99.0)


def test_the_newest_epoch_decides_who_is_the_primary() -> None:
    sentinels = Sentinels()
    hear(sentinels, 1, 0.0, epoch=4)
    hear(sentinels, 2, 0.0, epoch=3, primary=OTHER)
    assert sentinels.successor is None
    hear(sentinels, 2, 0.0, epoch=5, primary=OTHER)
    hear(sentinels, 1, 0.0, epoch=4)
    assert sentinels.successor == OTHER
    hear(sentinels, 1, 0.0, epoch=6)
    assert sentinels.successor is None


@pytest.mark.parametrize(
    "message", [b"", b"hello", b"a,b,c,d,e,f,g,h", b"1.1.1.1,1,r,1,s,1.1.1.1,1,1,1", b"\xff,1,r,1,s,i,1,1"]
)
def test_what_is_no_hello_is_refused(message: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        Hello.parse(message)
