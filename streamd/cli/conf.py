"""`streamd conf`: the default configuration, with comments."""

from __future__ import annotations

from streamd.settings.render import render_conf, render_markdown

__all__ = ["render"]


def render(*, markdown: bool = False) -> str:
    """What the command prints."""
    import streamd.serve.app  # noqa: F401 - rooms declare settings of their own

    return render_markdown() if markdown else render_conf()
