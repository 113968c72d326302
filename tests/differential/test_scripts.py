"""Random scripts of commands: streamd and Redis must give the same replies and end in the same state.

Marked `real`: the fast run compares some hundreds of scripts whenever a redis-server is found; `-m slow` compares thousands.
They are others each time, except in CI, where a run says something about a change and not about its luck. A difference is
shrunk and printed as lines for redis-cli.
"""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from support.commands.scripts import GROUPS, KEYS, SCRIPT_SETTINGS, Script, scripts
from support.compare.differential import Difference, PairPool
from support.compare.later import without_later_fixes

pytestmark = [pytest.mark.long, pytest.mark.real]


EXHAUSTING = b"18446744073709551615-18446744073709551615"


def compare(pairs: PairPool, script: Script) -> None:
    # Redis counts the producer of an entry that an exhausted stream refused, for ever; see docs/differences.md.
    words = {word for request in script.requests for word in request}
    assume(not (EXHAUSTING in words and words & {b"IDMP", b"IDMPAUTO", b"idmp", b"idmpauto"}))
    pair = pairs.get(script.protocol)
    try:
        requests = list(without_later_fixes(script.with_settings()))
        pair.compare_script(requests, keys=KEYS, groups=GROUPS, has_clock_ids=script.has_clock_ids)
    except Difference:
        raise
    except Exception as error:
        pairs.forget(script.protocol)
        raise Difference(f"{error!r} while running {script!r}") from error


@settings(SCRIPT_SETTINGS, max_examples=600)
@given(script=scripts())
def test_a_random_script_gets_the_same_replies_and_leaves_the_same_state(pairs: PairPool, script: Script) -> None:
    compare(pairs, script)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@settings(SCRIPT_SETTINGS, max_examples=20_000)
@given(script=scripts(lengths=(10, 30, 60)))
def test_many_long_random_scripts(pairs: PairPool, script: Script) -> None:
    compare(pairs, script)
