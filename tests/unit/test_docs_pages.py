"""The pages about Spark, archives and reports: what they name exists, and their Python compiles and imports."""

from __future__ import annotations

import ast
import importlib
import re
import shlex
from pathlib import Path

import click
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from streamd.cli.subcommands import program
from streamd.client.url_options import ConnectionOptions, option_rows
from streamd.spark.manual import render
from streamd.transfer.read_options import SourceOptions
from streamd.transfer.write_options import SinkOptions

ROOT = Path(__file__).parents[2]
PAGES = ("docs/spark.md", "docs/archive.md", "docs/moving-data.md", "docs/reports.md", "docs/migration.md", "README.md")

CLIENTS = {"archive": "group", "export": "command", "history": "history", "load": "command", "report": "report"}
"""The modules of `streamd.cli` that the pages about files are about, and what in them is the command."""

OPTIONS = {
    each.metadata["name"] for cls in (ConnectionOptions, SourceOptions, SinkOptions) for each in option_rows(cls)
} | {"checkpointLocation"}


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def commands_of(page: str) -> list[str]:
    """The command lines of `streamd archive`, `export`, `history`, `import`, `load` and `report`, those without arguments left out."""
    names = "archive|export|history|import|load|report"
    found = re.findall(rf"(?:^ *|`|\| )(streamd (?:{names})\b[^`\n#|]*)", text_of(page), re.MULTILINE)
    return [line.strip() for line in found if " " in line.removeprefix("streamd ").removeprefix("archive ").strip()]


def snippets_of(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", text_of(page), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("line", [line for page in PAGES for line in commands_of(page)])
def test_commands_are_there_with_their_options(line: str) -> None:
    command: click.Command = program
    name, *arguments = shlex.split(line)
    context = click.Context(command, info_name=name)
    while isinstance(command, click.Group):
        name, found, arguments = command.resolve_command(context, arguments)
        assert found is not None
        if hasattr(found, "_module"):  # imported when it is used
            found = getattr(importlib.import_module(found._module), found._name)
        command = found
        context = click.Context(command, info_name=name)
    command.make_context(name, arguments)


@pytest.mark.parametrize("page", PAGES)
def test_python_compiles_and_its_imports_are_there(page: str) -> None:
    for snippet in snippets_of(page):
        for node in ast.walk(ast.parse(snippet)):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                module = importlib.import_module(node.module)
                assert [each.name for each in node.names if not hasattr(module, each.name)] == []
            elif isinstance(node, ast.Import):
                for each in node.names:
                    importlib.import_module(each.name)


@pytest.mark.parametrize("page", PAGES)
def test_options_of_spark_are_there(page: str) -> None:
    named = {name for snippet in snippets_of(page) for name in re.findall(r'\.option\("(\w+)"', snippet)}
    if page.startswith("docs/"):
        # In sentences, names of options are the only words in camel case.
        named |= set(re.findall(r"`([a-z]+(?:[A-Z][a-z]*)+)[`=]", text_of(page)))
    assert named <= OPTIONS


def test_flags_in_sentences_are_those_of_commands() -> None:
    flags = {
        name
        for path, attribute in CLIENTS.items()
        for command in [getattr(importlib.import_module(f"streamd.cli.{path}"), attribute)]
        for each in (command.commands.values() if isinstance(command, click.Group) else [command])
        for option in each.params
        for name in (*option.opts, *option.secondary_opts)
    }
    for page in PAGES[1:4]:
        assert {*re.findall(r"`(--[a-z-]+)", text_of(page))} <= flags | {"--help"}


def test_the_page_of_options_is_as_it_is_generated() -> None:
    assert text_of("docs/spark-options.md") == render()
