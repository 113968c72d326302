"""The server as seen by the embedding program: its address, clients for it, stopping and restarting it."""

from __future__ import annotations

import asyncio
import atexit
import os
import shutil
import tempfile
import threading
import weakref
from collections.abc import Generator
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from streamd.client.connection import Connection, dial
from streamd.client.place import Place
from streamd.embedded.hosts import ProcessHost, ThreadHost
from streamd.errors import StreamdError
from streamd.settings.config import Config, as_arguments

if TYPE_CHECKING:
    from types import TracebackType

    import redis
    import redis.asyncio

__all__ = ["EmbeddedServer", "start"]

_all: weakref.WeakSet[EmbeddedServer] = weakref.WeakSet()
"""Servers to stop if the program ends without stopping them."""


def start(*, own_process: bool = False, **settings: Any) -> EmbeddedServer:
    """Start a server on a free port of the loopback address and return it when it serves.

    own_process  in its own process, not in a thread
    settings     by their names, `-` written as `_`, with any value that means the same as in a file: appendonly=True,
                 save="60 1", maxmemory=2**20; `port` may be given too, and `dir`, which is a temporary folder otherwise
    Raises ConfigError for a setting that cannot be accepted, ListenError when the port is not available.

    A running event loop is not blocked: the server is returned at once, and is ready after `async with` or `await`,
    which raise what prevented the start.
    """
    server = EmbeddedServer(settings, own_process=own_process)
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        server.wait_until_ready()
    return server


class EmbeddedServer:
    """A running server; a context manager, `with` or `async with`, that stops it. Made by `start`.

    host  where it listens
    """

    def __init__(self, settings: dict[str, Any], *, own_process: bool) -> None:
        self.host = "127.0.0.1"
        self._settings = settings
        self._own_process = own_process
        self._config = Config.for_embedding(settings)
        self._folder: str | None = None
        if not self._config.dir:
            self._folder = tempfile.mkdtemp(prefix="streamd-")
            self._settings = settings | {"dir": self._folder}
        self._maker = os.getpid()
        self._lock = threading.Lock()
        self._clients: list[weakref.ref[redis.Redis]] = []
        self._async_clients: list[weakref.ref[redis.asyncio.Redis]] = []
        self._connection: Connection | None = None
        self._is_ready = False
        self._advanced_us = 0
        self._host: ThreadHost | ProcessHost | None = self._begin(any_port="port" not in settings)
        _all.add(self)

    def _begin(self, *, any_port: bool) -> ThreadHost | ProcessHost:
        self._is_ready = False
        if self._own_process:
            settings = {name: as_arguments(value) for name, value in self._settings.items()}
            return ProcessHost(settings, any_port=any_port, lost_folder=self._folder)
        return ThreadHost(self._settings, any_port=any_port)

    def wait_until_ready(self) -> None:
        """Return when it serves; raises what prevented that. A second call does nothing."""
        if self._is_ready or self._host is None:
            return
        try:
            self._host.wait()
        except BaseException:
            self._host = None
            self._forget_folder()
            raise
        self._is_ready = True

    # --- Where it is -----------------------------------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        """Whether it has neither been stopped nor ended by itself."""
        return self._host is not None and not self._host.is_over

    @property
    def port(self) -> int:
        """The TCP port; 0 if the settings disable it."""
        self.wait_until_ready()
        return self._host.port if self._host is not None else self._settings.get("port", 0)

    @property
    def folder(self) -> str:
        """The folder of its data."""
        return str(self._settings["dir"])

    @property
    def url(self) -> str:
        """The URL for redis-py's `Redis.from_url` and other clients, with password, TLS or unix socket if set."""
        config, port = self._config, self.port
        login = f":{quote(config.requirepass, safe='')}@" if config.requirepass else ""
        if port:
            return f"redis://{login}{self.host}:{port}"
        if config.tls_port:
            files = {
                "ssl_ca_certs": config.tls_ca_cert_file,
                "ssl_certfile": config.tls_cert_file if config.tls_auth_clients == "yes" else "",
                "ssl_keyfile": config.tls_key_file if config.tls_auth_clients == "yes" else "",
            }
            return f"rediss://{login}{self.host}:{config.tls_port}?{urlencode({k: v for k, v in files.items() if v})}"
        return f"unix://{login}{quote(os.path.abspath(config.unixsocket))}"

    # --- Clients ---------------------------------------------------------------------------------------------------

    def client(self, **options: Any) -> redis.Redis:
        """A new redis-py client, created with `options`. It is closed, at the latest, when the server stops.

        It waits for a reply as long as the command does, unless `socket_timeout` says otherwise; redis-py's own default gives up
        after 5 s, whatever BLOCK says.
        """
        import redis

        client = redis.Redis.from_url(self.url, **{"socket_timeout": None, **options})
        self._clients = [each for each in self._clients if each() is not None]
        self._clients.append(weakref.ref(client))
        return client

    def async_client(self, **options: Any) -> redis.asyncio.Redis:
        """The same for asyncio. It is closed at the end of `async with`; elsewhere close it with `aclose`."""
        import redis.asyncio

        client = redis.asyncio.Redis.from_url(self.url, **{"socket_timeout": None, **options})
        self._async_clients.append(weakref.ref(client))
        return client

    def flush(self) -> None:
        """Remove all keys of all databases."""
        self.wait_until_ready()
        with self._lock:
            if self._connection is None:
                self._connection = dial(Place.from_url(self.url))
            self._connection.command("FLUSHALL")

    def advance(self, seconds: float | timedelta) -> None:
        """Set the server's time forward, and return when it has done what is due then.

        Keys and fields expire, pending entries become idle, delays, back-off and rules take effect, clients that wait for
        keys are served or time out, TIME and the IDs of new entries are later. It stays so for as long as the server lives,
        also after `restart`. Connections have clocks of their own.

        Raises StreamdError for a negative time.
        """
        by_us = round((seconds.total_seconds() if isinstance(seconds, timedelta) else seconds) * 1e6)
        if by_us < 0:
            raise StreamdError("the time of a server does not go back")
        self.wait_until_ready()
        if self._host is None:
            raise StreamdError("the server has been stopped")
        self._host.advance(by_us)
        self._advanced_us += by_us

    # --- Its end, and a new beginning ------------------------------------------------------------------------------

    def stop(self) -> None:
        """Close every connection and stop the server; its temporary folder is removed. A second call does nothing.

        Raises StreamdError when it has ended but not all of its data could be written to disk; the log says why.
        """
        try:
            self._end(save=None)
        finally:
            self._forget_folder()
            _all.discard(self)

    def kill(self) -> None:
        """End it as a crash would: nothing is saved, and only what files already hold is there after `restart`.

        In its own process it gets SIGKILL; in a thread, its connections are cut.
        """
        self.wait_until_ready()
        self._close_clients()
        if self._host is not None:
            port = self._host.port
            self._host.kill()
            self._keep(port)

    def restart(self) -> None:
        """Restart it on the same port with its data, which is saved first unless the server was killed or has died."""
        if self._folder is None and "dir" not in self._settings:
            raise StreamdError("the server has been stopped, and its data is gone")
        if self._host is not None:
            self.wait_until_ready()
            self._end(save=True)
        self._host = self._begin(any_port=False)
        _all.add(self)
        self.wait_until_ready()
        if self._advanced_us:
            self._host.advance(self._advanced_us)

    def _end(self, *, save: bool | None) -> None:
        host = self._host
        if host is None:
            return
        self._close_clients()
        if not self._is_ready:
            self.wait_until_ready()
        port = host.port
        try:
            host.stop(save=save)
        finally:
            self._keep(port)

    def _keep(self, port: int) -> None:
        """It has ended; a restart would use the same port."""
        self._host = None
        self._settings = self._settings | {"port": port}

    def _close_clients(self) -> None:
        """Close the clients created here, so that they do not complain about a server that is gone."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None
        for each in self._clients:
            client = each()
            if client is not None:
                client.connection_pool.disconnect()
        self._clients.clear()

    def _forget_folder(self) -> None:
        folder, self._folder = self._folder, None
        if folder is not None and self._maker == os.getpid():
            shutil.rmtree(folder, ignore_errors=True)
            self._settings = {name: value for name, value in self._settings.items() if name != "dir"}

    # --- with, async with, await -----------------------------------------------------------------------------------

    def __enter__(self) -> EmbeddedServer:
        self.wait_until_ready()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> EmbeddedServer:
        await asyncio.get_running_loop().run_in_executor(None, self.wait_until_ready)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in self._async_clients:
            client = each()
            if client is not None:
                await client.aclose()
        self._async_clients.clear()
        await asyncio.sleep(0)  # their transports close in the next turn of the loop
        await asyncio.get_running_loop().run_in_executor(None, self.stop)

    def __await__(self) -> Generator[Any, None, EmbeddedServer]:
        return self.__aenter__().__await__()

    def __repr__(self) -> str:
        where = "has ended" if self._host is None else "starts" if not self._is_ready else self.url.partition("@")[2]
        return f"<EmbeddedServer {where or self.url}>"


@atexit.register
def _stop_all() -> None:
    """Stop what the program has left running before the interpreter tears down its modules."""
    for server in list(_all):
        if server._maker == os.getpid():
            with suppress(Exception):  # there is no caller left to notify; it is logged
                server.stop()
