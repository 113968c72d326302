"""MODULE: there are none, and none can be loaded. Behaviour: Redis 8.6, as seen on a running server."""

from __future__ import annotations

from streamd.core.dispatch import ServerContext
from streamd.core.enabled import check_enabled
from streamd.core.help import declare_help
from streamd.core.spec import block, command, container, multiple, optional, string
from streamd.errors import CommandError
from streamd.settings.config import Config

__all__: list[str] = []

LOADING_FLAGS = "admin noscript no_async_loading"


container("MODULE", group="server", since="4.0.0", summary="Groups the commands about modules.")


@command(
    "MODULE LIST", arity=2, group="server", flags="admin noscript", since="4.0.0", tips=("nondeterministic_output_order",),
    summary="Returns an empty list: modules are not supported.",
)  # fmt: skip
def module_list(ctx: ServerContext, args: list[bytes]) -> None:
    ctx.reply.array(0)


@command(
    "MODULE LOAD", arity=-3, group="server", flags=LOADING_FLAGS, since="4.0.0",
    summary="Answers that the module cannot be loaded.", args=(string("path"), optional(multiple(string("arg")))),
)  # fmt: skip
def module_load(ctx: ServerContext, args: list[bytes]) -> None:
    check_enabled("MODULE", ctx.get(Config).enable_module_command, ctx.client)
    raise CommandError("ERR Error loading the extension. Please check the server logs.")


@command(
    "MODULE LOADEX", arity=-3, group="server", flags=LOADING_FLAGS, since="7.0.0",
    summary="Answers that the module cannot be loaded.",
    args=(
        string("path"),
        optional(multiple(block("configs", string("name"), string("value"), token="CONFIG"), with_token=True)),
        optional(multiple(string("args", "ARGS"))),
    ),
)  # fmt: skip
def module_loadex(ctx: ServerContext, args: list[bytes]) -> None:
    module_load(ctx, args)


@command(
    "MODULE UNLOAD", arity=3, group="server", flags=LOADING_FLAGS, since="4.0.0",
    summary="Answers that the module does not exist.", args=(string("name"),),
)  # fmt: skip
def module_unload(ctx: ServerContext, args: list[bytes]) -> None:
    check_enabled("MODULE", ctx.get(Config).enable_module_command, ctx.client)
    raise CommandError("ERR Error unloading module: no such module with that name")


declare_help(
    "MODULE", "server", "5.0.0",
    "LIST",
    "    The modules. There are none.",
    "LOAD <path> [<arg> ...]",
    "    Fails: modules of Redis cannot be loaded.",
    "LOADEX <path> [CONFIG <name> <value> ...] [ARGS <arg> ...]",
    "    Fails, too.",
    "UNLOAD <name>",
    "    Fails: there is no module.",
)  # fmt: skip
