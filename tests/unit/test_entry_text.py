"""Times and fields as text, in compiled code, against `json` and `datetime`."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")

from streamd.arrow.entry_table import default_schema  # noqa: E402
from streamd.arrow.text import field_texts, pair_texts, time_texts  # noqa: E402

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LAST_US = 253_402_300_799_999_999
ODD = "odd"
MOST_NAMES = 64

times = st.lists(st.none() | st.integers(0, LAST_US), max_size=20)
words = st.one_of(
    st.text(max_size=6).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.binary(max_size=6),
    st.sampled_from([b"a", b"b", b'"', b"\\", b"\x7f", b"\xc0\x80", b"\xf4\x90\x80\x80", "\U0001f600".encode()]),
)
entries = st.lists(st.lists(st.tuples(words, words), max_size=5), max_size=8)


@given(times, st.integers(0, 5))
def test_times(us: list[int | None], skipped: int) -> None:
    array = pa.array([*[None, 0, 7, None, 5][:skipped], *us], pa.timestamp("us", "UTC"))[skipped:]
    assert time_texts(array).to_pylist() == [
        None if each is None else (EPOCH + timedelta(microseconds=each)).isoformat(timespec="microseconds")
        for each in us
    ]


@given(entries, st.integers(0, 3))
def test_fields(rows: list[list[tuple[bytes, bytes]]], skipped: int) -> None:
    before = [[(b"skipped", b"x")]] * skipped
    asked: list[int] = []

    def note(row: int) -> str:
        asked.append(row)
        return ODD

    texts = field_texts(array_of([*before, *rows])[skipped:], note).to_pylist()
    expected = [text_of(row) for row in rows]
    assert texts == expected
    assert asked == [at for at, text in enumerate(expected) if text == ODD]


@given(entries, st.integers(0, 3))
def test_fields_for_people(rows: list[list[tuple[bytes, bytes]]], skipped: int) -> None:
    before = [[(b"skipped", b"x")]] * skipped
    texts = pair_texts(array_of([*before, *rows])[skipped:], lambda row: ODD).to_pylist()
    for row, text in zip(rows, texts, strict=True):
        is_plain = text_of(row) != ODD and all(0x20 <= byte < 0x7F for pair in row for word in pair for byte in word)
        assert text == (" ".join(f"{name.decode()}={value.decode()}" for name, value in row) if is_plain else ODD)


def test_an_entry_with_many_fields_is_left_to_others() -> None:
    rows = [[(b"%d" % at, b"v") for at in range(count)] for count in (MOST_NAMES, MOST_NAMES + 1)]
    texts = field_texts(array_of(rows), lambda row: ODD).to_pylist()
    assert (texts[0], texts[1]) == (text_of(rows[0]), ODD)


def array_of(rows: list[list[tuple[bytes, bytes]]]) -> pa.ListArray:
    pairs = [[{"field": name, "value": value} for name, value in row] for row in rows]
    return pa.array(pairs, default_schema().field("fields").type)


def text_of(row: list[tuple[bytes, bytes]]) -> str:
    """A JSON object, if one shows all of the row."""
    try:
        found = {name.decode(): value.decode() for name, value in row}
    except UnicodeDecodeError:
        return ODD
    return json.dumps(found, ensure_ascii=False) if len(found) == len(row) else ODD
