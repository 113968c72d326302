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
from streamd.core.info import Field, Fields, cpu_times

__all__ = ["About"]

SYSTEM = os.uname()
PYTHON, _, COMPILER = sys.version.partition("[")


CPU_FIELDS = "used_cpu_sys:us used_cpu_user:us used_cpu_sys_children:us used_cpu_user_children:us"
CPU_OWNERS: tuple[int, ...] = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
if sys.platform == "linux":
    CPU_FIELDS += " used_cpu_sys_main_thread:us used_cpu_user_main_thread:us"
    CPU_OWNERS += (resource.RUSAGE_THREAD,)


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
            Field("redis_mode", lambda self: "cluster" if self._config.cluster_enabled else "standalone"),
            Field("os", f"{SYSTEM.sysname} {SYSTEM.release} {SYSTEM.machine}"),
            Field("arch_bits", 8 * struct.calcsize("P")),
            Field("monotonic_clock", "POSIX clock_gettime"),
            Field("multiplexing_api", "libuv"),
            Field("python_version", PYTHON.split()[0]),
            Field("gcc_version", COMPILER.removeprefix("GCC ").rstrip("]") if "GCC" in COMPILER else "0.0.0"),
            Fields(
                "process_id process_supervised run_id server_time_usec uptime_in_seconds uptime_in_days hz configured_hz"
                " lru_clock config_file",
                lambda self: (
                    self._pid,
                    self._host.supervisor.kind,
                    self.run_id,
                    now_us := time.time_ns() // 1000,
                    seconds := int(time.monotonic() - self._started),
                    seconds // 86400,
                    hz := self._config.hz,
                    hz,
                    now_us // 1_000_000 & 0xFFFFFF,
                    self._config.config_file,
                ),
            ),
            Field("executable", sys.executable),
            Field("io_threads_active", 0),
        ),
        "cpu": (Fields(CPU_FIELDS, lambda self: cpu_times(CPU_OWNERS)),),
    }

    def __init__(self, host: Host) -> None:
        self._host = host
        self._config = host.config
        self._started = time.monotonic()
        self._pid = os.getpid()
        self.run_id = os.urandom(20).hex()
