"""The subcommands of `streamd`, each in a module of its own, which is imported when it is used."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import click

from streamd import REDIS_VERSION, __version__
from streamd.cli.exit_status import STOPPED
from streamd.cli.one_line import errors_in_one_line, escaped_errors, say

__all__ = ["program"]


class RawCommand(click.Command):
    """A command that gets its arguments unparsed: `--name` belongs to another grammar."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.params["arguments"] = tuple(args)
        return []


class Program(click.Group):
    """The program: Ctrl-C ends it with the exit status that shells give, once the subcommand has tidied up."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with escaped_errors():
                return super().invoke(ctx)
        except (KeyboardInterrupt, click.Abort) as error:
            # Abort is an answer, or comes from Ctrl-C at a question.
            if isinstance(error, click.Abort) and not isinstance(error.__context__, KeyboardInterrupt):
                raise
            say(err=True)
            ctx.exit(STOPPED)


@click.group(cls=Program)
@click.version_option(__version__, prog_name="streamd", message=f"%(prog)s %(version)s (speaks Redis {REDIS_VERSION})")
def program() -> None:
    """A Redis-protocol server for streams and publish/subscribe."""


@program.command(
    cls=RawCommand,
    add_help_option=False,
    short_help="Run a server.",
)
def server(arguments: tuple[str, ...]) -> None:
    from streamd.cli.server import serve

    sys.exit(serve(list(arguments), program="streamd server"))


@program.command(cls=RawCommand, add_help_option=False, short_help="Send requests, at a prompt or from a pipe.")
def cli(arguments: tuple[str, ...]) -> None:
    from streamd.cli.prompt import converse

    sys.exit(converse(list(arguments), program="streamd cli"))


@program.command()
@click.option("--markdown", is_flag=True, help="Print the manual's tables of settings instead.")
def conf(markdown: bool) -> None:
    """Print the commented default configuration."""
    from streamd.cli.conf import render

    say(render(markdown=markdown), nl=False)


@program.command()
def commands() -> None:
    """Print the manual page of all commands, in Markdown."""
    from streamd.cli.commands_page import render

    say(render(), nl=False)


@program.command("check-rdb")
@click.argument("file", type=click.Path())
def check_rdb(file: str) -> None:
    """Check a snapshot without loading it. Exit status: 0 valid, 1 not valid."""
    from streamd.cli.check_rdb import check

    sys.exit(check(file))


@program.command("check-aof")
@click.argument("file", type=click.Path(), metavar="FILE|MANIFEST")
@click.option("--fix", is_flag=True, help="Truncate the last file where it stops being valid, after a confirmation.")
@click.option("--yes", is_flag=True, help="Do not request a confirmation.")
@click.option(
    "--truncate-to-timestamp", "until_stamp", type=int, metavar="SECONDS",
    help="Truncate the last file at the first command written after this Unix time.",
)  # fmt: skip
def check_aof(file: str, fix: bool, yes: bool, until_stamp: int | None) -> None:
    """Check an append-only file, or all files of a manifest. Exit status: 0 all valid, 1 not."""
    from streamd.cli.check_aof import check

    sys.exit(check(file, fix=fix, yes=yes, until_stamp=until_stamp))


class Lazy(click.Command):
    """A command that lives in a module of its own, which is imported when the command is used.

    module, name  where it is
    """

    def __init__(self, command: str, module: str, name: str, short_help: str) -> None:
        super().__init__(command, short_help=short_help, add_help_option=False)
        self._module, self._name = module, name

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        with errors_in_one_line():
            found: click.Command = getattr(import_module(self._module), self._name)
        return found.make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        return ctx.command.invoke(ctx)


program.add_command(Lazy("archive", "streamd.cli.archive", "group", "Move old entries to Parquet, and restore them."))
program.add_command(Lazy("history", "streamd.cli.history", "history", "Show archived and live entries as one."))
program.add_command(Lazy("report", "streamd.cli.report", "report", "Draw a page about the entries of a stream."))
program.add_command(Lazy("export", "streamd.cli.export", "command", "Write streams, with their groups, to files."))
program.add_command(Lazy("load", "streamd.cli.load", "command", "Append the rows of files to streams."))
program.add_command(Lazy("import", "streamd.cli.importing", "command", "Take over the data of a running Redis."))
program.add_command(Lazy("doctor", "streamd.cli.doctor", "command", "Find what is wrong with a running server."))
program.add_command(Lazy("top", "streamd.cli.top", "command", "Show what a running server does now."))
program.add_command(Lazy("cluster", "streamd.cli.cluster", "group", "Start and change a cluster on this machine."))
