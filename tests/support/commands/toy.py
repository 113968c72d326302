"""A capability in one file: a command, a field and a section of INFO, a setting and a cron step. No other file names it."""

from __future__ import annotations

from streamd.core.capability import Capability
from streamd.core.client import Client
from streamd.core.dispatch import ServerContext
from streamd.core.host import Host
from streamd.core.info import Field
from streamd.core.spec import command, integer
from streamd.settings.declarations import declare
from streamd.settings.declarations import integer as integer_setting

__all__ = ["Toy"]

declare("Toys", integer_setting("toy-step", 2, lo=1, hi=10, apply="refresh", doc="By how much the toy counts."))


class Toy(Capability):
    """Counts: when it is asked to, and by itself."""

    info = {
        "stats": (Field("toy_count", lambda self: self.count),),
        "toys": (Field("toy_step", lambda self: self.step),),
    }

    rests = True

    def __init__(self, host: Host) -> None:
        self._config = host.config
        self.count = 0
        self.cron_steps = 0
        self.gone = 0

    def apply_settings(self) -> None:
        self.step = self._config.toy_step

    def cron(self, now_ms: int) -> None:
        self.cron_steps += 1

    def reset_statistics(self) -> None:
        self.count = 0

    def client_gone(self, client: Client) -> None:
        self.gone += 1


@command(
    "STREAMD.TOY", arity=2, group="server", flags="fast", since="0.3.0", complexity="O(1)", summary="Counts.",
    args=(integer("times"),),
)  # fmt: skip
def toy(ctx: ServerContext, args: list[bytes]) -> None:
    found = ctx.get(Toy)
    found.count += found.step * int(args[1])
    ctx.reply.integer(found.count)
