"""JSON to entries in compiled code, against `json`, and back to what it was written from."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")

from streamd.arrow.entry_table import default_schema  # noqa: E402
from streamd.arrow.parse import parse_fields, parse_lines  # noqa: E402
from streamd.arrow.text import field_texts  # noqa: E402

words = st.one_of(
    st.text(max_size=6, alphabet=st.characters(exclude_categories=["Cs"])).map(str.encode),
    st.binary(max_size=6),
    st.sampled_from([b"a", b"id", b"stream", b"fields", b'"', b"\\", "\U0001f600".encode()]),
)
rows_of_pairs = st.lists(st.lists(st.tuples(words, words), min_size=1, max_size=5), max_size=8)
texts = st.text(max_size=6, alphabet=st.characters(exclude_categories=["Cs"]))
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)


def json_of(raw: bytes) -> Any:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(raw).decode()}


@given(rows_of_pairs)
def test_what_was_written_is_read(rows: list[list[tuple[bytes, bytes]]]) -> None:
    pairs = [[{"field": name, "value": value} for name, value in row] for row in rows]
    fields = pa.array(pairs, default_schema().field("fields").type)
    written = field_texts(
        fields, lambda row: json.dumps([[json_of(name), json_of(value)] for name, value in rows[row]])
    )
    assert parse_fields(written).to_pylist() == pairs
    lines = b"".join(b'{"id": "1-1", "ms": 1, "fields": %b}\n' % text.as_buffer().to_pybytes() for text in written)
    assert parse_lines(lines, b"id", b"stream", b"fields")[2].to_pylist() == pairs


def raw_of(value: Any, text: str) -> bytes | None:
    """What a value of JSON becomes."""
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else text.encode()


@given(st.lists(st.dictionaries(texts, values, max_size=4), max_size=5), st.booleans())
def test_any_object_is_read(objects: list[dict[str, Any]], is_ascii: bool) -> None:
    lines = "".join(json.dumps(each, ensure_ascii=is_ascii) + "\n" for each in objects).encode()
    ids, streams, fields, _ = parse_lines(lines, None, None, None)
    assert (ids.null_count, streams.null_count) == (len(objects), len(objects))
    expected = [
        [(name.encode(), raw_of(value, json.dumps(value, ensure_ascii=is_ascii))) for name, value in each.items()]
        for each in objects
    ]
    is_bytes = any(isinstance(value, dict) and [*value] == ["base64"] for each in objects for value in each.values())
    if not is_bytes:
        assert [[(pair["field"], pair["value"]) for pair in row] for row in fields.to_pylist()] == expected


def test_roles_of_members() -> None:
    lines = (
        b'{"id": "5-1", "stream": "s", "n": 1}\n \n'
        b'{"n": 2, "id": 7, "fields": [["a", "1"], ["a", null]], "m": [{"x": "}"}]}\r\n'
        b'{"fields": "text", "stream": {"base64": "/w=="}}'
    )
    ids, streams, fields, _ = parse_lines(lines, b"id", b"stream", b"fields")
    assert ids.to_pylist() == [b"5-1", b"7", None]
    assert streams.to_pylist() == [b"s", None, b"\xff"]
    assert [[(pair["field"], pair["value"]) for pair in row] for row in fields.to_pylist()] == [
        [(b"n", b"1")],
        [(b"a", b"1"), (b"a", None)],
        [(b"fields", b"text")],
    ]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('{"a":1', "character 7"), ('{"a":tru}', "character 6"), ("[1]", "character 1"), ('{"a":"\\ud800"}', "character 13"),
        ('{"a" 1}', "character 6"), ('{"a":1} x', "character 9"), ('{"fields":["a"]}', "character 12"), ('{"a":"x', "character 8"),
        ('{"a":"\\', "character 8"), ('{"a":[}', "character 8"), ('{"a":1,}', "character 8"), ("{", "character 2"), ('{"a":}', "character 6"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("before", [b'{"a":"1"}\n', b'{"a":"1","fields":{}}\n'])
def test_wrong_text_is_refused(before: bytes, text: str, place: str) -> None:
    with pytest.raises(ValueError, match=f"line 12, {place}: wrong JSON"):
        parse_lines(before + text.encode(), b"id", b"stream", b"fields", 10)


MEMBERS = st.lists(
    st.sampled_from([
        '"id": "1-1"', '"id": 7', '"stream": "s"', '"m": [1, {"x": "}"}]', '"n": "a\\"b"', '"fields": "text"',
        '"fields": {"a": "1", "b": 2}', '"fields": []',
    ]),
    max_size=5,
)  # fmt: skip


@given(st.lists(MEMBERS, max_size=8))
def test_what_is_before_a_row_does_not_matter(rows: list[list[str]]) -> None:
    """After a row of whole entries its other members are expected to be needless."""
    lines = ["{" + ", ".join(members) + "}\n" for members in rows]
    *together, count = parse_lines("".join(lines).encode(), b"id", b"stream", b"fields")
    alone = [parse_lines(line.encode(), b"id", b"stream", b"fields") for line in lines]
    assert count == len(rows)
    for at in range(3):
        assert together[at].to_pylist() == [parsed[at].to_pylist()[0] for parsed in alone]


def test_an_error_shows_nothing_of_what_lies_behind_the_text() -> None:
    text = b'{"fields":{},"a":["\\'
    memory = text + b"x" * 100_000
    with pytest.raises(ValueError, match="wrong JSON") as caught:
        parse_lines(memoryview(memory)[: len(text)], b"id", b"stream", b"fields")
    assert "x" not in str(caught.value)
    assert len(str(caught.value)) < 120


def test_cells() -> None:
    cells = pa.array(["skipped", None, "", ' {"a": "b"} ', '[["a", "b"]]'])[1:]
    pair = [{"field": b"a", "value": b"b"}]
    assert parse_fields(cells).to_pylist() == [[], [], pair, pair]
    with pytest.raises(ValueError, match="row 8, character 1: wrong JSON"):
        parse_fields(pa.array(["{}", "no"]), 6)


@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        ids, streams, fields, _ = parse_lines(data, b"id", b"stream", b"fields")
    except ValueError:
        return
    for array in (ids, streams, fields):
        array.validate(full=True)
