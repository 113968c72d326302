"""Archives in an object store: what holds in a folder holds there, wherever a run was killed. On emulators of three stores."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import redis

pytest.importorskip("obstore", reason="object stores need streamd-server[store]")
pytest.importorskip("moto.server", reason="the emulators come with streamd-server[test]")

from click.testing import CliRunner
from support.archives.object_stores import SCHEMES, LocalStore, gcs_store, running_store, s3_store
from support.archives.runs import KEY, Killed, archive_once, expire_lock, fill, kill_at, rows_of_history
from support.archives.table_readers import digest, read_history
from support.servers import free_port

from streamd.archive.archive_errors import ArchiveError, LockLostError, TableError
from streamd.archive.archiver import STEPS
from streamd.archive.delete import DELETE_STEPS, delete
from streamd.archive.layout import Layout
from streamd.archive.manifest_log import ManifestLog
from streamd.archive.object_disk import ObjectDisk, disk_for
from streamd.archive.open_format import TableConfig
from streamd.archive.publishing import publish
from streamd.archive.staging_folder import staged
from streamd.archive.store import ObjectPath, files_below
from streamd.archive.verify import verify_archive
from streamd.cli.subcommands import program
from streamd.client.points import parse_entry_id

# The first test may have to wait for npm.
pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

Options = dict[str, str]
NUMBERS = itertools.count()
TESTS = Path(__file__).parents[1]


@pytest.fixture(scope="module", params=SCHEMES)
def emulator(request: pytest.FixtureRequest) -> Iterator[LocalStore]:
    with running_store(request.param) as found:
        yield found


@pytest.fixture
def place(emulator: LocalStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A place for an archive in a bucket of its own."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return new_place(emulator, monkeypatch)


def new_place(emulator: LocalStore, monkeypatch: pytest.MonkeyPatch) -> str:
    tell_of(emulator, emulator.endpoint, monkeypatch)
    return emulator.make_bucket(f"bucket-{next(NUMBERS)}") + "/archives/one"


def tell_of(emulator: LocalStore, endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in emulator.environment(endpoint).items():
        monkeypatch.setenv(name, value)


def assert_whole(place: str, options: Options, produced: list[str]) -> None:
    assert [entry_id for entry_id, _ in rows_of_history(place, options)] == produced
    verdict = verify_archive(Layout(place), KEY)
    assert verdict.faults == []
    assert verdict.strangers == []


def objects(place: str) -> set[str]:
    layout = Layout(place)
    return {layout.relative(each) for each in files_below(layout.root)}


def nothing_is_left_here(tmp_path: Path) -> bool:
    return not [*tmp_path.rglob("*")]


# --- The crash matrix -----------------------------------------------------------------------------------------------------


@pytest.mark.in_turn("step", "emulator", len(SCHEMES))
@pytest.mark.parametrize("step", STEPS)
def test_a_run_killed_at_any_step_is_repaired_by_the_next(
    step: str, store: redis.Redis, source_options: Options, place: str, tmp_path: Path
) -> None:
    produced = fill(store, 100, step_ms=1000)
    archive_once(place, source_options)
    produced += fill(store, 100, start_ms=1_700_000_200_000, step_ms=1000)
    with pytest.raises(Killed, match=step):
        archive_once(place, source_options, hook=kill_at(step), merge_files=2, checkpoint_every=2)
    expire_lock(store)
    assert [entry_id for entry_id, _ in rows_of_history(place, source_options)] == produced
    produced += fill(store, 10, start_ms=1_700_020_000_000)
    report = archive_once(place, source_options)
    assert report.is_success, report.to_json()
    assert_whole(place, source_options, produced)
    assert not any(each.endswith(".pending") for each in objects(place))
    assert store.xlen(KEY) == 0
    assert nothing_is_left_here(tmp_path)


class EndingStore(ObjectDisk):
    """A store at whose change number `at` something is raised, before or after it is done."""

    def __init__(self, at: int, error: BaseException, *, is_done: bool) -> None:
        self.left = at
        self.error = error
        self.is_done = is_done
        for name in ("write_new", "rename", "unlink", "remove_tree"):
            setattr(self, name, self._ending(getattr(self, name)))

    def _ending(self, real: Any) -> Any:
        def operate(*args: Any) -> Any:
            self.left -= 1
            if self.left == 0 and not self.is_done:
                raise self.error
            found = real(*args)
            if self.left == 0:
                raise self.error
            return found

        return operate


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("error", [Killed("at a change"), OSError(5, "no answer")], ids=["kill", "fault"])
def test_a_run_that_ends_at_any_change_of_the_store_is_repaired(
    error: BaseException, is_done: bool, store: redis.Redis, source_options: Options, place: str, tmp_path: Path
) -> None:
    """A fault after a put is an answer that is lost: the object is there."""
    produced: list[str] = []
    at = ended = 0
    settings = {"merge_files": 2, "checkpoint_every": 2}
    while ended < 2:  # two runs in a row that did not come to change number `at`
        at += 1
        assert at < 100
        produced += fill(store, 6, start_ms=1_700_000_000_000 + at * 100_000, step_ms=1000)
        disk = EndingStore(at, error, is_done=is_done)
        try:
            report = archive_once(place, source_options, disk=disk, **settings)
            assert report.is_success or disk.left <= 0, report.to_json()
        except (Killed, OSError, ArchiveError):
            assert disk.left <= 0
        ended = ended + 1 if disk.left > 0 else 0
        expire_lock(store)
        if Layout(place).marker.exists():
            assert [entry_id for entry_id, _ in rows_of_history(place, source_options)] == produced
    assert at > 12
    archive_once(place, source_options, **settings)
    assert_whole(place, source_options, produced)
    assert store.xlen(KEY) == 0
    assert nothing_is_left_here(tmp_path)


@pytest.mark.parametrize("emulator", ["s3"], indirect=True)
@pytest.mark.parametrize("error", [OSError(28, "no space"), KeyboardInterrupt()], ids=["fault", "Ctrl-C"])
def test_the_temporary_folder_is_as_before_when_work_fails(
    error: BaseException, store: redis.Redis, source_options: Options, place: str, tmp_path: Path
) -> None:
    pytest.importorskip("deltalake", reason="open tables need streamd-server[tables]")
    produced = fill(store, 100)

    def fail_at(wanted: str) -> Any:
        def hook(step: str) -> None:
            if step == wanted:
                assert [each for each in tmp_path.rglob("*") if each.is_file()]
                raise error

        return hook

    class FailingDisk(ObjectDisk):
        def sync_file(self, path: Any) -> None:
            raise error

    with suppress(KeyboardInterrupt):
        assert not archive_once(place, source_options, hook=fail_at("staged"), trim=False).is_success
    assert nothing_is_left_here(tmp_path)
    assert archive_once(place, source_options, trim=False).is_success
    gone = parse_entry_id(produced[3])
    with pytest.raises(type(error)):
        delete(place, KEY, source_options, [(gone, gone)], hook=fail_at("delete staged"))
    assert nothing_is_left_here(tmp_path)
    typed = TableConfig("delta", "streamd.typed", schema="sensor int")
    with pytest.raises((TableError, KeyboardInterrupt)):
        publish(Layout(place), typed, disk=FailingDisk())
    assert nothing_is_left_here(tmp_path)
    publish(Layout(place), typed)
    assert nothing_is_left_here(tmp_path)


@pytest.mark.parametrize("emulator", ["s3"], indirect=True)
def test_the_last_of_several_runs_removes_their_folders(place: str, tmp_path: Path) -> None:
    layout, disk = Layout(place), ObjectDisk()
    with staged(layout.root, layout.staging("a", "one"), disk):
        for stream, run in (("a", "two"), ("b", "one")):
            with staged(layout.root, layout.staging(stream, run), disk) as folder:
                (folder / "file").touch()
        (user,) = tmp_path.iterdir()
        assert user.stat().st_mode & 0o777 == 0o700
        assert [each.name for each in user.glob("*/*/*")] == ["one"]
    assert nothing_is_left_here(tmp_path)


@pytest.mark.parametrize("emulator", ["s3"], indirect=True)
def test_a_folder_that_is_removed_while_another_run_begins_is_made_again(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout, disk = Layout(place), ObjectDisk()
    mkdir, left = Path.mkdir, [4]

    def mkdir_behind(self: Path, *given: Any, **named: Any) -> None:
        mkdir(self, *given, **named)
        left[0] -= 1
        if left[0] in (3, 0):
            shutil.rmtree(self)

    monkeypatch.setattr(Path, "mkdir", mkdir_behind)
    with staged(layout.root, layout.staging("a", "one"), disk) as folder:
        assert folder.is_dir()
        assert folder.parents[2].stat().st_mode & 0o777 == 0o700
    assert nothing_is_left_here(tmp_path)


@pytest.mark.in_turn("step", "emulator", len(SCHEMES))
@pytest.mark.parametrize("step", DELETE_STEPS)
def test_a_deletion_killed_at_any_step_is_done_by_the_same_again(
    step: str, store: redis.Redis, source_options: Options, place: str
) -> None:
    produced = fill(store, 100)
    archive_once(place, source_options, trim=False)
    produced += fill(store, 10, start_ms=1_700_010_000_000)
    archive_once(place, source_options, hot_window_ms=10**12)
    gone = [produced[7], produced[99], produced[100]]
    ranges = [(parse_entry_id(each), parse_entry_id(each)) for each in gone]
    with suppress(Killed):
        delete(place, KEY, source_options, ranges, hook=kill_at(step))
    expire_lock(store)
    delete(place, KEY, source_options, ranges, lock_wait_ms=5000)
    kept = [each for each in produced if each not in gone]
    assert_whole(place, source_options, kept)
    assert archive_once(place, source_options).is_success
    assert_whole(place, source_options, kept)


@pytest.mark.parametrize("runs_before", [0, 1])
@pytest.mark.parametrize("step", ["moved", "pending"])
def test_a_stalled_archiver_commits_nothing_whose_files_are_removed(
    step: str, runs_before: int, store: redis.Redis, source_options: Options, place: str
) -> None:
    """At `pending` it has seen its lock for the last time, and goes on when another one has cleaned up after it."""
    produced: list[str] = []
    for number in range(runs_before):
        produced += fill(store, 50, start_ms=1_700_000_000_000 + number * 10_000_000)
        archive_once(place, source_options)
    produced += fill(store, 50, start_ms=1_700_100_000_000)

    def taken_over(name: str) -> None:
        if name == step:
            expire_lock(store)
            assert archive_once(place, source_options).is_success

    report = archive_once(place, source_options, hook=taken_over)
    assert report.streams[0].status == "failed"
    assert LockLostError.__name__ in str(report.streams[0].error)
    assert_whole(place, source_options, produced)
    assert archive_once(place, source_options).is_success
    assert_whole(place, source_options, produced)


def test_a_number_that_another_has_taken_is_not_fenced(store: redis.Redis, source_options: Options, place: str) -> None:
    """A stalled archiver commits after its successor has read the manifests, and before that removes anything."""
    produced = fill(store, 50)
    archive_once(place, source_options)
    produced += fill(store, 50, start_ms=1_700_100_000_000)
    from streamd.archive import commit_recovery

    real = commit_recovery.StreamWork.fence
    stalled: list[Any] = []

    def commit_first(self: commit_recovery.StreamWork) -> None:
        if stalled:
            manifest, log, disk = stalled.pop()
            log.commit(manifest, log.write_pending(manifest, disk), disk)
        real(self)

    def remember(log: ManifestLog, manifest: Any, disk: Any) -> None:
        stalled.append((manifest, log, disk))
        raise Killed("before its put")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ManifestLog, "write_pending", remember)
        with pytest.raises(Killed, match="before its put"):
            archive_once(place, source_options)
    expire_lock(store)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commit_recovery.StreamWork, "fence", commit_first)
        assert archive_once(place, source_options).is_success
    assert not stalled
    assert_whole(place, source_options, produced)


# --- The commands -----------------------------------------------------------------------------------------------------------


def command(*words: object) -> Any:
    return CliRunner().invoke(program, [str(each) for each in words])


def test_all_commands_work_on_an_object_store(store: redis.Redis, source_options: Options, place: str) -> None:
    produced = fill(store, 5000)
    server = ["--port", source_options["port"]]
    run = ["archive", "run", place, "--stream", KEY, "--keep", "0s", "--trim-delay", "0s", *server]
    done = command(*run, "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["rows"] == 5000
    assert store.xlen(KEY) == 0
    store.xadd(KEY, {"n": "hot"}, id="1800000000000-0")
    (status,) = json.loads(command("archive", "status", place, "--json", *server).output)
    assert (status["rows"], status["on_server"]) == (5000, 1)
    assert command("archive", "verify", place).exit_code == 0
    done = command("history", KEY, "--archive", place, "--format", "csv", *server)
    assert done.exit_code == 0, done.output
    assert len(done.output.splitlines()) == 5002
    done = command(
        "history",
        KEY,
        "--archive",
        place,
        "--format",
        "json",
        "--since",
        produced[40],
        "--until",
        produced[42],
        *server,
    )
    assert [json.loads(line)["id"] for line in done.output.splitlines()] == produced[40:43]
    done = command("archive", "restore", place, KEY, "--into", "back", "--json", *server)
    assert json.loads(done.output)["rows"] == 5000
    assert [entry_id.decode() for entry_id, _ in store.xrange("back")] == produced
    done = command("archive", "delete", place, KEY, "--id", produced[3], "--yes", "--json", *server)
    assert json.loads(done.output)["archived"] == 1
    assert_whole(place, source_options, [*produced[:3], *produced[4:], "1800000000000-0"])


def test_an_object_of_many_parts_is_put_and_read(place: str, tmp_path: Path) -> None:
    content = bytes(range(256)) * (50 << 10)
    local = tmp_path / "large"
    local.write_bytes(content)
    path = Layout(place).root / "large"
    disk_for(path).rename(local, path)
    assert isinstance(path, ObjectPath)
    assert path.stat().st_size == len(content)
    with path.open() as file:
        assert file.read() == content
    assert not local.exists()


def test_damage_is_found(store: redis.Redis, source_options: Options, place: str) -> None:
    fill(store, 5000)
    archive_once(place, source_options)
    layout = Layout(place)
    first, second, *_ = (each for each in layout.data_files(KEY) if isinstance(each, ObjectPath))
    import obstore

    content = bytearray(first.read_bytes())
    content[100] ^= 1
    obstore.put(first.store, first.key, bytes(content))
    disk_for(layout.root).remove(second)
    faults = verify_archive(layout, KEY).faults
    assert any("its bytes differ from those that were written" in each for each in faults), faults
    assert any("is missing" in each for each in faults), faults


def test_an_iceberg_table_lies_in_the_store_too(
    store: redis.Redis, source_options: Options, place: str, tmp_path: Path, emulator: LocalStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    pytest.importorskip("pyiceberg", reason="open tables need streamd-server[tables]")
    from pyiceberg.catalog import load_catalog

    fill(store, 300)
    archive_once(place, source_options)
    publishing = ("archive", "publish", place, "--format", "iceberg")
    assert "cannot hold its catalog" in command(*publishing).output
    in_file = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db"}
    words = [word for name, value in in_file.items() for word in ("--property", f"{name}={value}")]
    if emulator.scheme == "gs":
        refused = command(*publishing, *words)
        assert refused.exit_code == 1
        assert refused.output == (
            "Error: the iceberg table: pyiceberg does not read GOOGLE_SERVICE_ACCOUNT_KEY: name a key file in "
            "GOOGLE_APPLICATION_CREDENTIALS, or configure gcs.oauth2.token\n"
        )
        configure(emulator, monkeypatch)
    done = command(*publishing, *words)
    assert done.exit_code == 0, done.output
    expected = after_some_runs(store, place, source_options)
    reading = {**in_file, **emulator.file_io}
    table = load_catalog("streamd", **reading).load_table("streamd.archive")
    assert digest(table.scan().to_arrow()) == expected
    assert read_by_polars(reading) == expected
    assert command(*publishing, "--drop").exit_code == 0
    assert list(files_below(Layout(place).tables)) == []


BY_POLARS = """
import json, sys, polars
from pyiceberg.catalog import load_catalog
from support.archives.table_readers import digest
table = load_catalog("streamd", **json.loads(sys.argv[1])).load_table("streamd.archive")
print(json.dumps(digest(polars.scan_iceberg(table).collect().to_arrow())))
"""


def read_by_polars(properties: dict[str, str]) -> tuple[int, str]:
    """In a process of its own, since it warns, and keeps threads."""
    pytest.importorskip("polars", reason="what reads the tables comes with streamd-server[test]")
    environment = {**os.environ, "PYTHONPATH": f"{TESTS}:{TESTS.parent}"}
    done = subprocess.run(
        [sys.executable, "-c", BY_POLARS, json.dumps(properties)], capture_output=True, text=True, timeout=120,
        check=False, env=environment,
    )  # fmt: skip
    assert done.stdout, done.stderr
    rows, checksum = json.loads(done.stdout)
    return rows, checksum


def configure(emulator: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tell pyiceberg of a store in its own way."""
    for name, value in emulator.file_io.items():
        variable = name.upper().replace(".", "__").replace("-", "_")
        monkeypatch.setenv(f"PYICEBERG_CATALOG__STREAMD__{variable}", value)


def test_a_delta_table_lies_in_the_store_too(store: redis.Redis, source_options: Options, place: str) -> None:
    deltalake = pytest.importorskip("deltalake", reason="open tables need streamd-server[tables]")
    fill(store, 300)
    archive_once(place, source_options)
    done = command("archive", "publish", place, "--format", "delta")
    assert done.exit_code == 0, done.output
    expected = after_some_runs(store, place, source_options)
    table = deltalake.DeltaTable(f"{place}/data", storage_options={"allow_http": "true"})
    assert digest(table.to_pyarrow_table()) == expected


def after_some_runs(store: redis.Redis, place: str, options: Options) -> Any:
    """Archive more, with merges, and delete an entry; what the open tables must hold then."""
    for number in range(1, 4):
        produced = fill(store, 300, start_ms=1_700_000_000_000 + number * 20_000_000)
        report = archive_once(place, options, merge_files=2)
        assert not report.streams[0].warnings
    gone = parse_entry_id(produced[5])
    delete(place, KEY, options, [(gone, gone)])
    expected = digest(read_history(place, options))  # type: ignore[arg-type]
    assert expected[0] == 1199
    return expected


def test_typed_tables_lie_in_the_store_too(
    store: redis.Redis, source_options: Options, place: str, tmp_path: Path, emulator: LocalStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    pytest.importorskip("pyiceberg", reason="open tables need streamd-server[tables]")
    deltalake = pytest.importorskip("deltalake", reason="open tables need streamd-server[tables]")
    from pyiceberg.catalog import load_catalog

    produced = fill(store, 300)
    archive_once(place, source_options)
    configure(emulator, monkeypatch)
    given = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db"}
    properties = [word for name, value in given.items() for word in ("--property", f"{name}={value}")]
    schema = ("--schema", "sensor int, value bigint, missing string")
    publishing = ("archive", "publish", place, "--format")
    forms = {"iceberg": properties, "delta": []}
    for form, words in forms.items():
        done = command(*publishing, form, *words, *schema)
        assert done.exit_code == 0, done.output
    for number in range(1, 4):
        produced += fill(store, 300, start_ms=1_700_000_000_000 + number * 20_000_000)
        report = archive_once(place, source_options, merge_files=2)
        assert not report.streams[0].warnings
    gone = parse_entry_id(produced.pop(5))
    delete(place, KEY, source_options, [(gone, gone)])
    root = Layout(place).root

    def lying(folder: str) -> list[str]:
        return sorted(str(each) for each in files_below(root / folder) if each.name.endswith(".parquet"))

    def read(form: str) -> Any:
        if form == "iceberg":
            return load_catalog("streamd", **given, **emulator.file_io).load_table("streamd.typed").scan().to_arrow()
        uri = f"{place}/_tables/delta-streamd.typed"
        return deltalake.DeltaTable(uri, storage_options={"allow_http": "true"}).to_pyarrow_table()

    for form in forms:
        rows = sorted(read(form).to_pylist(), key=lambda row: (row["ms"], row["seq"]))
        assert [row["id"] for row in rows] == produced
        assert {row["sensor"] for row in rows} == set(range(7))
        assert {row["missing"] for row in rows} == {None}
        assert len(lying(f"_tables/{form}-streamd.typed")) == len(lying("data"))
    for form in forms:
        assert command(*publishing, form, "--drop", "--name", "streamd.typed").exit_code == 0
    assert list(files_below(root / "_tables")) == []


@pytest.mark.filterwarnings("ignore")  # pyiceberg and deltalake warn
def test_typed_tables_and_their_rejects_grow_in_the_store(
    store: redis.Redis, source_options: Options, place: str, tmp_path: Path, emulator: LocalStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    pytest.importorskip("pyiceberg", reason="open tables need streamd-server[tables]")
    deltalake = pytest.importorskip("deltalake", reason="open tables need streamd-server[tables]")
    from pyiceberg.catalog import load_catalog

    configure(emulator, monkeypatch)
    given = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db"}
    forms = {
        "iceberg": [word for name, value in given.items() for word in ("--property", f"{name}={value}")],
        "delta": [],
    }

    def publish_all(schema: str, *, code: int = 0) -> list[str]:
        publishing = ("archive", "publish", place, "--format")
        done = [command(*publishing, form, *words, "--schema", schema, "--rejects") for form, words in forms.items()]
        assert [each.exit_code for each in done] == [code] * 2, [each.output for each in done]
        return [each.output for each in done]

    def rows_of(name: str, *columns: str) -> list[tuple[Any, ...]]:
        """What each reader finds, which must be the same."""
        storage = {"allow_http": "true"}
        found = [
            load_catalog("streamd", **given, **emulator.file_io).load_table(name).scan().to_arrow(),
            deltalake.DeltaTable(f"{place}/_tables/delta-{name}", storage_options=storage).to_pyarrow_table(),
        ]
        rows = [
            sorted(zip(*(each.column(name).to_pylist() for name in ("id", *columns)), strict=True)) for each in found
        ]
        assert rows[0] == rows[1]
        return [row[1:] for row in rows[0]]

    def add(*entries: dict[str, str]) -> None:
        for entry in entries:
            store.xadd(KEY, entry)  # type: ignore[arg-type]
        assert not archive_once(place, source_options, merge_files=2).streams[0].warnings

    add({"n": "1"}, {"n": "70000", "x": "y"}, {"n": "seven"})
    publish_all("n smallint")
    add({"n": "2"}, {"n": "80000"})
    rejects = "streamd.typed_rejects"
    assert rows_of("streamd.typed", "n") == [(1,), (2,)]
    assert rows_of(rejects, "reason", "entry") == [
        ("field n is not of type int16: b'70000'", '{"n":"70000","x":"y"}'),
        ("field n is not of type int16: b'seven'", '{"n":"seven"}'),
        ("field n is not of type int16: b'80000'", '{"n":"80000"}'),
    ]
    publish_all("n int, x string")
    assert rows_of("streamd.typed", "n", "x") == [(1, None), (70000, "y"), (2, None), (80000, None)]
    assert rows_of(rejects, "reason") == [("field n is not of type int32: b'seven'",)]
    add({"n": "90000"}, {"n": "nine"})
    for output in publish_all("n smallint, x string", code=1):
        assert output.startswith("Error: option schema: column n cannot become smallint: it is int")
    assert rows_of("streamd.typed", "n") == [(1,), (70000,), (2,), (80000,), (90000,)]
    assert [entry for (entry,) in rows_of(rejects, "entry")] == ['{"n":"seven"}', '{"n":"nine"}']


@pytest.mark.parametrize("emulator", ["s3"], indirect=True)
@pytest.mark.parametrize("step", ["staged", "committed", "published", "merge committed", "merge published"])
def test_a_typed_table_in_the_store_is_brought_up_after_a_run_was_killed(
    step: str, store: redis.Redis, source_options: Options, place: str
) -> None:
    deltalake = pytest.importorskip("deltalake", reason="open tables need streamd-server[tables]")
    tables = (TableConfig("delta", "streamd.typed", schema="sensor int, value bigint"),)
    produced: list[str] = []
    for number in range(2):
        produced += fill(store, 50, start_ms=1_700_000_000_000 + number * 20_000_000)
        assert not archive_once(place, source_options, publish=tables).streams[0].warnings
    produced += fill(store, 50, start_ms=1_700_000_000_000 + 2 * 20_000_000)
    with pytest.raises(Killed, match=step):
        archive_once(place, source_options, hook=kill_at(step), merge_files=2)
    expire_lock(store)
    for _ in range(2):
        assert not archive_once(place, source_options, merge_files=2).streams[0].warnings
    uri = f"{place}/_tables/delta-streamd.typed"
    table = deltalake.DeltaTable(uri, storage_options={"allow_http": "true"})
    rows = sorted(table.to_pyarrow_table().to_pylist(), key=lambda row: (row["ms"], row["seq"]))
    assert [row["id"] for row in rows] == produced
    lying = {str(each) for each in files_below(Layout(uri).root) if "_delta_log" not in str(each)}
    assert lying == set(table.file_uris())


# --- What cannot be done is said at once ---------------------------------------------------------------------------------------


def test_a_place_that_cannot_hold_an_archive_is_refused_at_once(
    store: redis.Redis, source_options: Options, place: str, emulator: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, 10)
    scheme = emulator.scheme
    with pytest.raises(ArchiveError, match="in an object store: s3, gs, az"):
        Layout("hdfs://name/archive")
    with pytest.raises(ArchiveError, match="has no bucket"):
        Layout(f"{scheme}://")
    with pytest.raises(ArchiveError, match=f"is written {scheme}://bucket/x"):
        Layout(Path(f"{scheme}://bucket/x"))
    with pytest.raises(ArchiveError, match="is not an archive"):
        Layout(place).check()
    refused(
        f"{scheme}://nobody/x",
        source_options,
        f"{scheme}://nobody/x cannot hold an archive: there is no {scheme}://nobody",
    )
    name = {"s3": "AWS_ENDPOINT_URL", "gs": "GOOGLE_BASE_URL", "az": "AZURE_STORAGE_ENDPOINT"}[scheme]
    with monkeypatch.context() as patched:
        patched.setenv(name, "minio:9000")
        refused(place, source_options, f"{name}=minio:9000: an endpoint is written http://host:port")
    tell_of(emulator, f"http://127.0.0.1:{free_port()}", monkeypatch)
    refused(place, source_options, f"{place}/archive.json: Generic ")


def refused(place: str, options: Options, said: str) -> None:
    """A run ends with one line."""
    done = command("archive", "run", place, "--stream", KEY, "--port", options["port"])
    assert done.exit_code == 1, done.output
    assert done.output.startswith(f"Error: {said}")
    assert len(done.output.splitlines()) == 1, done.output


def test_wrong_credentials_are_refused_at_once(
    store: redis.Redis, source_options: Options, place: str, emulator: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Azurite looks at them by itself, moto's server when it is told to; fake-gcs-server takes any that can be read."""
    fill(store, 10)
    bucket = place.removesuffix("/archives/one")
    if emulator.scheme == "s3":
        with s3_store(checks=True) as strict:
            place = new_place(strict, monkeypatch)
            refused(place, source_options, f"{place}/archive.json: The operation lacked the necessary privileges")
    elif emulator.scheme == "gs":
        monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT_KEY", "{")
        refused(place, source_options, f"{bucket}: Generic GCS error: GCP credential error: Unable to decode")
    else:
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "AAAA")
        refused(place, source_options, f"{place}/archive.json: The operation lacked the necessary privileges")
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "not in base64")
        refused(place, source_options, f"{bucket}: Generic MicrosoftAzure error: Invalid Access Key")
    assert store.xlen(KEY) == 10


def test_a_put_that_is_repeated_because_its_answer_was_lost_is_done(place: str) -> None:
    path = Layout(place).root / "_manifest/s/1.json"
    disk = disk_for(path)
    disk.write_new(path, b"of this run")
    disk.write_new(path, b"of this run")
    with pytest.raises(FileExistsError, match="there is such an object already"):
        disk.write_new(path, b"of another")
    assert path.read_bytes() == b"of this run"


def test_a_store_without_conditional_puts_is_refused(
    store: redis.Redis, source_options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, 10)
    with gcs_store(is_conditional=False) as careless:
        place = new_place(careless, monkeypatch)
        refused(
            place, source_options, f"{place} cannot hold an archive: its store ignores the condition for new objects"
        )
        assert objects(place) == set()
    assert store.xlen(KEY) == 10


def test_a_missing_library_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    with pytest.raises(ArchiveError, match=r"need the extra `store`: ./install '.\[store\]'"):
        Layout("s3://bucket/archive")
    Layout("/tmp/archive")  # a folder needs nothing


def test_an_iceberg_table_in_azure_needs_the_name_of_the_account(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyiceberg", reason="open tables need streamd-server[tables]")
    from streamd.archive.iceberg_catalog import load

    with monkeypatch.context() as patched:
        patched.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
        root = Layout("az://container/archive").root
    with pytest.raises(TableError, match=r"set AZURE_STORAGE_ACCOUNT_NAME, or adls\.account-name"):
        load("streamd", {"type": "sql", "uri": "sqlite://"}, root)
