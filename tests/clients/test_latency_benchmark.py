"""The latency test against running servers: every message is accounted for, delays are those that there were."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
import redis
from click.testing import CliRunner
from support.servers import Server

from benchmarks.latency import Load, Target, main, measure

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="the load needs a C compiler")

LOAD = Load(rate=1000, seconds=0.5, producers=3, consumers=2)
MESSAGES = 500
COUNTED = 250
MS = 1_000_000


@pytest.fixture(params=[2, 3])
def target(request: pytest.FixtureRequest, streamd_server: Server) -> Iterator[Target]:
    made = Target("streamd", f"redis://127.0.0.1:{streamd_server.port}/0?protocol={request.param}")
    made.rounds["new"] = []
    yield made
    made.clean_up()


def test_every_message_is_read_once_and_acknowledged(target: Target) -> None:
    key = target.make_group("new", 0)
    for rounds in (1, 2):
        done = measure(target, key, LOAD)
        assert len(done.delays_ns) == len(done.lateness_ns) == COUNTED
        assert min(done.delays_ns) > 0
        assert min(done.lateness_ns) >= 0
        assert target.client.xlen(key) == rounds * MESSAGES
        group = target.client.xinfo_groups(key)[0]
        assert (group["pending"], group["lag"], group["entries-read"]) == (0, 0, rounds * MESSAGES)


def test_connections_may_be_made_over_and_over(target: Target) -> None:
    key = target.make_group("new", 0)
    for _ in range(3):
        measure(target, key, Load(rate=1000, seconds=0.01, producers=20, consumers=20))
    assert target.client.xlen(key) == 30


def test_messages_hold_the_times_they_were_due_at(target: Target) -> None:
    key = target.make_group("new", 0)
    measure(target, key, LOAD)
    times = sorted(int(fields[b"t"]) for _, fields in target.client.xrange(key))
    assert {later - earlier for earlier, later in pairwise(times)} == {MS}


def test_without_acknowledging_all_stay_pending(target: Target) -> None:
    key = target.make_group("new", 12_345)
    measure(target, key, Load(rate=1000, seconds=0.5, acks=False, may_spin=False))
    pending = target.client.xpending(key, "workers")
    assert pending["pending"] == 12_345 + MESSAGES
    assert {each["name"] for each in pending["consumers"]} > {b"gone"}


def test_a_message_that_waits_counts_from_when_it_was_due(target: Target) -> None:
    key = target.make_group("new", 0)
    # A second of messages, the second half of which counts; nothing is written for more than that half's beginning.
    target.client.execute_command("CLIENT", "PAUSE", "800", "WRITE")
    done = measure(target, key, Load(rate=1000, seconds=1.0))
    longest = max(done.delays_ns)
    at = list(done.delays_ns).index(longest)
    assert 100 * MS < longest < 800 * MS
    # Those that were due later have waited for less: all have come at the end of the pause.
    for later in (20, 40):
        waited = done.delays_ns[at + later]
        assert longest - waited == pytest.approx(later * MS, abs=15 * MS)


def test_what_the_server_refuses_ends_the_run(target: Target) -> None:
    target.client.set(target.prefix + "new", "no stream")
    with pytest.raises(RuntimeError, match="the server answered -WRONGTYPE"):
        measure(target, target.prefix + "new", LOAD)


def test_a_unix_socket_is_measured_too(
    new_streamd: Callable[..., Server], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("s") / "s"
    new_streamd(unixsocket=str(path), requirepass="secret")
    target = Target("unix", f"unix://default:secret@{path}?db=3")
    target.rounds["new"] = []
    key = target.make_group("new", 0)
    measure(target, key, LOAD)
    assert target.client.xlen(key) == MESSAGES
    target.clean_up()


def test_the_command_measures_a_running_server_and_leaves_nothing(streamd_server: Server, tmp_path: Path) -> None:
    url = f"redis://default:@127.0.0.1:{streamd_server.port}/9"
    with redis.Redis.from_url(url) as client:
        client.set("kept", "1")
        said = CliRunner().invoke(
            main,
            ["--url", url, "--rate", "1000", "--seconds", "0.4", "--rounds", "1", "--pending", "1000", "--picture",
             f"{tmp_path}/latency.svg"],
        )  # fmt: skip
        assert said.exception is None, said.output
        assert client.keys() == [b"kept"]
        client.delete("kept")
    assert said.output.count("Processed between 0 and 1 ms -> ") == 2
    assert "1,000 entries unacknowledged beforehand" in said.output
    assert "default:@" not in said.output
