"""An embedded server's life: in a thread and in a process of its own, awaited, killed, restarted, and what it leaves behind."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
import redis
from support.servers import eventually, free_port

import streamd.embedded
from streamd.embedded.hosts import ProcessHost
from streamd.errors import ConfigError
from streamd.process.listening import ListenError

BOTH = pytest.mark.parametrize("own_process", [False, True], ids=["thread", "process"])


@BOTH
def test_data_lies_in_a_temporary_folder_that_goes_with_the_server(
    own_process: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with streamd.embedded.start(own_process=own_process) as server:
        client = server.client()
        client.set("k", "v")
        client.save()
        folder = Path(server.folder)
        assert (folder / "dump.rdb").exists()
    assert not folder.exists()
    assert list(tmp_path.iterdir()) == []


@BOTH
def test_it_restarts_at_the_same_place_with_its_data(own_process: bool) -> None:
    with streamd.embedded.start(own_process=own_process) as server:
        port = server.port
        server.client().set("k", "v")
        server.restart()
        assert server.port == port
        assert server.client().get("k") == b"v"


@BOTH
def test_after_a_kill_there_is_what_the_append_only_file_has(own_process: bool) -> None:
    with streamd.embedded.start(own_process=own_process, appendonly=True, appendfsync="always") as server:
        server.client().set("k", "v")
        server.kill()
        with pytest.raises(redis.ConnectionError, match="Connection refused"):
            server.client().ping()
        server.restart()
        assert server.client().get("k") == b"v"


@BOTH
def test_a_kill_loses_what_was_not_saved(own_process: bool) -> None:
    with streamd.embedded.start(own_process=own_process, save="3600 1") as server:
        server.client().set("k", "v")
        server.kill()
        server.restart()
        assert server.client().get("k") is None


@BOTH
def test_flush_removes_the_keys_of_all_databases(own_process: bool) -> None:
    with streamd.embedded.start(own_process=own_process, requirepass="p@ss/word") as server:
        first, second = server.client(), server.client(db=1)
        first.set("k", "v")
        second.set("k", "v")
        server.flush()
        assert (first.dbsize(), second.dbsize()) == (0, 0)


@BOTH
def test_it_is_awaited_where_an_event_loop_runs(own_process: bool) -> None:
    async def talk() -> bytes | None:
        async with streamd.embedded.start(own_process=own_process) as server:
            client = server.async_client()
            await client.set("k", "v")
            return await client.get("k")

    assert asyncio.run(talk()) == b"v"


@BOTH
def test_await_is_enough(own_process: bool) -> None:
    async def talk() -> bool:
        server = await streamd.embedded.start(own_process=own_process)
        try:
            async with server.async_client() as client:
                return bool(await client.ping())
        finally:
            server.stop()

    assert asyncio.run(talk())


def test_start_does_not_make_an_event_loop_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    may_start = threading.Event()
    original = ProcessHost.wait

    def wait(self: ProcessHost) -> None:
        assert may_start.wait(100)
        original(self)

    monkeypatch.setattr(ProcessHost, "wait", wait)

    async def talk() -> bool:
        server = streamd.embedded.start(own_process=True)
        asyncio.get_running_loop().call_soon(may_start.set)
        async with server, server.async_client() as client:
            return bool(await client.ping())

    assert asyncio.run(talk())


@BOTH
def test_a_port_that_is_taken_is_reported(own_process: bool) -> None:
    with streamd.embedded.start() as server, pytest.raises(ListenError, match="Address already in use"):
        streamd.embedded.start(own_process=own_process, port=server.port)


@BOTH
def test_damaged_data_is_reported(own_process: bool, tmp_path: Path) -> None:
    (tmp_path / "dump.rdb").write_bytes(b"REDIS0011 no")
    with pytest.raises(Exception, match=r"dump\.rdb"):
        streamd.embedded.start(own_process=own_process, dir=str(tmp_path))


def test_the_process_ends_with_the_program_that_started_it() -> None:
    code = (
        "import os, signal, streamd.embedded\n"
        "server = streamd.embedded.start(own_process=True)\n"
        "print(server._host.pid, server.folder, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert said.returncode == -signal.SIGKILL
    pid, folder = said.stdout.split()
    eventually(lambda: not Path(f"/proc/{pid}").exists() or is_zombie(pid), what="the end of the server's process")
    eventually(lambda: not Path(folder).exists(), what="the end of its folder")


def is_zombie(pid: str) -> bool:
    try:
        return ") Z " in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True


@BOTH
def test_a_program_that_forgets_to_stop_ends_quietly_and_leaves_nothing(own_process: bool) -> None:
    code = (
        "import streamd.embedded\n"
        f"server = streamd.embedded.start(own_process={own_process})\n"
        "client = server.client()\n"
        "client.set('k', 'v')\n"
        "print(server.folder)\n"
    )
    said = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert (said.returncode, said.stderr) == (0, "")
    assert not Path(said.stdout.strip()).exists()


def test_what_the_process_hears_of_ctrl_c_is_nothing() -> None:
    with streamd.embedded.start(own_process=True) as server:
        assert isinstance(server._host, ProcessHost)
        os.kill(server._host.pid, signal.SIGINT)
        assert server.client().ping()


# --- Where it is ----------------------------------------------------------------------------------------------------------


def test_the_url_has_the_password() -> None:
    with (
        streamd.embedded.start(requirepass="p@ss/wörd") as server,
        closing(redis.Redis.from_url(server.url)) as client,
    ):
        assert client.ping()


def test_the_url_is_that_of_the_socket_when_there_is_no_port(tmp_path: Path) -> None:
    with (
        streamd.embedded.start(port=0, unixsocket=tmp_path / "a b.sock", requirepass="secret") as server,
        closing(redis.Redis.from_url(server.url)) as client,
    ):
        assert client.ping()
        server.flush()


@BOTH
def test_the_url_is_that_of_tls_when_there_is_no_other_port(own_process: bool, tmp_path: Path) -> None:
    make_certificate(tmp_path)
    with streamd.embedded.start(
        own_process=own_process, port=0, tls_port=free_port(), tls_cert_file=tmp_path / "cert.pem",
        tls_key_file=tmp_path / "key.pem", tls_ca_cert_file=tmp_path / "cert.pem",
    ) as server:  # fmt: skip
        assert server.url.startswith("rediss://")
        assert server.client().ping()
        server.flush()


def make_certificate(folder: Path) -> None:
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", "key.pem", "-out", "cert.pem"],
        cwd=folder, check=True, capture_output=True,
    )  # fmt: skip


# --- Settings -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("save", ["60 1 300 10", (60, 1, 300, 10), [(60, 1), (300, 10)], ["60", "1", "300", "10"]])
def test_a_value_may_be_whatever_means_the_same(save: object) -> None:
    with streamd.embedded.start(save=save, appendonly=0, maxmemory="10mb", requirepass=None) as server:
        client = server.client(decode_responses=True)
        assert client.config_get("save") == {"save": "60 1 300 10"}
        assert client.config_get("appendonly") == {"appendonly": "no"}


def test_the_nearest_name_is_in_the_error() -> None:
    with pytest.raises(ConfigError, match=r"there is no setting max_memory; did you mean maxmemory\?"):
        streamd.embedded.start(max_memory=5)


def test_an_error_names_the_setting() -> None:
    with pytest.raises(ConfigError, match=r"^appendonly: argument must be 'yes' or 'no'$"):
        streamd.embedded.start(appendonly="perhaps")


def test_a_refused_setting_leaves_no_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    with pytest.raises(ConfigError, match="there is no setting no_such_setting"):
        streamd.embedded.start(no_such_setting=5)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform != "linux", reason="counts threads in /proc")
def test_a_start_that_fails_leaves_neither_thread_nor_descriptor() -> None:
    def held() -> tuple[int, int]:
        gc.collect()
        return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))

    with socket.create_server(("127.0.0.1", 0)) as taken:
        before = held()
        for _ in range(2):
            with pytest.raises(ListenError, match="Address already in use"):
                streamd.embedded.start(port=taken.getsockname()[1], io_threads=4)
        eventually(lambda: held() == before, what="threads and descriptors have gone")


def test_a_process_answers_at_once_beside_busy_threads() -> None:
    """Not timed: that it answers at all while the program's threads compute."""
    is_over = threading.Event()

    def compute() -> None:
        while not is_over.is_set():
            sum(range(1000))

    busy = [threading.Thread(target=compute) for _ in range(2)]
    with streamd.embedded.start(own_process=True) as server:
        client = server.client()
        for thread in busy:
            thread.start()
        started = time.monotonic()
        for _ in range(10):
            assert client.ping()
        is_over.set()
        assert time.monotonic() - started < 60
        for thread in busy:
            thread.join()
