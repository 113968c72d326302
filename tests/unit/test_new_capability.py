"""What a new capability takes: one file (tests/support/commands/toy.py) and its name in the list of all.

In a process of its own, since commands and settings are declared for a whole process.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]


def check() -> None:
    from support.commands.hosts import Host
    from support.commands.toy import Toy

    with Host(more=[Toy]) as host:
        toy = host.server.get(Toy)
        client = host.connect()
        assert client.ask("STREAMD.TOY", 3) == 6
        assert client.ask("CONFIG", "SET", "toy-step", 5) == b"OK"
        assert client.ask("CONFIG", "GET", "toy-*") == [b"toy-step", b"5"]
        assert str(client.ask("CONFIG", "SET", "toy-step", 11)).endswith("argument must be between 1 and 10 inclusive")
        assert client.ask("STREAMD.TOY", 1) == 11
        assert b"toy_count:11\r\n" in client.ask("INFO", "stats")
        assert client.ask("INFO", "toys") == b"# Toys\r\ntoy_step:5\r\n"
        assert client.ask("CONFIG", "RESETSTAT") == b"OK"
        assert toy.count == 0
        host.server._cron()
        assert toy.cron_steps == 0
        host.server.wake(toy)
        host.server._cron()
        assert toy.cron_steps == 1
        client.close()
        assert toy.gone == 1


def test_a_capability_is_one_file_and_one_line() -> None:
    code = "from unit import test_new_capability; test_new_capability.check()"
    paths = [str(TESTS), str(TESTS.parent)]
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {paths!r}; {code}"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr


def test_no_other_file_names_it() -> None:
    package = TESTS.parent / "streamd"
    named = [path for path in package.rglob("*.p*") if path.suffix != ".pyc" and b"toy" in path.read_bytes().lower()]
    assert named == []
