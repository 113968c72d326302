"""Bytes in JSON. Keys, names and values are bytes; JSON has text only.

text that is UTF-8    "orders"
other bytes           {"base64": "/wA="}
too long a value      {"start": one of the above, "size": its bytes}
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

from streamd.console.guard import RefusedError

__all__ = ["read_bytes", "shown", "shown_start"]


def shown(value: bytes) -> str | dict[str, str]:
    """Bytes as JSON has them."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def shown_start(value: bytes, most: int) -> str | dict[str, Any]:
    """As `shown`, but only the beginning of what is longer than `most` bytes."""
    if len(value) <= most:
        return shown(value)
    start = value[:most]
    for end in range(most, max(most - 4, 0), -1):  # not in the middle of a character
        try:
            return {"start": start[:end].decode(), "size": len(value)}
        except UnicodeDecodeError:
            continue
    return {"start": shown(start), "size": len(value)}


def read_bytes(value: Any) -> bytes:
    """The bytes of a value that the page has sent; raises RefusedError."""
    wrong = RefusedError(400, "A text, or an object with base64, is expected.")
    try:
        if isinstance(value, str):
            return value.encode()
        if isinstance(value, dict) and isinstance(value.get("base64"), str):
            return base64.b64decode(value["base64"], validate=True)
    except (UnicodeEncodeError, binascii.Error):
        raise wrong from None
    raise wrong
