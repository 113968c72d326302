"""The settings as text: the commented configuration file, and the table of the manual."""

from __future__ import annotations

import textwrap
from operator import itemgetter

from streamd.settings.declarations import GROUPS, Setting

__all__ = ["render_conf", "render_markdown"]

WIDTH = 100

HEAD = """\
# The configuration of streamd, with all defaults.
#
#   streamd server /path/to/streamd.conf
#   streamd server /path/to/streamd.conf --port 7000 --loglevel verbose
#
# One directive per line: name, blanks, value. A `#` starts a comment only at the start of a line. A value with blanks
# is put in double quotes, in which \\n, \\t, \\", \\\\ and \\x41 have the same meaning as in C. Names are the same in
# upper and lower case. Later directives override earlier ones, and the command line overrides all.
#
# A directive that is commented out below is accepted and reported by CONFIG GET, but has no effect yet.
#
# Memory sizes:  1k = 1000, 1kb = 1024, and m, mb, g, gb likewise.
#
# Another file is included with:
#
#   include /path/to/other.conf          (a pattern, *.conf, may match any number of files)
#
# A command is renamed, or removed, with:
#
#   rename-command FLUSHALL ""
"""

FOREIGN = """\
# The following are accepted so that a configuration of Redis can be read. They have no effect, because they configure
# features that are not supported (modules, other data types) or the process of Redis itself:
#
"""


def render_conf() -> str:
    """conf/streamd.conf: every setting with its meaning and its default, commented out where it has no effect."""
    parts = [HEAD]
    for title, rows in filter(itemgetter(1), GROUPS.items()):
        parts.append(f"\n# --- {title} {'-' * (WIDTH - len(title) - 7)}\n\n")
        if all(row.is_foreign for row in rows):
            names = ", ".join(row.name for row in rows)
            parts += [
                FOREIGN,
                textwrap.fill(names, WIDTH, initial_indent="#   ", subsequent_indent="#   ", break_on_hyphens=False),
                "\n",
            ]
        else:
            parts += [_conf_entry(row) for row in rows if not (row.is_hidden or row.is_foreign)]
    return "".join(parts).rstrip("\n") + "\n"


def _conf_entry(row: Setting) -> str:
    notes = [row.kind.domain() + (f", in {row.unit}" if row.unit else "")]
    if row.aliases:
        notes.append(f"also called {', '.join(row.aliases)}")
    lines = textwrap.wrap(f"{row.doc} ({'; '.join(notes)})", WIDTH, initial_indent="# ", subsequent_indent="# ")
    for directive in _default_directives(row):
        lines.append(directive if row.is_effective else f"# {directive}")
    return "\n".join([*lines, "", ""])


def _default_directives(row: Setting) -> list[str]:
    if row.name == "dir":
        return ["# dir /var/lib/streamd"]
    return [f"{row.name} {text}" for text in row.kind.directives(row.default)]


def render_markdown() -> str:
    """docs/settings.md: a table for each group."""
    parts = [
        "# Settings\n\n",
        "In a configuration file, on the command line (`--name value`), and with CONFIG SET unless a row says *at start*."
        " *Planned* settings are accepted and reported by CONFIG GET, but have no effect yet.\n",
    ]
    for title, rows in filter(itemgetter(1), GROUPS.items()):
        parts.append(f"\n## {title}\n\n")
        if all(row.is_foreign for row in rows):
            names = ", ".join(f"`{row.name}`" for row in rows)
            parts.append(f"Accepted so that a configuration of Redis can be read, but without effect: {names}.\n")
            continue
        parts += ["| Name | Default | Values | Meaning |\n", "|---|---|---|---|\n"]
        parts += [_markdown_row(row) for row in rows if not (row.is_hidden or row.is_foreign)]
    return "".join(parts)


def _markdown_row(row: Setting) -> str:
    notes = [
        note
        for note, applies in (
            ("planned", row.is_planned), ("at start", row.is_immutable), ("needs enable-protected-configs", row.is_protected),
        )
        if applies
    ]  # fmt: skip
    names = ", ".join(f"`{name}`" for name in (row.name, *row.aliases))
    default = "" if row.name == "dir" else row.kind.format(row.default)
    values = row.kind.domain() + (f" ({row.unit})" if row.unit else "")
    meaning = row.doc + "".join(f" *{note}*" for note in notes)
    return f"| {names} | {f'`{default}`' if default else ''} | {_escaped(values)} | {_escaped(meaning)} |\n"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("*.", "\\*.")
