"""How keys are shown: different keys never look the same."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streamd.client.key_names import stream_key, stream_name
from streamd.printable import key_in_one_line, key_of_text, key_text

KEYS = st.one_of(
    st.binary(max_size=12), st.lists(st.sampled_from([b"\\", b"x", b"f", b"8", b"\xff", b"\xc3\xa9", b"\x00"]), max_size=9).map(b"".join)
)  # fmt: skip


@given(KEYS)
@example(b"\\xff")
@example(b"\\\\xff\xff")
@example("é\\xc3".encode())
def test_a_key_is_found_by_its_text(key: bytes) -> None:
    text = key_text(stream_name(key))
    text.encode()
    assert stream_key(key_of_text(text)) == key


@given(KEYS, KEYS)
@example(b"\\xff", b"\xff")
@example(b"\\\\xff", b"\\\xff")
def test_different_keys_have_different_texts(one: bytes, other: bytes) -> None:
    assert (key_text(stream_name(one)) == key_text(stream_name(other))) == (one == other)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (b"orders", "orders"), ("Straße".encode(), "Straße"), (b"a%FF", "a%FF"), (b"C:\\dir", "C:\\dir"), (b"\\x7f", "\\x7f"),
        (b"a\xff", "a\\xff"), (b"a\\xff", "a\\\\xff"), (b"C:\\\xff", "C:\\\\\\xff"), (b"", ""),
    ],
)  # fmt: skip
def test_only_what_is_not_utf8_or_looks_like_it_is_changed(key: bytes, text: str) -> None:
    assert key_text(stream_name(key)) == text


def test_what_cannot_be_seen_is_escaped_on_a_terminal() -> None:
    assert key_in_one_line("a\udcff\n[/b]") == r"a\xff\n[/b]"
