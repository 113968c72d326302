"""What a server runs in: `ThreadHost`, a thread of this process; `ProcessHost`, a process of its own (see hosted.py).

Both begin to start when created, without waiting, and have the same interface: `wait`, `port`, `stop`, `kill`,
`is_over`.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

from streamd.errors import StreamdError
from streamd.serve.app import ListenError, Server
from streamd.serve.loop_choice import run_in_new_loop
from streamd.settings.config import Config

__all__ = ["ProcessHost", "ThreadHost"]

T = TypeVar("T")

INSIDE_TIMEOUT_S = 60.0
UNSAVED = "not all of the data could be written to the disk"
START_CODE = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from streamd.embedded.hosted import main; main()"


class ThreadHost:
    """A server in its own thread, with its own event loop.

    port  that it listens on; 0 without a TCP port. Known after `wait`
    """

    def __init__(self, settings: Mapping[str, object], *, any_port: bool) -> None:
        self._config = Config.for_embedding(settings)
        self._any_port = any_port
        self.port = 0
        self._server: Server | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._failure: BaseException | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="streamd", daemon=True)
        self._thread.start()

    @property
    def is_over(self) -> bool:
        """Whether the server has ended, by itself or on request."""
        return not self._thread.is_alive()

    def wait(self) -> None:
        """Return when the server listens and has loaded its data; raises what prevented that."""
        self._ready.wait()
        if self._failure is not None:
            self._thread.join()
            raise self._failure

    def stop(self, *, save: bool | None) -> None:
        """Shut it down cleanly and wait until it has ended; `save` as in SHUTDOWN, None: if there are save points.

        Raises StreamdError when it has ended but not all of its data could be written.
        """
        self._ready.wait()
        self._call(lambda server: self._end(server, save))
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def kill(self) -> None:
        """End it at once: nothing is saved, and clients are not notified."""
        self._ready.wait()
        self._call(Server.abort)

    def inside(self, ask: Callable[[Server], T]) -> T:
        """The result of `ask(server)`, run in the server's thread between two turns; raises what it raises."""
        assert self._loop is not None  # noqa: S101
        assert self._server is not None  # noqa: S101
        answer: Future[T] = Future()

        def run(server: Server) -> None:
            try:
                answer.set_result(ask(server))
            except BaseException as error:
                answer.set_exception(error)

        self._loop.call_soon_threadsafe(run, self._server)
        return answer.result(INSIDE_TIMEOUT_S)

    def advance(self, by_us: int) -> None:
        """Set its time forward; returns when what is due then has been done."""
        self.inside(lambda server: server.advance(by_us))

    def _call(self, action: Callable[[Server], object]) -> None:
        """Call `action(server)` in the server's thread, and wait for the thread's end."""
        if self._loop is not None and self._server is not None and self._thread.is_alive():
            with suppress(RuntimeError):  # the loop is closed: the server has just ended by itself
                self._loop.call_soon_threadsafe(action, self._server)
        self._thread.join()

    def _end(self, server: Server, save: bool | None) -> None:
        if not server.request_shutdown(save=save):
            self._failure = StreamdError(UNSAVED)
            server.request_shutdown(force=True)

    def _run(self) -> None:
        run_in_new_loop(self._serve(), self._config)

    async def _serve(self) -> None:
        try:
            self._loop = asyncio.get_running_loop()
            self._server = Server(self._config, any_port=self._any_port)
            await self._server.start()
            self.port = self._server.port
        except BaseException as error:  # reported to the thread that started this one
            self._failure = error
            return
        finally:
            self._ready.set()
        await self._server.wait_closed()
        await asyncio.sleep(0)


class ProcessHost:
    """A server in its own process, which ends with this one, however this one ends. Its methods are those of ThreadHost."""

    def __init__(self, settings: Mapping[str, Sequence[str]], *, any_port: bool, lost_folder: str | None) -> None:
        """lost_folder: what the server removes when this process ends without having stopped it."""
        self.port = 0
        self._failure: BaseException | None = None
        self._is_ready = False
        self._lock = threading.Lock()
        # Not in the terminal's process group: Ctrl-C is for this program.
        self._child = subprocess.Popen(
            [sys.executable, "-c", START_CODE, json.dumps(sys.path)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        self._tell({"settings": settings, "any_port": any_port, "lost_folder": lost_folder})

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def is_over(self) -> bool:
        return self._child.poll() is not None

    def wait(self) -> None:
        with self._lock:
            if not self._is_ready:
                self._is_ready = True
                said = self._hear()
                if "error" in said:
                    is_address = said["error"] == "ListenError"
                    self._failure = (
                        ListenError(said["text"], said["place"]) if is_address else StreamdError(said["text"])
                    )
                    self._reap()
                else:
                    self.port = said["port"]
        if self._failure is not None:
            raise self._failure

    def advance(self, by_us: int) -> None:
        with self._lock:
            self._tell({"advance": by_us})
            said = self._hear()
        if "error" in said:
            raise StreamdError(said["text"])

    def stop(self, *, save: bool | None) -> None:
        self._tell({"save": save})
        if self._reap() == os.EX_IOERR:
            raise StreamdError(UNSAVED)

    def kill(self) -> None:
        self._child.kill()
        self._reap()

    def _hear(self) -> dict[str, Any]:
        """The next line that it reports."""
        assert self._child.stdout is not None  # noqa: S101
        line = self._child.stdout.readline()
        found: dict[str, Any] = (
            json.loads(line) if line else {"error": "StreamdError", "text": "the server's process has died"}
        )
        return found

    def _tell(self, order: object) -> None:
        assert self._child.stdin is not None  # noqa: S101
        with suppress(OSError):  # it has already ended
            self._child.stdin.write(json.dumps(order).encode() + b"\n")
            self._child.stdin.flush()

    def _reap(self) -> int:
        for pipe in (self._child.stdin, self._child.stdout):
            assert pipe is not None  # noqa: S101
            with suppress(OSError):
                pipe.close()
        return self._child.wait()
