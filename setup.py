"""What pyproject.toml cannot say: every `.pyx` below streamd/ is an extension module."""

from pathlib import Path

from setuptools import Extension, setup

ROOT = Path(__file__).parent

setup(
    ext_modules=[
        Extension(
            ".".join(path.with_suffix("").parts),
            [str(path)],
            extra_compile_args=["-O3", "-g0"],
        )
        for path in sorted(source.relative_to(ROOT) for source in ROOT.glob("streamd/**/*.pyx"))
    ]
)
