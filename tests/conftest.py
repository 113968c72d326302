"""Fixtures and rules shared by all tests.

Markers (strict), and when the tests that carry them run:

    (none)   always, with `pytest`
    real     with `pytest`, when a real redis-server is found (support/servers.py says where); otherwise they are skipped
             and the reason is printed. `real(since="7.0")` also runs against an older Redis; the default is 8.6.
             STREAMD_REQUIRE_REDIS=1 turns the skips into failures; STREAMD_REQUIRE_REDIS=8.6 also those for its age.
    long     with `pytest -m 'not slow'`, as CI runs them, or by `-m long`: whole files that take seconds and more
    slow     only with `pytest -m slow`
    spark    with `pytest`, when PySpark and Java are found; otherwise they are skipped and the reason is printed.
             STREAMD_REQUIRE_SPARK=1 turns the skips into failures
    in_turn  `in_turn("a", "b", n)`: each value of the parameter a runs with one of the n values of b, in turn; the other pairs are slow
"""

from __future__ import annotations

import itertools
import os
import resource
import shutil
import subprocess
from collections.abc import Callable, Generator, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import HealthCheck, settings
from support.compare.differential import Tally
from support.replicas.nodes import Node, start_node
from support.servers import Server, find_oracle, find_valkey, start_redis, start_streamd, start_valkey, target_is_redis

import streamd.values  # noqa: F401  the types of value, for tests of databases alone

NEWEST_NEEDED = "8.6"
MANY_SOCKETS = 10_000

_running: pytest.StashKey[list[Server]] = pytest.StashKey()
_tally: pytest.StashKey[Tally] = pytest.StashKey()
_log_marks: pytest.StashKey[dict[Server, int]] = pytest.StashKey()
_settings: pytest.StashKey[dict[Server, dict[bytes, bytes]]] = pytest.StashKey()

StartServer = Callable[..., Server]

# That a machine is busy is no fault of what is tested.
settings.register_profile("patient", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_running] = []
    config.stash[_tally] = Tally()
    config.stash[_settings] = {}
    allow_many_sockets()


def allow_many_sockets() -> None:
    """Some tests hold a thousand connections; macOS starts processes with 256 open files. Servers inherit this."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MANY_SOCKETS if hard == resource.RLIM_INFINITY else min(MANY_SOCKETS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


# --- Which tests run, and in which order ----------------------------------------------------------------------------


@pytest.hookimpl(tryfirst=True)  # before pytest selects by markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what waits for its turn, and begin with the long files, so that none of them is alone at the end.

    Those of Spark compute and most others wait: they are spread among each other.
    """
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
        if marker := item.get_closest_marker("in_turn"):
            each, turn, count = marker.args
            indices = item.callspec.indices  # type: ignore[attr-defined]
            if indices[each] % count != indices[turn]:
                item.add_marker(pytest.mark.slow)
    kinds: dict[tuple[bool, bool], list[Path]] = {}
    for path, inside in files.items():
        is_long = any(item.get_closest_marker("long") for item in inside)
        kinds.setdefault((is_long, is_long and path.parent.name == "spark"), []).append(path)
    places = {
        path: (not is_long, at / len(paths)) for (is_long, _), paths in kinds.items() for at, path in enumerate(paths)
    }
    items.sort(key=lambda item: places[item.path])


# --- Tests that need a real Redis -----------------------------------------------------------------------------------


def pytest_runtest_setup(item: pytest.Item) -> None:
    item.stash[_log_marks] = {server: server.log_mark() for server in item.config.stash[_running]}
    marker = item.get_closest_marker("real")
    if marker is not None:
        check_oracle(str(marker.kwargs.get("since", NEWEST_NEEDED)))


def check_oracle(since: str) -> None:
    """Skip, or fail when that was asked for, unless there is a real Redis of at least the version `since`."""
    required = os.environ.get("STREAMD_REQUIRE_REDIS", "")
    oracle = find_oracle()
    if oracle is None:
        _do_without("no redis-server: set STREAMD_REDIS_BIN to the folder that holds it", is_failure=bool(required))
    elif oracle.version < _version(since):
        found = ".".join(map(str, oracle.version))
        is_too_old = "." in required and oracle.version < _version(required)
        _do_without(f"needs Redis {since}, found {found} in {oracle.folder}", is_failure=is_too_old)


def _do_without(reason: str, *, is_failure: bool) -> NoReturn:
    if is_failure:
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def _version(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")))


# --- Servers --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[Server]:
    """The real Redis, one for the whole run. Who uses it empties it first; a file's settings end with the file."""
    yield from _until_the_end(start_redis(tmp_path_factory.mktemp("redis")), pytestconfig)


@pytest.fixture(scope="session")
def streamd_server(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[Server]:
    """streamd, one for the whole run. Who uses it empties it first; a file's settings end with the file."""
    yield from _until_the_end(start_streamd(tmp_path_factory.mktemp("streamd")), pytestconfig)


def _until_the_end(server: Server, config: pytest.Config) -> Iterator[Server]:
    config.stash[_running].append(server)
    config.stash[_settings][server] = read_settings(server)
    try:
        yield server
        assert server.is_running, f"{server.name} has exited with {server.process.returncode}:\n{server.log()[-5000:]}"
    finally:
        config.stash[_running].remove(server)
        del config.stash[_settings][server]
        server.end()
        assert_not_killed(server)


@pytest.fixture(scope="module", autouse=True)
def settings_put_back(pytestconfig: pytest.Config) -> Iterator[None]:
    """No file of tests runs with what another one has configured in a server of the whole run, also when a test has failed."""
    yield
    for server, before in pytestconfig.stash[_settings].items():
        changed = {name: before[name] for name, value in read_settings(server).items() if value != before[name]}
        if changed:
            with server.connect() as wire:
                reply = wire.call("CONFIG", "SET", *(word for pair in changed.items() for word in pair))
            assert reply.value == b"OK", (server.name, changed, reply)


def read_settings(server: Server) -> dict[bytes, bytes]:
    with server.connect() as wire:
        words = [each.value for each in wire.call("CONFIG", "GET", "*").value]
    return dict(zip(words[::2], words[1::2], strict=True))


@pytest.fixture
def new_streamd(tmp_path: Path, pytestconfig: pytest.Config) -> Iterator[StartServer]:
    """Start a streamd of one's own: `new_streamd(requirepass="secret", ...)`."""
    yield from _factory(start_streamd, tmp_path, pytestconfig)


@pytest.fixture
def new_redis(tmp_path: Path, pytestconfig: pytest.Config) -> Iterator[StartServer]:
    """Start a real Redis of one's own: `new_redis(requirepass="secret", ...)`."""
    yield from _factory(start_redis, tmp_path, pytestconfig)


@pytest.fixture
def new_valkey(tmp_path: Path, pytestconfig: pytest.Config) -> Iterator[StartServer]:
    """Start a Valkey of one's own; skipped where there is none."""
    if find_valkey() is None:
        pytest.skip("no valkey-server beside redis-server, or on the PATH")
    yield from _factory(start_valkey, tmp_path, pytestconfig)


@pytest.fixture
def new_node(tmp_path: Path, pytestconfig: pytest.Config) -> Iterator[Callable[..., Node]]:
    """Start a node of a kind of `support.replicas.nodes`: `new_node("streamd", repl_timeout="5", ...)`."""
    yield from _factory(start_node, tmp_path, pytestconfig)


@pytest.fixture(scope="module")
def new_shared_node(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[Callable[..., Node]]:
    """The same for all tests of a module."""
    yield from _factory(start_node, tmp_path_factory.mktemp("nodes"), pytestconfig)


def _factory(start: Callable[..., Server], folder: Path, config: pytest.Config) -> Iterator[Callable[..., Any]]:
    started: list[Server] = []
    numbers = itertools.count()

    def start_one(*kind: str, **directives: str) -> Server:
        own = folder / f"{start.__name__}-{next(numbers)}"
        own.mkdir()
        server = start(own, *kind, directives)
        started.append(server)
        config.stash[_running].append(server)
        return server

    yield start_one
    for server in started:
        server.end()
        config.stash[_running].remove(server)
    for server in started:
        assert_not_killed(server)
        assert_no_traceback(server, 0)


@pytest.fixture(scope="session")
def tally(pytestconfig: pytest.Config) -> Tally:
    return pytestconfig.stash[_tally]


# --- Certificates -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate for localhost, with its key in the same file."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl program to make certificates with")
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost", "-keyout", str(folder / "key"), "-out", str(folder / "crt")],
        check=True, capture_output=True,
    )  # fmt: skip
    both = folder / "both"
    both.write_text((folder / "crt").read_text() + (folder / "key").read_text())
    return both


# --- What the servers said ------------------------------------------------------------------------------------------


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        marks = item.stash.get(_log_marks, {})
        for server in item.config.stash[_running]:
            said = server.log_since(marks.get(server, 0))
            if said.strip():
                report.sections.append((f"output of {server.name} during the test", said[-5000:]))
    return report


@pytest.fixture(autouse=True)
def no_traceback_in_a_log(request: pytest.FixtureRequest) -> Iterator[None]:
    """An exception that streamd had to log is a bug of streamd, whatever the reply was."""
    yield
    marks = request.node.stash.get(_log_marks, {})
    for server in request.config.stash[_running]:
        assert_no_traceback(server, marks.get(server, 0))


def assert_no_traceback(server: Server, mark: int) -> None:
    said = server.log_since(mark)
    assert "Traceback (most recent call last)" not in said, f"{server.name} logged an exception:\n{said[-5000:]}"


def assert_not_killed(server: Server) -> None:
    """Asked when it has ended: clients learn of a crash before the process is gone. .ci/tests never forgives this text."""
    died = server.find_fatal_signal()
    assert died is None, f"{server.name} was ended by {died}, which no test had sent:\n{server.log()[-5000:]}"


def pytest_report_header() -> str:
    oracle = find_oracle()
    found = "none found" if oracle is None else f"{'.'.join(map(str, oracle.version))} in {oracle.folder}"
    second = ", standing in for streamd too" if target_is_redis() else ""
    return f"real redis-server: {found}{second}"


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, Any, Any]:
    """Workers of pytest-xdist send reports as UTF-8: what tests print and log is not always text."""
    return encodable((yield))


def encodable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {encodable(key): encodable(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(encodable, value))
    return value


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker of pytest-xdist hands what it has compared to the process that prints the summary."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["tally"] = asdict(session.config.stash[_tally])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    tally = node.config.stash[_tally]
    tally += Tally(**getattr(node, "workeroutput", {}).get("tally", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    tally = config.stash[_tally]
    if tally:
        terminalreporter.write_line(f"differential: {tally}")
