"""The rooms of the package, that imports between them go one way, and that no modules import each other in a circle.

The rules are those of the table in CONTRIBUTING.md: each room may import the rooms listed for it and the leaves. A row like
`persistence.rdb` is of a folder inside a large room: it says what the folder may import of the rest of its room. A folder
whose row lists rooms, like `keyspace.commands`, stands on another floor, and is a room to these tests. Read are
the import statements of every `.py` (as a syntax tree) and of every `.pyx` and `.pxd` (line by line), those under
`TYPE_CHECKING` and inside functions too, and calls of `import_module` and `__import__` with a literal name: what a room knows
of, it knows of, whenever it learns it.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import resolve_name
from pathlib import Path
from typing import NamedTuple

import pytest

PACKAGE = Path(__file__).parents[2] / "streamd"

CONTRIBUTING = PACKAGE.parent / "CONTRIBUTING.md"


def read_table(page: str) -> Iterator[tuple[list[str], str]]:
    """The rows of the table of rooms: the rooms, and what they may import, as it is written there."""
    table = page[page.index("| room |") :].partition("\n\n")[0]
    for line in table.splitlines()[2:]:
        rooms, *_, imports = line.strip("|").split("|")
        yield re.findall(r"`([\w.]+)`", rooms), imports.strip()


TABLE = list(read_table(CONTRIBUTING.read_text(encoding="utf-8")))

LEAVES = {room for rooms, imports in TABLE for room in rooms if imports == "nothing"}
"""Modules at the top that every room may import, as it may the package itself (its version numbers)."""

ROWS = {
    room: set(re.findall(r"`([\w.]+)`", imports)) for rooms, imports in TABLE for room in rooms if room not in LEAVES
}

INSIDE = {room: ROWS[room] for rooms, imports in TABLE for room in rooms if imports.startswith("of its room")}
"""What a folder inside a room, `room.folder`, may import of the rest of its room: modules and folders."""

ROOMS = {room: imports for room, imports in ROWS.items() if room not in INSIDE}
"""The rooms that each room may import, folders on another floor than their room among them."""

WITHOUT_SPARK = ("archive", "arrow", "client", "report", "transfer")
"""Rooms that programs import on machines that have no PySpark."""

STANDARD_MODULES_FORBIDDEN: dict[str, set[str]] = {
    "protocol": {"socket", "asyncio", "time", "selectors"},
    "engine": {"socket", "asyncio", "time", "selectors"},
    "core": {"selectors"},
    "keyspace": {"socket", "asyncio", "time", "selectors"},
    "keyspace.commands": {"selectors"},
    "values": {"socket", "asyncio", "selectors"},
    "cluster.bus": {"socket", "asyncio", "time", "selectors", "os"},
    **{room: {"pyspark", "py4j"} for room in WITHOUT_SPARK},
}
"""What a room knows nothing of, as far as a module from outside stands for it."""

TOP = "top"
"""The room of modules that stand at the top of the package: they wire rooms together, and may import any."""


class Import(NamedTuple):
    """One imported module and where it is imported."""

    module: str  # absolute dotted name
    place: str  # file:line


def room_of(path: Path) -> str:
    """The room that a source file lies in."""
    *folders, _ = path.relative_to(PACKAGE).parts
    if folders:
        return find_room(folders) or folders[0]
    return path.stem if path.stem in LEAVES else TOP


def find_room(names: list[str]) -> str | None:
    """The room that a dotted name below the package begins with: a folder on another floor, or the room itself."""
    floor = ".".join(names[:2])
    return floor if floor in ROOMS else names[0] if names else None


# --- Reading imports ---------------------------------------------------------------------------------------------------


def imports_of(path: Path, text: str) -> Iterator[Import]:
    """Every module that a source file imports; for `from package import name`, each of the names that is a module."""
    package = ["streamd", *path.relative_to(PACKAGE).parts[:-1]]
    read = python_imports if path.suffix in (".py", ".pyi") else cython_imports
    for line, level, module, names in read(text):
        base = package[: len(package) - level + 1] if level else []
        absolute = ".".join([*base, *([module] if module else [])])
        # `from streamd import engine` imports a room, `from streamd.engine import rax` a module of one.
        is_package = absolute.startswith("streamd") and PACKAGE.parent.joinpath(*absolute.split(".")).is_dir()
        wanted = [f"{absolute}.{name}" for name in names] if is_package and names else [absolute]
        for each in wanted:
            yield Import(each, f"{path.relative_to(PACKAGE.parent)}:{line}")


Statement = tuple[int, int, str, list[str]]
"""Line, leading dots, module, imported names (none for a plain import)."""


def python_imports(text: str) -> Iterator[Statement]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, 0, alias.name, []
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, node.level, node.module or "", [alias.name for alias in node.names]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            words = [each.value if isinstance(each, ast.Constant) else None for each in node.args]
            if words and isinstance(words[0], str):
                yield node.lineno, 0, resolve_name(words[0], str(words[-1])), []


_FROM = re.compile(r"\s*from\s+(\.*)\s*([\w.]*)\s+c?import\s+\(?(.*)")
_IMPORT = re.compile(r"\s*c?import\s+(\w.*)")
_CALL = re.compile(r"""\b(?:import_module|__import__)\(\s*["']([\w.]+)["']""")
_STRING = re.compile(
    r'"""(?:[^\\]|\\.)*?"""|\'\'\'(?:[^\\]|\\.)*?\'\'\'|"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'', re.DOTALL
)


def cython_imports(text: str) -> Iterator[Statement]:
    """The same for Cython, which Python's parser does not read; `cdef extern from` names a C header, no module."""
    for found in _CALL.finditer(text):
        yield text.count("\n", 0, found.start()) + 1, 0, found[1], []
    # Strings are blanked (an import in a docstring is none), but their line ends stay, for the line numbers.
    text = re.sub(r"#[^\n]*", "", _STRING.sub(lambda found: "''" + "\n" * found[0].count("\n"), text))
    for line, statement in logical_lines(text):
        if found := _FROM.match(statement):
            yield line, len(found[1]), found[2], imported_names(found[3])
        elif found := _IMPORT.match(statement):
            for name in imported_names(found[1]):
                yield line, 0, name, []


def logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their numbers, those that a bracket or a backslash continues joined to one; `;` separates."""
    whole, start = "", 0
    for number, line in enumerate(text.split("\n"), 1):
        start = start if whole else number
        whole += line.removesuffix("\\") + " "
        if not line.endswith("\\") and whole.count("(") <= whole.count(")"):
            for part in whole.split(";"):
                yield start, part
            whole = ""


def imported_names(text: str) -> list[str]:
    """The names of `a, b as c, d)`."""
    return [part.split()[0] for part in text.rstrip(" )").split(",") if part.strip()]


# --- The rule ----------------------------------------------------------------------------------------------------------


def complaint(room: str, found: Import) -> str | None:
    """What is wrong with an import in a room, or None."""
    first, *rest = found.module.split(".")
    if first != "streamd":
        if first in STANDARD_MODULES_FORBIDDEN.get(room, ()):
            return f"{found.place}: {room} knows nothing of {first}"
        return None
    target = find_room(rest)
    if target == room and (folder := folder_of(found.place)) in INSIDE and len(rest) > 1:
        inside = rest[1]
        if inside == folder.partition(".")[2] or inside in INSIDE[folder] or inside not in parts_of(room):
            return None
        return f"{found.place}: {folder} imports {found.module}"
    if room == TOP or target == room or target not in known_modules():
        return None
    if room in LEAVES:
        return f"{found.place}: {room} is a leaf and imports {found.module}"
    if target in LEAVES:
        return None
    if target in ROOMS.get(room, ()):
        return None
    return f"{found.place}: {room} imports {found.module}"


def folder_of(place: str) -> str:
    """The folder inside a room, as the table names it, that a place lies in; empty for a module of the room itself."""
    parts = place.partition(":")[0].split("/")
    return ".".join(parts[1:3]) if len(parts) > 3 else ""


def parts_of(room: str) -> set[str]:
    """The modules and folders of a room."""
    return {path.stem for path in (PACKAGE / room).iterdir()}


def known_modules() -> set[str]:
    """What `streamd.NAME` may be besides a constant of the package: rooms, and modules at the top."""
    return {*ROOMS, *(path.stem for path in PACKAGE.glob("*.py"))} - {"__init__"}


def sources() -> list[Path]:
    return sorted(path for suffix in ("py", "pyi", "pyx", "pxd") for path in PACKAGE.rglob(f"*.{suffix}"))


# --- Circles -----------------------------------------------------------------------------------------------------------

ROOT = PACKAGE.parent

PROGRAMS = ("streamd", "pyspark_streamd", "benchmarks")
"""The packages whose modules must not import each other in a circle, be it inside a room."""


Graph = dict[str, set[str]]
"""For each module those that it imports."""


def module_of(path: Path) -> str:
    """The dotted name of a source file; a package's is that of its `__init__`."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def draw_graph(texts: dict[Path, str]) -> Graph:
    """Who imports whom, of source files and what is in them. The files of one module are drawn as one."""
    graph: Graph = {module_of(path): set() for path in texts}
    for path, text in texts.items():
        module = module_of(path)
        package = module.split(".") if path.stem == "__init__" else module.split(".")[:-1]
        read = python_imports if path.suffix in (".py", ".pyi") else cython_imports
        for _, level, imported, names in read(text):
            base = ".".join([*package[: len(package) - level + 1], *([imported] if imported else [])])
            target = base if level else imported
            # `from package import name` imports a module when there is one of this name, else what the package itself has.
            wanted = {f"{target}.{name}" if f"{target}.{name}" in graph else target for name in names or [""]}
            graph[module] |= {each for each in wanted if each in graph and each != module}
    return graph


def find_circles(graph: Graph) -> list[list[str]]:
    """The circles of a graph: modules that reach each other, those that do together, in order."""
    reached: Graph = {}
    for module in graph:
        seen: set[str] = set()
        left = [*graph[module]]
        while left:
            if (each := left.pop()) not in seen:
                seen.add(each)
                left += graph[each]
        reached[module] = seen
    circles = {tuple(sorted(each for each in reached[module] if module in reached[each])) for module in graph}
    return sorted(list(circle) for circle in circles if circle)


def program_texts() -> dict[Path, str]:
    suffixes = (".py", ".pyi", ".pyx", ".pxd")
    paths = (path for name in PROGRAMS for path in sorted((ROOT / name).rglob("*")) if path.suffix in suffixes)
    return {path: path.read_text(encoding="utf-8") for path in paths}


# --- The tests -----------------------------------------------------------------------------------------------------------


def test_the_table_has_every_room_and_no_other() -> None:
    folders = {room_of(path) for path in sources() if path.parent != PACKAGE}
    assert folders == set(ROOMS)
    assert {path.stem for path in sources() if path.parent == PACKAGE} >= LEAVES


def test_the_table_names_rooms_and_goes_one_way() -> None:
    left = dict(ROOMS)
    while left:
        lowest = {room for room, imports in left.items() if not imports & set(left)}
        assert lowest, f"these import each other: {', '.join(left)}"
        for room in lowest:
            assert left.pop(room) <= set(ROOMS), f"{room} may import what is no room"
    leaves = {imports for rooms, imports in TABLE if "`" not in imports and "." not in "".join(rooms)}
    assert leaves == {"nothing", "leaves"}


def test_the_rows_inside_rooms_name_folders_and_parts_of_the_room() -> None:
    for folder, imports in INSIDE.items():
        room, _, name = folder.partition(".")
        assert (PACKAGE / room / name).is_dir(), f"there is no {folder}"
        assert imports <= parts_of(room), f"{folder} may import what {room} does not have"


def test_rooms_import_only_the_rooms_beside_them() -> None:
    found = [
        reason
        for path in sources()
        for each in imports_of(path, path.read_text(encoding="utf-8"))
        if (reason := complaint(room_of(path), each)) is not None
    ]
    assert not found, "\n" + "\n".join(found)


def test_the_imports_of_the_package_are_seen() -> None:
    seen = {each.module for path in sources() for each in imports_of(path, path.read_text(encoding="utf-8"))}
    assert {"streamd.errors", "streamd.keyspace.database", "streamd.protocol.reply", "streamd.core.spec"} <= seen


@pytest.mark.parametrize(
    ("file", "text", "complains"),
    [
        ("engine/x.py", "from streamd.protocol.reply import ReplyWriter", True),
        ("engine/x.pyx", "from streamd.protocol.reply cimport ReplyWriter", True),
        ("engine/x.pxd", "cimport streamd.protocol.reply as reply", True),
        ("engine/x.pyx", "    from streamd.protocol import (\n        reply,\n    )", True),
        ("engine/x.pyx", "from ..protocol.reply cimport ReplyWriter", True),
        ("engine/x.pyx", "from .rax cimport Rax", False),
        ("engine/x.pyx", "from streamd.engine.rax cimport Rax\nfrom streamd.errors import StreamdError", False),
        ("engine/x.pyx", '"""\nfrom streamd.protocol import reply\n"""', False),
        ("engine/x.pyx", "# from streamd.protocol import reply", False),
        ("engine/x.pyx", 'x = "; import time"', False),
        ("engine/x.pyx", "import os; import time", True),
        ("engine/x.pyx", "import os, \\\n    time", True),
        ("engine/x.pyx", 'cdef extern from "<time.h>" nogil:\n    pass', False),
        ("engine/x.py", "def f():\n    import asyncio", True),
        ("engine/x.py", "from streamd import protocol", True),
        ("engine/x.py", "from streamd import __version__", False),
        ("protocol/x.py", "import streamd.engine.rax", True),
        ("keyspace/x.pxd", "from streamd.core.client cimport Client", True),
        ("keyspace/x.py", "from streamd.keyspace.commands import keys", True),
        ("keyspace/x.py", "import time", True),
        ("keyspace/commands/x.py", "from streamd.keyspace.database import Database", False),
        ("keyspace/commands/x.py", "from streamd.core.spec import command", False),
        (
            "keyspace/commands/x.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import streamd.serve.app",
            True,
        ),
        ("keyspace/commands/x.py", "import time", False),
        ("core/x.pyx", "from streamd.keyspace.database cimport Database", False),
        ("cluster/bus/x.py", "from streamd.core.capability import Capability", True),
        ("cluster/bus/x.py", "import time", True),
        ("cluster/bus/x.py", "from streamd.errors import CommandError", False),
        ("cluster/x.py", "from streamd.cluster.bus.core import ClusterCore", False),
        ("core/x.py", "from streamd.cluster.bus.nodes import Node", True),
        ("core/x.py", "from streamd.keyspace.commands.expiry import Expiry", True),
        ("core/x.py", "from streamd.keyspace import commands", True),
        ("core/x.py", "from selectors import DefaultSelector", True),
        ("persistence/x.py", "from streamd.keyspace.commands import keys", True),
        ("persistence/x.py", "from streamd.engine import rax", False),
        ("persistence/x.py", "from streamd.serve import app", True),
        ("serve/x.pyx", "from streamd.core.context cimport Context", False),
        ("serve/x.py", "from streamd.cli import main", True),
        ("persistence/rdb/x.py", "from streamd.persistence.aof import file", True),
        ("persistence/rdb/x.pyx", "from ..aof.reader cimport Reader", True),
        ("persistence/rdb/x.pyx", "from .read cimport Reader", False),
        ("persistence/rdb/x.py", "from streamd.persistence import aof", True),
        ("persistence/aof/x.py", "from streamd.persistence.rdb.read import x", False),
        ("persistence/x.py", "from streamd.persistence.aof import file", False),
        ("values/streams/x.pyx", "from streamd.values.strings cimport x", True),
        ("values/streams/x.pyx", "from streamd.values.streams.group cimport Group", False),
        ("values/strings/x.pyx", "from ..streams.stream cimport Stream", True),
        ("spark/source/x.py", "from streamd.spark.sink.writer import x", True),
        ("archive/x.py", 'import importlib\nimportlib.import_module("streamd.spark.session")', True),
        ("archive/x.py", 'from importlib import import_module\nimport_module(".session", "streamd.spark")', True),
        ("archive/x.py", '__import__("pyspark.sql")', True),
        ("arrow/x.pyx", "__import__('streamd.report.page')", True),
        ("arrow/x.py", "from streamd.report import page", True),
        ("client/x.py", "from streamd.arrow import decode", True),
        ("transfer/x.py", "from streamd.archive.lock import ArchiveLock", True),
        ("transfer/x.py", "def f():\n    from pyspark.sql import SparkSession", True),
        (
            "report/x.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from pyspark.sql import DataFrame",
            True,
        ),
        ("entry_id.py", 'import importlib\nimportlib.import_module("streamd.errors")', True),
        ("printable.py", 'import importlib\nimportlib.import_module("streamd.engine.glob")', True),
        ("spark/x.py", "from streamd.entry_id import parse_id", False),
        ("spark/x.py", "from streamd.engine import rax", True),
        ("cli/x.py", "from streamd.engine import rax", True),
        ("cli/x.py", "from streamd.serve import app", False),
        ("entry_id.py", "from streamd.engine import ids", True),
        ("entry_id.py", "import re", False),
        ("embedded/x.py", "from streamd.serve import app", False),
    ],
)
def test_a_planted_import_is_seen(file: str, text: str, complains: bool) -> None:
    path = PACKAGE / file
    reasons = [complaint(room_of(path), each) for each in imports_of(path, text)]
    assert any(reasons) is complains


def test_no_modules_import_each_other() -> None:
    circles = find_circles(draw_graph(program_texts()))
    assert not circles, "\n" + "\n".join(" <-> ".join(circle) for circle in circles)


def knows_a_type(path: Path, module: str) -> bool:
    """Whether an import reaches into the room of a type of value from outside it, other than by way of serve."""
    parts, wanted = path.relative_to(PACKAGE).parts, module.split(".")
    if wanted[1:2] != ["values"] or len(wanted) < 3:
        return False
    is_list = parts == ("values", "__init__.py")
    return not is_list and parts[0] != "serve" and parts[1:2] != (wanted[2],)


def test_a_type_of_value_is_known_in_its_room_alone() -> None:
    found = [
        f"{each.place} knows {each.module}"
        for path in sources()
        for each in imports_of(path, path.read_text(encoding="utf-8"))
        if knows_a_type(path, each.module)
    ]
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("file", "text", "knows"),
    [
        ("persistence/x.py", "from streamd.values.streams.stream_type import StreamType", True),
        ("core/x.pyx", "from streamd.values.streams.stream cimport Stream", True),
        ("engine/x.pxd", "from ..values.streams.pel cimport Pel", True),
        ("values/strings/x.pyx", "from streamd.values.streams.waiting cimport GroupQuestion", True),
        ("values/strings/x.pyx", "from streamd.values.strings.stored cimport set_string", False),
        ("cli/x.py", "import streamd.values", False),
        ("values/__init__.py", "from streamd.values.streams.stream_type import StreamType", False),
    ],
)
def test_a_planted_import_of_a_type_is_seen(file: str, text: str, knows: bool) -> None:
    assert any(knows_a_type(PACKAGE / file, each.module) for each in imports_of(PACKAGE / file, text)) is knows


@pytest.mark.parametrize(
    ("files", "circles"),
    [
        ({"spark/a.py": "from streamd.spark import b", "spark/b.py": "from streamd.spark.a import A"}, ["a b"]),
        ({"spark/a.py": "from streamd.spark.b import B", "spark/b.py": "import streamd.spark.c"}, []),
        ({"spark/a.pyx": "from streamd.spark.b cimport B", "spark/b.pxd": "from .a cimport A"}, ["a b"]),
        ({"spark/a.pyx": "from . cimport b", "spark/b.pyx": "from . cimport c", "spark/c.pxd": "from .a cimport A"}, ["a b c"]),
        ({"spark/a.pyx": "from .b cimport B", "spark/a.pxd": "", "spark/b.py": "def f():\n    from .a import A"}, ["a b"]),
        ({"spark/a.py": "from .b import B", "spark/b.py": "from .a import A", "spark/c.py": "from .a import A"}, ["a b"]),
        ({"spark/a.py": "from streamd.spark.a import A"}, []),
    ],
)  # fmt: skip
def test_a_planted_circle_is_found(files: dict[str, str], circles: list[str]) -> None:
    found = find_circles(draw_graph({PACKAGE / name: text for name, text in files.items()}))
    assert [" ".join(each.rpartition(".")[2] for each in circle) for circle in found] == circles


def test_rooms_outside_are_imported_without_pyspark() -> None:
    names = [module_of(path) for path in sources() if room_of(path) in WITHOUT_SPARK and path.suffix in (".py", ".pyx")]
    program = f"import importlib, sys; [*map(importlib.import_module, {names})]; sys.exit('pyspark' in sys.modules)"
    assert len(names) > 50
    subprocess.run([sys.executable, "-W", "error", "-c", program], cwd=ROOT, check=True)
