"""Commands about the server: CONFIG, INFO, TIME, SHUTDOWN. Behaviour: Redis 8.6, as seen on a running server."""

from __future__ import annotations

import logging
import time

from streamd.core.context import BlockRequest
from streamd.core.dispatch import Dispatcher, ServerContext
from streamd.core.help import declare_help
from streamd.core.host import Host
from streamd.core.spec import block, command, container, multiple, oneof, optional, string, token
from streamd.errors import CommandError, ConfigError, OptionSyntaxError, SettledError, UnknownSettingError, printable
from streamd.observe.info_report import Info
from streamd.persistence.persistence import LOADING_TEXT, Persistence
from streamd.protocol.request import forget_words
from streamd.scripting.scripts import Scripts
from streamd.serve.shutdown import Shutdown
from streamd.settings.config import Config

__all__ = ["parse_shutdown"]

log = logging.getLogger("streamd")


def decoded(args: list[bytes]) -> list[str]:
    return [arg.decode("utf-8", "surrogateescape") for arg in args]


def encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


# --- CONFIG --------------------------------------------------------------------------------------------------------

container("CONFIG", group="server", since="2.0.0", summary="Groups the commands about the configuration.")


@command(
    "CONFIG GET", arity=-3, group="server", flags="admin noscript loading stale", since="2.0.0",
    summary="Returns settings and their values.", args=(multiple(string("parameter")),),
    complexity="O(N) when N is the number of configuration parameters provided",
    history=(("7.0.0", "Several patterns may be given."),),
)  # fmt: skip
def config_get(ctx: ServerContext, args: list[bytes]) -> None:
    found = ctx.get(Config).get(decoded(args[2:]))
    ctx.reply.map(len(found))
    for name, value in found.items():
        ctx.reply.bulk(encoded(name))
        ctx.reply.bulk(encoded(value))


@command(
    "CONFIG SET", arity=-4, group="server", flags="admin noscript loading stale", since="2.0.0",
    summary="Changes all of the given settings, or none of them.",
    args=(multiple(block("data", string("parameter"), string("value"))),),
    complexity="O(N) when N is the number of configuration parameters provided",
    history=(("7.0.0", "Several settings may be given."),),
    tips=("request_policy:all_nodes", "response_policy:all_succeeded"),
)  # fmt: skip
def config_set(ctx: ServerContext, args: list[bytes]) -> None:
    if len(args) % 2:
        raise OptionSyntaxError
    config, is_loading = ctx.get(Config), ctx.get(Persistence).loader.loading is not None
    forget_words(args[2:])
    words = decoded(args[2:])
    pairs = list(zip(words[::2], words[1::2], strict=True))
    try:
        changed = config.set(pairs, is_local=ctx.client.is_local, is_loading=is_loading)
    except SettledError as error:
        raise CommandError(LOADING_TEXT) from error
    except UnknownSettingError as error:
        name = printable(encoded(error.setting))
        raise CommandError(f"ERR Unknown option or number of arguments for CONFIG SET - '{name}'") from error
    except ConfigError as error:
        name = printable(encoded(error.setting))
        reason = printable(encoded(error.reason))
        text = f"ERR CONFIG SET failed (possibly related to argument '{name}') - {reason}"
        raise CommandError(text) from error
    for name in config.without_effect(changed):
        log.warning("The setting %s has no effect yet", name)
    ctx.reply.ok()


@command(
    "CONFIG REWRITE", arity=2, group="server", flags="admin noscript loading stale", since="2.8.0",
    summary="Writes the current settings to the configuration file.",
    tips=("request_policy:all_nodes", "response_policy:all_succeeded"),
)  # fmt: skip
def config_rewrite(ctx: ServerContext, args: list[bytes]) -> None:
    config = ctx.get(Config)
    if not config.config_file:
        raise CommandError("ERR The server is running without a config file")
    try:
        config.rewrite()
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
    ctx.get(Host).reset_statistics()
    ctx.reply.ok()


declare_help(
    "CONFIG", "server", "5.0.0",
    "GET <pattern>",
    "    Return parameters matching the glob-like <pattern> and their values.",
    "SET <directive> <value>",
    "    Set the configuration <directive> to <value>.",
    "RESETSTAT",
    "    Reset statistics reported by the INFO command.",
    "REWRITE",
    "    Rewrite the configuration file.",
)  # fmt: skip


# --- INFO, TIME ----------------------------------------------------------------------------------------------------


@command(
    "INFO", arity=-1, group="server", flags="loading stale", since="1.0.0", categories="dangerous",
    summary="Returns information and statistics about the server.", args=(optional(multiple(string("section"))),),
    history=(("7.0.0", "Several sections may be given."),),
    tips=("nondeterministic_output", "request_policy:all_shards", "response_policy:special"),
)  # fmt: skip
def info(ctx: ServerContext, args: list[bytes]) -> None:
    ctx.reply.verbatim("txt", ctx.get(Info).render(decoded(args[1:])))


@command(
    "TIME", arity=1, group="server", flags="loading stale fast", since="2.6.0",
    summary="Returns the time: Unix seconds, and microseconds.", tips=("nondeterministic_output",),
)  # fmt: skip
def time_(ctx: ServerContext, args: list[bytes]) -> None:
    seconds, microseconds = divmod(time.time_ns() // 1000 + ctx.get(Dispatcher).advanced_us, 10**6)
    ctx.reply.array(2)
    ctx.reply.bulk(b"%d" % seconds)
    ctx.reply.bulk(b"%d" % microseconds)


# --- SHUTDOWN ------------------------------------------------------------------------------------------------------

SHUTDOWN_WORDS = frozenset({b"SAVE", b"NOSAVE", b"NOW", b"FORCE", b"ABORT", b"FAILOVER"})

EXCLUSIVE = ({b"SAVE", b"NOSAVE"}, {b"NOW", b"FAILOVER"})


def parse_shutdown(args: list[bytes]) -> frozenset[bytes]:
    """The options of a SHUTDOWN, in upper case; raises OptionSyntaxError."""
    words = frozenset(arg.upper() for arg in args[1:])
    is_wrong = not SHUTDOWN_WORDS.issuperset(words) or any(map(words.issuperset, EXCLUSIVE))
    if is_wrong or (b"ABORT" in words and len(words) > 1):
        raise OptionSyntaxError
    return words


@command(
    "SHUTDOWN", arity=-1, group="server", flags="admin noscript loading stale no_multi allow_busy", since="1.0.0",
    summary="Shuts the server down.",
    complexity="O(N) when saving, where N is the total number of keys in all databases when saving data, otherwise O(1)",
    args=(
        optional(oneof("save-selector", token("NOSAVE"), token("SAVE"))),
        optional(token("NOW"), since="7.0.0"),
        optional(token("FORCE"), since="7.0.0"),
        optional(token("ABORT"), since="7.0.0"),
        optional(token("FAILOVER")),
    ),
    history=(("7.0.0", "NOW, FORCE and ABORT."),),
)  # fmt: skip
def shutdown(ctx: ServerContext, args: list[bytes]) -> None:
    words = parse_shutdown(args)
    if b"ABORT" in words:
        if not ctx.get(Shutdown).call_off():
            raise CommandError("ERR No shutdown in progress.")
        ctx.reply.ok()
        return
    scripts = ctx.get(Scripts)
    if scripts.is_interrupted and b"NOSAVE" not in words:
        raise CommandError(scripts.busy_text)
    save = True if b"SAVE" in words else False if b"NOSAVE" in words else None
    stopping = ctx.get(Shutdown)
    if not stopping.request(
        save=save, force=b"FORCE" in words, is_urgent=b"NOW" in words, hands_over=b"FAILOVER" in words
    ):
        raise CommandError("ERR Errors trying to SHUTDOWN. Check logs.")
    if stopping.is_waiting:
        ctx.block_on(BlockRequest([], args, 0, can_unblock=False))
        stopping.block(ctx.client)
