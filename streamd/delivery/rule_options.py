"""The options of rules: each is declared once, as a field of the rule that it belongs to.

    max_deliveries: int = option("MAXDELIVERIES", 0, Integer("n", 1, 1_000_000), "an entry is delivered at most `n` times")

Name, bounds, text and need of an option are read from there by everything that deals with it: reading a request and the string that
holds the rules, writing that string, GET, COMMAND DOCS, and the table of docs/delivery.md. An option that has its default is not set.

Options of a block (`RETAIN LENGTH 1000 DELREF`) follow the name of the block, and are set together: a block that is given replaces all of
the one that was set.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import Field, dataclass, field, fields
from functools import cache
from typing import Any, ClassVar, Protocol

from streamd.core.args import integer as integer_of
from streamd.core.spec import Arg, block, double, integer, key, multiple, oneof, optional, string, token
from streamd.errors import CommandError, NotIntegerError, printable
from streamd.protocol.inline import split_line

__all__ = [
    "DISTANT_MS", "Block", "Decimal", "Flag", "Integer", "Key", "Rule", "Word", "arguments_of", "check_needs", "describe", "find_value",
    "option", "options_of", "parse_changes", "parse_names", "quoted", "split_words", "table_of", "words_of",
]  # fmt: skip

DISTANT_MS = 2**53
"""The longest time in an option, in ms: exact as a float, and added to the present time no overflow."""


class Kind(Protocol):
    """What values an option has."""

    @property
    def name(self) -> str:
        """What stands for a value in a manual."""

    def parse(self, option: str, text: bytes) -> Any:
        """The value that is written so; CommandError if it is not one, or not within the bounds."""

    def format(self, value: Any) -> bytes:
        """The value as `parse` reads it."""

    def argument(self, option: str) -> Arg:
        """The option, as COMMAND DOCS describes it."""


@dataclass(frozen=True)
class Integer:
    """Whole numbers between two bounds."""

    name: str
    least: int
    most: int

    def parse(self, option: str, text: bytes) -> int:
        try:
            number = integer_of(text)
        except NotIntegerError:
            number = self.least - 1
        if not self.least <= number <= self.most:
            raise CommandError(f"ERR {option} must be an integer between {self.least} and {self.most}")
        return number

    def format(self, value: Any) -> bytes:
        return b"%d" % value

    def argument(self, option: str) -> Arg:
        return integer(self.name, option)


@dataclass(frozen=True)
class Decimal:
    """Numbers with up to three decimal places, between two bounds; counted in thousandths, so that they are exact."""

    name: str
    least: int
    most: int

    def parse(self, option: str, text: bytes) -> int:
        thousandths = 0
        if match := re.fullmatch(rb"([0-9]{1,9})(?:\.([0-9]{1,3}))?", text):
            thousandths = int(match[1]) * 1000 + int((match[2] or b"").ljust(3, b"0"))
        if not self.least * 1000 <= thousandths <= self.most * 1000:
            raise CommandError(
                f"ERR {option} must be a number between {self.least} and {self.most} with at most three decimal places"
            )
        return thousandths

    def format(self, value: Any) -> bytes:
        text = b"%d.%03d" % divmod(value, 1000)
        return text.rstrip(b"0").rstrip(b".")

    def argument(self, option: str) -> Arg:
        return double(self.name, option)


@dataclass(frozen=True)
class Key:
    """Keys; `spec` is the key specification that finds it in a request."""

    name: str
    spec: int

    def parse(self, option: str, text: bytes) -> bytes:
        if not text:
            raise CommandError(f"ERR {option} must be the key of a stream, and not empty")
        return text

    def format(self, value: Any) -> bytes:
        return bytes(value)

    def argument(self, option: str) -> Arg:
        return key(self.name, spec=self.spec, token=option)


@dataclass(frozen=True)
class Word:
    """Texts that are not empty, such as the name of a field."""

    name: str

    def parse(self, option: str, text: bytes) -> bytes:
        if not text:
            raise CommandError(f"ERR {option} must not be empty")
        return text

    def format(self, value: Any) -> bytes:
        return bytes(value)

    def argument(self, option: str) -> Arg:
        return string(self.name, option)


@dataclass(frozen=True)
class Flag:
    """Options without a value: True if given."""

    name: str = ""

    def parse(self, option: str, text: bytes) -> bool:
        return True

    def format(self, value: Any) -> bytes:
        return b""

    def argument(self, option: str) -> Arg:
        return token(option)


@dataclass(frozen=True)
class Block(Flag):
    """The beginning of a block: the options of it that are given follow."""


@dataclass(frozen=True)
class Option:
    """An option of a rule.

    name   as requests have it
    kind   its values
    help   what it means, a part of a sentence; `name` of the kind stands for the value
    needs  another option, without which it means nothing; or empty
    block  the option that begins the block that it is in; or empty
    """

    name: str
    kind: Kind
    help: str
    needs: str
    block: str = ""


def option(name: str, default: object, kind: Kind, help: str, *, needs: str = "", block: str = "") -> Any:
    """A field of a rule; `default` is that of an option that is not set."""
    return field(default=default, metadata={Option: Option(name, kind, help, needs or block, block)})


class Rule(Protocol):
    """A frozen dataclass whose fields are options."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


@cache
def options_of(kind: type[Rule]) -> dict[bytes, tuple[Field[Any], Option]]:
    """The options of a kind of rule by name, in the order of the fields."""
    found = {}
    for each in fields(kind):
        declared: Option = each.metadata[Option]
        found[declared.name.encode()] = (each, declared)
    return found


# --- Requests ----------------------------------------------------------------------------------------------------------


def find_option(kind: type[Rule], word: bytes) -> tuple[Field[Any], Option]:
    found = options_of(kind).get(word.upper())
    if found is None:
        raise CommandError(f"ERR unknown option '{printable(word)}'")
    return found


def parse_names(kind: type[Rule], words: Sequence[bytes]) -> dict[str, Any]:
    """The defaults of options that are named without a value, by field."""
    changes: dict[str, Any] = {}
    for word in words:
        place, declared = find_option(kind, word)
        changes |= defaults_of_block(kind, declared) | {place.name: place.default}
    return changes


def defaults_of_block(kind: type[Rule], begin: Option) -> dict[str, Any]:
    """The defaults of the options of the block that this one begins, if it begins one, by field."""
    return {place.name: place.default for place, each in options_of(kind).values() if each.block == begin.name}


def parse_changes(kind: type[Rule], words: Sequence[bytes]) -> dict[str, Any]:
    """What `option value ...` sets, by field. CommandError if an option is unknown, given twice or has a bad value."""
    changes: dict[str, Any] = {}
    given: set[str] = set()
    block = ""
    left = iter(words)
    for word in left:
        place, declared = find_option(kind, word)
        if place.name in given:
            raise CommandError(f"ERR {declared.name} is given twice")
        given.add(place.name)
        if declared.block != block:
            if declared.block:
                raise CommandError(f"ERR {declared.name} must follow {declared.block}")
            block = ""
        if isinstance(declared.kind, Block):
            block = declared.name
            changes |= defaults_of_block(kind, declared)
        text = b"" if isinstance(declared.kind, Flag) else next(left, None)
        if text is None:
            raise CommandError(f"ERR {declared.name} has no value")
        changes[place.name] = declared.kind.parse(declared.name, text)
    return changes


def find_value(kind: type[Rule], name: str, words: Sequence[bytes]) -> int | None:
    """Where the value of an option is among the words of a request; None if it is not given there."""
    at = 0
    while at < len(words):
        found = options_of(kind).get(words[at].upper())
        if found is None:
            return None
        if not isinstance(found[1].kind, Flag):
            at += 1
            if found[1].name == name and at < len(words):
                return at
        at += 1
    return None


def check_needs(rule: Rule) -> None:
    """CommandError if an option is set, but not the one that it needs."""
    options = options_of(type(rule))
    for place, declared in options.values():
        if declared.needs and getattr(rule, place.name) != place.default:
            needed = options[declared.needs.encode()][0]
            if getattr(rule, needed.name) == needed.default:
                raise CommandError(f"ERR {declared.name} needs {declared.needs}")


# --- What is set -------------------------------------------------------------------------------------------------------


def what_is_set(rule: Rule) -> Iterable[tuple[Option, Any]]:
    for place, declared in options_of(type(rule)).values():
        value = getattr(rule, place.name)
        if value != place.default:
            yield declared, value


def words_of(rule: Rule) -> bytes:
    """The options of a rule as one text that `split_words` and `parse_changes` read; the same rules are the same text."""
    words = []
    for declared, value in what_is_set(rule):
        words.append(declared.name.encode())
        if not isinstance(declared.kind, Flag):
            words.append(quoted(declared.kind.format(value)))
    return b" ".join(words)


def describe(rule: Rule) -> list[tuple[bytes, bytes | int]]:
    """The options of a rule, as GET shows them."""
    return [
        (
            declared.name.lower().encode(),
            int(value) if isinstance(declared.kind, Integer | Flag) else declared.kind.format(value),
        )
        for declared, value in what_is_set(rule)
    ]


split_words = split_line


def quoted(word: bytes) -> bytes:
    """A word as split_words reads it: in quotes unless all of it is harmless."""
    if word and all(0x21 <= byte < 0x7F and byte not in b"\"'\\" for byte in word):
        return word
    return (
        b'"'
        + b"".join(b"%c" % byte if 0x20 <= byte < 0x7F and byte not in b'"\\' else b"\\x%02x" % byte for byte in word)
        + b'"'
    )


# --- The manual --------------------------------------------------------------------------------------------------------


def arguments_of(kind: type[Rule], *, with_values: bool) -> Arg:
    """The options as COMMAND DOCS describes them: those of SET, or, without values, of UNSET."""
    options = [declared for _, declared in options_of(kind).values()]
    if not with_values:
        return optional(multiple(oneof("option", *(token(each.name) for each in options))))
    found = []
    for each in options:
        if isinstance(each.kind, Block):
            inner = [part.kind.argument(part.name) for part in options if part.block == each.name]
            found.append(block(each.name.lower(), token(each.name), multiple(oneof("part", *inner))))
        elif not each.block:
            found.append(each.kind.argument(each.name))
    return multiple(oneof("option", *found))


def table_of(kind: type[Rule]) -> str:
    """The options as a table for a page in Markdown."""
    lines = ["| option | meaning |", "|---|---|"]
    for _, each in options_of(kind).values():
        written = " ".join(filter(None, (each.block, each.name, each.kind.name)))
        lines.append(f"| `{written}` | {each.help} |")
    return "\n".join(lines) + "\n"
