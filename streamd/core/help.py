"""The HELP subcommands of containers."""

from __future__ import annotations

from collections.abc import Sequence

from streamd.core.dispatch import ServerContext
from streamd.core.spec import command
from streamd.protocol.reply import ReplyWriter

__all__ = ["declare_help", "write_help"]


def declare_help(container: str, group: str, since: str, *lines: str, categories: str = "") -> None:
    """Declare the HELP subcommand of a container. `lines`: as for `write_help`."""

    @command(
        f"{container} HELP", arity=2, group=group, flags="loading stale", categories=categories, since=since,
        summary=f"Lists the subcommands of {container}.",
    )  # fmt: skip
    def show_help(ctx: ServerContext, args: list[bytes]) -> None:
        write_help(ctx.reply, args, lines)


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
