"""Loading append-only files: whole ones, cut ones, damaged ones, and sets of files that do not belong together."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.files.aof import Store, bytes_of, commands, make_aof, open_aof

from streamd.core.effects import Effect
from streamd.errors import CorruptFileError
from streamd.persistence.aof.reader import AofFault, AofReader, UnknownCommandError
from streamd.persistence.aof.replay import AofLoadError, LoadOptions

pytestmark = pytest.mark.long

INCR = "appendonly.aof.1.incr.aof"
BASE = "appendonly.aof.1.base.rdb"
HEAD = commands("SELECT 0", "XADD s 1-1 f v", "XADD s 2-1 f v")
TAIL = commands("XADD s 3-1 field value", "XGROUP CREATE s g 0", "XADD s 4-1 f v")
GROUP = commands("MULTI", "XADD s 5-1 f v", "XADD s 6-1 f v", "EXEC")


class Pieces:
    """A file that gives a few bytes at a time."""

    def __init__(self, data: bytes, size: int) -> None:
        self._data = data
        self._size = size
        self._at = 0

    def readinto(self, view: memoryview) -> int:
        piece = self._data[self._at : self._at + min(self._size, len(view))]
        view[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)


def read(data: bytes, size: int = 1 << 30, strict: bool = False) -> list[list[bytes]]:
    reader = AofReader(Pieces(data, size), len(data), strict=strict)
    found = []
    while (args := reader.next_command()) is not None:
        reader.check_invariants()
        found.append(args)
    assert reader.whole == reader.valid == len(data)
    return found


def write(folder: Path, data: bytes, name: str = INCR) -> Path:
    """A set of files with an empty base and `data` in the incremental file."""
    open_aof(folder, Store()).close()
    path = folder / "appendonlydir" / name
    path.write_bytes(data)
    return path


def load(folder: Path, **options: Any) -> Store:
    store = Store()
    open_aof(folder, store, load=LoadOptions(**options)).close()
    return store


# --- The reader --------------------------------------------------------------------------------------------------------


@given(
    st.lists(st.lists(st.binary(max_size=40), min_size=1, max_size=5).filter(
        lambda args: args[0].upper() not in (b"MULTI", b"EXEC")), max_size=6),
    st.integers(1, 50), st.booleans(),
)  # fmt: skip
@settings(deadline=None)
def test_what_was_written_is_read_however_it_comes(requests: list[list[bytes]], size: int, strict: bool) -> None:
    assert read(bytes_of(requests), size, strict) == requests


def test_long_arguments_and_long_lists_are_read() -> None:
    requests = [[b"SET", b"k", bytes(5_000_000)], [b"XADD"] + [b"%d" % n for n in range(1000)], [b"SET", b"k", b"v"]]
    assert read(bytes_of(requests)) == requests
    assert read(bytes_of(requests), 100_000) == requests


def test_annotations_are_passed_over() -> None:
    data = b"#TS:12\r\n" + bytes_of(HEAD) + b"#" + b"x" * 1000 + b"\n" + bytes_of(TAIL) + b"#STREAMD:0 nothing\n"
    assert read(data) == HEAD + TAIL


@pytest.mark.parametrize(
    ("data", "offset", "expected", "is_cut"),
    [
        (b"x", 0, "'*' or '#'", False),
        (b"\0\0\0", 0, "'*' or '#'", False),
        (b"*0\r\n", 1, "the number of arguments", False),
        (b"*-1\r\n", 1, "the number of arguments", False),
        (b"*99999999999\r\n", 1, "the number of arguments", False),
        (b"*1\r\n+OK\r\n", 4, "'$' and the length of argument 1 of 1", False),
        (b"*1\r\n$-5\r\n", 5, "the length of argument 1 of 1", False),
        (b"*", 1, "the number of arguments", True),
        (b"*1\r\n", 4, "argument 1 of 1", True),
        (b"*1\r\n$3\r\nab", 10, "3 bytes and a line end", True),
        (b"*1\r\n$999999999999999999999\r\nab", 30, "bytes and a line end", True),
        (b"#TS:12", 6, "the end of an annotation", True),
        (b"*1\r\n$5\r\nMULTI\r\n", 15, "EXEC", True),
        (b"#" * 1023 + b"x" * 7 + b"\n", 1023, "'*' or '#'", False),
    ],
)
def test_a_fault_is_named(data: bytes, offset: int, expected: str, is_cut: bool) -> None:
    for size in (1, 1 << 30):
        with pytest.raises(AofFault, match=f"at offset {offset}: expected ") as caught:
            read(data, size)
        assert (caught.value.offset, caught.value.is_cut) == (offset, is_cut)
        assert expected in caught.value.expected


@pytest.mark.parametrize(
    "data",
    [
        b"*1x\r\n$4\r\nPING\r\n",
        b"*1\n$4\r\nPING\r\n",
        b"*01\r\n$4\r\nPING\r\n",
        b"*1\r\n$4\r\nPINGxx",
        b"* 1\r\n$4 \r\nPING\r\n",
    ],
)
def test_the_checker_is_stricter_than_the_server(data: bytes) -> None:
    assert read(data) == [[b"PING"]]
    with pytest.raises(AofFault, match=r"^at offset "):
        read(data, strict=True)


@given(st.integers(0, 400), st.integers(0, 255))
@settings(deadline=None, max_examples=300)
def test_no_byte_makes_the_reader_fail_otherwise(at: int, byte: int) -> None:
    data = bytearray(bytes_of(HEAD + GROUP + TAIL))
    data[at % len(data)] = byte
    for strict in (False, True):
        reader = AofReader(Pieces(bytes(data), 7), len(data), strict=strict)
        try:
            while reader.next_command() is not None:
                reader.check_invariants()
        except AofFault:
            reader.check_invariants()
        assert reader.valid <= reader.whole <= len(data)


# --- Whole files -------------------------------------------------------------------------------------------------------


def test_commands_run_in_order_and_groups_whole(tmp_path: Path) -> None:
    write(tmp_path, bytes_of(HEAD + GROUP + TAIL[:0] + commands("XADD s 7-1 f v")))
    store = load(tmp_path)
    assert store.applied == HEAD + GROUP[1:3] + commands("XADD s 7-1 f v")


def test_progress_is_reported_in_bytes(tmp_path: Path) -> None:
    path = write(tmp_path, bytes_of(HEAD + [[b"SET", b"k", b"%d" % n] for n in range(5000)]))
    aof, store = make_aof(tmp_path), Store()
    steps = list(aof.load(store.apply, LoadOptions(), load_rdb=store.load_rdb(), databases=store.databases))
    assert steps == sorted(steps)
    assert len(steps) >= 5
    assert aof.files.total_to_load - path.stat().st_size < steps[-1] <= aof.files.total_to_load


def test_a_command_that_fails_is_passed_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path, bytes_of(HEAD + commands("XADD s 1-1 f v", "SET t x", "XADD t 1-1 f v") + TAIL))
    assert load(tmp_path).run("XLEN", "s") == 4
    assert "sending an error to its AOF-loading-client" in caplog.text


def test_an_unknown_command_refuses_the_start(tmp_path: Path) -> None:
    path = write(tmp_path, bytes_of(HEAD + commands("GEOADD g 1 1 x") + TAIL))
    before = path.read_bytes()
    with pytest.raises(AofLoadError, match="Unknown command 'GEOADD'"):
        load(tmp_path)
    assert path.read_bytes() == before


def test_an_unknown_command_in_a_group_refuses_the_start_before_the_group_is_whole(tmp_path: Path) -> None:
    data = bytes_of(HEAD + GROUP[:3] + commands("DXEC") + TAIL)
    path = write(tmp_path, data)
    with pytest.raises(AofLoadError, match="Unknown command 'DXEC'"):
        load(tmp_path)
    assert path.read_bytes() == data


def test_keys_whose_time_has_come_are_there_while_the_file_is_loaded(tmp_path: Path) -> None:
    store = Store()
    aof = open_aof(tmp_path, store)
    aof.buffer.append(0, commands("SET k v PXAT 5")[0], 0)
    aof.buffer.append(0, commands("PERSIST k")[0], 0)
    aof.close()
    load(tmp_path)


# --- Cut files ---------------------------------------------------------------------------------------------------------


def test_a_file_cut_anywhere_in_its_last_commands_starts_with_the_whole_ones(tmp_path: Path) -> None:
    head = bytes_of(HEAD)
    path = write(tmp_path, b"")
    ends = [len(bytes_of(HEAD + TAIL[:n])) for n in range(len(TAIL) + 1)]
    data = bytes_of(HEAD + TAIL)
    for cut in range(len(head), len(data) + 1):
        path.write_bytes(data[:cut])
        store = load(tmp_path)
        whole = max(end for end in ends if end <= cut)
        assert path.stat().st_size == whole, cut
        assert store.applied == HEAD + TAIL[: ends.index(whole)], cut


def test_a_file_cut_anywhere_in_a_group_starts_without_the_group(tmp_path: Path) -> None:
    head, data = bytes_of(HEAD), bytes_of(HEAD + GROUP)
    path = write(tmp_path, b"")
    for cut in range(len(head), len(data)):
        path.write_bytes(data[:cut])
        store = load(tmp_path)
        assert path.read_bytes() == head, cut
        assert store.applied == HEAD, cut


def test_what_is_written_after_a_cut_inside_a_group_is_there_at_the_next_start(tmp_path: Path) -> None:
    path = write(tmp_path, bytes_of(HEAD + GROUP)[:-20])
    aof = open_aof(tmp_path, Store())
    aof.check_invariants()
    aof.buffer.append(0, commands("XADD s 9-1 f v")[0], 0)
    aof.close()
    assert path.read_bytes() == bytes_of(HEAD + commands("SELECT 0", "XADD s 9-1 f v"))
    assert load(tmp_path).run("XLEN", "s") == 3


def test_a_cut_annotation_is_cut_off_before_the_next_command_joins_it(tmp_path: Path) -> None:
    path = write(tmp_path, bytes_of(HEAD) + b"#TS:17000")
    load(tmp_path)
    assert path.read_bytes() == bytes_of(HEAD)


@pytest.mark.parametrize("data", [bytes_of(HEAD + TAIL)[:-3], bytes_of(HEAD + GROUP[:3]), bytes_of(HEAD) + b"*3"])
def test_a_cut_file_refuses_the_start_when_it_must_be_whole(tmp_path: Path, data: bytes) -> None:
    path = write(tmp_path, data)
    with pytest.raises(CorruptFileError, match="found the end of the file"):
        load(tmp_path, load_truncated=False)
    assert path.read_bytes() == data


def test_a_cut_file_that_is_not_the_last_refuses_the_start_and_stays_as_it_is(tmp_path: Path) -> None:
    data = bytes_of(HEAD)[:-3]
    path = write(tmp_path, data)
    manifest = tmp_path / "appendonlydir" / "appendonly.aof.manifest"
    manifest.write_text(manifest.read_text() + "file appendonly.aof.2.incr.aof seq 2 type i\n")
    (tmp_path / "appendonlydir" / "appendonly.aof.2.incr.aof").write_bytes(b"")
    with pytest.raises(CorruptFileError, match="at byte"):
        load(tmp_path)
    assert path.read_bytes() == data


def test_a_wrong_length_in_the_middle_hides_commands_which_are_kept(tmp_path: Path) -> None:
    data = bytes_of(HEAD + TAIL).replace(b"$5\r\nfield", b"$9555\r\nfield")
    path = write(tmp_path, data)
    store = load(tmp_path)
    head = len(bytes_of(HEAD))
    assert store.applied == HEAD
    assert path.read_bytes() == data[:head]
    assert path.with_name(f"{INCR}.cut-{head}").read_bytes() == data[head:]


def test_nothing_is_kept_of_a_plain_cut(tmp_path: Path) -> None:
    path = write(tmp_path, bytes_of(HEAD + TAIL)[:-3])
    load(tmp_path)
    assert [each.name for each in path.parent.iterdir() if "cut" in each.name] == []


# --- Damaged files -----------------------------------------------------------------------------------------------------


def test_garbage_refuses_the_start(tmp_path: Path) -> None:
    data = bytes_of(HEAD) + b"\0" * 64
    path = write(tmp_path, data)
    with pytest.raises(CorruptFileError, match="at byte") as caught:
        load(tmp_path)
    assert (caught.value.offset, caught.value.file) == (len(bytes_of(HEAD)), str(path))
    with pytest.raises(CorruptFileError, match="at byte"):
        load(tmp_path, corrupt_tail_max_size=64)
    assert path.read_bytes() == data


def test_a_little_garbage_is_cut_off_when_that_is_allowed(tmp_path: Path) -> None:
    path = write(tmp_path, bytes_of(HEAD) + b"\0" * 64)
    assert load(tmp_path, corrupt_tail_max_size=65).applied == HEAD
    assert path.read_bytes() == bytes_of(HEAD)


@pytest.mark.parametrize("size", [0, 10, 11, 100])
@pytest.mark.parametrize("truncated", ["yes", "no"])
@pytest.mark.real
def test_a_corrupt_tail_is_judged_as_redis_does(
    new_streamd: Any, new_redis: Any, tmp_path: Path, size: int, truncated: str
) -> None:
    settings_ = {"aof-load-corrupt-tail-max-size": str(size), "aof-load-truncated": truncated, "appendonly": "yes"}
    said = []
    for start in (new_redis, new_streamd):
        folder = tmp_path / f"{start.__name__}-{len(said)}"
        folder.mkdir()
        path = write(folder, bytes_of(HEAD) + b"x" * 10)
        try:
            start(dir=str(folder), **settings_)
            outcome = "loaded"
        except RuntimeError as error:
            outcome = "Bad file format reading the append only file" if "Bad file format" in str(error) else "other"
        said.append((outcome, path.stat().st_size))
    assert said[0] == said[1]


def test_garbage_in_a_group_takes_the_group_with_it(tmp_path: Path) -> None:
    path = write(tmp_path, bytes_of(HEAD + GROUP[:2]) + b"\0" * 4)
    assert load(tmp_path, corrupt_tail_max_size=5).applied == HEAD
    assert path.read_bytes() == bytes_of(HEAD)


def test_a_damaged_snapshot_refuses_the_start(tmp_path: Path) -> None:
    write(tmp_path, bytes_of(HEAD))
    path = tmp_path / "appendonlydir" / BASE
    data = path.read_bytes()
    noise = random.Random(5)
    for _ in range(20):
        damaged = bytearray(data)
        damaged[noise.randrange(9, len(data) - 8)] ^= 1 << noise.randrange(8)
        path.write_bytes(damaged)
        with pytest.raises(CorruptFileError, match="at byte"):
            load(tmp_path)
        assert path.read_bytes() == damaged


# --- Sets of files -----------------------------------------------------------------------------------------------------


def test_a_missing_file_refuses_the_start(tmp_path: Path) -> None:
    for name in (BASE, INCR):
        folder = tmp_path / name
        folder.mkdir()
        write(folder, bytes_of(HEAD))
        (folder / "appendonlydir" / name).unlink()
        with pytest.raises(AofLoadError, match=f"{name} is missing"):
            load(folder)
        assert not (folder / "appendonlydir" / name).exists()


def test_an_empty_base_refuses_the_start(tmp_path: Path) -> None:
    write(tmp_path, bytes_of(HEAD), BASE).write_bytes(b"")
    with pytest.raises(CorruptFileError, match="an empty file"):
        load(tmp_path)


def test_an_empty_base_of_commands_is_what_redis_starts_with(tmp_path: Path) -> None:
    folder = tmp_path / "appendonlydir"
    folder.mkdir()
    for seq, is_fine in ((1, True), (2, False)):
        (folder / f"appendonly.aof.{seq}.base.aof").write_bytes(b"")
        (folder / "appendonly.aof.1.incr.aof").write_bytes(bytes_of(HEAD))
        (folder / "appendonly.aof.manifest").write_text(
            f"file appendonly.aof.{seq}.base.aof seq {seq} type b\nfile appendonly.aof.1.incr.aof seq 1 type i\n"
        )
        if is_fine:
            assert load(tmp_path).applied == HEAD
        else:
            with pytest.raises(CorruptFileError, match="at byte"):
                load(tmp_path)


def test_an_empty_incremental_file_is_fine(tmp_path: Path) -> None:
    write(tmp_path, b"")
    assert load(tmp_path).applied == []


# --- The single file of older versions -----------------------------------------------------------------------------------


@pytest.mark.parametrize("preamble", [True, False])
def test_an_old_file_becomes_the_base(tmp_path: Path, preamble: bool) -> None:
    store = Store()
    store.run("XADD", "s", "1-1", "f", "v")
    if preamble:
        store.write_base(str(tmp_path / "appendonly.aof"))
        with (tmp_path / "appendonly.aof").open("ab") as file:
            file.write(bytes_of(commands("SELECT 0", "XADD s 2-1 f v")))
    else:
        (tmp_path / "appendonly.aof").write_bytes(bytes_of(HEAD))
    assert load(tmp_path).run("XLEN", "s") == 2
    folder = tmp_path / "appendonlydir"
    assert sorted(path.name for path in folder.iterdir()) == [
        "appendonly.aof", "appendonly.aof.1.incr.aof", "appendonly.aof.manifest",
    ]  # fmt: skip
    assert (folder / "appendonly.aof.manifest").read_text().startswith("file appendonly.aof seq 1 type b\n")
    assert not (tmp_path / "appendonly.aof").exists()
    assert load(tmp_path).run("XLEN", "s") == 2


def test_an_upgrade_that_was_interrupted_is_finished(tmp_path: Path) -> None:
    (tmp_path / "appendonly.aof").write_bytes(bytes_of(HEAD))
    folder = tmp_path / "appendonlydir"
    folder.mkdir()
    (folder / "appendonly.aof.manifest").write_text("file appendonly.aof seq 1 type b\n")
    assert load(tmp_path).run("XLEN", "s") == 2


def test_an_old_file_beside_a_new_set_is_left_alone(tmp_path: Path) -> None:
    write(tmp_path, bytes_of(HEAD))
    (tmp_path / "appendonly.aof").write_bytes(b"old")
    assert load(tmp_path).applied == HEAD
    assert (tmp_path / "appendonly.aof").read_bytes() == b"old"


# --- What is accepted once ----------------------------------------------------------------------------------------------

LATER = commands("SELECT 0", "XADD later 1-1 f v", "SET later-too v")
ENDS = [
    commands("XADD s 3-1 field value", "XGROUP CREATE s g 0"),
    commands("XACK s g 1-1", "SET k 1"),
    commands("MULTI", "SET k v", "XADD s 3-1 f v", "EXEC"),
    commands("SELECT 3", "FLUSHALL"),
    [[b"SET", b"k", b""], [b"SET", b"k", b"*1\r\n$1\r\n"], [b"SET", b"k", b"#\r\n"]],
    # Lengths with which a damaged header may take in what follows it and end where a command does.
    [
        [b"XADD", b"s", b"3-1", b"field", b"v"],
        [b"SET", b"k", b"x" * 12],
        [b"MULTI"],
        [b"SET", b"k", b"x" * 12],
        [b"EXEC"],
    ],
    [[b"SET", b"k", b"x" * 27], [b"SET", b"k", b"x" * 1020], [b"SET", b"k", b"y"]],
]
KNOWN = {b"SELECT", b"XADD", b"XGROUP", b"XACK", b"SET", b"FLUSHALL"}


def replay(data: bytes) -> tuple[list[list[bytes]], int | None]:
    """What a start runs, and how much of the file it goes on with; None: it refuses the file."""
    ran: list[list[bytes]] = []

    def require_known(args: list[bytes]) -> None:
        if args[0].upper() not in KNOWN:
            raise UnknownCommandError(repr(args[0]))

    def apply(args: list[bytes]) -> None:
        require_known(args)
        ran.append(args)

    reader = AofReader(Pieces(data, 1 << 30), len(data))
    try:
        while reader.replay(apply, 100, None, None, require_known):
            pass
    except AofFault as fault:
        return ran, reader.valid if fault.is_cut else None
    except UnknownCommandError:
        return ran, None
    return ran, len(data)


@pytest.mark.parametrize("end", ENDS)
def test_a_file_that_is_accepted_with_a_flipped_bit_is_read_with_all_that_is_appended(end: list[list[bytes]]) -> None:
    head, later = bytes_of(HEAD), bytes_of(LATER)
    data = head + bytes_of(end)
    accepted = 0
    for at in range(len(head), len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[at] ^= 1 << bit
            ran, size = replay(bytes(flipped))
            if size is not None:
                accepted += 1
                assert replay(bytes(flipped[:size]) + later) == (ran + LATER, size + len(later)), (at, bit)
    assert accepted


def test_a_header_whose_line_end_is_damaged_never_hides_what_comes_later(tmp_path: Path) -> None:
    data = bytes_of(HEAD + TAIL + GROUP)
    places = [at for at in range(len(bytes_of(HEAD)), len(data)) if data[at] == 0x0A]
    accepted = 0
    for number, at in enumerate(places):
        folder = tmp_path / str(number)
        folder.mkdir()
        write(folder, data[:at] + b"\x1a" + data[at + 1 :])
        try:
            aof = open_aof(folder, Store())
        except (AofLoadError, CorruptFileError):
            continue
        accepted += 1
        aof.buffer.take_effects([Effect(0, args) for args in LATER[1:]], 0)
        aof.flush()
        aof.close()
        assert {b"later", b"later-too"} <= {key for each in load(folder).state() for key in each}
    assert accepted
