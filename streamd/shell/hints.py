"""What can be typed: the commands of a server, and what follows each, as reported by COMMAND DOCS."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from streamd.client.client_errors import ServerError
from streamd.client.connection import Connection
from streamd.client.replies import as_text, text_map
from streamd.printable import in_one_line

__all__ = ["Command", "Commands"]


@dataclass
class Command:
    """A command, or a subcommand.

    syntax  what follows the name, piece by piece: `key`, `[NOMKSTREAM]`
    """

    name: str
    summary: str = ""
    syntax: list[str] = field(default_factory=list)


class Commands:
    """All commands of a server by their names, subcommands as `XINFO STREAM`."""

    def __init__(self, found: dict[str, Command]) -> None:
        self._found = found

    @classmethod
    def ask(cls, connection: Connection) -> Commands:
        """The commands of a server; none if it does not report them."""
        try:
            docs = text_map(connection.command("COMMAND", "DOCS"))
        except ServerError:
            return cls({})
        found: dict[str, Command] = {}
        for name, doc in docs.items():
            fields = text_map(doc)
            add(found, name.upper(), fields)
            for sub, sub_doc in text_map(fields.get("subcommands", [])).items():
                add(found, sub.replace("|", " ").upper(), text_map(sub_doc))
        return cls(found)

    def beginning_with(self, text: str) -> list[Command]:
        """Those whose names start with what has been typed, in order; subcommands once their command has been typed."""
        typed = " ".join(text.upper().split()) + (" " if text.endswith(" ") and text.strip() else "")
        depth = typed.count(" ")
        return [
            self._found[name] for name in sorted(self._found) if name.startswith(typed) and name.count(" ") == depth
        ]

    def of_line(self, words: list[str]) -> Command | None:
        """The command that a line calls, or None."""
        for count in (2, 1):
            command = self._found.get(" ".join(words[:count]).upper())
            if command is not None and len(words) >= count:
                return command
        return None

    def rest_of(self, words: list[str]) -> str:
        """What may still follow in a line, judged by the number of words."""
        command = self.of_line(words)
        if command is None:
            return ""
        return " ".join(command.syntax[len(words) - 1 - command.name.count(" ") :])


def add(found: dict[str, Command], name: str, fields: dict[str, Any]) -> None:
    syntax = [shape(text_map(each)) for each in fields.get("arguments", [])]
    found[in_one_line(name)] = Command(
        in_one_line(name), in_one_line(as_text(fields.get("summary", ""))), [in_one_line(each) for each in syntax]
    )


def shape(argument: dict[str, Any]) -> str:
    """How an argument is written: `[MAXLEN | MINID] [= | ~] threshold`."""
    kind = as_text(argument["type"])
    token = as_text(argument.get("token", ""))
    flags = {as_text(each) for each in argument.get("flags", [])}
    parts = [shape(text_map(each)) for each in argument.get("arguments", [])]
    body = as_text(argument.get("display_text", argument["name"]))
    if kind == "pure-token":
        body, token = token or '""', ""
    elif kind == "oneof":
        body = f"<{' | '.join(parts)}>" if "optional" not in flags or token else " | ".join(parts)
    elif kind == "block":
        body = " ".join(parts)
    if "multiple" in flags:
        again = f"{token} {body}" if token and "multiple_token" in flags else body
        body = f"{body} [{again} ...]"
    whole = f"{token} {body}" if token else body
    return f"[{whole}]" if "optional" in flags else whole
