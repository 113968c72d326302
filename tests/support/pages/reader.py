"""Where a reader of the pages stands: a machine of its own, on which blocks run as they are printed.

    with Reader(tmp_path) as reader:
        reader.start("streamd server --port 6379")
        reader.type(block)                       what it printed; fails when a command does

Its network is empty, so port 6379 is free; /var/lib is an empty folder; the hosts that the pages name are addresses of this machine.
The PATH has what the pages use, and no Java. `./install` only looks whether there is such an extra: everything is installed. Everything ends with the reader. Needs Linux with namespaces, and `ip`; `missing` is the
reason for which a test cannot have one.
"""

from __future__ import annotations

import functools
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from ..servers import eventually, find_oracle, python_environment

__all__ = ["ROOT", "Reader", "block", "blocks", "missing"]

ROOT = Path(__file__).parents[3]

HOSTS = {"localhost": "127.0.0.1", "old-host": "127.0.0.2", "replica": "127.0.0.3", "minio": "127.0.0.4", "streamd-host": "127.0.0.1"}  # fmt: skip
"""The hosts that the pages name."""

TOOLS = ("bash", "sh", "cat", "curl", "env", "gzip", "mkdir", "rm", "sleep", "wc", "zcat")

SERVERS = ("redis-server ", "streamd server", "streamd-server")


def namespaces() -> list[str]:
    own_user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *own_user, "--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]


@functools.cache
def missing() -> str | None:
    if not all(map(shutil.which, ("unshare", "nsenter", "ip"))):
        return "needs Linux with unshare, nsenter and ip"
    works = subprocess.run([*namespaces(), "ip", "link", "set", "lo", "up"], capture_output=True).returncode == 0
    return None if works else "may not make namespaces here"


def blocks(page: Path) -> Iterator[str]:
    """The blocks of a page, as a reader copies them."""
    text = page.read_text(encoding="utf-8")
    for found in re.finditer(r"^( *)```\w*\n(.*?)^ *```$", text, re.DOTALL | re.MULTILINE):
        yield re.sub(rf"^{found[1]}", "", found[2], flags=re.MULTILINE)


def block(page: str, first_line: str) -> str:
    """The block of this page that starts like this."""
    (found,) = [each for each in blocks(ROOT / page) if each.lstrip().startswith(first_line)]
    return found


class Reader:
    """A machine for one test.

    folder  an empty one; the working directory is made in it
    """

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.lib = folder / "lib"
        self.programs = folder / "programs"
        for each in (self.home, self.lib, self.programs):
            each.mkdir()
        python = shlex.quote(sys.executable)
        for name, arguments in {"streamd": "-m streamd", "streamd-server": "-m streamd server", "python": ""}.items():
            self.write(self.programs / name, f'exec {python} {arguments} "$@"\n')
        oracle = find_oracle()
        redis = {name: str(oracle.folder / name) for name in ("redis-server", "redis-cli")} if oracle else {}
        for name in (*TOOLS, *redis):
            if path := redis.get(name) or shutil.which(name):
                (self.programs / name).symlink_to(path)
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        known = "|".join(f"'.[{name}]'" for name in extras)
        self.write(self.home / "install", f'case "$*" in {known}) ;; *) echo "install: $*"; exit 1 ;; esac\n')
        hosts = folder / "hosts"
        names = HOSTS | {platform.node(): "127.0.0.1"}
        hosts.write_text("".join(f"{address} {name}\n" for name, address in names.items()))
        mounts = {hosts: "/etc/hosts", self.lib: "/var/lib"}
        self.environment = {
            "PATH": str(self.programs),
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            "PYTHONPATH": python_environment()["PYTHONPATH"],
        }
        self._started: list[subprocess.Popen[bytes]] = []
        self._log = (folder / "servers.log").open("w+")
        prepare = "ip link set lo up" + "".join(
            f" && mount --bind {shlex.quote(str(a))} {b}" for a, b in mounts.items()
        )
        self._machine = subprocess.Popen(
            [*namespaces(), "sh", "-c", f"{prepare} && echo ready && exec sleep infinity"], stdout=subprocess.PIPE
        )
        assert self._machine.stdout is not None
        assert self._machine.stdout.readline() == b"ready\n"
        pid = self._machine.pid
        (self._first,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._machine.kill()
        for each in (self._machine, *self._started):
            each.wait()
        assert self._machine.stdout is not None
        self._machine.stdout.close()
        self._log.close()

    def write(self, path: Path, script: str) -> None:
        path.write_text(f"#!/bin/sh\n{script}")
        path.chmod(0o755)

    def _here(self, command: str) -> list[str]:
        user = [] if os.geteuid() == 0 else ["--preserve-credentials"]
        inside = f"--wd={self.home}"
        nsenter = str(shutil.which("nsenter"))
        return [nsenter, "-t", self._first, "-a", *user, inside, "bash", "-e", "-o", "pipefail", "-c", command]

    def run(self, command: str, answers: str = "", status: int = 0) -> str:
        """Run it in a shell; what it printed, errors too.

        answers  what is typed while it runs
        """
        done = subprocess.run(
            self._here(command), input=answers, env=self.environment, text=True, timeout=300,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        assert done.returncode == status, f"{command}\n{done.stdout}"
        return done.stdout

    def start(self, command: str) -> None:
        """Run it in a terminal of its own; return when the server answers, if it is one."""
        self._started.append(
            subprocess.Popen(
                self._here(command), env=self.environment, stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log
            )
        )
        if command.startswith(SERVERS):
            port = re.search(r"--port (\d+)", command)
            address = re.search(r"--bind ([\d.]+)", command)
            self.await_server(int(port[1]) if port else 6379, address[1] if address else "127.0.0.1")

    def await_server(self, port: int = 6379, address: str = "127.0.0.1") -> None:
        ask = f"redis-cli -h {address} -p {port} PING 2>&1 || true"
        eventually(lambda: self.run(ask) == "PONG\n", what=f"PONG of {address}:{port}, after {self.log()}")

    def type(self, block: str, answers: str = "") -> str:
        """Type a block line by line; a server gets a terminal of its own."""
        printed, lines = "", ""
        for line in (block if block.endswith("\n") else block + "\n").splitlines(keepends=True):
            line = line.removeprefix("$ ")
            if line.startswith(SERVERS) and not line.rstrip().endswith("&"):
                printed += self.run(lines, answers) if lines else ""
                lines = ""
                self.start(line)
            else:
                lines += line
        return printed + (self.run(lines, answers) if lines else "")

    def python(self, text: str) -> str:
        """Run a program."""
        return self.run(f"python - <<'END-OF-PROGRAM'\n{text}\nEND-OF-PROGRAM")

    def log(self) -> str:
        self._log.flush()
        return Path(self._log.name).read_text()
