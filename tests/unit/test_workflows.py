"""The workflows: in order by actionlint, and of steps that run on any machine; the files for deploying name what there is."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def test_actionlint_finds_nothing() -> None:
    actionlint = shutil.which("actionlint", path=str(Path(sys.executable).parent)) or shutil.which("actionlint")
    if actionlint is None:
        pytest.skip("needs actionlint, of the extra `dev`")
    said = subprocess.run([actionlint, *map(str, WORKFLOWS)], capture_output=True, text=True, cwd=ROOT)
    assert said.stdout == ""


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_scripts_of_steps_are_there(workflow: Path) -> None:
    for script in re.findall(r"(?<![\w/])(\.ci/[\w-]+|\./install)", workflow.read_text()):
        assert (ROOT / script).stat().st_mode & 0o111, script


def test_there_are_workflows_to_look_at() -> None:
    assert {path.stem for path in WORKFLOWS} == {"image", "release", "tests", "wheels"}


def test_the_versions_of_python_are_those_of_the_package() -> None:
    settings = (ROOT / "pyproject.toml").read_text()
    oldest = re.search(r'requires-python = ">=3\.(\d+)"', settings)
    built = re.findall(r"cp3(\d+)-\*", settings.partition("[tool.cibuildwheel]")[2])
    assert oldest is not None
    assert built
    assert min(map(int, built)) == int(oldest[1])


def test_a_tag_is_the_version_that_the_sources_state(tmp_path: Path) -> None:
    said = subprocess.run([ROOT / ".ci" / "tag", "v0.0.0"], capture_output=True, text=True)
    assert said.returncode == 1
    assert said.stderr.startswith("the tag is v0.0.0, and streamd/__init__.py states ")


@pytest.mark.parametrize("name", ["Dockerfile", "deploy/statefulset.yaml", "streamd/cli/container.py"])
def test_the_health_check_is_the_same_everywhere(name: str) -> None:
    words = re.findall(r"[\w.-]+", (ROOT / name).read_text())
    at = words.index("--health")
    assert words[at - 1] == "streamd.cli.container" or name.endswith(".py")
