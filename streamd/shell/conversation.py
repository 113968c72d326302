"""Lines in, replies out: from a terminal with completion, hints and a history, or from a pipe.

A line is a request in the quoting of inline commands. `quit` and `exit` leave, `help NAME` describes a
command. After SUBSCRIBE and similar commands, and MONITOR, messages are shown as they arrive, until Ctrl-C.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamd.client.client_errors import ServerError, UnreachableError
from streamd.client.connection import Connection
from streamd.client.redirection import Redirection, find_redirection
from streamd.client.reply_types import Push, Verbatim
from streamd.printable import printable
from streamd.protocol.inline import split_line
from streamd.shell.hints import Commands

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession

__all__ = ["Conversation", "has_prompt"]

MAX_REDIRECTIONS = 16
"""Then the reply is shown: nodes that send a client round and round do not agree."""
LISTENING = ("SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "MONITOR")
SECRET = (
    "AUTH",
    "HELLO",
    "ACL",
    "MIGRATE",
    "CONFIG SET REQUIREPASS",
    "CONFIG SET MASTERAUTH",
    "CONFIG SET PRIMARYAUTH",
)
"""Lines that start like this may hold a password, and are not kept in the history."""
TEXTS = {
    "INFO", "LOLWUT", "CLIENT INFO", "CLIENT LIST", "CLUSTER INFO", "CLUSTER NODES", "DEBUG CLIENT-EVICTION", "DEBUG HTSTATS",
    "DEBUG HTSTATS-KEY", "LATENCY DOCTOR", "LATENCY GRAPH", "MEMORY DOCTOR", "MEMORY MALLOC-STATS",
}  # fmt: skip
"""Replies of these are texts for people. RESP3 marks them as such, RESP2 cannot."""


class Conversation:
    """A conversation with a server.

    connect   makes a connection; called again when it breaks
    show      writes a reply
    redirect  makes a connection to another node of the cluster, where MOVED and ASK are followed; None: they are shown
    """

    def __init__(
        self,
        connect: Callable[[], Connection],
        show: Callable[[Any], None],
        redirect: Callable[[Redirection], Connection] | None = None,
    ) -> None:
        self._connect = connect
        self._show = show
        self._redirect = redirect
        self._connection: Connection | None = None
        self.has_failed = False
        """Whether the last request got an error."""

    @property
    def connection(self) -> Connection:
        if self._connection is None:
            self._connection = self._connect()
        return self._connection

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def ask(self, words: list[bytes]) -> None:
        """Send a request and show the reply; raises UnreachableError."""
        self.connection.send_all([words])
        name = words[0].decode("latin-1").upper()
        is_silent = [word.upper() for word in words[:3]] in (
            [b"CLIENT", b"REPLY", b"OFF"],
            [b"CLIENT", b"REPLY", b"SKIP"],
        )
        if is_silent:
            return
        reply = self._reply(name)
        for _ in range(MAX_REDIRECTIONS):
            redirection = find_redirection(reply)
            if redirection is None or self._redirect is None:
                break
            self.close()
            self._connection = self._redirect(redirection)
            if redirection.is_ask:
                self._connection.command("ASKING")
            self._connection.send_all([words])
            reply = self._reply(name)
        self.has_failed = isinstance(reply, ServerError)
        subcommand = f"{name} {words[1].decode('latin-1').upper()}" if len(words) > 1 else name
        if isinstance(reply, bytes) and not TEXTS.isdisjoint((name, subcommand)):
            reply = Verbatim(reply)
        self._show(reply)
        if name in LISTENING and not self.has_failed:
            self._listen(self.connection)

    def _reply(self, name: str) -> Any:
        """The reply to a command; messages ahead of it are shown."""
        reply = self.connection.read()
        while isinstance(reply, Push) and name not in LISTENING:
            self._show(reply)
            reply = self.connection.read()
        return reply

    def _listen(self, connection: Connection) -> None:
        """Show messages until Ctrl-C, which ends the connection."""
        connection.socket.settimeout(None)
        try:
            while True:
                self._show(connection.read())
        except KeyboardInterrupt:
            self.close()

    # --- A pipe ------------------------------------------------------------------------------------------------------

    def read_lines(self, lines: Iterator[bytes]) -> None:
        """Send each line; raises UnreachableError."""
        for line in lines:
            words = self._words(line.strip())
            if words:
                self.ask(words)

    def _words(self, line: bytes) -> list[bytes]:
        if not line or line.startswith(b"#"):
            return []
        try:
            return split_line(line)
        except ValueError:
            self.has_failed = True
            self._show(ServerError("Invalid argument(s)"))
            return []

    # --- A terminal --------------------------------------------------------------------------------------------------

    def prompt(self) -> None:
        """Prompt for lines until the end."""
        read = self._make_reader()
        while True:
            try:
                line = read(self._sign())
            except KeyboardInterrupt:
                continue
            except EOFError:
                return
            words = self._words(line.strip().encode("utf-8", "surrogateescape"))
            if not words:
                continue
            name = words[0].lower()
            if name in (b"quit", b"exit"):
                return
            if name in (b"help", b"?"):
                self._help(line.split()[1:])
                continue
            try:
                self.ask(words)
            except UnreachableError as error:
                self.close()
                print(printable(str(error)), file=sys.stderr)
            except KeyboardInterrupt:
                self.close()

    def _sign(self) -> str:
        return f"{self._connection.place}> " if self._connection is not None else "not connected> "

    def _commands(self) -> Commands:
        try:
            return Commands.ask(self.connection)
        except (UnreachableError, ServerError) as error:
            print(printable(str(error)), file=sys.stderr)
            return Commands({})

    def _help(self, words: list[str]) -> None:
        commands = self._commands()
        command = commands.of_line(words) if words else None
        if command is None:
            print("help NAME tells about a command; Tab completes; quit, or Ctrl-D, ends.")
            return
        print(f"{command.name} {' '.join(command.syntax)}\n  {command.summary}")

    def _make_reader(self) -> Callable[[str], str]:
        commands = self._commands()
        if not has_prompt():
            print("Completion, hints and a history come with prompt_toolkit, of the extra `cli`.", file=sys.stderr)
            return input
        session = make_session(commands)
        return lambda sign: str(session.prompt(sign))


def has_prompt() -> bool:
    try:
        import prompt_toolkit  # noqa: F401
    except ImportError:
        return False
    return True


def history_path() -> Path:
    return Path(os.environ.get("STREAMD_CLI_HISTORY") or Path.home() / ".streamd_cli_history")


def make_session(commands: Commands) -> PromptSession[str]:
    """A prompt with completion, hints and a history."""
    from collections.abc import Iterable

    from prompt_toolkit import PromptSession
    from prompt_toolkit.auto_suggest import AutoSuggest, Suggestion
    from prompt_toolkit.buffer import Buffer
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion
    from prompt_toolkit.document import Document
    from prompt_toolkit.history import FileHistory

    class Names(Completer):
        def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
            text = document.text_before_cursor
            for command in commands.beginning_with(text):
                yield Completion(command.name.split()[-1], -len(text.rpartition(" ")[2]), display_meta=command.summary)

    class Syntax(AutoSuggest):
        def get_suggestion(self, buffer: Buffer, document: Document) -> Suggestion | None:
            text = document.text
            rest = commands.rest_of(text.split())
            return Suggestion(("" if text.endswith(" ") else " ") + rest) if rest else None

    class History(FileHistory):
        def store_string(self, string: str) -> None:
            if not " ".join(string.upper().split()).startswith(SECRET):
                with suppress(OSError):
                    super().store_string(string)

    path = history_path()
    with suppress(OSError):
        path.touch(mode=0o600)
    return PromptSession(
        completer=Names(), complete_while_typing=False, auto_suggest=Syntax(), history=History(str(path))
    )
