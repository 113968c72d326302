"""Fixtures for pytest: a server for the run, and a client with clean databases for each test.

    def test_readings(streamd_client):
        streamd_client.xadd("readings", {"sensor": "a"})
        assert streamd_client.xlen("readings") == 1

    async def test_readings_too(streamd_async_client): ...

`streamd_server` is one server for the run, with pytest-xdist one for each worker; `streamd_url` says where it is. Its settings
are what the fixture `streamd_settings` returns, which a conftest.py may define for itself. `streamd_client` and
`streamd_async_client` are clients of redis-py; before each test that uses one, all keys are removed.
`streamd_server.advance(60)` sets its time forward.
`streamd_start` starts further servers, for one test. `streamd_cluster` is a cluster of three nodes, for one test;
`streamd_start_cluster` starts other ones.

    --streamd-url URL       a server that runs already, streamd or Redis, instead; each worker of pytest-xdist has a database
                            of its own there, which is emptied before each test, and only that
    --streamd-own-process   the server in a process of its own, not in a thread
    (in the file of settings: streamd_url, streamd_own_process)
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

import pytest

if TYPE_CHECKING:
    import redis
    import redis.asyncio

    from streamd.embedded import EmbeddedCluster, EmbeddedServer

    StartServer = Callable[..., EmbeddedServer]
    StartCluster = Callable[..., EmbeddedCluster]

__all__: list[str] = []

Started = TypeVar("Started", "EmbeddedServer", "EmbeddedCluster")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("streamd", "a streamd server for the tests")
    group.addoption("--streamd-url", metavar="URL", help="use the server at URL instead of starting one")
    group.addoption("--streamd-own-process", action="store_true", help="start the server in a process of its own")
    parser.addini("streamd_url", "the URL of a server to use instead of starting one", default="")
    parser.addini("streamd_own_process", "start the server in a process of its own", type="bool", default=False)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(make_async_fixtures(config), "streamd-asyncio")


class OtherServer:
    """A server that was there before: in one database of it, what a test needs of an embedded one.

    url  with the number of the database
    """

    def __init__(self, url: str, worker: str) -> None:
        self.url = with_database(url, int(worker.removeprefix("gw") or 0) if worker != "master" else 0)
        self._flusher: redis.Redis | None = None

    def client(self, **options: Any) -> redis.Redis:
        import redis

        return redis.Redis.from_url(self.url, **{"socket_timeout": None, **options})

    def async_client(self, **options: Any) -> redis.asyncio.Redis:
        import redis.asyncio

        return redis.asyncio.Redis.from_url(self.url, **{"socket_timeout": None, **options})

    def flush(self) -> None:
        self._own_client().flushdb()

    def advance(self, seconds: float | timedelta) -> None:
        """As EmbeddedServer.advance: on a streamd with `enable-debug-command yes`, or `local`."""
        seconds = seconds.total_seconds() if isinstance(seconds, timedelta) else seconds
        self._own_client().execute_command("DEBUG", "ADVANCE-TIME", f"{seconds:.6f}")  # type: ignore[no-untyped-call]

    def _own_client(self) -> redis.Redis:
        if self._flusher is None:
            self._flusher = self.client()
        return self._flusher

    def close(self) -> None:
        if self._flusher is not None:
            self._flusher.close()


def with_database(url: str, offset: int) -> str:
    """The URL of the database that lies `offset` behind the one of `url`."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return url if offset == 0 else f"{url}{'&' if parts.query else '?'}db={offset}"
    first = parts.path.strip("/")
    return urlunsplit(parts._replace(path=f"/{int(first or 0) + offset}"))


@pytest.fixture(scope="session")
def streamd_settings() -> dict[str, Any]:
    """Settings of the server, as `streamd.embedded.start` takes them. Define a fixture of this name to have others."""
    return {}


@pytest.fixture(scope="session")
def streamd_server(
    pytestconfig: pytest.Config, streamd_settings: dict[str, Any], worker_name: str
) -> Iterator[EmbeddedServer | OtherServer]:
    """The server of this run, or of this worker of pytest-xdist."""
    url = pytestconfig.getoption("--streamd-url") or pytestconfig.getini("streamd_url")
    if url:
        other = OtherServer(url, worker_name)
        yield other
        other.close()
        return
    import streamd.embedded

    own_process = bool(pytestconfig.getoption("--streamd-own-process") or pytestconfig.getini("streamd_own_process"))
    with streamd.embedded.start(own_process=own_process, **streamd_settings) as server:
        yield server


@pytest.fixture(scope="session", name="worker_name")
def _worker_name(request: pytest.FixtureRequest) -> str:
    """`gw0` and so on in the workers of pytest-xdist, else `master`."""
    workerinput = getattr(request.config, "workerinput", None)
    return str(workerinput["workerid"]) if workerinput is not None else "master"


@pytest.fixture(scope="session")
def streamd_url(streamd_server: EmbeddedServer | OtherServer) -> str:
    """Where the server is."""
    return streamd_server.url


@pytest.fixture(scope="session")
def _streamd_pool(streamd_server: EmbeddedServer | OtherServer) -> Iterator[redis.Redis]:
    """The client whose connections those of the tests share: a connection a test would cost more than all else."""
    client = streamd_server.client(decode_responses=True)
    yield client
    client.close()


@pytest.fixture
def streamd_client(streamd_server: EmbeddedServer | OtherServer, _streamd_pool: redis.Redis) -> Iterator[redis.Redis]:
    """A client of redis-py whose server is empty; replies are text (decode_responses)."""
    import redis

    streamd_server.flush()
    client = redis.Redis(connection_pool=_streamd_pool.connection_pool)
    yield client
    client.close()


def ending(start: Callable[..., Started]) -> Iterator[Callable[..., Started]]:
    """`start`, for a test: what it has started is stopped afterwards, the newest first."""
    with ExitStack() as stack:

        def start_one(*args: Any, **options: Any) -> Started:
            started = start(*args, **options)
            stack.callback(started.stop)
            return started

        yield start_one


@pytest.fixture
def streamd_start() -> Iterator[StartServer]:
    """Starts further servers: `streamd_start(appendonly=True)`, as streamd.embedded.start. They end with the test."""
    import streamd.embedded

    yield from ending(streamd.embedded.start)


@pytest.fixture
def streamd_start_cluster() -> Iterator[StartCluster]:
    """Starts clusters: `streamd_start_cluster(nodes=6, replicas=1)`, as streamd.embedded.start_cluster. They end with the test."""
    import streamd.embedded

    yield from ending(streamd.embedded.start_cluster)


@pytest.fixture
def streamd_cluster(streamd_start_cluster: StartCluster) -> EmbeddedCluster:
    """A cluster of three primaries, which ends with the test: `streamd_cluster.client()` is a RedisCluster."""
    return streamd_start_cluster()


@pytest.fixture
def streamd_async_client(request: pytest.FixtureRequest) -> redis.asyncio.Redis:
    """A client of redis-py for asyncio whose server is empty; replies are text (decode_responses)."""
    # Either knows the tests that it runs, and only for those may it run a fixture.
    runner = "anyio" if "anyio_backend" in request.fixturenames else "asyncio"
    client: redis.asyncio.Redis = request.getfixturevalue(f"_streamd_{runner}_client")
    return client


def make_async_fixtures(config: pytest.Config) -> ModuleType:
    """A module of the fixtures that are coroutines, as pytest-asyncio and anyio want them marked."""

    def make() -> Callable[..., AsyncIterator[redis.asyncio.Redis]]:
        # One for each of them: pytest-asyncio marks the function itself, and would run anyio's too.
        async def make_client(streamd_server: EmbeddedServer | OtherServer) -> AsyncIterator[redis.asyncio.Redis]:
            streamd_server.flush()
            client = streamd_server.async_client(decode_responses=True)
            yield client
            await client.aclose()
            await asyncio.sleep(0)  # its transports close in the next turn of the loop

        return make_client

    fixtures = ModuleType("streamd.pytest_plugin.asyncio")
    fixtures.for_anyio = pytest.fixture(name="_streamd_anyio_client")(make())  # type: ignore[attr-defined]
    if any(map(config.pluginmanager.hasplugin, ("asyncio", "pytest_asyncio.plugin"))):
        import pytest_asyncio

        fixture: Callable[..., Any] = pytest_asyncio.fixture
        fixtures.for_asyncio = fixture(make(), name="_streamd_asyncio_client")  # type: ignore[attr-defined]
    return fixtures
