"""What pyproject.toml cannot say: every `.pyx` below streamd/ is an extension module, and is compiled once.

Compiled modules are kept in build/, by the compiler, its flags, Python and Cython. A later build takes those from there whose sources,
and what other modules declare, have not changed since: `./install -e .` after `./install` compiles nothing.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import sysconfig
from pathlib import Path

import Cython
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).parent
COMPILE_ARGS = ["-O3", "-g0"]
LINK_ARGS = ["-Wl,-s"] if sys.platform == "linux" else []


class BuildOnce(build_ext):
    """Compiles what is not kept, and keeps it."""

    def build_extension(self, ext: Extension) -> None:
        target = Path(self.get_ext_fullpath(ext.name))
        kept = ROOT / "build" / f"modules-{conditions()}" / ext.name.replace(".", "/") / target.name
        changed = max(path.stat().st_mtime for path in (ROOT / ext.sources[0], *ROOT.glob("streamd/**/*.pxd")))
        if not self.force and kept.exists() and kept.stat().st_mtime > changed:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(kept, target)
            return
        super().build_extension(ext)
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(target, kept)


def conditions() -> str:
    """What else the result depends on, in short."""
    names = ("CC", "CFLAGS", "CPPFLAGS", "LDFLAGS", "LDSHARED", "ARCHFLAGS", "MACOSX_DEPLOYMENT_TARGET")
    parts = [
        sys.version,
        Cython.__version__,
        sysconfig.get_platform(),
        sysconfig.get_config_var("CC"),
        *COMPILE_ARGS,
        *LINK_ARGS,
    ]
    text = repr([*parts, *map(os.environ.get, names)])
    return f"{sys.implementation.cache_tag}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


setup(
    cmdclass={"build_ext": BuildOnce},
    ext_modules=[
        Extension(
            ".".join(path.with_suffix("").parts),
            [str(path)],
            extra_compile_args=COMPILE_ARGS,
            extra_link_args=LINK_ARGS,
        )
        for path in sorted(source.relative_to(ROOT) for source in ROOT.glob("streamd/**/*.pyx"))
    ],
)
