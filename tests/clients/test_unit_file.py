"""The unit file for systemd: valid, and its command line starts a server that says when it is ready."""

from __future__ import annotations

import re
import shlex
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from support.servers import free_port, python_environment

UNIT = Path(__file__).parents[2] / "deploy" / "streamd.service"
PROGRAM = "/opt/streamd/bin/streamd-server"


def test_systemd_takes_it(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("needs systemd-analyze")
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace(PROGRAM, "/bin/true"))
    said = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True)
    assert (said.returncode, [line for line in said.stderr.splitlines() if str(unit) in line]) == (0, [])


@pytest.mark.skipif(sys.platform != "linux", reason="systemd")
def test_its_command_line_starts_a_server_that_tells_systemd(tmp_path: Path) -> None:
    found = re.search(r"^ExecStart=(.*)", UNIT.read_text(), re.MULTILINE)
    assert found is not None
    assert re.search("^Type=notify$", UNIT.read_text(), re.MULTILINE)
    (tmp_path / "streamd.conf").write_text(f"port {free_port()}\n")
    line = found[1].replace("/etc/", f"{tmp_path}/").replace("/var/lib/streamd", str(tmp_path))
    program, *options = shlex.split(line)
    assert program == PROGRAM
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
        supervisor.bind(str(tmp_path / "notify"))
        supervisor.settimeout(100)
        command = [sys.executable, "-c", "from streamd.cli.server import main; main()", *options]
        env = python_environment() | {"NOTIFY_SOCKET": str(tmp_path / "notify")}
        server = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL)
        try:
            while supervisor.recv(4096) != b"READY=1\n":
                assert server.poll() is None
            server.terminate()
            assert supervisor.recv(4096) == b"STOPPING=1\n"
            assert server.wait(100) == 0
        finally:
            server.kill()
            server.wait()
