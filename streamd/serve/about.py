"""About: what a server reports about itself in INFO: its versions, its process, and the CPU time used."""

from __future__ import annotations

import os
import resource
import struct
import sys
import time

from streamd import REDIS_VERSION, __version__
from streamd.core.capability import Capability
from streamd.core.host import Host
from streamd.core.info import Field, Fields

__all__ = ["About"]

SYSTEM = os.uname()
PYTHON, _, COMPILER = sys.version.partition("[")


def cpu_fields(suffix: str, who: int) -> Fields[About]:
    """CPU time in seconds."""
    return Fields(
        lambda self: resource.getrusage(who),
        (
            Field(f"used_cpu_sys{suffix}", lambda usage: f"{usage.ru_stime:.6f}"),
            Field(f"used_cpu_user{suffix}", lambda usage: f"{usage.ru_utime:.6f}"),
        ),
    )


class About(Capability):
    """A server, its process and its machine.

    run_id  40 hexadecimal digits, different in every run
    """

    info = {
        "server": (
            Field("redis_version", REDIS_VERSION),
            Field("streamd_version", __version__),
            Field("redis_git_sha1", "00000000"),
            Field("redis_git_dirty", 0),
            Field("redis_build_id", f"streamd-{__version__}"),
            Field("redis_mode", "standalone"),
            Field("os", f"{SYSTEM.sysname} {SYSTEM.release} {SYSTEM.machine}"),
            Field("arch_bits", 8 * struct.calcsize("P")),
            Field("monotonic_clock", "POSIX clock_gettime"),
            Field("multiplexing_api", "libuv"),
            Field("python_version", PYTHON.split()[0]),
            Field("gcc_version", COMPILER.removeprefix("GCC ").rstrip("]") if "GCC" in COMPILER else "0.0.0"),
            Field("process_id", lambda self: os.getpid()),
            Field("process_supervised", lambda self: self._host.supervisor.kind),
            Field("run_id", lambda self: self.run_id),
            Field("server_time_usec", lambda self: time.time_ns() // 1000),
            Field("uptime_in_seconds", lambda self: self.uptime_s),
            Field("uptime_in_days", lambda self: self.uptime_s // 86400),
            Field("hz", lambda self: self._config.hz),
            Field("configured_hz", lambda self: self._config.hz),
            Field("lru_clock", lambda self: int(time.time()) & 0xFFFFFF),
            Field("executable", sys.executable),
            Field("config_file", lambda self: self._config.config_file),
            Field("io_threads_active", 0),
        ),
        "cpu": (
            cpu_fields("", resource.RUSAGE_SELF),
            cpu_fields("_children", resource.RUSAGE_CHILDREN),
            *((cpu_fields("_main_thread", resource.RUSAGE_THREAD),) if hasattr(resource, "RUSAGE_THREAD") else ()),
        ),
    }

    def __init__(self, host: Host) -> None:
        self._host = host
        self._config = host.config
        self._started = time.monotonic()
        self.run_id = os.urandom(20).hex()

    @property
    def uptime_s(self) -> int:
        return int(time.monotonic() - self._started)
