"""ServerLoop is a loop of asyncio's in all that programs use, and a request costs none of its turns."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from streamd.replication.wait_commands import Waiting
from streamd.serve.app import Server
from streamd.serve.loop_choice import new_loop
from streamd.settings.config import Config
from streamd.sockets.loop import ServerLoop
from streamd.sockets.poller import EventSet, is_supported

pytestmark = pytest.mark.skipif(not is_supported(), reason="this system has neither epoll nor kqueue")

T = TypeVar("T")

DEADLINE = 60


def run(main: Callable[[], Awaitable[T]]) -> T:
    async def bounded() -> T:
        return await asyncio.wait_for(main(), DEADLINE)

    with asyncio.Runner(loop_factory=ServerLoop) as runner:
        return runner.run(bounded())


def test_timers_run_in_order_and_not_early() -> None:
    async def main() -> list[str]:
        loop = asyncio.get_running_loop()
        found: list[str] = []
        began, done = loop.time(), asyncio.Event()

        def due(name: str, after: float) -> None:
            assert loop.time() - began >= after - 0.001
            found.append(name)

        for name, after in (("c", 0.03), ("a", 0.01), ("b", 0.02)):
            loop.call_later(after, due, name, after)
        loop.call_later(0.02, found.append, "cancelled").cancel()
        loop.call_later(0.04, done.set)
        await done.wait()
        return found

    assert run(main) == ["a", "b", "c"]


def test_timers_of_the_set_run_in_order_and_are_cancelled() -> None:
    async def main() -> list[str]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, ServerLoop)
        found: list[str] = []
        done = asyncio.Event()

        def cancelled() -> None:
            found.append("cancelled")

        def again() -> None:
            found.append("again")
            if len(found) < 3:
                loop.events.call_later(0.01, again)
            else:
                done.set()

        loop.events.call_later(0.005, cancelled)
        loop.events.call_later(0.01, again)
        loop.events.cancel(cancelled)
        await done.wait()
        return found

    assert run(main) == ["again"] * 3


def test_a_timer_of_the_set_that_fails_is_reported_and_others_run() -> None:
    async def main() -> list[str]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, ServerLoop)
        reported: list[str] = []
        loop.set_exception_handler(lambda _loop, context: reported.append(str(context["exception"])))
        done = asyncio.Event()

        def fail() -> None:
            raise ValueError("this one fails")

        loop.events.call_later(0, fail)
        loop.events.call_later(0, done.set)
        await done.wait()
        return reported

    assert run(main) == ["this one fails"]


def test_another_thread_wakes_a_loop_that_has_nothing_to_do() -> None:
    async def main() -> int:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[int] = loop.create_future()
        threading.Thread(target=lambda: loop.call_soon_threadsafe(answer.set_result, threading.get_ident())).start()
        return await answer

    assert run(main) != threading.get_ident()


def test_a_signal_reaches_its_handler_while_the_loop_waits() -> None:
    async def main() -> int:
        loop = asyncio.get_running_loop()
        got: asyncio.Future[int] = loop.create_future()
        before = signal.signal(signal.SIGUSR1, lambda number, _frame: loop.call_soon_threadsafe(got.set_result, number))
        try:
            # From outside: by then the loop waits, with no timer before the deadline.
            code = f"import os; os.kill({os.getpid()}, {int(signal.SIGUSR1)})"
            with subprocess.Popen([sys.executable, "-c", code]):
                return await got
        finally:
            signal.signal(signal.SIGUSR1, before)

    assert run(main) == signal.SIGUSR1


def test_streams_and_child_processes_work() -> None:
    async def main() -> bytes:
        async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while piece := await reader.read(65536):
                writer.write(piece)
                await writer.drain()
            writer.close()

        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        sent = os.urandom(3_000_000)

        async def send() -> None:
            writer.write(sent)
            await writer.drain()
            writer.write_eof()

        _, echoed = await asyncio.gather(send(), reader.read(-1))
        writer.close()
        server.close()
        child = await asyncio.create_subprocess_exec(sys.executable, "-c", "print('child')", stdout=subprocess.PIPE)
        assert echoed == sent
        return (await child.communicate())[0].strip()

    assert run(main) == b"child"


def test_both_directions_of_a_descriptor_are_watched_and_left() -> None:
    async def main() -> list[str]:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        found: list[str] = []
        seen = asyncio.Event()

        def add(name: str) -> None:
            found.append(name)
            seen.set()

        async def until(count: int) -> None:
            while len(found) < count:
                seen.clear()
                await seen.wait()

        loop.add_writer(ours, lambda: (add("write"), loop.remove_writer(ours)))
        loop.add_reader(ours, lambda: add(f"read {ours.recv(10)!r}"))
        await until(1)
        theirs.send(b"x")
        await until(2)
        theirs.close()
        loop.add_reader(ours, lambda: (add(f"end {ours.recv(10)!r}"), loop.remove_reader(ours)))
        await until(3)
        assert not loop.remove_reader(ours)
        ours.close()
        return found

    assert run(main) == ["write", "read b'x'", "end b''"]


class Counting(ServerLoop):
    """Counts its turns."""

    turns = 0

    def _run_once(self) -> None:
        self.turns += 1
        super()._run_once()  # type: ignore[misc]


def serve(requests: Callable[[socket.socket, Counting], Any]) -> Any:
    """What `requests` returns, which talks to a server that runs in a Counting loop, from another thread."""
    answer: list[Any] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        server = Server(Config.for_embedding({}), any_port=True)
        await server.start()

        def talk() -> None:
            try:
                with socket.create_connection(("127.0.0.1", server.port), DEADLINE) as sock:
                    answer.append(requests(sock, loop))  # type: ignore[arg-type]
            finally:
                loop.call_soon_threadsafe(server.request_shutdown)

        thread = threading.Thread(target=talk)
        thread.start()
        await server.wait_closed()
        thread.join()

    with asyncio.Runner(loop_factory=Counting) as runner:
        runner.run(main())
    return answer[0]


def ping(sock: socket.socket) -> None:
    sock.sendall(b"PING\r\n")
    assert sock.recv(100) == b"+PONG\r\n"


def test_a_request_costs_no_turn_of_the_loop() -> None:
    def requests(sock: socket.socket, loop: Counting) -> float:
        ping(sock)
        before, began = loop.turns, loop.time()
        for _ in range(5000):
            ping(sock)
        # What is left is the server's own timers.
        return (loop.turns - before) / (1 + (loop.time() - began) * 100)

    assert serve(requests) < 1


def test_the_loop_has_its_turns_while_requests_never_end() -> None:
    def requests(sock: socket.socket, loop: Counting) -> int:
        ran = threading.Event()
        loop.call_soon_threadsafe(loop.call_later, 0.02, ran.set)
        count = 0
        while not ran.is_set():
            ping(sock)
            count += 1
            assert count < 5_000_000, "a timer never ran"
        return count

    assert serve(requests) > 0


def test_an_error_at_the_end_of_a_turn_does_not_end_the_loop() -> None:
    """As that of any callback, it goes to the loop's handler of exceptions."""

    async def main() -> list[str]:
        loop = asyncio.get_running_loop()
        server = Server(Config.for_embedding({}), any_port=True)
        await server.start()
        reported: list[str] = []
        loop.set_exception_handler(lambda _loop, context: reported.append(str(context["exception"])))
        waiting = server.get(Waiting)

        def fail() -> int:
            waiting.skips_turns = True
            raise ValueError("planted")

        waiting.before_replies = fail  # type: ignore[method-assign]
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"WAIT 1 50\r\nPING\r\n")
        assert await reader.readline() == b":0\r\n"
        assert await reader.readline() == b"+PONG\r\n"
        writer.close()
        server.request_shutdown()
        await server.wait_closed()
        return reported

    assert run(main) == ["planted"]


@pytest.mark.parametrize(
    ("settings", "expected"), [({}, True), ({"socket-poller": "no"}, False), ({"tls-port": "7000"}, False)], ids=str
)
def test_the_loop_suits_the_settings(settings: dict[str, str], expected: bool) -> None:
    loop = new_loop(Config.for_embedding(settings))
    assert isinstance(loop, ServerLoop) is expected
    loop.close()


def test_a_set_closes_its_descriptor_once() -> None:
    events = EventSet()
    assert os.fstat(events.fd)
    events.close()
    events.close()
    assert events.fd == -1
