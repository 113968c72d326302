"""Commands about the server: CONFIG, INFO, TIME, SHUTDOWN.

What they ask of the server is written down as `Server` and `Config`. Behaviour: Redis 8.6, as seen on a running server.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from streamd.core.help import write_help
from streamd.core.spec import block, command, container, multiple, oneof, optional, string, token
from streamd.errors import CommandError, ConfigError, OptionSyntaxError, UnknownSettingError, printable
from streamd.protocol.reply import ReplyWriter
from streamd.protocol.request import forget_words

__all__ = ["Client", "Config", "Server", "ServerContext", "check_enabled", "parse_shutdown"]

log = logging.getLogger("streamd")


# --- The server, as used here ------------------------------------------------------------------------------------


class Client(Protocol):
    @property
    def is_local(self) -> bool: ...


class Setting(Protocol):
    @property
    def name(self) -> str: ...


class Config(Protocol):
    """The settings. Text is UTF-8; other bytes are lone surrogates."""

    enable_debug_command: str
    config_file: str

    def get(self, patterns: Iterable[str]) -> Mapping[str, str]: ...
    def set(self, pairs: Sequence[tuple[str, str]], *, is_local: bool) -> Sequence[Setting]:
        """Set all or none; raises ConfigError, UnknownSettingError."""

    def rewrite(self) -> None:
        """Write the values into the file they came from; raises OSError."""

    def without_effect(self, settings: Any) -> Sequence[str]:
        """Names of those of the settings that ask for what does not happen yet."""


class Server(Protocol):
    def info(self, sections: Iterable[str]) -> str:
        """The text of INFO; without sections, the default ones."""

    def reset_statistics(self) -> None: ...
    def request_shutdown(self, *, save: bool | None, force: bool) -> bool: ...
    def abort_shutdown(self) -> bool: ...


class ServerContext(Protocol):
    """What these commands use of Context."""

    @property
    def client(self) -> Client: ...
    @property
    def server(self) -> Server: ...
    @property
    def config(self) -> Config: ...
    @property
    def reply(self) -> ReplyWriter: ...


def check_enabled(name: str, setting: str, client: Client) -> None:
    """Raise CommandError unless `setting`, the value of enable-NAME-command, lets a client use a command."""
    if setting != "yes" and not (setting == "local" and client.is_local):
        raise CommandError(
            f'ERR {name} command not allowed. If the enable-{name.lower()}-command option is set to "local", you can run it'
            " from a local connection, otherwise you need to set this option in the configuration file, and then restart"
            " the server."
        )


def decoded(args: list[bytes]) -> list[str]:
    return [arg.decode("utf-8", "surrogateescape") for arg in args]


def encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


# --- CONFIG --------------------------------------------------------------------------------------------------------

container("CONFIG", group="server", since="2.0.0", summary="Commands about the configuration.")


@command(
    "CONFIG GET", arity=-3, group="server", flags="admin noscript loading stale", since="2.0.0",
    summary="Returns settings and their values.", args=(multiple(string("parameter")),),
    complexity="O(N) when N is the number of configuration parameters provided",
    history=(("7.0.0", "Several patterns may be given."),),
)  # fmt: skip
def config_get(ctx: ServerContext, args: list[bytes]) -> None:
    found = ctx.config.get(decoded(args[2:]))
    ctx.reply.map(len(found))
    for name, value in found.items():
        ctx.reply.bulk(encoded(name))
        ctx.reply.bulk(encoded(value))


@command(
    "CONFIG SET", arity=-4, group="server", flags="admin noscript loading stale", since="2.0.0",
    summary="Changes settings: all that are named, or none.",
    args=(multiple(block("data", string("parameter"), string("value"))),),
    complexity="O(N) when N is the number of configuration parameters provided",
    history=(("7.0.0", "Several settings may be given."),),
    tips=("request_policy:all_nodes", "response_policy:all_succeeded"),
)  # fmt: skip
def config_set(ctx: ServerContext, args: list[bytes]) -> None:
    if len(args) % 2:
        raise OptionSyntaxError
    forget_words(args[2:])
    words = decoded(args[2:])
    pairs = list(zip(words[::2], words[1::2], strict=True))
    try:
        changed = ctx.config.set(pairs, is_local=ctx.client.is_local)
    except UnknownSettingError as error:
        name = printable(encoded(error.setting))
        raise CommandError(f"ERR Unknown option or number of arguments for CONFIG SET - '{name}'") from error
    except ConfigError as error:
        name = printable(encoded(error.setting))
        reason = printable(encoded(error.reason))
        text = f"ERR CONFIG SET failed (possibly related to argument '{name}') - {reason}"
        raise CommandError(text) from error
    for name in ctx.config.without_effect(changed):
        log.warning("The setting %s has no effect yet", name)
    ctx.reply.ok()


@command(
    "CONFIG REWRITE", arity=2, group="server", flags="admin noscript loading stale", since="2.8.0",
    summary="Writes the settings of now into the configuration file.",
    tips=("request_policy:all_nodes", "response_policy:all_succeeded"),
)  # fmt: skip
def config_rewrite(ctx: ServerContext, args: list[bytes]) -> None:
    if not ctx.config.config_file:
        raise CommandError("ERR The server is running without a config file")
    try:
        ctx.config.rewrite()
    except OSError as error:
        log.warning("CONFIG REWRITE failed: %s", error.strerror)
        raise CommandError(f"ERR Rewriting config file: {error.strerror}") from error
    log.info("CONFIG REWRITE executed with success.")
    ctx.reply.ok()


@command(
    "CONFIG RESETSTAT", arity=2, group="server", flags="admin noscript loading stale", since="2.0.0",
    summary="Sets the counters of INFO to zero.",
    tips=("request_policy:all_nodes", "response_policy:all_succeeded"),
)  # fmt: skip
def config_resetstat(ctx: ServerContext, args: list[bytes]) -> None:
    ctx.server.reset_statistics()
    ctx.reply.ok()


@command(
    "CONFIG HELP", arity=2, group="server", flags="loading stale", since="5.0.0",
    summary="Tells what the subcommands do.",
)  # fmt: skip
def config_help(ctx: ServerContext, args: list[bytes]) -> None:
    write_help(
        ctx.reply,
        args,
        (
            "GET <pattern>",
            "    Return parameters matching the glob-like <pattern> and their values.",
            "SET <directive> <value>",
            "    Set the configuration <directive> to <value>.",
            "RESETSTAT",
            "    Reset statistics reported by the INFO command.",
            "REWRITE",
            "    Rewrite the configuration file.",
        ),
    )


# --- INFO, TIME ----------------------------------------------------------------------------------------------------


@command(
    "INFO", arity=-1, group="server", flags="loading stale", since="1.0.0", categories="dangerous",
    summary="Returns what the server says about itself.", args=(optional(multiple(string("section"))),),
    history=(("7.0.0", "Several sections may be given."),),
    tips=("nondeterministic_output", "request_policy:all_shards", "response_policy:special"),
)  # fmt: skip
def info(ctx: ServerContext, args: list[bytes]) -> None:
    ctx.reply.verbatim("txt", encoded(ctx.server.info(decoded(args[1:]))))


@command(
    "TIME", arity=1, group="server", flags="loading stale fast", since="2.6.0",
    summary="Returns the time: Unix seconds, and microseconds.", tips=("nondeterministic_output",),
)  # fmt: skip
def time_(ctx: ServerContext, args: list[bytes]) -> None:
    seconds, nanoseconds = divmod(time.time_ns(), 10**9)
    ctx.reply.array(2)
    ctx.reply.bulk(b"%d" % seconds)
    ctx.reply.bulk(b"%d" % (nanoseconds // 1000))


# --- SHUTDOWN ------------------------------------------------------------------------------------------------------

SHUTDOWN_WORDS = frozenset({b"SAVE", b"NOSAVE", b"NOW", b"FORCE", b"ABORT"})


def parse_shutdown(args: list[bytes]) -> frozenset[bytes]:
    """The options of a SHUTDOWN, in upper case; raises OptionSyntaxError."""
    words = frozenset(arg.upper() for arg in args[1:])
    is_wrong = not SHUTDOWN_WORDS.issuperset(words) or words.issuperset({b"SAVE", b"NOSAVE"})
    if is_wrong or (b"ABORT" in words and len(words) > 1):
        raise OptionSyntaxError
    return words


@command(
    "SHUTDOWN", arity=-1, group="server", flags="admin noscript loading stale no_multi allow_busy", since="1.0.0",
    summary="Ends the server.",
    complexity="O(N) when saving, where N is the total number of keys in all databases when saving data, otherwise O(1)",
    args=(
        optional(oneof("save-selector", token("NOSAVE"), token("SAVE"))),
        optional(token("NOW"), since="7.0.0"),
        optional(token("FORCE"), since="7.0.0"),
        optional(token("ABORT"), since="7.0.0"),
    ),
    history=(("7.0.0", "NOW, FORCE and ABORT."),),
)  # fmt: skip
def shutdown(ctx: ServerContext, args: list[bytes]) -> None:
    words = parse_shutdown(args)
    if b"ABORT" in words:
        if not ctx.server.abort_shutdown():
            raise CommandError("ERR No shutdown in progress.")
        ctx.reply.ok()
        return
    save = True if b"SAVE" in words else False if b"NOSAVE" in words else None
    if not ctx.server.request_shutdown(save=save, force=b"FORCE" in words):
        raise CommandError("ERR Errors trying to SHUTDOWN. Check logs.")
