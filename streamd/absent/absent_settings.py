"""The settings of features that are not supported: other data types, the process of Redis itself.

They are accepted, checked and reported as in Redis, so that its configuration files can be read, but have no effect.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from streamd.integers import INT32_MAX
from streamd.settings.declarations import boolean, choice, declare, integer, memory, setting, text
from streamd.settings.kinds import Boolean, Refused, Text

__all__: list[str] = []

FOREIGN = "foreign"
AT_START = "foreign immutable"
MB = 1 << 20


class NeverYes(Boolean):
    """bool; `yes` is refused for a reason"""

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def parse(self, args: Sequence[str], old: Any) -> bool:
        if super().parse(args, old):
            raise Refused(self.reason)
        return False

    def domain(self) -> str:
        return "no"


class OnFromStart(Boolean):
    """bool; CONFIG SET may turn it off, but not on"""

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def check_change(self, old: bool, new: bool) -> None:
        if new and not old:
            raise Refused(self.reason)


class LocaleName(Text):
    """str: a locale that the system has; empty: that of the environment"""

    def check_change(self, old: str, new: str) -> None:
        import locale  # for this one check

        before = locale.setlocale(locale.LC_COLLATE)
        try:
            locale.setlocale(locale.LC_COLLATE, new)
        except (locale.Error, ValueError) as error:
            raise Refused("Invalid locale name") from error
        finally:
            locale.setlocale(locale.LC_COLLATE, before)


def title_template(text: str) -> str | None:
    """The reason why `text` is not a template of process titles."""
    known = {"title", "listen-addr", "server-mode", "port", "tls-port", "unixsocket", "config-file"}
    names = re.findall(r"\{([^{}]*)\}", text)
    if not text or not known.issuperset(names) or set("{}").intersection(re.sub(r"\{[^{}]*\}", "", text)):
        return "template format is invalid or contains unknown variables"
    return None


TYPES = (
    boolean("vset-force-single-threaded-execution", False, flags=FOREIGN, doc=""),
)  # fmt: skip
# Large streams are always freed in the background; these settings control when Redis does so.
LAZYFREE = (
    *(boolean(f"lazyfree-lazy-{what}", False, flags=FOREIGN, doc="")
      for what in ("eviction", "expire", "server-del", "user-del", "user-flush")),
    boolean("replica-lazy-flush", False, flags=FOREIGN, aliases="slave-lazy-flush", doc=""),
)  # fmt: skip
PROCESS = (
    setting("activedefrag", NeverYes(
        "Active defragmentation cannot be enabled: it requires a Redis server compiled with a modified Jemalloc like the"
        " one shipped by default with the Redis source distribution"), False, "", flags=FOREIGN),
    memory("active-defrag-ignore-bytes", 100 * MB, lo=1, flags=FOREIGN, doc=""),
    integer("active-defrag-threshold-lower", 10, hi=1000, flags=FOREIGN, doc=""),
    integer("active-defrag-threshold-upper", 100, hi=1000, flags=FOREIGN, doc=""),
    integer("active-defrag-cycle-min", 1, lo=1, hi=99, flags=FOREIGN, doc=""),
    integer("active-defrag-cycle-max", 25, lo=1, hi=99, flags=FOREIGN, doc=""),
    integer("active-defrag-max-scan-fields", 1000, lo=1, flags=FOREIGN, doc=""),
    boolean("activerehashing", True, flags=FOREIGN, doc=""),
    boolean("always-show-logo", False, flags=AT_START, doc=""),
    boolean("crash-memcheck-enabled", True, flags=FOREIGN, doc=""),
    boolean("use-exit-on-panic", False, flags="foreign hidden", doc=""),
    boolean("disable-thp", True, flags=AT_START, doc=""),
    boolean("jemalloc-bg-thread", True, flags=FOREIGN, doc=""),
    setting("key-memory-histograms", OnFromStart("memory tracking cannot be enabled at runtime"), False, "", flags=FOREIGN),
    integer("lookahead", 16, lo=1, hi=INT32_MAX, flags=FOREIGN, doc=""),
    integer("max-new-connections-per-cycle", 10, lo=1, hi=1000, flags=FOREIGN, doc=""),
    text("ignore-warnings", flags=FOREIGN, doc=""),
    setting("locale-collate", LocaleName(), "", "", flags=FOREIGN),
    choice("enable-module-command", "no", ("no", "yes", "local"), flags=AT_START, doc=""),
    boolean("set-proc-title", True, flags=AT_START, doc=""),
    text("proc-title-template", "{title} {listen-addr} {server-mode}", check=title_template, flags=FOREIGN, doc=""),
    integer("socket-mark-id", 0, hi=2**32 - 1, flags=AT_START, doc=""),
    *(text(f"{what}-cpulist", flags=AT_START, aliases=f"{what.replace('-', '_')}_cpulist", doc="")
      for what in ("server", "bio", "aof-rewrite", "bgsave")),
    integer("loading-process-events-interval-bytes", 512 << 10, lo=1024, hi=INT32_MAX, flags="foreign hidden", doc=""),
)  # fmt: skip
declare("Of other servers", *TYPES, *LAZYFREE, *PROCESS)
