"""Slots as clients of a cluster compute them, compared with those of the server."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from streamd.client.key_slots import slot_of, tag_beside
from streamd.keyspace.hash_slot import slot_of as slot_of_server

keys = st.one_of(st.binary(max_size=12), st.lists(st.sampled_from([b"{", b"}", b"a", b"\xff", b" "])).map(b"".join))


@given(keys)
@example(b"")
@example(b"{}a}")
@example(b"{{a}}")
def test_a_client_and_the_server_compute_the_same_slot(key: bytes) -> None:
    assert slot_of(key) == slot_of_server(key)


@given(keys)
@example(b"")
@example(b"a}b")
@example(b"{}a")
@example(b"a{b")
def test_a_name_with_the_tag_of_a_key_is_in_its_slot(key: bytes) -> None:
    name = f"beside:{{{tag_beside(key)}}}:{key.hex()}"
    assert slot_of_server(name.encode()) == slot_of_server(key)


def test_a_tag_is_readable_where_it_can_be() -> None:
    assert tag_beside(b"orders") == tag_beside(b"{orders}:new") == "orders"
    assert tag_beside("größe".encode()).isdecimal()
