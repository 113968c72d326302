"""A server inside another program: in a thread of its own, with its own event loop, on a free port.

    import redis, streamd.embedded

    with streamd.embedded.start() as server:
        client = redis.Redis(port=server.port)
        client.xadd("readings", {"sensor": "a", "celsius": "19.8"})

Made for tests and notebooks. The thread shares the interpreter with the program; for throughput run `streamd server`.
"""

from __future__ import annotations

import asyncio
import threading
from types import TracebackType

import uvloop

from streamd.errors import StreamdError
from streamd.serve.app import Server
from streamd.settings.config import Config

__all__ = ["EmbeddedServer", "start"]


class EmbeddedServer:
    """A running server; a context manager that stops it.

    host, port  where it listens
    url         the same, as redis-py's `Redis.from_url` takes it
    """

    def __init__(self, config: Config, *, any_port: bool) -> None:
        self.host = "127.0.0.1"
        self.port = 0
        self._server: Server | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._failure: BaseException | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(config, any_port), name="streamd", daemon=True)
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            self._thread.join()
            raise self._failure

    @property
    def url(self) -> str:
        return f"redis://{self.host}:{self.port}"

    def stop(self) -> None:
        """Close every connection and end the thread. A second call does nothing.

        Raises StreamdError when it has ended, but not all of its data could be written to the disk; the log says why.
        """
        if self._loop is not None and self._server is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._end)
        self._thread.join()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def _end(self) -> None:
        assert self._server is not None  # noqa: S101
        if not self._server.request_shutdown():
            self._failure = StreamdError("not all of the data could be written to the disk")
            self._server.request_shutdown(force=True)

    def __enter__(self) -> EmbeddedServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _run(self, config: Config, any_port: bool) -> None:
        uvloop.run(self._serve(config, any_port))

    async def _serve(self, config: Config, any_port: bool) -> None:
        try:
            self._loop = asyncio.get_running_loop()
            self._server = Server(config, any_port=any_port)
            await self._server.start()
            self.port = self._server.port
        except BaseException as error:  # reported to the thread that started this one
            self._failure = error
            return
        finally:
            self._ready.set()
        await self._server.wait_closed()
        await asyncio.sleep(0)


def start(**settings: object) -> EmbeddedServer:
    """Start a server on a free port of the loopback address and return it when it listens.

    settings  by their names, `-` written as `_`: start(stream_node_max_entries=50); `port` may be given too
    Raises ConfigError for a setting that cannot be taken, ListenError when the port is not to be had.
    """
    return EmbeddedServer(Config.for_embedding(settings), any_port="port" not in settings)
