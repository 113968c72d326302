"""Terminals for programs under test."""

from __future__ import annotations

import os

import pytest

__all__ = ["open_terminal"]


def open_terminal() -> tuple[int, int]:
    """Descriptors of our end and of the program's end. Skips the test where the system has no terminals to give."""
    try:
        return os.openpty()
    except OSError as error:
        pytest.skip(f"no terminal: {error}; /dev/pts is not mounted")
