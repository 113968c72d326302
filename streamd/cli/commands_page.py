"""`streamd commands`: the manual page of all commands, in Markdown, from their declarations (docs/commands.md)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from streamd import REDIS_VERSION

if TYPE_CHECKING:
    from streamd.core.spec import Arg, Command, CommandTable

__all__ = ["manual", "render", "syntax"]

TITLES = {
    "stream": "Streams",
    "generic": "Keys",
    "string": "Strings",
    "connection": "Connections",
    "cluster": "Cluster",
    "pubsub": "Publish and subscribe",
    "transactions": "Transactions",
    "server": "Server",
}
"""The groups in the order of the page, and their headings; other groups come after these under their own names."""


def render() -> str:
    """The page for all commands of this server."""
    import streamd.serve.app  # noqa: F401  (capabilities declare commands)
    from streamd.core.spec import table

    return manual(table)


# --- The page ------------------------------------------------------------------------------------------------------------


def manual(table: CommandTable) -> str:
    """The page: a section for each group, in it an entry for each command that can be called."""
    lines = [
        "# Commands",
        "",
        f"Made from the declarations by `streamd commands`. Names, arguments and versions are those of Redis {REDIS_VERSION};",
        "*since* is the Redis version that introduced the command. Those that start with `STREAMD.` are our own.",
        "",
    ]
    for group, title in _groups(table).items():
        lines += [f"## {title}", ""]
        callable_ones = [each for each in table.walk() if each.group == group and each.handler is not None]
        for each in sorted(callable_ones, key=lambda command: command.name):
            lines += _entry(each)
    return "\n".join(lines)


def _groups(table: CommandTable) -> dict[str, str]:
    """The groups that have commands, with their headings, in the order of the page."""
    used = {each.group for each in table.walk()}
    order = [*(group for group in TITLES if group in used), *sorted(used - TITLES.keys())]
    return {group: TITLES.get(group, group.capitalize()) for group in order}


def _entry(command: Command) -> list[str]:
    facts = [f"since streamd {command.since}" if command.is_own else f"since {command.since}"]
    if command.complexity:
        facts.append(command.complexity.rstrip("."))
    facts.append(" ".join(f"@{category}" for category in command.acl_categories))
    lines = [f"### {command.name}", "", f"    {syntax(command)}", "", command.summary, "", f"*{'; '.join(facts)}*", ""]
    if command.deprecated_since:
        instead = f"; instead: {command.replaced_by}" if command.replaced_by else ""
        lines += [f"Deprecated since {command.deprecated_since}{instead}.", ""]
    if command.history:
        lines += [*(f"- {version}: {change}" for version, change in command.history), ""]
    return lines


# --- The line that shows how a command is called ---------------------------------------------------------------------------


def syntax(command: Command) -> str:
    """How a command is called, as in `XLEN key` or `COPY source destination [DB destination-db] [REPLACE]`."""
    return " ".join([command.name, *(_shown(arg) for arg in command.args)])


def _shown(arg: Arg) -> str:
    """One argument: square brackets around optional parts, angle brackets around a mandatory choice."""
    text = _repeated(arg)
    if arg.optional:
        return f"[{text}]"
    return f"<{text}>" if arg.type == "oneof" and not (arg.token or arg.multiple) else text


def _repeated(arg: Arg) -> str:
    value = _value(arg)
    if arg.type == "oneof" and (arg.token or arg.multiple):
        value = f"<{value}>"
    # A lone word is its own token.
    words = [arg.token] if arg.token and arg.type != "pure-token" else []
    if not arg.multiple:
        return " ".join([*words, value])
    if arg.multiple_token:
        once = " ".join([*words, value])
        return f"{once} [{once} ...]"
    return " ".join([*words, value, f"[{value} ...]"])


def _value(arg: Arg) -> str:
    """The argument itself, without its token."""
    if arg.type == "oneof":
        return " | ".join(_alternatives(arg))
    if arg.type == "block":
        return " ".join(_shown(part) for part in arg.arguments)
    if arg.type == "pure-token":
        return arg.token or arg.name
    return arg.display or arg.name


def _alternatives(arg: Arg) -> Iterator[str]:
    """The choices, shown without marking any of them as optional."""
    for choice in arg.arguments:
        yield _repeated(choice)
