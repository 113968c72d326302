"""Text for a terminal. What a server sends, above all names of keys, may contain escape sequences, which a terminal would execute."""

from __future__ import annotations

import re

__all__ = ["in_one_line", "key_in_one_line", "key_of_text", "key_text", "printable"]

ESCAPED = re.compile(r"\\x[89a-f][0-9a-f]")
"""What the text of a key that is not UTF-8 contains, and no other text of a key."""


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


# --- Keys ----------------------------------------------------------------------------------------------------------------


def key_text(name: str) -> str:
    """A name that may hold bytes that are not UTF-8, as surrogates, as text in a column or a label. Different names have different texts.

    Names that are UTF-8 stay as they are. In others, `\\xff` stands for such a byte, and `\\\\` for a backslash. The same is done to a name
    that looks like one of these, so that it is not taken for it: the text of the five bytes `a\\xff` is `a\\\\xff`.
    """
    if name.isascii() and "\\" not in name:
        return name
    if ESCAPED.search(name) is None and not any("\udc80" <= each <= "\udcff" for each in name):
        return name
    return "".join(escape(each) if "\udc80" <= each <= "\udcff" else each for each in name.replace("\\", "\\\\"))


def key_of_text(text: str) -> str:
    """The name that has a text."""
    if ESCAPED.search(text) is None:
        return text
    return re.sub(
        r"\\(?:x([89a-f][0-9a-f])|\\)", lambda found: chr(0xDC00 + int(found[1], 16)) if found[1] else "\\", text
    )


def key_in_one_line(name: str) -> str:
    """The text of a name with escapes for what cannot be seen."""
    return in_one_line(key_text(name))
