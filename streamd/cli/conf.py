"""`streamd conf`: the default configuration, with comments."""

from __future__ import annotations

from streamd.settings.render import render_conf, render_markdown

__all__ = ["render"]


def render(*, markdown: bool = False) -> str:
    """What the command prints."""
    return render_markdown() if markdown else render_conf()
