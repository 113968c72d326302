"""The guard that counts instructions, as far as it goes without valgrind: reading counts, comparing them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks import instructions, profiles
from benchmarks.counted import IDLE, NOTHING, OPERATIONS
from benchmarks.instructions import compare, differing, find_nearest
from benchmarks.profile import Profile, read_profile, readable

PROFILE = """\
desc: Trigger: Client Request: XADD
events: Ir

fn=main
4 10
cfn=__pyx_f_7streamd_6values_7streams_6stream_6Stream_append_args
calls=2 0
4 60

fn=__pyx_f_7streamd_6values_7streams_6stream_6Stream_append_args
7 40
8 20
totals: 70
"""

NAME = OPERATIONS[-1].name
ROOT = Path(__file__).parents[2]


def test_a_profile_tells_own_instructions_from_those_of_what_is_called() -> None:
    profile = read_profile(PROFILE)
    append = "values.streams.stream.Stream.append_args"
    assert profile.total == 70
    assert profile.own == {"main": 10, append: 60}
    assert profile.inclusive == {"main": 70, append: 60}


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("__pyx_f_7streamd_6values_7streams_6stream_grow", "values.streams.stream.grow"),
        ("__pyx_pw_7streamd_6values_7streams_10xadd_xtrim_1xadd", "values.streams.xadd_xtrim.xadd (arguments)"),
        ("__pyx_pf_7streamd_4core_6client_6Client_2data_received", "core.client.Client.data_received"),
        ("_PyEval_EvalFrameDefault'2", "_PyEval_EvalFrameDefault"),
        ("memcpy", "memcpy"),
    ],
)
def test_names_are_readable(symbol: str, name: str) -> None:
    assert readable(symbol) == name


@pytest.mark.parametrize(
    ("measured", "is_slower", "is_outdated"),
    [(1000, False, False), (1029, False, False), (1031, True, False), (971, False, False), (969, False, True)],
)
def test_a_figure_may_differ_by_the_tolerance(measured: float, is_slower: bool, is_outdated: bool) -> None:
    (figure,) = compare({NAME: 1000}, {NAME: measured}, 0.03)
    assert (figure.is_slower, figure.is_outdated) == (is_slower, is_outdated)


def test_an_operation_without_a_committed_figure_is_reported_but_does_not_fail() -> None:
    (figure,) = compare({}, {NAME: 1000}, 0.03)
    assert figure.is_outdated
    assert not figure.is_slower


def test_the_nearest_environment_is_compared_with() -> None:
    ours = {"python": "3.11.2", "compiler": "GCC 12"}
    near, far = {"python": "3.11.7", "compiler": "GCC 12"}, {"python": "3.12.1", "compiler": "GCC 13"}
    found = find_nearest([{"environment": far}, {"environment": near}], ours)
    assert found is not None
    assert found["environment"] == near
    assert differing(near, ours) == ["python"]


def test_another_environment_is_reported_loudly() -> None:
    said = instructions.warn_of_roughness(["libc", "python"])
    assert "WARNING: NO FIGURES FOR THIS ENVIRONMENT" in said
    assert "libc, python" in said
    assert f"{instructions.TOLERANCE_ELSEWHERE:.0%} more is found, instead of {instructions.TOLERANCE:.0%}" in said


def test_every_operation_has_a_committed_figure_in_every_environment() -> None:
    names = {operation.name for operation in OPERATIONS} - {IDLE, NOTHING}
    assert len(names) == len(OPERATIONS) - 2, "two operations have the same name"
    known = instructions.read_committed()
    assert known
    for one in known:
        assert one["figures"].keys() == names, one["environment"]


def test_the_functions_that_take_most_come_first_and_what_counting_costs_is_left_out() -> None:
    append = "values.streams.stream.Stream.append_args"
    inclusive = {
        append: 40,
        "core.dispatch.Dispatcher.run": 80,
        "memcpy": 90,
        "values.streams.stream.grow": 1,
        f"{append} (arguments)": 85,
    }
    profile = Profile(200, {}, inclusive)
    assert profiles.find_shares([profile], 100) == [("core.dispatch.Dispatcher.run", 0.8), (append, 0.4)]


def test_tables_are_put_into_the_page_and_its_text_is_left() -> None:
    page = "before\n<!-- profile: append -->\nold\n<!-- end -->\nafter\n"
    filled = "before\n<!-- profile: append -->\nnew\n<!-- end -->\nafter\n"
    assert profiles.fill_in(page, {"append": "new"}) == filled
    assert profiles.fill_in(filled, {"append": "new"}) == filled


def test_the_page_has_every_table_and_no_other() -> None:
    page = profiles.PAGE.read_text()
    titles = re.findall(r"<!-- profile: (.+?) -->\n", page)
    assert titles == list(profiles.PATHS)
    names = {operation.name for operation in OPERATIONS}
    assert all(name in names for path in profiles.PATHS.values() for name in path)


def test_the_page_says_of_every_function_what_it_does() -> None:
    rows = re.findall(r"^\| `(.+?)` \| \d+% \|(.*)\|$", profiles.PAGE.read_text(), re.MULTILINE)
    assert len(rows) > len(profiles.PATHS)
    assert {function for function, words in rows if not words.strip()} == set()


def is_in_the_source(name: str) -> bool:
    """Whether a module has the function, or a class of it the method."""
    *path, function = name.split(".")
    owner = path.pop() if path[-1][0].isupper() else None
    module = ROOT.joinpath("streamd", *path)
    files = [module.with_suffix(suffix) for suffix in (".py", ".pyx", ".pxd")]
    text = "\n".join(file.read_text() for file in files if file.exists())
    if owner is not None:
        text = "\n".join(re.findall(rf"^(?:cdef )?class {owner}\b.*\n((?:[ \t].*\n|\n)*)", text + "\n", re.MULTILINE))
    return re.search(rf"^\s*(?:async def|def|cdef|cpdef)\b[^(=]*\b{function}\(", text, re.MULTILINE) is not None


def test_words_are_of_functions_that_there_are() -> None:
    assert is_in_the_source("engine.rax.rax_floor")
    assert not is_in_the_source("engine.rax.rax_ceiling_of_none")
    assert not is_in_the_source("core.dispatch.Dispatcher.block_on"), "it is a method of another class"
    assert [name for name in profiles.WORDS if not is_in_the_source(name)] == []
