"""FUNCTION: the libraries of functions, and the function that runs. Behaviour: Redis 8.6, as seen on a running server."""

from __future__ import annotations

from streamd.core.dispatch import ServerContext
from streamd.core.help import declare_help
from streamd.core.spec import command, container, oneof, optional, string, token
from streamd.engine.glob import Glob
from streamd.errors import CommandError
from streamd.scripting.functions import Functions, Library
from streamd.scripting.scripts import Scripts
from streamd.scripting.shebang import FLAGS

__all__: list[str] = []

ON_ALL = ("request_policy:all_shards", "response_policy:all_succeeded")
CHANGE = "write noscript"
GROWTH = "write denyoom noscript"
PER_FUNCTION = "O(N) with N being the number of functions"

container("FUNCTION", group="scripting", since="7.0.0", summary="Groups the commands about functions.")


def propagate_change(ctx: ServerContext, args: list[bytes]) -> None:
    """The libraries have changed: files and replicas get the request as it is."""
    ctx.dirty += 1
    ctx.propagate(args)


@command(
    "FUNCTION LOAD", arity=-3, group="scripting", flags=GROWTH, since="7.0.0", tips=ON_ALL,
    complexity="O(1)", summary="Loads a library of functions.",
    args=(optional(token("REPLACE")), string("function-code")),
)  # fmt: skip
def function_load(ctx: ServerContext, args: list[bytes]) -> None:
    for word in args[2:-1]:
        if word.upper() != b"REPLACE":
            raise CommandError(f"ERR Unknown option given: {word.decode('latin-1')}")
    name = ctx.get(Functions).load(args[-1], len(args) > 3, not ctx.is_replaying)
    propagate_change(ctx, args)
    ctx.reply.bulk(name)


@command(
    "FUNCTION DELETE", arity=3, group="scripting", flags=CHANGE, since="7.0.0", tips=ON_ALL,
    complexity="O(1)", summary="Removes a library and its functions.", args=(string("library-name"),),
)  # fmt: skip
def function_delete(ctx: ServerContext, args: list[bytes]) -> None:
    ctx.get(Functions).delete(args[2])
    propagate_change(ctx, args)
    ctx.reply.ok()


@command(
    "FUNCTION FLUSH", arity=-2, group="scripting", flags=CHANGE, since="7.0.0", tips=ON_ALL,
    complexity=PER_FUNCTION, summary="Removes all libraries.",
    args=(optional(oneof("flush-type", token("ASYNC"), token("SYNC"))),),
)  # fmt: skip
def function_flush(ctx: ServerContext, args: list[bytes]) -> None:
    if len(args) > 3:
        raise wrong_count(args[1])
    if len(args) == 3 and args[2].upper() not in (b"SYNC", b"ASYNC"):
        raise CommandError("ERR FUNCTION FLUSH only supports SYNC|ASYNC option")
    ctx.get(Functions).flush()
    propagate_change(ctx, args)
    ctx.reply.ok()


@command(
    "FUNCTION DUMP", arity=2, group="scripting", flags="noscript", since="7.0.0",
    complexity=PER_FUNCTION, summary="Returns all libraries as a payload for FUNCTION RESTORE.",
)  # fmt: skip
def function_dump(ctx: ServerContext, args: list[bytes]) -> None:
    ctx.reply.bulk(ctx.get(Functions).dump())


@command(
    "FUNCTION RESTORE", arity=-3, group="scripting", flags=GROWTH, since="7.0.0", tips=ON_ALL,
    complexity=PER_FUNCTION, summary="Adds the libraries of a payload.",
    args=(string("serialized-value"), optional(oneof("policy", token("FLUSH"), token("APPEND"), token("REPLACE")))),
)  # fmt: skip
def function_restore(ctx: ServerContext, args: list[bytes]) -> None:
    if len(args) > 4:
        raise wrong_count(args[1])
    policy = args[3].upper() if len(args) > 3 else b"APPEND"
    if policy not in (b"APPEND", b"REPLACE", b"FLUSH"):
        raise CommandError("ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.")
    ctx.get(Functions).restore(args[2], policy)
    propagate_change(ctx, args)
    ctx.reply.ok()


def wrong_count(name: bytes) -> CommandError:
    return CommandError(
        f"ERR unknown subcommand or wrong number of arguments for '{name.decode('latin-1')}'. Try FUNCTION HELP."
    )


@command(
    "FUNCTION LIST", arity=-2, group="scripting", flags="noscript", since="7.0.0", tips=("nondeterministic_output_order",),
    complexity=PER_FUNCTION, summary="Returns the libraries and their functions.",
    args=(optional(string("library-name-pattern", "LIBRARYNAME")), optional(token("WITHCODE"))),
)  # fmt: skip
def function_list(ctx: ServerContext, args: list[bytes]) -> None:
    pattern: bytes | None = None
    with_code = False
    words = iter(args[2:])
    for word in words:
        if word.upper() == b"WITHCODE" and not with_code:
            with_code = True
        elif word.upper() == b"LIBRARYNAME" and pattern is None:
            pattern = next(words, None)
            if pattern is None:
                raise CommandError("ERR library name argument was not given")
        else:
            raise CommandError(f"ERR Unknown argument {word.decode('latin-1')}")
    libraries = ctx.get(Functions).libraries.values()
    glob = Glob(b"*" if pattern is None else pattern, nocase=True)
    found = [each for each in libraries if glob.match(each.name)]
    ctx.reply.array(len(found))
    for library in found:
        write_library(ctx, library, with_code=with_code)


def write_library(ctx: ServerContext, library: Library, *, with_code: bool) -> None:
    """One element of the reply to FUNCTION LIST."""
    reply = ctx.reply
    reply.map(3 + with_code)
    reply.bulk(b"library_name")
    reply.bulk(library.name)
    reply.bulk(b"engine")
    reply.bulk(b"LUA")
    reply.bulk(b"functions")
    reply.array(len(library.functions))
    for function in library.functions:
        flags = [name for name, bit in FLAGS.items() if function.flags & bit]
        reply.map(3)
        reply.bulk(b"name")
        reply.bulk(function.name)
        reply.bulk(b"description")
        reply.bulk(function.description)
        reply.bulk(b"flags")
        reply.set(len(flags))
        for flag in flags:
            reply.simple(flag)
    if with_code:
        reply.bulk(b"library_code")
        reply.bulk(library.code)


@command(
    "FUNCTION STATS", arity=2, group="scripting", flags="noscript allow_busy", since="7.0.0",
    tips=("nondeterministic_output", "request_policy:all_shards", "response_policy:special"),
    complexity="O(1)", summary="Returns the running function, and the number of libraries and functions.",
)  # fmt: skip
def function_stats(ctx: ServerContext, args: list[bytes]) -> None:
    functions, reply = ctx.get(Functions), ctx.reply
    running = functions.running
    reply.map(2)
    reply.bulk(b"running_script")
    if running is None:
        reply.null()
    else:
        name, request, took_ms = running
        reply.map(3)
        reply.bulk(b"name")
        reply.bulk(name)
        reply.bulk(b"command")
        reply.bulk_array(request)
        reply.bulk(b"duration_ms")
        reply.value(took_ms)
    reply.bulk(b"engines")
    reply.map(1)
    reply.bulk(b"LUA")
    reply.map(2)
    reply.bulk(b"libraries_count")
    reply.value(len(functions.libraries))
    reply.bulk(b"functions_count")
    reply.value(functions.count)


@command(
    "FUNCTION KILL", arity=2, group="scripting", flags="noscript allow_busy", since="7.0.0",
    tips=("request_policy:all_shards", "response_policy:one_succeeded"),
    complexity="O(1)", summary="Ends a function that has been running for too long.",
)  # fmt: skip
def function_kill(ctx: ServerContext, args: list[bytes]) -> None:
    ctx.get(Scripts).kill("function")
    ctx.reply.ok()


declare_help(
    "FUNCTION", "scripting", "7.0.0",
    "DELETE <library-name>",
    "    Remove a library and its functions.",
    "DUMP",
    "    All libraries as a payload for RESTORE.",
    "FLUSH [ASYNC|SYNC]",
    "    Remove all libraries.",
    "KILL",
    "    End a function that has been running for too long and has not written anything.",
    "LIST [LIBRARYNAME <pattern>] [WITHCODE]",
    "    The libraries and their functions; WITHCODE: their code, too.",
    "LOAD [REPLACE] <code>",
    "    Load a library; REPLACE: it may take the place of one with the same name.",
    "RESTORE <payload> [FLUSH|APPEND|REPLACE]",
    "    Add the libraries of a payload. FLUSH: remove all others first; APPEND, the default: none may be there",
    "    already; REPLACE: those that are there give way.",
    "STATS",
    "    The function that runs, and how many libraries and functions there are.",
)  # fmt: skip
