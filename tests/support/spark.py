"""What the Spark tests share besides their fixtures."""

from __future__ import annotations

import pytest

__all__ = ["ON_BOTH"]

ON_BOTH = pytest.mark.parametrize(
    "server", ["streamd", pytest.param("redis", marks=pytest.mark.real(since="7.0"))], indirect=True
)
"""The test runs once with streamd and once with a real Redis."""
