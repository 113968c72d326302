"""The answer of protected mode: Redis's code, one line, and only settings that exist."""

from __future__ import annotations

import re

from streamd.clients.connections import PROTECTED_ERROR
from streamd.settings.declarations import by_name


def test_the_answer_is_one_error_line_with_the_code_that_clients_know() -> None:
    assert PROTECTED_ERROR.startswith(b"-DENIED ")
    assert PROTECTED_ERROR.index(b"\r\n") == len(PROTECTED_ERROR) - 2


def test_the_settings_that_it_names_exist() -> None:
    named = {"requirepass", *re.findall(r"CONFIG SET (\S+)", PROTECTED_ERROR.decode())}
    assert all(name in PROTECTED_ERROR.decode() and name in by_name for name in named)
    assert len(named) == 2
