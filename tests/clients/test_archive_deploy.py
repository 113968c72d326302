"""The files that run the archiver: valid, and with command lines that archive."""

from __future__ import annotations

import re
import shlex
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from support.servers import Server, eventually, python_environment

pytest.importorskip("pyarrow")

from streamd.cli.archive import group

pytestmark = pytest.mark.long

FOLDER = Path(__file__).parents[2] / "deploy" / "archive"
UNITS = sorted(FOLDER.glob("*.service")) + sorted(FOLDER.glob("*.timer"))
MANIFESTS = ("cronjob.yaml", "deployment.yaml", "compose.yaml")
PROGRAM = "/opt/streamd/bin/streamd"


def documents(name: str) -> list[Any]:
    yaml = pytest.importorskip("yaml")
    return list(yaml.safe_load_all((FOLDER / name).read_text()))


def words_of_unit(name: str) -> list[str]:
    found = re.search(r"^ExecStart=(.*)", (FOLDER / name).read_text(), re.MULTILINE)
    assert found is not None
    return shlex.split(found[1])


def commands_below(found: Any) -> Iterator[list[str]]:
    """Every command line of streamd in a manifest."""
    if isinstance(found, dict):
        for name, value in found.items():
            words = shlex.split(value) if isinstance(value, str) and name == "command" else value
            if isinstance(words, list) and "streamd" in words and "archive" in words:
                yield list(map(str, words))
            else:
                yield from commands_below(value)
    elif isinstance(found, list):
        for each in found:
            yield from commands_below(each)


def commands() -> list[tuple[str, list[str]]]:
    found = [(unit.name, words_of_unit(unit.name)) for unit in UNITS if unit.suffix == ".service"]
    for name in MANIFESTS:
        found += [(name, words) for words in commands_below(documents(name))]
    return found


def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("needs systemd-analyze")
    copies = [tmp_path / unit.name for unit in UNITS]
    for unit, copy in zip(UNITS, copies, strict=True):
        copy.write_text(unit.read_text().replace(PROGRAM, "/bin/true"))
    said = subprocess.run(["systemd-analyze", "verify", "--man=no", *copies], capture_output=True, text=True)
    assert (said.returncode, [line for line in said.stderr.splitlines() if str(tmp_path) in line]) == (0, [])


def test_every_command_line_is_one_that_the_program_accepts() -> None:
    found = commands()
    assert [name for name, _ in found] == [
        "streamd-archive-once.service", "streamd-archive.service", "cronjob.yaml", "deployment.yaml", "deployment.yaml",
        "compose.yaml", "compose.yaml",
    ]  # fmt: skip
    for name, words in found:
        command, *arguments = words[words.index("archive") + 1 :]
        made = group.commands[command].make_context(command, arguments)
        assert made.params["path"] == words[words.index("archive") + 2], name
        is_service = command == "run" and "once" not in name and name != "cronjob.yaml"
        assert (made.params.get("every") == 30_000) is is_service, name


def test_manifests_have_what_they_refer_to() -> None:
    for name in ("cronjob.yaml", "deployment.yaml"):
        claim, job = documents(name)
        pod = (job["spec"]["jobTemplate"]["spec"] if job["kind"] == "CronJob" else job["spec"])["template"]["spec"]
        (volume,), (container,) = pod["volumes"], pod["containers"]
        assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
        assert [each["name"] for each in container["volumeMounts"]] == [volume["name"]]
    assert job["spec"]["selector"]["matchLabels"] == job["spec"]["template"]["metadata"]["labels"]
    (compose,) = documents("compose.yaml")
    mounted = {each.partition(":")[0] for service in compose["services"].values() for each in service["volumes"]}
    assert mounted == compose["volumes"].keys()


def test_the_image_has_the_packages_of_the_extras() -> None:
    extras = tomllib.loads((FOLDER.parents[1] / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    wanted = {each for name in ("archive", "store") for each in extras[name] if not each.startswith("streamd-server")}
    assert set(re.findall(r"'([^']*)'", (FOLDER / "Dockerfile").read_text())) == wanted


def prepared(words: list[str], port: int, tmp_path: Path) -> list[str]:
    """A command line of a unit, with another program, folder and server."""
    places = {PROGRAM: sys.executable, "/var/lib/streamd-archive/streams": str(tmp_path / "archive")}
    arguments = [places.get(each, each.replace("127.0.0.1:6379", f"127.0.0.1:{port}")) for each in words]
    return [arguments[0], "-m", "streamd", *arguments[1:]]


def test_the_units_archive(streamd_server: Server, tmp_path: Path) -> None:
    port = streamd_server.port
    with redis.Redis(port=port) as store:
        store.flushall()
        store.xadd("readings", {"a": 1}, id="1000-0")
        once = prepared(words_of_unit("streamd-archive-once.service"), port, tmp_path)
        said = subprocess.run(once, env=python_environment(), capture_output=True, text=True, timeout=100, check=True)
        assert said.stdout.startswith("readings: 1 entries up to 1000-0")
        store.xadd("readings", {"a": 2}, id="2000-0")
        served = prepared(words_of_unit("streamd-archive.service"), port, tmp_path)
        with subprocess.Popen(served, env=python_environment(), stdout=subprocess.PIPE, text=True) as service:
            try:
                assert service.stdout is not None
                assert "readings: 1 entries up to 2000-0" in service.stdout.readline()
                service.send_signal(signal.SIGTERM)
                assert service.wait(100) == 0
            finally:
                service.kill()
        eventually(lambda: not store.keys("streamd:archive:lock:*"))
