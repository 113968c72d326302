"""The HELP subcommands of containers."""

from __future__ import annotations

from collections.abc import Sequence

from streamd.protocol.reply import ReplyWriter

__all__ = ["write_help"]


def write_help(reply: ReplyWriter, args: list[bytes], lines: Sequence[str]) -> None:
    """Reply to a HELP subcommand: a heading with the container's name as sent, `lines`, and HELP itself.

    lines  for each subcommand its syntax, then what it does, indented by four spaces
    """
    name = args[0].decode("latin-1").upper()
    reply.array(len(lines) + 3)
    reply.simple(f"{name} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:")
    for line in lines:
        reply.simple(line)
    reply.simple("HELP")
    reply.simple("    Print this help.")
