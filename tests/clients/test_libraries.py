"""Libraries of jobs, caches, locks and collections, unmodified: each with a worker, a failure, and restarts of worker and server.

The programs are in libraries/; each act is a process of its own. The same lines are expected of streamd and of a real Redis.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis
from support.libraries import python_with
from support.node import modules_of
from support.servers import Server, eventually, python_environment
from support.tools import do_without

pytestmark = pytest.mark.long

HERE = Path(__file__).parent / "libraries"
ACT_TIMEOUT_S = 200.0

Command = Callable[[str], tuple[list[str], dict[str, str]]]

JOBS = [
    "arq_jobs.py", "bee_queue_jobs.cjs", "bull_jobs.cjs", "bullmq_jobs.cjs", "celery_jobs.py", "docket_jobs.py",
    "dramatiq_jobs.py", "faststream_jobs.py", "huey_jobs.py", "rq_jobs.py", "saq_jobs.py", "streaq_jobs.py", "symfony_jobs.php",
    "taskiq_jobs.py", "taskiq_stream_jobs.py", "worker_jobs.py",
]  # fmt: skip

WITH_GROUPS = ["faststream_jobs.py", "streaq_jobs.py", "taskiq_stream_jobs.py"]
"""Those that keep jobs in streams with consumer groups."""

USES = {
    "channels_redis": """
        ['to all', 'to one']
        after a wait
        ['to all', 'to one']
        after a wait
    """,
    "django_redis": """
        {'b': [1, 2]} True False {'a': {'b': [1, 2]}}
        6 3 True 1 None
        locked True
        2 ['x', 'y'] False 2
        None
    """,
    "flask_limiter": """
        fixed-window [200, 200, 200, 429]
        moving-window [200, 200, 200, 429]
        sliding-window-counter [200, 200, 200, 429]
    """,
    "pottery": """
        {'a': 1, 'b': [2]} 1 1
        [1, 2, 3] True True None 2
        [1, 2, 4, 9] [2, 4] 3 9
        [4, 2, 3] 4
        [('a', 11), ('b', 5)]
        4 True False [True, False]
        True False 2
        [1, 2, 3]
        True
        16 16 1
    """,
    "redis_om": """
        a 19.8
        20.5 1 None
        1 0
    """,
    "redlock": """
        True False None True
    """,
}


@pytest.fixture(params=["streamd", pytest.param("redis", marks=[pytest.mark.real, pytest.mark.slow])])
def persistent(request: pytest.FixtureRequest) -> Server:
    """A server that keeps its data when it is restarted."""
    start: Callable[..., Server] = request.getfixturevalue(f"new_{request.param}")
    return start(appendonly="yes")


@pytest.fixture
def command() -> Command:
    """What starts a program of libraries/, and its environment."""

    def find(program: str) -> tuple[list[str], dict[str, str]]:
        path, env = str(HERE / program), dict(os.environ)
        for name in ("PYTHONPATH", "PYTEST_ADDOPTS"):
            env.pop(name, None)
        if program == "worker_jobs.py":
            env["PYTHONPATH"] = python_environment()["PYTHONPATH"]
        if program.endswith(".py"):
            return [str(python_with(HERE / "requirements.txt")), "-W", "ignore", path], env
        if program.endswith(".cjs"):
            return ["node", path], {**env, "NODE_PATH": str(modules_of(HERE))}
        if shutil.which("php") is None or not Path("/usr/share/php/Symfony/Component/Messenger").exists():
            do_without("no PHP with Symfony Messenger and its bridge to Redis")
        return ["php", "-d", "include_path=/usr/share/php", path], env

    return find


class Worker:
    """A worker of a library, in a process."""

    def __init__(self, words: list[str], env: dict[str, str], log: Path) -> None:
        with log.open("ab") as file:
            self.process = subprocess.Popen(words, env=env, stdin=subprocess.DEVNULL, stdout=file, stderr=file)

    def end(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(ACT_TIMEOUT_S)
        finally:
            self.process.kill()


@pytest.fixture
def workers() -> Iterator[list[Worker]]:
    started: list[Worker] = []
    yield started
    for each in started:
        each.process.kill()
        each.process.wait()


class Library:
    """A program, its workers and its acts, on a server."""

    def __init__(self, words: list[str], env: dict[str, str], server: Server, log: Path, workers: list[Worker]) -> None:
        self._words = words
        self._env = env
        self._server = server
        self._log = log
        self._workers = workers

    def start_worker(self) -> Worker:
        self._workers.append(Worker([*self._words, "work", str(self._server.port)], self._env, self._log))
        return self._workers[-1]

    def play(self, act: str) -> str:
        done = subprocess.run(
            [*self._words, act, str(self._server.port)],
            env=self._env,
            capture_output=True,
            text=True,
            timeout=ACT_TIMEOUT_S,
        )
        assert done.returncode == 0, f"{done.stdout}{done.stderr}\nThe worker said:\n{self._log.read_text()[-3000:]}"
        return done.stdout

    def play_all(self) -> None:
        worker = self.start_worker()
        assert self.play("first") == "add: 5\ntries: 2\n"
        worker.end()
        assert self.play("late") == "late: submitted\n"
        self._server.restart()
        worker = self.start_worker()
        assert self.play("second") == "late: 81\n"
        worker.end()


@pytest.mark.parametrize("program", JOBS)
def test_jobs_are_done_and_outlive_their_worker_and_the_server(
    program: str, persistent: Server, command: Command, workers: list[Worker], tmp_path: Path
) -> None:
    Library(*command(program), persistent, tmp_path / "worker.log", workers).play_all()


@pytest.mark.parametrize("program", WITH_GROUPS)
def test_jobs_are_done_with_rules(
    program: str, new_streamd: Callable[..., Server], command: Command, workers: list[Worker], tmp_path: Path
) -> None:
    rule = "* * MAXDELIVERIES 20 DEADLETTER %s:dead BACKOFF 100 FACTOR 2 ISOLATE 2 CONSUMERPENDING 1000 CONSUMERTTL 3600000"
    server = new_streamd(appendonly="yes", group_rule=rule)
    Library(*command(program), server, tmp_path / "worker.log", workers).play_all()
    with redis.Redis(port=server.port, decode_responses=True) as client:
        streams = list(client.scan_iter(_type="stream"))
        assert not [key for key in streams if key.endswith(":dead")]
        groups = [(key, each["name"], each["pending"]) for key in streams for each in client.xinfo_groups(key)]
        assert groups
        assert not any(pending for _, _, pending in groups)
        rules = [client.execute_command("STREAMD.GROUP", "GET", key, name) for key, name, _ in groups]
        assert all("configuration" in str(each) for each in rules), "the rule of the configuration is followed"


@pytest.mark.parametrize(
    ("program", "deliveries"), [("streaq_jobs.py", 2), ("taskiq_stream_jobs.py", 1), ("worker_jobs.py", 2)]
)
def test_a_job_that_ends_its_workers_becomes_a_dead_letter(
    program: str,
    deliveries: int,
    new_streamd: Callable[..., Server],
    command: Command,
    workers: list[Worker],
    tmp_path: Path,
) -> None:
    """Claims of taskiq may end with the first worker, which leaves a lock behind: there, the server does it without a claim. FastStream
    of this release claims nothing."""
    server = new_streamd(group_rule=f"* * MAXDELIVERIES {deliveries} DEADLETTER %s:dead ACKWAIT 3000")
    library = Library(*command(program), server, tmp_path / "worker.log", workers)
    library.play("poison")
    for _ in range(deliveries):
        assert library.start_worker().process.wait(ACT_TIMEOUT_S) == 3
    worker = library.start_worker()
    with redis.Redis(port=server.port, decode_responses=True) as client:
        eventually(lambda: [*client.scan_iter("*:dead")], ACT_TIMEOUT_S)
        (dead,) = client.scan_iter("*:dead")
        ((_, letter),) = client.xrange(dead)
        assert (letter["dlq.deliveries"], letter["dlq.reason"]) == (str(deliveries), "max-deliveries")
        assert dead == f"{letter['dlq.stream']}:dead"
        assert client.get("result:begun") == str(deliveries)
    assert library.play("first") == "add: 5\ntries: 2\n"
    worker.end()


@pytest.mark.parametrize("library", USES)
def test_what_else_libraries_keep(library: str, server: Server, command: Command) -> None:
    words, env = command("uses.py")
    done = subprocess.run(
        [*words, library, str(server.port)], env=env, capture_output=True, text=True, timeout=ACT_TIMEOUT_S
    )
    expected = "".join(line.strip() + "\n" for line in USES[library].strip().splitlines())
    assert (done.returncode, done.stdout) == (0, expected), done.stderr
