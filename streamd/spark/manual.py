"""The manual page of all options: `python -m streamd.spark.manual > docs/spark-options.md`."""

from __future__ import annotations

import dataclasses
import textwrap
from typing import Any

from streamd.client.url_options import ConnectionOptions, option_rows
from streamd.transfer.read_options import SourceOptions
from streamd.transfer.write_options import SinkOptions

__all__ = ["render"]

HEAD = """\
# Options of `format("streamd")`

Names are case-insensitive. Durations are written `500ms`, `10s`, `15m`, `2d12h`; sizes `512k`, `64m`, `1g`. An unknown
option is an error. This page is generated: `python -m streamd.spark.manual > docs/spark-options.md`.
"""

SECTIONS = (
    ("Connection", "For reading and writing.", ConnectionOptions),
    ("Reading", "For batches and streaming queries. Name the streams by one of the first three.", SourceOptions),
    ("Writing", "For batches and streaming queries.", SinkOptions),
)


def render() -> str:
    """The page, in Markdown."""
    parts = [HEAD]
    for title, text, cls in SECTIONS:
        parts.append(f"## {title}\n\n{text}\n\n| option | default | meaning |\n|---|---|---|")
        parts += [
            f"| `{each.metadata['name']}` | {default_of(each)} | {cell(each.metadata['doc'])} |"
            for each in option_rows(cls)
        ]
        parts.append("")
    return "\n".join(parts)


def cell(text: str) -> str:
    return textwrap.dedent(text).replace("|", "\\|")


def default_of(field: dataclasses.Field[Any]) -> str:
    """The default as a user would write it; empty when there is none."""
    value: Any = field.default
    if value in (None, (), ""):
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{duration(value) if field.name.endswith('_ms') else value}`"


def duration(ms: int) -> str:
    for length, unit in ((60_000, "m"), (1000, "s")):
        if ms % length == 0 and ms >= length:
            return f"{ms // length}{unit}"
    return f"{ms}ms"


if __name__ == "__main__":
    print(render(), end="")
