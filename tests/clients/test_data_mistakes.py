"""What somebody gets wrong who moves data: each is told in one line that names it, with an exit status, in seconds."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.servers import free_port, python_environment

import streamd.embedded

pytestmark = pytest.mark.long

pytest.importorskip("pyarrow", reason="pyarrow is not installed: ./install '.[archive]'")

HERE = ["-p", "{port}"]
RUN = ["archive", "run", "{archive}", "--keep", "0s", "--trim-delay", "0s"]

MISTAKES: list[tuple[str, list[str], int, str]] = [
    (
        "a server that does not run",
        ["history", "readings", "-p", "{unused}"],
        1,
        "Could not connect to 127.0.0.1:{unused}",
    ),
    ("a user who is not known", ["history", "readings", "--url", "redis://bob:x@127.0.0.1:{port}"], 1, "WRONGPASS"),
    ("a user without a password", ["history", "readings", *HERE, "--user", "bob"], 1, "username: needs a password"),
    ("a stream that is not there", ["history", "nosuch", *HERE], 1, "there is no stream 'nosuch'"),
    ("its export", ["export", "nosuch", "--to", "x.csv", *HERE], 1, "there is no stream 'nosuch'"),
    ("its archive", [*RUN, "--stream", "nosuch", *HERE], 1, "there is no stream 'nosuch'"),
    ("its report", ["report", "nosuch", *HERE, "--out", "x.html"], 1, "there is no stream 'nosuch'"),
    ("a key with a string", ["export", "text", "--to", "x.csv", *HERE], 1, "WRONGTYPE"),
    ("a folder that is not there", ["export", "readings", "--to", "none/x.csv", *HERE], 1, "No such file or directory"),
    (
        "a file that is not there",
        ["load", "none.csv", "--into", "x", *HERE],
        1,
        "No such file or directory: 'none.csv'",
    ),
    ("a file of another format", ["load", "cut.parquet", "--into", "x", *HERE], 1, "cut.parquet: Parquet file size"),
    ("a row with a column too many", ["load", "ragged.csv", "--into", "x", *HERE], 1, "Expected 2 columns, got 3"),
    ("a line that is no JSON", ["load", "bad.jsonl", "--into", "x", *HERE], 1, "bad.jsonl: line 2"),
    ("rows of no stream", ["load", "rows.csv", *HERE], 1, "--into does"),
    ("a string for a stream", ["load", "rows.csv", "--into", "text", *HERE], 1, "text does not hold a stream"),
    ("a folder that is no archive", ["archive", "status", "."], 1, "is not an archive: it has no archive.json"),
    ("nothing to publish", ["archive", "publish", "none", "--format", "delta"], 1, "is not an archive"),
    ("a time in words", ["history", "readings", "--since", "yesterday", *HERE], 2, "'yesterday' is not a time"),
    (
        "an option that there is not",
        ["history", "readings", "-o", "nosuch=1", *HERE],
        2,
        "option nosuch: unknown option",
    ),
    ("a file of the archive cut off", ["archive", "verify", "{archive}"], 1, "its manifest says"),
    ("its history", ["history", "readings", "--archive", "{archive}", *HERE], 1, "its manifest says"),
    ("another server", [*RUN, "--stream", "readings", "-p", "{other}"], 1, "A new stream needs a new archive"),
]


def streamd_says(folder: Path, arguments: list[str]) -> tuple[int, str]:
    command = [sys.executable, "-m", "streamd", *arguments]
    done = subprocess.run(
        command,
        cwd=folder,
        env=python_environment(),
        capture_output=True,
        text=True,
        timeout=200,
        stdin=subprocess.DEVNULL,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A server with a stream that is archived, another server, and a folder with files that are no good."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "cut.parquet").write_bytes(b"PAR1")
    (folder / "ragged.csv").write_text("a,b\n1,2\n1,2,3\n")
    (folder / "bad.jsonl").write_text('{"a": 1}\n{a: 2}\n')
    (folder / "rows.csv").write_text("a\n1\n")
    with streamd.embedded.start() as server, streamd.embedded.start() as other:
        with server.client() as client, other.client() as of_other:
            client.set("text", "x")
            for i in range(20):
                client.xadd("readings", {"a": i}, id=f"{1_700_000_000_000 + i}-0")
            of_other.xadd("readings", {"b": 1})
            ports = {
                "port": client.connection_pool.connection_kwargs["port"],
                "other": of_other.connection_pool.connection_kwargs["port"],
                "unused": free_port(),
            }
        archive = folder / "archive"
        found = {"folder": str(folder), "archive": str(archive), **{name: str(port) for name, port in ports.items()}}
        status, said = streamd_says(folder, [word.format(**found) for word in [*RUN, "--stream", "readings", *HERE]])
        assert status == 0, said
        (file,) = archive.rglob("*.parquet")
        file.write_bytes(file.read_bytes()[:-10])
        yield found


@pytest.mark.parametrize(
    ("arguments", "status", "text"), [row[1:] for row in MISTAKES], ids=[row[0] for row in MISTAKES]
)
def test_it_is_told_in_a_line(places: dict[str, str], arguments: list[str], status: int, text: str) -> None:
    folder = Path(places["folder"])
    before = sorted(folder.iterdir())
    found, said = streamd_says(folder, [word.format(**places) for word in arguments])
    assert [line for line in said.splitlines() if text.format(**places) in line], said
    assert found == status, said
    assert "Traceback" not in said
    assert sorted(folder.iterdir()) == before, "something half was left"
