"""`stream-archive-dir` with the URL of an object store: reads go there, with the credentials of the server's environment."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.servers import free_port

pytest.importorskip("pyarrow", reason="archives need streamd-server[archive]")
pytest.importorskip("obstore", reason="object stores need streamd-server[store]")
pytest.importorskip("moto", reason="the S3 server of tests is moto")

from support.archives.object_stores import SCHEMES, LocalStore, running_store
from support.replicas.network import Network
from support.tiers import ARCHIVED, KEY, UNCUT, Stage

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]


@pytest.fixture(scope="module", params=SCHEMES)
def emulator(request: pytest.FixtureRequest) -> Iterator[LocalStore]:
    with running_store(request.param) as found:
        yield found


@pytest.fixture
def network() -> Iterator[Network]:
    with Network() as found:
        yield found


@pytest.fixture
def stage(emulator: LocalStore, network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """Its store can be reached through the gate `store` of the network."""
    gate = network.gate("store")
    network.lead("store", port_of(emulator))
    for name, value in emulator.environment(f"http://127.0.0.1:{gate}").items():
        monkeypatch.setenv(name, value)
    bucket = emulator.make_bucket(f"bucket-{tmp_path.name.replace('_', '-')[-40:]}")
    made = Stage(tmp_path, f"{bucket}/archives/one", stream_archive_readers="1", stream_archive_groups="yes")
    yield made
    made.close()


def port_of(store: LocalStore) -> int:
    return int(store.endpoint.rpartition(":")[2])


def test_every_read_works_from_an_object_store(stage: Stage) -> None:
    stage.prepare()
    stage.assert_whole()
    stage.assert_equal("XRANGE", "-", "+", "COUNT", ARCHIVED + 7)
    for key in (KEY, UNCUT):
        stage.call("XGROUP", "CREATE", key, "g", "0")
    for words in (
        ("XREAD", "COUNT", 17, "STREAMS", KEY, "0"),
        ("XREADGROUP", "GROUP", "g", "c", "COUNT", ARCHIVED + 1, "STREAMS", KEY, ">"),
        ("XREADGROUP", "GROUP", "g", "c", "STREAMS", KEY, "0"),
    ):
        found = stage.call(*words)
        expected = stage.call(*(UNCUT if word == KEY else word for word in words))
        assert found[0][1] == expected[0][1]
    stage.add(30)
    stage.archived(merge_files=2)
    stage.assert_whole()
    assert dict(zip(*[iter(stage.call("STREAMD.HISTORY", KEY)[3])] * 2, strict=True))[b"entries"] > 0


def test_a_store_that_is_down_is_an_error_and_the_next_read_works(
    stage: Stage, network: Network, emulator: LocalStore
) -> None:
    stage.prepare()
    stage.assert_whole()
    network.lead("store", free_port())
    network.cut([("clients", "store")])
    network.heal(drop=True)  # connections that are open, too
    said = stage.error()
    assert said.startswith(f"ARCHIVE The archived part of {KEY} cannot be read: {stage.place}/archive.json: ")
    assert "\n" not in said
    assert len(stage.call("XREVRANGE", KEY, "+", "-", "COUNT", 10)) == 10
    network.lead("store", port_of(emulator))
    stage.assert_whole()


def test_a_store_that_is_silent_is_an_error_after_the_time_out(stage: Stage, network: Network) -> None:
    stage.prepare()
    stage.assert_whole()
    stage.call("CONFIG", "SET", "stream-archive-timeout", "1000")
    network.cut([("clients", "store")])
    assert stage.error().endswith("it was not read within 1000 ms (stream-archive-timeout)")
    stage.call("CONFIG", "SET", "stream-archive-timeout", "60000")
    network.heal()
    stage.assert_whole()


@pytest.mark.parametrize("emulator", ["s3"], indirect=True)
@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("s3://no-such-bucket/archive", "s3://no-such-bucket/archive is not an archive: it has no archive.json"),
        ("ftp://host/archive", "ftp://host/archive: an archive is in a folder, or in an object store: s3, gs, az"),
        ("s3:/bucket", "s3:/bucket: an object store's address is written s3://bucket"),
    ],
)
def test_a_place_that_cannot_be_one_is_an_error(stage: Stage, place: str, said: str) -> None:
    stage.prepare()
    stage.call("CONFIG", "SET", "stream-archive-dir", place)
    assert stage.error() == f"ARCHIVE The archived part of {KEY} cannot be read: {said}"
    stage.call("CONFIG", "SET", "stream-archive-dir", stage.place)
    stage.assert_whole()
