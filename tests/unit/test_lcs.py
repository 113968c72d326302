"""The longest common subsequence, against the table that one would draw on paper."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from streamd.values.strings.lcs import common_length, common_runs

TEXTS = st.one_of(st.text("ab", max_size=200), st.text("abcdefgh", max_size=140)).map(str.encode)


def slow_runs(a: bytes, b: bytes) -> list[tuple[int, int, int]]:
    """The runs from the last to the first: equal bytes belong to it, else the longer rest is kept, that of `a` if equal."""
    lengths = [[0] * (len(b) + 1)]
    for x in a:
        above, row = lengths[-1], [0]
        for j, y in enumerate(b):
            row.append(above[j] + 1 if x == y else max(above[j + 1], row[j]))
        lengths.append(row)
    i, j = len(a), len(b)
    runs: list[tuple[int, int, int]] = []
    while i and j:
        if a[i - 1] == b[j - 1]:
            i, j = i - 1, j - 1
            if runs and runs[-1][:2] == (i + 1, j + 1):
                runs[-1] = (i, j, runs[-1][2] + 1)
            else:
                runs.append((i, j, 1))
        elif lengths[i - 1][j] > lengths[i][j - 1]:
            i -= 1
        else:
            j -= 1
    return runs


@given(a=TEXTS, b=TEXTS)
@example(a=b"ohmytext", b=b"mynewtext")
@example(a=b"", b=b"a")
@example(a=b"a" * 64, b=b"a" * 64)
@example(a=b"a" * 65, b=b"a" * 129)
@example(a=bytes(range(256)), b=bytes(reversed(range(256))))
def test_the_runs_are_those_of_the_table(a: bytes, b: bytes) -> None:
    runs = common_runs(a, b)
    assert runs == slow_runs(a, b)
    assert common_length(a, b) == sum(length for _, _, length in runs)
    assert all(a[i : i + length] == b[j : j + length] for i, j, length in runs)


def test_a_long_string_with_a_short_one_takes_no_more_than_a_row_for_each_byte() -> None:
    assert common_length(b"ab" * 500_000, b"b") == 1
    assert common_runs(b"b", b"ab" * 500_000) == [(0, 999_999, 1)]
