"""What pyproject.toml cannot say: every `.pyx` below streamd/ is an extension module, and is compiled once.

Compiled modules are kept in the folder $STREAMD_MODULES (default: build/), by a hash of all that they are made from: their source, the
declarations that it imports, compiler, flags, Python and Cython. A build takes what it finds there: `./install -e .` after `./install`
compiles nothing, nor does a second checkout that shares the folder.

$STREAMD_COMPILE_ARGS holds flags that follow ours: with -O0 the modules compile in three fifths of the time, for who edits them.
"""

from __future__ import annotations

import functools
import gc
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import traceback
from contextlib import suppress
from pathlib import Path

import Cython
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError

ROOT = Path(__file__).parent
sys.path.insert(0, str(ROOT / "setup"))

from dependencies import sources_of  # noqa: E402

COMPILE_ARGS = ["-g0", "-Wno-unused-function"]
# Pages of code and of constants are not kept apart: in so many small modules that would be mostly padding.
LINK_ARGS = ["-Wl,-s", "-Wl,-z,noseparate-code"] if sys.platform == "linux" else []

DIRECTIVES = {"auto_pickle": False, "binding": False}
"""For the Cython compiler: nothing compiled is pickled, or looked into by inspect; a third of the modules' size."""

OPTIMIZATION = {
    "-O3": (
        "arrow.decode", "arrow.encode", "arrow.entry_batches", "arrow.text", "core.args", "core.dispatch",
        "core.output", "engine.arena", "engine.counted_tree", "engine.listpack", "engine.listpack_edit", "engine.rax",
        "engine.table", "persistence.aof.reader", "persistence.rdb.lzf", "protocol.reply", "protocol.request",
        "protocol.request_bytes", "values.hashes.pairs", "values.sets.set_value", "values.streams.counting",
        "values.streams.entry_replies", "values.streams.group", "values.streams.key_order",
        "values.streams.node_check", "values.streams.ordered_reads", "values.streams.pel", "values.streams.stream",
        "values.streams.xread", "values.strings.bits",
    ),
    "-O2": (
        "arrow.parse", "caching.tracking", "cluster.bus.node_lines", "cluster.bus.slots",
        "cluster.migration.import_client", "cluster.migration.slot_snapshot", "cluster.routing", "core.blocking",
        "core.client", "core.client_line", "core.context", "core.effects", "core.info", "core.key_changes",
        "core.key_plan", "core.route", "core.turn", "engine.glob", "engine.listpack_twins", "keyspace.commands.dump",
        "keyspace.commands.statistics", "keyspace.database", "keyspace.deadlines", "keyspace.hash_slot",
        "keyspace.key_record", "keyspace.timed_values", "packed_entries", "persistence.aof.buffer",
        "persistence.rdb.listpacks", "persistence.rdb.read", "persistence.rdb.value_loader", "persistence.rdb.window",
        "protocol.doubles", "pubsub.hub", "replication.apply", "replication.replication_stream",
        "scripting.script_host", "scripting.values", "scripting.world", "sockets.io_thread", "sockets.plain",
        "sockets.poller", "sockets.threads", "users.permissions", "values.hashes.access", "values.hashes.field_table",
        "values.hashes.hash", "values.hashes.hget_hset", "values.hashes.loading", "values.lists.list_value",
        "values.lists.lrange", "values.lists.moving", "values.lists.node", "values.lists.push_pop",
        "values.sets.access", "values.sets.combine", "values.sets.intset", "values.sets.sadd", "values.sets.spop",
        "values.sorted_sets.access", "values.sorted_sets.bounds", "values.sorted_sets.large",
        "values.sorted_sets.packed", "values.sorted_sets.sorted_set", "values.sorted_sets.zadd",
        "values.sorted_sets.zpop", "values.sorted_sets.zrange", "values.sorted_sets.zrem",
        "values.sorted_sets.zscore", "values.streams.arguments", "values.streams.delivery", "values.streams.loading",
        "values.streams.ruled_group", "values.streams.xack", "values.streams.xadd_xtrim", "values.streams.xclaim",
        "values.streams.xpending", "values.streams.xrange", "values.strings.get_set", "values.strings.hyperloglog",
        "values.strings.stored",
    ),
}  # fmt: skip
"""Modules, below streamd, in which requests spend their time. Those of the first group take over half a per cent more instructions of
some operation with the flags of the second, which compile in two thirds of the time. The others are compiled with -Os: in half of it.
"""

SPARED = {
    "-O3": ("-fno-ipa-icf", "-fno-ree"),
    "-O2": (
        "-fno-gcse", "-fno-ipa-icf", "-fno-ree", "-fno-schedule-insns2", "-fno-tree-dominator-opts", "-fno-tree-loop-vectorize",
        "-fno-tree-pta", "-fno-tree-slp-vectorize", "-fno-tree-vrp",
    ),
    "-Os": (
        "-fno-expensive-optimizations", "-fno-gcse", "-fno-ipa-icf", "-fno-ree", "-fno-schedule-insns2", "-fno-thread-jumps",
        "-fno-tree-dominator-opts", "-fno-tree-fre", "-fno-tree-pta", "-fno-tree-vrp",
    ),
}  # fmt: skip
"""Passes of GCC that take more of its time than what they gain in these modules is worth: a quarter of it, with -O2. Clang does not
know them.
"""

IS_GCC = "gcc" in (os.environ.get("CC") or sysconfig.get_config_var("CC") or "")

MOST_WORKERS = 4
"""How many modules are compiled at a time, on Linux, where the machine has so many cores; each takes some 0.5 GB."""

MOST_KEPT = 8
"""How many builds of a module are kept."""

MANY = 20
"""From how many modules on it pays to read all declarations and headers before."""

OBJECTS_KEPT = 3_000_000
"""How many objects of the Cython compiler may wait for Python's garbage collector, which would take a third of its time."""


class BuildOnce(build_ext):
    """Compiles what is not kept, and keeps it."""

    def initialize_options(self) -> None:
        super().initialize_options()
        self.cython_directives = DIRECTIVES
        self.translator = None
        self.headers: dict[tuple[str, ...], list[str]] = {}

    def build_extensions(self) -> None:
        self.check_extensions_list(self.extensions)
        todo = [ext for ext in self.extensions if not self.takes_kept(ext)]
        todo.sort(key=lambda ext: os.path.getsize(ROOT / ext.sources[0]), reverse=True)
        gc.disable()
        if sys.platform == "linux" and len(todo) > MANY:
            self.read_before(todo)
        workers = min(len(os.sched_getaffinity(0)), MOST_WORKERS) if sys.platform == "linux" else 1
        if workers > 1 and len(todo) > 1:
            self.build_together(todo, workers)
        else:
            for at in range(len(todo)):
                self.build_and_keep(todo, at)
        gc.freeze()  # what is left goes with the process
        gc.enable()

    def read_before(self, todo: list[Extension]) -> None:
        """Read once what each module reads: all declarations, and Python.h with each set of flags."""
        compilers = []
        for number, args in enumerate({tuple(ext.extra_compile_args) for ext in todo} if IS_GCC else ()):
            header = Path(self.build_temp, f"headers{number}", "python.h").absolute()
            header.parent.mkdir(parents=True, exist_ok=True)
            header.write_text('#define PY_SSIZE_T_CLEAN\n#include "Python.h"\n#include "structmember.h"\n')
            compiler = [*self.compiler.compiler_so, "-I" + sysconfig.get_path("include"), *args]
            compilers.append(subprocess.Popen([*compiler, "-x", "c-header", header, "-o", f"{header}.gch"]))
            self.headers[args] = ["-Winvalid-pch", "-include", str(header)]
        try:
            from translation import Translator

            self.translator = Translator(
                DIRECTIVES, sorted(path.relative_to(ROOT) for path in ROOT.glob("streamd/**/*.pxd"))
            )
        except Exception:  # of a compiler with another inside, or for a wrong declaration, which shows again
            self.translator = None
        statuses = [compiler.wait() for compiler in compilers]
        if any(statuses):
            raise CompileError("Python.h could not be compiled; the reason is above")

    def kept(self, ext: Extension) -> Path:
        """Where a module is kept."""
        name = os.path.basename(self.get_ext_fullpath(ext.name))
        folder = Path(os.environ.get("STREAMD_MODULES") or ROOT / "build")
        return folder / "modules" / ext.name / digest_of(ext) / name

    def takes_kept(self, ext: Extension) -> bool:
        """Copy a kept module; returns whether there is one."""
        target, kept = Path(self.get_ext_fullpath(ext.name)), self.kept(ext)
        if self.force or not kept.exists():
            return False
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(kept, target)  # as new: what is there already may be newer than what is kept
        return True

    def build_together(self, todo: list[Extension], workers: int) -> None:
        """Build modules in processes, each of which takes the next one from a pipe. Raises CompileError when one fails."""
        queue, end = os.pipe()
        os.write(end, b"".join(at.to_bytes(2, "big") for at in range(len(todo))))
        os.close(end)
        children = []
        for _ in range(workers):
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    while at := os.read(queue, 2):
                        self.build_and_keep(todo, int.from_bytes(at, "big"))
                    status = 0
                except BaseException:
                    os.read(queue, 2 * len(todo))
                    traceback.print_exc()
                finally:
                    sys.stderr.flush()
                    os._exit(status)
            children.append(child)
        os.close(queue)
        statuses = [os.waitpid(child, 0)[1] for child in children]
        if any(statuses):
            raise CompileError("a module could not be compiled; the reason is above")

    def build_and_keep(self, todo: list[Extension], at: int) -> None:
        ext = todo[at]
        if self.takes_kept(ext):  # a build of another checkout has come first
            return
        kept = self.kept(ext)  # before the compiler puts the C file in the place of the source
        if progress := os.environ.get("STREAMD_PROGRESS"):
            with suppress(OSError), open(progress, "a") as file:
                file.write(f"  {at + 1:3} of {len(todo)}  {ext.sources[0]}\n")
        # What is there already may have been compiled with other flags.
        Path(self.get_ext_fullpath(ext.name)).unlink(missing_ok=True)
        # Nor may the C file be that of other declarations: those that git or tar has put there can be older than it.
        (ROOT / ext.sources[0]).with_suffix(".c").unlink(missing_ok=True)
        if self.translator and (translated := self.translator.translate(ext.sources[0])):
            ext.sources = [translated]
        ext.extra_compile_args += self.headers.get(tuple(ext.extra_compile_args), [])
        self.build_extension(ext)
        if gc.get_count()[0] > OBJECTS_KEPT:
            gc.collect()
        kept.parent.mkdir(parents=True, exist_ok=True)
        # Whatever ends this leaves no part of a module under its name.
        new = kept.with_suffix(f".{os.getpid()}")
        shutil.copyfile(self.get_ext_fullpath(ext.name), new)
        new.replace(kept)
        older = sorted(kept.parent.parent.iterdir(), key=lambda each: each.stat().st_mtime)[:-MOST_KEPT]
        for each in older:
            shutil.rmtree(each, ignore_errors=True)


def digest_of(ext: Extension) -> str:
    """A hash of all that a module is made from."""
    names = ("CC", "CFLAGS", "CPPFLAGS", "LDFLAGS", "LDSHARED", "ARCHFLAGS", "MACOSX_DEPLOYMENT_TARGET")
    parts = [
        sys.hexversion,
        sysconfig.get_config_var("SOABI"),
        Cython.__version__,
        sysconfig.get_platform(),
        sysconfig.get_config_var("CC"),
        ext.extra_compile_args,
        ext.extra_link_args,
        DIRECTIVES,
        content_of(str(ROOT / "setup" / "translation.py")),
        *map(os.environ.get, names),
        *sorted(map(content_of, sources_of(ext.sources[0]))),
    ]
    return f"{sys.implementation.cache_tag}-{hashlib.sha256(repr(parts).encode()).hexdigest()[:16]}"


@functools.cache
def content_of(path: str) -> tuple[str, str]:
    """The name of a source and a hash of what it says."""
    return os.path.basename(path), hashlib.sha256(Path(path).read_bytes()).hexdigest()


def extension(path: Path) -> Extension:
    """The module of a `.pyx`, named from ROOT."""
    name = ".".join(path.with_suffix("").parts)
    level = next((level for level, modules in OPTIMIZATION.items() if name.removeprefix("streamd.") in modules), "-Os")
    spared = SPARED[level] if IS_GCC else ()
    more = os.environ.get("STREAMD_COMPILE_ARGS", "").split()
    return Extension(
        name, [str(path)], extra_compile_args=[*COMPILE_ARGS, level, *spared, *more], extra_link_args=LINK_ARGS
    )


setup(
    cmdclass={"build_ext": BuildOnce},
    ext_modules=[extension(path.relative_to(ROOT)) for path in sorted(ROOT.glob("streamd/**/*.pyx"))],
)
