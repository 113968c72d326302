"""RDB files written and read without any server: nothing is lost, forms, options, what is dropped and what is refused."""

from __future__ import annotations

import io
import random
from itertools import pairwise
from typing import Any

import pytest
from support.files.rdb import (
    NOW_MS,
    STRINGS,
    Memory,
    load,
    make_databases,
    make_file,
    make_stream,
    make_string,
    save,
    see,
    use,
)

from streamd.core.context import Context
from streamd.errors import CorruptFileError, UnsupportedValueError
from streamd.keyspace.database import Database
from streamd.persistence.rdb.format import LoadOptions, WriteOptions
from streamd.persistence.rdb.read import PayloadError, RdbReader, restore_libraries, restore_value
from streamd.persistence.rdb.write import RdbWriter, dump_libraries, dump_value
from streamd.values.streams.group import Group
from streamd.values.streams.idempotency import registry_of
from streamd.values.streams.stream import Stream

AT_NOW = LoadOptions(now_ms=NOW_MS)


def contents(databases: list[Database]) -> dict[tuple[int, bytes], Any]:
    return {(db.index, name): (see(db.peek(name)), db.expiry(name)) for db in databases for name in sorted(db.keys())}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("compression", [True, False])
def test_everything_comes_back(seed: int, compression: bool) -> None:
    databases = make_databases(seed)
    data = save(databases, WriteOptions(compression=compression))
    loaded = load(data)
    assert contents(loaded) == contents(databases)
    # Streams, strings and expiries alike, the bytes are alike too; only the order of keys may differ.
    assert len(save(loaded, WriteOptions(compression=compression))) == len(data)


@pytest.mark.parametrize("window", [1, 3, 1000])
def test_a_source_may_give_few_bytes_at_a_time(window: int) -> None:
    class Slow(io.RawIOBase):
        def __init__(self, data: bytes) -> None:
            self._data = io.BytesIO(data)

        def readinto(self, buffer: Any) -> int:
            got = self._data.read(min(window, len(buffer)))
            buffer[: len(got)] = got
            return len(got)

    databases = make_databases()
    data = save(databases)
    loaded = [Database(index) for index in range(3)]
    reader = RdbReader(Slow(data + b"behind"), loaded, options=AT_NOW)
    reader.load()
    assert reader.end_offset == len(data)
    assert b"behind".startswith(reader.rest)
    assert contents(loaded) == contents(databases)


def test_a_string_larger_than_the_window() -> None:
    text = random.Random(0).randbytes(3 << 20)
    db = Database(0)
    db.add(b"large", text)
    db.add(b"small", b"x")
    loaded = [Database(0)]
    RdbReader(io.BytesIO(save([db])), loaded, options=AT_NOW).load()
    assert loaded[0].peek(b"large") == text
    assert loaded[0].peek(b"small") == b"x"


def test_steps_tell_how_far_it_has_come() -> None:
    db = Database(0)
    db.add(b"s", make_stream(entries=20_000, node_max_entries=100))
    data = save([db], WriteOptions(compression=False))
    steps = list(RdbReader(io.BytesIO(data), [Database(0)], options=AT_NOW).steps(10_000))
    assert len(steps) > len(data) / 20_000
    assert steps == sorted(steps)
    assert steps[-1] == len(data)
    # A node is read whole, and is not larger than that.
    assert max(after - before for before, after in pairwise(steps)) < 20_000


def test_auxiliary_fields() -> None:
    data = save([], WriteOptions(aux={"repl-stream-db": 0, "repl-id": "f" * 40, "repl-offset": 123, "aof-base": 1}))
    reader = RdbReader(data, [Database(0)], options=AT_NOW)
    reader.load()
    assert list(reader.aux) == [
        "redis-ver", "redis-bits", "ctime", "used-mem", "repl-stream-db", "repl-id", "repl-offset", "aof-base",
    ]  # fmt: skip
    assert reader.aux["ctime"] == str(NOW_MS // 1000)
    assert reader.aux["repl-offset"] == "123"
    assert (reader.version, reader.checksum, reader.keys_loaded) == (13, "ok", 0)


def test_without_a_checksum() -> None:
    data = save(make_databases(), WriteOptions(checksum=False))
    assert data[-8:] == bytes(8)
    load(data)
    reader = RdbReader(save([]), [Database(0)], options=LoadOptions(checksum=False))
    reader.load()
    assert reader.checksum == "none"


def test_a_wrong_checksum_is_refused_unless_it_is_not_asked_for() -> None:
    data = bytearray(save(make_databases()))
    data[-1] ^= 1
    with pytest.raises(CorruptFileError, match="checksum"):
        load(bytes(data))
    load(bytes(data), LoadOptions(checksum=False, now_ms=NOW_MS))


def test_expired_keys_are_dropped_when_asked() -> None:
    databases = make_databases()
    data = save(databases)
    late = NOW_MS + 2000
    reader = RdbReader(data, [Database(i) for i in range(3)], options=LoadOptions(now_ms=late))
    reader.load()
    assert (reader.keys_expired, reader.keys_with_expiry) == (1, 2)
    kept = load(data, LoadOptions(now_ms=late, drop_expired=False))
    assert kept[0].expiry(b"string-1") == NOW_MS + 1000
    assert len(kept[0]) == len(databases[0])


def test_access_times_and_counts() -> None:
    db = Database(0)
    db.now_ms = NOW_MS - 100_000
    db.add(b"k", b"v")
    db.set_access(b"k", -1, 200)
    for options in (WriteOptions(access_times=True), WriteOptions(access_counts=True), WriteOptions()):
        record = load(save([db], options))[0].record(b"k")
        assert record is not None
        assert record.accessed_ms == (NOW_MS - 100_000 if options.access_times else NOW_MS)
        assert record.uses == (200 if options.access_counts else 5)


def test_settings_and_registry_of_loaded_streams() -> None:
    context = Context()
    context.stream_node_max_bytes, context.stream_node_max_entries = 11, 12
    context.stream_idmp_duration, context.stream_idmp_maxsize = 13, 14
    stream = make_stream(seed=next(seed for seed in range(99) if make_stream(seed).idempotency is not None))
    db = Database(0)
    db.add(b"s", stream)
    options = LoadOptions(now_ms=NOW_MS, context=context)
    found = load(save([db]), options)[0].peek(b"s")
    assert (found.node_max_bytes, found.node_max_entries, found.idmp_duration) == (11, 12, 100)
    assert len(registry_of(context)) == 1
    old = load(save([db], WriteOptions(form="7.2")), options)[0].peek(b"s")
    assert (old.idmp_duration, old.idmp_maxsize, old.idempotency) == (13, 14, None)


# --- Forms -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("form", "version", "kind"), [("8.6", 13, 26), ("7.2", 11, 21), ("7.0", 10, 19)])
def test_the_forms(form: str, version: int, kind: int) -> None:
    data = save(make_databases(), WriteOptions(form=form))
    assert data.startswith(b"REDIS%04d" % version)
    payload = dump_value(make_stream(), WriteOptions(form=form))
    assert payload[0] == kind
    assert payload[-10:-8] == version.to_bytes(2, "little")
    load(data)


def test_an_unknown_form_is_refused() -> None:
    with pytest.raises(KeyError, match=r"'6.0'"):
        RdbWriter(Memory(), WriteOptions(form="6.0"))


def test_what_a_form_has_no_room_for_is_reported() -> None:
    plain, full = Stream(), Stream(idmp_duration=7)
    full.iids_added = 1
    databases = [Database(0)]
    databases[0].add(b"plain", plain)
    databases[0].add(b"full", full)
    databases[0].add(b"groups", make_stream(1))
    told = {}
    for form in ("8.6", "7.2", "7.0"):
        writer = RdbWriter(Memory(), WriteOptions(form=form))
        writer.write(databases, now_ms=NOW_MS)
        told[form] = dict(writer.losses)
    assert told["8.6"] == {}
    assert told["7.2"]["idempotency settings"] == 1
    assert "idempotent producers" in told["7.2"]
    assert "active times of consumers" not in told["7.2"]
    assert told["7.0"] == {**told["7.2"], "active times of consumers": 1}
    lines = writer.losses.describe("7.0")
    assert len(lines) == 3
    assert all("7.0" in line for line in lines)


@pytest.mark.parametrize(("form", "version", "kind"), [("8.10", 15, 27), ("8.8", 14, 27), ("8.6", 13, 26)])
def test_newer_forms_keep_everything(form: str, version: int, kind: int) -> None:
    databases = make_databases(3)
    data = save(databases, WriteOptions(form=form))
    assert data[:9] == b"REDIS%04d" % version
    assert dump_value(Stream(), WriteOptions(form=form))[0] == kind
    assert contents(load(data)) == contents(databases)


def test_a_consumer_without_a_name_is_not_taken_for_the_one_who_stands_for_nobody() -> None:
    stream = Stream()
    group = stream.groups[b"g"] = Group(b"g")
    for number in range(1, 5):
        stream.append([(b"f", b"v")], id=(number, 0))
        group.disown((5 - number, 0), number)
    for name in (b"", b"\0", b"c"):
        group.create_consumer(name, now_ms=NOW_MS)
    group.restore_pending((9, 9), b"", delivery_ms=0, delivery_count=1)
    for form in ("8.8", "8.6", "7.2"):
        found = restore_value(dump_value(stream, WriteOptions(form=form)))
        assert see(found)["groups"] == see(stream)["groups"]


@pytest.mark.parametrize("kind", [28, 29, 30, 31, 32])
def test_types_of_redis_8_8_and_8_10_are_refused_by_name(kind: int) -> None:
    data = make_file(bytes([kind]) + text(b"k") + b"\x00", 15)
    for skip in (False, True):
        with pytest.raises(UnsupportedValueError, match="an array at key 'k'" if kind == 28 else "a hash at key 'k'"):
            load(data, LoadOptions(skip_unsupported=skip))


# Strings whose back-length Redis 8.8 and Valkey 9.1 write in a byte less, and those beside them.
WIDTHS = [16377, 16378, 16379, 2097145, 2097146, 2097147]


@pytest.mark.parametrize("form", ["8.8", "8.6"])
@pytest.mark.parametrize("compression", [True, False])
def test_both_widths_of_back_lengths_are_read(form: str, compression: bool) -> None:
    stream = Stream(node_max_bytes=0, node_max_entries=4)
    for number, size in enumerate(WIDTHS, 1):
        stream.append([(b"f", b"v" * size), (b"x" * min(size, 20_000), b"")], id=(number, 0))
    payload = dump_value(stream, WriteOptions(form=form, compression=compression))
    found = restore_value(payload)
    assert see(found) == see(stream)
    use(found)  # type: ignore[arg-type]
    if not compression:
        assert (b"\x00\xff\xff" in payload) == (form == "8.6")


def test_older_forms_keep_all_else() -> None:
    stream = make_stream(3)
    for form in ("7.2", "7.0"):
        db = Database(0)
        db.add(b"s", stream)
        found = see(load(save([db], WriteOptions(form=form)))[0].peek(b"s"))
        wanted = see(stream) | {"iids": [], "counts": (len(stream), stream.entries_added, 0, 0)}
        if form == "7.0":
            for groups in (found["groups"], wanted["groups"]):
                for name, (last, read, consumers, pending, unowned) in groups.items():
                    groups[name] = (last, read, [(who, seen) for who, seen, _ in consumers], pending, unowned)
        assert found == wanted


# --- Types that streamd does not have ------------------------------------------------------------------------------------

text = make_string
UNSUPPORTED = {
    "module value": (
        7,
        b"\x81" + bytes(8) + b"\x01\x05" + b"\x02\x44\x00" + b"\x03" + bytes(4) + b"\x04" + bytes(8) + b"\x05" + text(b"x")
        + b"\x00",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_a_value_of_another_type_is_refused_by_name_and_skipped_when_asked(name: str) -> None:
    kind, value = UNSUPPORTED[name]
    before = b"\xfe\x02" + b"\x00" + text(b"first") + text(b"1")
    data = make_file(before + bytes([kind]) + text(b"it\r\n") + value + b"\x00" + text(b"last") + text(b"2"))
    with pytest.raises(UnsupportedValueError, match="'it  ' of database 2") as caught:
        load(data)
    assert (caught.value.key, caught.value.database, caught.value.offset) == (b"it\r\n", 2, 9 + len(before))
    assert "'it  ' of database 2" in str(caught.value)
    assert caught.value.type_name == name

    said: list[str] = []
    loaded = load(data, LoadOptions(skip_unsupported=True, now_ms=NOW_MS, log=said.append))
    assert sorted(loaded[2].keys()) == [b"first", b"last"]
    assert len(said) == 1
    assert "'it  ' of database 2" in said[0]
    assert caught.value.type_name in said[0]


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_an_expired_value_of_another_type_is_dropped(name: str) -> None:
    kind, value = UNSUPPORTED[name]
    expiry = b"\xfc" + (NOW_MS - 1).to_bytes(8, "little")
    reader = RdbReader(make_file(expiry + bytes([kind]) + text(b"k") + value), [Database(0)], options=AT_NOW)
    reader.load()
    assert (reader.keys_expired, reader.keys_loaded, reader.keys_skipped) == (1, 0, 0)


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_a_value_of_another_type_cut_off_is_seen(name: str) -> None:
    kind, value = UNSUPPORTED[name]
    for size in range(len(value)):
        data = b"REDIS0013" + bytes([kind]) + text(b"k") + value[:size]
        with pytest.raises(CorruptFileError, match="it is cut off"):
            load(data, LoadOptions(skip_unsupported=True))


def test_module_values_of_old_cannot_be_skipped() -> None:
    with pytest.raises(UnsupportedValueError, match="module value"):
        load(make_file(b"\x06" + text(b"k") + bytes(9)), LoadOptions(skip_unsupported=True))


def test_libraries_are_collected_and_module_data_and_cluster_hints_are_skipped() -> None:
    said: list[str] = []
    body = (
        b"\xf5" + text(b"#!lua name=x")
        + b"\xf7\x81" + (1 << 60).to_bytes(8, "big") + b"\x02\x01\x05" + text(b"data") + b"\x00"
        + b"\xf4\x01\x02\x03"
        + b"\xfe\x00\xfb\x01\x00"
        + b"\xf3\x01" + bytes(4) + b"\x02\x09\x00"
        + b"\xf8\x05\xf9\x07\x00" + text(b"k") + text(b"v")
    )  # fmt: skip
    databases = [Database(0)]
    reader = RdbReader(make_file(body), databases, options=LoadOptions(now_ms=NOW_MS, log=said.append))
    reader.load()
    assert databases[0].peek(b"k") == b"v"
    assert reader.libraries == [b"#!lua name=x"]
    assert len(said) == 1
    assert "module" in said[0]


@pytest.mark.parametrize("compression", [True, False])
def test_libraries_in_a_payload(compression: bool) -> None:
    codes = [b"#!lua name=x", b"12", b"", b"#!lua name=long\n" + b"long " * 10_000]
    payload = dump_libraries(codes, WriteOptions(compression=compression))
    assert restore_libraries(payload) == codes
    assert restore_libraries(dump_libraries([])) == []
    for damaged in (
        payload[:5],
        payload[1:],
        payload[:-1] + bytes([payload[-1] ^ 1]),
        payload[:-10] + b"\x63\x00" + payload[-8:],
    ):
        with pytest.raises(PayloadError, match=r"format version 99|shorter than its footer|wrong checksum"):
            restore_libraries(damaged)
    for kind in (b"\x00", b"\xf6", b"\xff"):
        with pytest.raises(CorruptFileError, match="expected a library of functions"):
            restore_libraries(kind + payload[1:-8] + bytes(8))


def test_expiries_of_old_are_seconds() -> None:
    data = make_file(
        b"\xfd" + (NOW_MS // 1000 + 5).to_bytes(4, "little") + b"\x00" + text(b"k") + text(b"v"), version=1
    )
    # Before version 5 there was no checksum.
    assert load(data[:-8])[0].expiry(b"k") == NOW_MS + 5000


# --- What is refused -----------------------------------------------------------------------------------------------------

KEY = b"\x00" + text(b"k") + text(b"v")
REFUSED = {
    "empty": b"",
    "another magic": b"VALKEY080" + b"\xff" + bytes(8),
    "version 16": make_file(b"", 16),
    "version 0": make_file(b"", 0),
    "version no number": b"REDISabcd\xff" + bytes(8),
    "a key twice": make_file(KEY + KEY),
    "a database that is not there": make_file(b"\xfe\x10" + KEY),
    "a database far away": make_file(b"\xfe\x81" + b"\xff" * 8 + KEY),
    "an unknown type": make_file(b"\x21" + text(b"k") + text(b"v")),
    "templates of hashes": make_file(b"\xf2\x00"),
    "functions before their release": make_file(b"\xf6" + text(b"x")),
    "an unknown encoding of a string": make_file(b"\x00\xc4" + text(b"v")),
    "an unknown encoding of a length": make_file(b"\x00\x82" + text(b"v")),
    "a length that is a string": make_file(b"\xfe\xc0\x00"),
    "a length of 2^63": make_file(b"\x00\x81\x80" + bytes(7)),
    "a length of 2^64 - 1": make_file(b"\x00\x81" + b"\xff" * 8),
    "a compressed string of 2^40 bytes": make_file(b"\x00" + text(b"k") + b"\xc3\x02\x81\x00\x00\x01\x00\x00\x00\x00\x00\x00a"),
    "a compressed string of no bytes": make_file(b"\x00" + text(b"k") + b"\xc3\x02\x00\x00a"),
    "a stream of 2^62 nodes": make_file(b"\x0f" + text(b"k") + b"\x81\x40" + bytes(7)),
    "module data of an unknown kind": make_file(b"\xf7\x00\x02\x00\x06\x00"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_that_is_not_in_order_is_refused(name: str) -> None:
    with pytest.raises(CorruptFileError, match="at byte"):
        load(REFUSED[name], LoadOptions(now_ms=NOW_MS, skip_unsupported=True))


def test_the_file_and_the_place_are_notified() -> None:
    data = bytearray(save(make_databases()))
    data[-1] ^= 1
    with pytest.raises(CorruptFileError, match="expected the checksum") as caught:
        RdbReader(bytes(data), [Database(i) for i in range(3)], name="dump.rdb").load()
    assert caught.value.file == "dump.rdb"
    assert caught.value.offset == len(data) - 8
    assert str(caught.value).startswith(f"dump.rdb: at byte {len(data) - 8}: expected the checksum ")


def test_a_file_cut_off_anywhere_is_refused() -> None:
    databases = [Database(0)]
    databases[0].add(b"a", b"text" * 30)
    databases[0].add(b"s", make_stream(2, entries=12))
    databases[0].set_expiry(b"a", NOW_MS * 2)
    for options in (WriteOptions(), WriteOptions(compression=False, form="7.0")):
        data = save(databases, options)
        for size in range(len(data)):
            with pytest.raises(CorruptFileError, match="it is cut off"):
                load(data[:size])
            with pytest.raises(CorruptFileError, match="it is cut off"):
                RdbReader(io.BytesIO(data[:size]), [Database(0)], size=size).load()


@pytest.mark.parametrize("compression", [True, False])
def test_a_flipped_bit_is_seen_or_does_no_harm(compression: bool) -> None:
    databases = [Database(0)]
    databases[0].add(b"a", b"text" * 10)
    databases[0].add(b"s", make_stream(2, entries=12))
    data = save(databases, WriteOptions(compression=compression))
    rng = random.Random(0)
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 1 << rng.randrange(8)
        if at < len(data) - 8 or any(damaged[-8:]):
            with pytest.raises(CorruptFileError, match="at byte"):
                load(bytes(damaged), LoadOptions(now_ms=0))
        try:
            found = load(bytes(damaged), LoadOptions(now_ms=0, checksum=False))
        except CorruptFileError:
            continue
        for db in found:
            for name in sorted(db.keys()):
                see(db.peek(name))


def test_strings_have_the_shortest_encoding() -> None:
    sizes = {text: len(dump_value(text)) - 10 for text in STRINGS}
    assert [sizes[each] for each in (b"0", b"-128", b"128", b"-32769", b"2147483648", b"12345678901")] == [
        3, 3, 4, 6, 12, 13,
    ]  # fmt: skip
    assert sizes[b"a" * 20] == 22
    assert sizes[b"a" * 21] < 15
    assert sizes[b"007"] == 5
