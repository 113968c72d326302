"""Archives in object stores that Spark's tasks write to. A session learns of a store when it starts, so these have one of their own.

The stories are told in support/archives/spark_archives.py, by a process for each store.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("obstore", reason="object stores need streamd-server[store]")
pytest.importorskip("moto.server", reason="the emulators come with streamd-server[test]")

from support.archives.object_stores import LocalStore, running_store
from support.servers import python_environment

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(400)]

Tell = Callable[[str, dict[str, str]], str | None]


# What differs between them is tested without Spark, in test_store.py.
@pytest.fixture(scope="module", params=["s3", *(pytest.param(each, marks=pytest.mark.slow) for each in ("gs", "az"))])
def emulator(request: pytest.FixtureRequest) -> Iterator[LocalStore]:
    with running_store(request.param) as found:
        yield found


@pytest.fixture(scope="module")
def tell(java: Path, emulator: LocalStore, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tell]:
    """Have a story told in a place of its own; None, or what failed."""
    folder = tmp_path_factory.mktemp("stories")
    env = python_environment() | emulator.environment(emulator.endpoint) | {"TMPDIR": str(folder)}
    env["PYTHONPATH"] = str(Path(__file__).parents[1]) + os.pathsep + env["PYTHONPATH"]
    command = [sys.executable, "-m", "support.archives.spark_archives"]
    log = folder / "log"
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=folder
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        stdin, stdout = process.stdin, process.stdout

        def ask(story: str, options: dict[str, str]) -> str | None:
            place = emulator.make_bucket(story.replace("_", "-")) + "/archives/one"
            stdin.write(json.dumps({"story": story, "place": place, "options": options}) + "\n")
            stdin.flush()
            answer = stdout.readline()
            assert answer, log.read_text(errors="replace")[-5000:]
            found: str | None = json.loads(answer)
            return found

        yield ask
        stdin.close()
        process.wait(200)


@pytest.mark.parametrize("story", ["kills", "failing_tasks", "reading"])
@pytest.mark.usefixtures("store")
def test_story(story: str, tell: Tell, source_options: dict[str, str]) -> None:
    fault = tell(story, source_options)
    assert fault is None, fault
