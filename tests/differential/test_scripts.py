"""Random scripts of commands: streamd and Redis must give the same replies and end in the same state.

Marked `real`: the fast run compares some hundreds of scripts whenever a redis-server is found; `-m slow` compares thousands.
They are others each time, except in CI, where a run says something about a change and not about its luck. A difference is
shrunk and printed as lines for redis-cli.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from support.differential import Difference, PairPool
from support.later import without_later_fixes
from support.scripts import GROUPS, KEYS, Script, scripts

pytestmark = pytest.mark.real

IN_CI = bool(os.environ.get("CI"))
COMMON = settings(
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
    # Plain random choices: the default way of varying one script a few times would leave the budget to few scripts.
    backend="hypothesis" if IN_CI else "hypothesis-urandom",
    derandomize=IN_CI,
    print_blob=True,
    report_multiple_bugs=False,
)


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


@settings(COMMON, max_examples=600)
@given(script=scripts())
def test_a_random_script_gets_the_same_replies_and_leaves_the_same_state(pairs: PairPool, script: Script) -> None:
    compare(pairs, script)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@settings(COMMON, max_examples=20_000)
@given(script=scripts(lengths=(10, 30, 60)))
def test_many_long_random_scripts(pairs: PairPool, script: Script) -> None:
    compare(pairs, script)
