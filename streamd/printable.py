"""Text for a terminal. What a server sends, above all names of keys, may contain escape sequences, which a terminal would execute."""

from __future__ import annotations

__all__ = ["in_one_line", "printable"]


def in_one_line(text: str) -> str:
    """Text with escapes for what is not to be seen: control characters, line ends, direction marks, bytes that are no text."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else escape(each) for each in text)


def escape(character: str) -> str:
    """A character as it is written in Python; a byte that is no text, which Python keeps as a surrogate, as `\\xff`."""
    code = ord(character)
    return f"\\x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else character.encode("unicode_escape").decode()


def printable(text: str) -> str:
    """As `in_one_line`, but lines and tabs stay as they are."""
    return "\n".join(
        "\t".join(map(in_one_line, line.removesuffix("\r").split("\t"))) + "\r" * line.endswith("\r")
        for line in text.split("\n")
    )
