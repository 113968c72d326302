# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""About: what a server reports about itself in INFO: its versions, its process, and the CPU time used."""

from libc.stdint cimport int64_t

from streamd.core.capability cimport Capability
from streamd.core.clock cimport monotonic_us, wall_us
from streamd.core.info cimport numbers

import os
import struct
import sys

from streamd import REDIS_VERSION, __version__
from streamd.core.info import Field, Fields

__all__ = ["About"]

cdef extern from *:
    """
    #include <sys/resource.h>
    #ifndef RUSAGE_THREAD
    #define RUSAGE_THREAD RUSAGE_SELF
    #endif
    """
    int RUSAGE_SELF, RUSAGE_CHILDREN, RUSAGE_THREAD

    struct timeval:
        long tv_sec
        long tv_usec

    struct rusage:
        timeval ru_utime
        timeval ru_stime

    int getrusage(int who, rusage *usage) nogil

SYSTEM = os.uname()
PYTHON, _, COMPILER = sys.version.partition("[")

CPU = "used_cpu_sys:us used_cpu_user:us used_cpu_sys_children:us used_cpu_user_children:us"
OF_THREAD = "used_cpu_sys_main_thread:us used_cpu_user_main_thread:us"


cdef int read_process(object capability, int64_t *to) except -1:
    cdef About about = <About>capability
    to[0], to[1], to[2] = about.pid, wall_us(), (monotonic_us() - about.started_us) // 1_000_000
    to[3] = to[2] // 86400
    to[4] = to[5] = about.config.hz
    to[6] = to[1] // 1_000_000 & 0xFFFFFF
    return 0


cdef int read_cpu(object capability, int64_t *to) except -1:
    put_cpu(to, RUSAGE_SELF)
    put_cpu(to + 2, RUSAGE_CHILDREN)
    return 0


cdef int read_threads_active(object capability, int64_t *to) except -1:
    to[0] = (<About>capability).host.dispatcher.io_threads is not None
    return 0


cdef int read_cpu_of_thread(object capability, int64_t *to) except -1:
    put_cpu(to, RUSAGE_THREAD)
    return 0


cdef void put_cpu(int64_t *to, int owner) noexcept nogil:
    """CPU time of the system and of the user, in microseconds."""
    cdef rusage usage
    getrusage(owner, &usage)
    to[0] = usage.ru_stime.tv_sec * 1_000_000LL + usage.ru_stime.tv_usec
    to[1] = usage.ru_utime.tv_sec * 1_000_000LL + usage.ru_utime.tv_usec


cdef class About(Capability):
    """A server, its process and its machine.

    run_id  40 hexadecimal digits, different in every run
    """

    cdef object host
    cdef object config
    cdef long long started_us       # monotonic
    cdef long long pid
    cdef public str run_id

    info = {
        "server": (
            Field("redis_version", REDIS_VERSION),
            Field("streamd_version", __version__),
            Field("redis_git_sha1", "00000000"),
            Field("redis_git_dirty", 0),
            Field("redis_build_id", f"streamd-{__version__}"),
            Field("os", f"{SYSTEM.sysname} {SYSTEM.release} {SYSTEM.machine}"),
            Field("arch_bits", 8 * struct.calcsize("P")),
            Field("monotonic_clock", "POSIX clock_gettime"),
            Field("multiplexing_api", "libuv"),
            Field("python_version", PYTHON.split()[0]),
            Field("gcc_version", COMPILER.removeprefix("GCC ").rstrip("]") if "GCC" in COMPILER else "0.0.0"),
            Fields("redis_mode process_supervised run_id config_file", lambda self: (<About?>self).texts()),
            numbers(
                "process_id server_time_usec uptime_in_seconds uptime_in_days hz configured_hz lru_clock", read_process
            ),
            Field("executable", sys.executable),
            numbers("io_threads_active", read_threads_active),
        ),
        "cpu": (numbers(CPU, read_cpu), *([numbers(OF_THREAD, read_cpu_of_thread)] if sys.platform == "linux" else [])),
    }

    def __init__(self, host not None):
        self.host, self.config = host, host.config
        self.started_us = monotonic_us()
        self.pid = os.getpid()
        self.run_id = os.urandom(20).hex()

    cdef tuple texts(self):
        mode = "cluster" if self.config.cluster_enabled else "standalone"
        return mode, self.host.supervisor.kind, self.run_id, self.config.config_file
