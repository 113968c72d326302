"""Warnings at startup about the machine and the settings. People and tools look for these texts of Redis 8.6."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streamd.settings.config import Config

__all__ = ["warn_about_system", "warn_about_users"]

log = logging.getLogger("streamd")

EVERYWHERE = {"*", "0.0.0.0", "::"}  # noqa: S104

OVERCOMMIT = (
    "Memory overcommit must be enabled! Without it, a background save or replication may fail under low memory condition."
    " To fix this issue add 'vm.overcommit_memory = 1' to /etc/sysctl.conf and then reboot or run the command"
    " 'sysctl vm.overcommit_memory=1' for this to take effect."
)
HUGE_PAGES = (
    "You have Transparent Huge Pages (THP) support enabled in your kernel. This will create latency and memory usage issues"
    " with streamd. To fix this issue run the command 'echo madvise > /sys/kernel/mm/transparent_hugepage/enabled' as root,"
    " and add it to your /etc/rc.local in order to retain the setting after a reboot. streamd must be restarted after THP is"
    " disabled (set to 'madvise' or 'never')."
)


def warn_about_system() -> None:
    """Conditions that make forked children that write files expensive, or make them fail."""
    for text in system_faults():
        log.warning("WARNING %s", text)


def system_faults() -> Iterator[str]:
    with suppress(OSError):
        if read("/proc/sys/vm/overcommit_memory").strip() != "1":
            yield OVERCOMMIT
    with suppress(OSError):
        if "[always]" in read("/sys/kernel/mm/transparent_hugepage/enabled"):
            yield HUGE_PAGES


def read(path: str) -> str:
    with open(path, encoding="ascii") as file:
        return file.read()


def warn_about_users(config: Config, *, is_open: bool) -> None:
    """Who may connect without a password; `is_open`: the user `default` has none."""
    if not is_open:
        return
    text = "WARNING: Redis does not require authentication"
    if config.protected_mode:
        text += ". Redis will accept connections from any local client."
    elif EVERYWHERE.isdisjoint(address.removeprefix("-") for address in config.bind):
        text += ". Redis will accept connections from any IP address on the configured network interface."
    else:
        text += (
            " and is not protected by network restrictions. Redis will accept connections from any IP address on any"
            " network interface."
        )
    log.warning("%s", text)
