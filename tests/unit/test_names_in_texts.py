"""What comments, docstrings and pages name exists: files, modules, classes, functions, attributes.

Looked at are paths of files (`engine/rax.pyx`, also without backticks), and what stands in backticks and has the form of a name of
this project: `a/b` (a module), `module.Name`, `Class.attribute`, `some_name`, `_name`, `name()`, `SomeName`. A name exists when it
is a word of the code, be it in a string: settings, fields of INFO and Spark's options are strings. Comments and docstrings do not
count as code, so a name that only they know is one that was renamed or removed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CODE = (".py", ".pyx", ".pxd", ".pyi")
FOLDERS = ("streamd", "pyspark_streamd", "tests", "benchmarks", "setup", "examples")

STRING_OR_COMMENT = re.compile(
    r'(?P<doc>^[ \t]*[rR]?(?P<quote>"""|\'\'\').*?(?P=quote))'
    r'|(?P<string>"""(?:\\.|[^\\])*?"""|\'\'\'(?:\\.|[^\\])*?\'\'\'|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\')'
    r"|(?P<comment>#[^\n]*)",
    re.MULTILINE | re.DOTALL,
)
WORD = re.compile(r"[A-Za-z_]\w*")
FILE = re.compile(r"(?<![\w./*<>{}-])(?:[\w-]+/)*[\w-]+\.(?:pyx|pxd|pyi|py|md)(?![\w*{])")
TICKED = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
MODULE = re.compile(r"[a-z][a-z_]*(?:/[a-z][a-z_]*)+")
NAME = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:\(\))?")

ELSEWHERE = {
    "conftest.py",  # a user's
    "venv/bin/python",  # which ./install makes
    *(
        "fakeredis.FakeRedis()",
        "fakeredis.FakeAsyncRedis()",
        "redis_proc",
        "redis_noproc",
    ),  # what streamd stands in for
    "Trigger.AvailableNow",  # Spark's, in Scala
    "DATA_SOURCE_NOT_FOUND",  # an error of Spark
    "typeWidening",  # a feature of Delta tables
}


def files(*suffixes: str) -> list[Path]:
    """The project's files, without those of builds and environments, and without this one, which names what does not exist."""
    return sorted(
        path
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*")
        if path.suffix in suffixes
        and path != Path(__file__)
        and not {"build", "venv", "node_modules", "__pycache__"} & {*path.relative_to(ROOT).parts}
    )


def split(source: str) -> tuple[str, str]:
    """Code and texts of a module: everything but comments and docstrings, and these."""
    code, texts, at = [], [], 0
    for match in STRING_OR_COMMENT.finditer(source):
        code.append(source[at : match.start()])
        at = match.end()
        (code if match["string"] else texts).append(match[0])
    return "".join([*code, source[at:]]), "\n".join(texts)


@cache
def words() -> frozenset[str]:
    """Every word of the code."""
    found: set[str] = set()
    for path in files(*CODE, ".c", ".h", ".sh"):
        text = path.read_text(encoding="utf-8")
        found |= {*WORD.findall(split(text)[0] if path.suffix in CODE else text)}
        found |= {*path.relative_to(ROOT).with_suffix("").parts}
    return frozenset(found)


@cache
def paths() -> frozenset[str]:
    """Paths of files and folders from each of their parents on; those of modules also without a suffix."""
    found = set()
    top = [path for path in ROOT.iterdir() if path.is_file()] + [
        *(ROOT / "docs").rglob("*"),
        *(ROOT / ".ci").rglob("*"),
    ]
    for path in [*files(*CODE, ".md", ".c", ".h", ".txt", ""), *top]:
        parts = path.relative_to(ROOT).parts
        for start in range(len(parts)):
            found.add("/".join(parts[start:]))
            for end in range(start + 1, len(parts) + 1):
                found.add("/".join(parts[start:end]).removesuffix(path.suffix))
    return frozenset(found)


@cache
def classes() -> dict[str, frozenset[str]]:
    """The words of a class's module, and of those of its bases, by the class's name."""
    found: dict[str, set[str]] = {}
    bases: dict[str, set[str]] = {}
    for path in files(*CODE):
        code = split(path.read_text(encoding="utf-8"))[0]
        for name, given in re.findall(r"^[ \t]*(?:cdef |cpdef )?class (\w+)(?:\(([^)]*)\))?", code, re.MULTILINE):
            found.setdefault(name, set()).update(WORD.findall(code))
            bases.setdefault(name, set()).update(WORD.findall(given))

    def with_bases(name: str, seen: frozenset[str]) -> frozenset[str]:
        above = [with_bases(base, seen | {name}) for base in bases[name] - seen if base in found]
        return frozenset(found[name]).union(*above)

    return {name: with_bases(name, frozenset()) for name in found}


def is_ours(name: str) -> bool:
    """Whether a word has the form of a name in code: an underscore or a capital inside, or a call."""
    return "_" in name.strip("_") or name.startswith("_") or re.search(r"[a-z][A-Z]", name) is not None


def faults(text: str) -> Iterator[str]:
    """The names of a text that do not exist."""
    for file in FILE.findall(text):
        is_placeholder = file.split("/")[-1].split(".")[0].isupper()
        if not is_placeholder and file not in ELSEWHERE and file not in paths():
            yield file
    for ticked in TICKED.findall(text):
        if ticked in ELSEWHERE:
            continue
        if MODULE.fullmatch(ticked):
            if ticked not in paths():
                yield ticked
        elif NAME.fullmatch(ticked):
            *before, last = ticked.removesuffix("()").split(".")
            if before and before[-1] in classes():
                if last not in classes()[before[-1]]:
                    yield ticked
            elif any(each not in words() for each in (*before, last) if before or is_ours(each)):
                yield ticked


def pages() -> list[Path]:
    return [ROOT / "CONTRIBUTING.md", ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_comments_and_docstrings_name_what_exists() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {fault}"
        for path in files(*CODE)
        if path.relative_to(ROOT).parts[0] == "streamd"
        for fault in faults(split(path.read_text(encoding="utf-8"))[1])
    ]
    assert not found


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_pages_name_what_exists(page: Path) -> None:
    assert not [*faults(page.read_text(encoding="utf-8"))]


@pytest.mark.parametrize(
    "text",
    [
        "see server/log.py",
        "see `commands/read`",
        "`dispatch.NoSuchTransaction`",
        "`Config._no_such_attribute`",
        "`no_such_function()`",
        "`_no_such_field`",
        "`NoSuchClass`",
    ],
)
def test_names_that_are_gone_are_found(text: str) -> None:
    assert [*faults(text)]


@pytest.mark.parametrize(
    "text", ["see engine/rax.pyx", "`maxmemory`", "`Config.from_arguments`", "`read()`", "FILE.pyx"]
)
def test_names_that_exist_are_let_pass(text: str) -> None:
    assert [*faults(text)] == []
