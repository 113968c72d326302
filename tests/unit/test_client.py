"""What a connection says of its peer."""

from __future__ import annotations

from typing import Any

import pytest
from support.commands.hosts import Host


@pytest.mark.parametrize(
    ("peer", "is_unix", "is_local"),
    [
        (("127.0.0.1", 5), False, True),
        (("127.8.0.1", 5), False, True),
        (("::1", 5), False, True),
        (("10.0.0.1", 5), False, False),
        (("128.0.0.1", 5), False, False),
        (("1.127.0.1", 5), False, False),
        (("fe80::1", 5), False, False),
        (("::1:1", 5), False, False),
        ("/tmp/socket", True, True),
    ],
)
def test_a_client_is_local_on_the_same_machine_only(peer: Any, is_unix: bool, is_local: bool) -> None:
    with Host(protected_mode=False) as host:
        assert host.connect(peer, is_unix=is_unix).client.is_local is is_local
