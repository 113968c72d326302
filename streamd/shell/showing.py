"""Replies as people and programs read them: `pretty` for a terminal, `raw` for pipes, `as_json`."""

from __future__ import annotations

import json
from typing import Any

from streamd.client.client_errors import ServerError
from streamd.client.reply_types import Push, SetReply, Status, Verbatim
from streamd.printable import in_one_line, printable

__all__ = ["as_json", "pretty", "raw"]

ESCAPES = {
    ord("\n"): "\\n",
    ord("\r"): "\\r",
    ord("\t"): "\\t",
    ord("\a"): "\\a",
    ord("\b"): "\\b",
    0x22: '\\"',
    0x5C: "\\\\",
}


def pretty(reply: Any, prefix: str = "") -> str:
    """With types and numbers, elements one below another; `prefix` indents the lines after the first."""
    if isinstance(reply, ServerError):
        return f"(error) {in_one_line(str(reply))}"
    if isinstance(reply, dict):
        return numbered([f"{pretty(key)} => " for key in reply], list(reply.values()), prefix, "#", "(empty hash)")
    if isinstance(reply, list):
        mark = "~" if isinstance(reply, SetReply) else ">" if isinstance(reply, Push) else ")"
        return numbered(None, reply, prefix, mark, "(empty set)" if mark == "~" else "(empty array)")
    if isinstance(reply, tuple):
        return pretty(list(reply), prefix)
    return scalar(reply)


def scalar(reply: Any) -> str:
    if reply is None:
        return "(nil)"
    if isinstance(reply, bool):
        return "(true)" if reply else "(false)"
    if isinstance(reply, int):
        return f"(integer) {reply}"
    if isinstance(reply, float):
        return f"(double) {reply:.17g}"
    if isinstance(reply, Status):
        return in_one_line(text_of(reply))
    if isinstance(reply, Verbatim):
        return printable(text_of(reply))
    return quoted(reply)


def numbered(heads: list[str] | None, elements: list[Any], prefix: str, mark: str, when_empty: str) -> str:
    """Elements with their numbers, each on its own lines."""
    if not elements:
        return when_empty
    width = len(str(len(elements)))
    lines = []
    for at, element in enumerate(elements):
        number = f"{at + 1:>{width}}{mark} "
        head = heads[at] if heads is not None else ""
        body = pretty(
            element, prefix + " " * (len(number) if not head or not isinstance(element, (list, dict)) else width + 2)
        )
        if head and isinstance(element, (list, dict)) and "\n" in body:
            body = "\n" + prefix + " " * (width + 2) + body
        lines.append(f"{number}{head}{body}")
    return f"\n{prefix}".join(lines)


def quoted(value: bytes) -> str:
    """A string in quotes, as it can be typed in."""
    shown = (ESCAPES.get(byte) or (chr(byte) if 32 <= byte < 127 else f"\\x{byte:02x}") for byte in value)
    return f'"{"".join(shown)}"'


def raw(reply: Any) -> bytes:
    """The bytes alone, one element per line."""
    if reply is None:
        return b""
    if isinstance(reply, ServerError):
        return str(reply).encode("utf-8", "surrogateescape") + b"\n"
    if isinstance(reply, bool):
        return b"true" if reply else b"false"
    if isinstance(reply, (int, float)):
        return f"{reply:.17g}".encode() if isinstance(reply, float) else b"%d" % reply
    if isinstance(reply, dict):
        return b"\n".join(raw(key) + b" " + raw(value) for key, value in reply.items())
    if isinstance(reply, (list, tuple)):
        return b"\n".join(map(raw, reply))
    if isinstance(reply, bytes):
        return bytes(reply)
    return str(reply).encode("utf-8", "surrogateescape")


def as_json(reply: Any) -> str:
    """One line of JSON; bytes that are not UTF-8 appear as escapes of single bytes."""
    return "".join(
        each if each.isprintable() else json.dumps(each)[1:-1] if ord(each) != 127 else r"\u007f"
        for each in json.dumps(plain(reply), ensure_ascii=False)
    )


def plain(reply: Any) -> Any:
    if isinstance(reply, ServerError):
        return {"error": str(reply)}
    if isinstance(reply, bytes):
        return text_of(reply)
    if isinstance(reply, dict):
        return {
            key if isinstance(key := plain(name), str) else json.dumps(key): plain(value)
            for name, value in reply.items()
        }
    if isinstance(reply, (list, tuple)):
        return [plain(each) for each in reply]
    return reply


def text_of(value: bytes) -> str:
    return value.decode("utf-8", "backslashreplace")
