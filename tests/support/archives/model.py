"""A model of archives: what a server and its copies hold, what archives must have, and random stories in which both are tried.

    Story(port, folder, seed).play(steps)      a random story; raises AssertionError, with all that was done, at the first fault
    python -m tests.support.archives.model --minutes 20 --seed 1      stories for a while, and a line of counts at their end

Databases of one server stand for a server and its copies. What is done is chosen at random: writing, trimming, XDEL, deleting the stream
and writing it again, RENAME, COPY, RESTORE of an earlier dump, an export with other values that is loaded again, XSETID, a copy of
all data, a switch to such a copy, consumer groups, runs of either of two archives, deletions from them, and restores. Runs and deletions
are killed at a random step, or something else is done at one. Values are never used twice, unless a whole stream is written again as
it was, so that an entry that differs can be seen. After each step:

    nothing silent    what a run has removed from the server is in its archive, with the same fields
    nothing forgotten what an archive has had, it has; except for what was deleted from it
    a whole answer    a history has each archived entry and each live one, once, with its fields; or it is refused
    gaps are told     entries that were trimmed by others before they were archived, and not behind entries that a group kept, make the run
                      fail, or warn, or the history fail
    nothing for nothing  as long as nothing was done that may look like another stream, nothing is refused

A stream that was written again is *hidden* from an archive whose runs do not compare content, and from histories, if all that costs nothing
to ask agrees: the first and the last entry at or below the boundary, and what XINFO STREAM says can have become of what it said when the
archive was last compared with it (`can_be`). Only then may entries that differ between these two go, or be missing from histories.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import redis
from click.testing import CliRunner

from streamd.archive.archive_errors import ArchiveError
from streamd.archive.archived_rows import read_archived
from streamd.archive.archiver import STEPS, StreamReport
from streamd.archive.delete import DELETE_STEPS, delete
from streamd.archive.layout import Layout
from streamd.archive.manifest_log import ManifestLog
from streamd.archive.restore import restore
from streamd.archive.verify import verify_archive
from streamd.cli.subcommands import program
from streamd.client.archive_keys import key_beside
from streamd.client.client_errors import DataLossError, OptionError
from streamd.client.points import MAX_ID, parse_entry_id
from streamd.disk import Disk
from support.archives.runs import KEY, Killed, archive_once, rows_of_history

__all__ = ["Story"]

Entries = dict[str, bytes]
"""ID to the value of the one field."""

Figures = tuple[int, int, int, int, int]
"""Entries added, entries removed, last ID, first ID (of an empty stream: the lowest that can be added) and highest deleted ID."""

BASE_MS = 1_700_000_000_000
COPIES = 2


def can_be(then: Figures, now: Figures) -> bool:
    """Whether writing, trimming and deleting can have led from one to the other."""
    added, removed, last, first, deleted = (b - a for a, b in zip(then, now, strict=True))
    is_empty = then[3] > then[2]
    return (
        min(added, removed, last, first, deleted) >= 0
        and (added > 0) == (last > 0)
        and (removed > 0 or (deleted == 0 and (first == 0 or is_empty)))
    )


class Archive:
    """What must be in one archive.

    rows    what it has been seen to have
    purged  entries that were deleted from it, or are to be, or were given up: IDs with the values that they had
    lost    what went before it was archived, by database, and has not been reported
    is_odd  by database: something was done that may look like another stream, so refusals are no fault
    seen    by database: what XINFO STREAM may have said when the archive was last compared with the stream
    hidden  entries of the server that do not show to differ from what is archived
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.layout = Layout(path)
        self.layout.create(Disk())
        self.rows: Entries = {}
        self.purged: set[tuple[str, bytes]] = set()
        self.lost: dict[int, set[str]] = {db: set() for db in range(COPIES)}
        self.is_odd = [False] * COPIES
        self.seen: list[list[Figures]] = [[] for _ in range(COPIES)]
        self.hidden: set[tuple[str, bytes]] = set()

    def read(self) -> Entries:
        found: Entries = {}
        for batch in read_archived(self.layout, KEY, 0, MAX_ID, ("id", "fields")):
            for row in batch.to_pylist():
                assert row["id"] not in found, f"{row['id']} is archived twice"
                found[row["id"]] = row["fields"][0]["value"]
        return found

    @property
    def sequence(self) -> int:
        return ManifestLog.read(self.layout, KEY).sequence

    @property
    def boundary(self) -> int:
        return ManifestLog.read(self.layout, KEY).boundary


class Story:
    """One random story.

    db  which database is the server now
    """

    def __init__(self, port: int, folder: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.port = port
        self.folder = folder
        self.done: list[str] = []
        self.counts: Counter[str] = Counter()
        self.stores = [redis.Redis(port=port, db=db, protocol=2) for db in range(COPIES)]
        self.stores[0].flushall()
        self.archives = [Archive(folder / name) for name in ("a", "b")]
        self.db = 0
        self.next_ms = BASE_MS
        self.values = 0
        self.depth = self.random.choice(["ids", "ids", "content"])
        self.dumps: list[bytes] = []
        self.running: Archive | None = None  # a run of it is under way

    @property
    def store(self) -> redis.Redis:
        return self.stores[self.db]

    @property
    def options(self) -> dict[str, str]:
        return {"host": "127.0.0.1", "port": str(self.port), "db": str(self.db)}

    def close(self) -> None:
        for store in self.stores:
            store.close()

    def live(self, db: int | None = None) -> Entries:
        store = self.stores[self.db if db is None else db]
        return {entry_id.decode(): fields[b"v"] for entry_id, fields in store.xrange(KEY)}

    def play(self, steps: int) -> None:
        try:
            for _ in range(steps):
                weights = [weight for weight, _ in ACTIONS]
                (chosen,) = self.random.choices(ACTIONS, weights)
                chosen[1](self)
                self.hide()
                self.check()
        except (AssertionError, Exception) as error:
            raise AssertionError("\n".join([*self.done, f"{type(error).__name__}: {error}"])) from error
        finally:
            self.close()

    def note(self, what: str) -> None:
        self.done.append(f"db {self.db}: {what}")
        self.counts[what.partition(" ")[0]] += 1

    # --- What users do

    def value(self) -> str:
        self.values += 1
        return f"v{self.values}"

    def new_id(self) -> str:
        self.next_ms += 1000
        return f"{self.next_ms}-{self.random.choice([0, 0, 1])}"

    def write(self) -> None:
        count = self.random.choice([1, 1, 2, 3, 10])
        last = self.last_id()
        ids = []
        for _ in range(count):
            each = self.new_id()
            if parse_entry_id(each) > last:
                self.store.xadd(KEY, {"v": self.value()}, id=each)
                ids.append(each)
        self.note(f"write {' '.join(ids)}")

    def last_id(self) -> int:
        return parse_entry_id(self.store.xinfo_stream(KEY)["last-generated-id"]) if self.store.exists(KEY) else 0

    def xdel(self) -> None:
        if live := list(self.live()):
            gone = self.random.sample(live, self.random.randint(1, min(3, len(live))))
            self.store.xdel(KEY, *gone)
            self.note(f"xdel {' '.join(gone)}")

    def xtrim(self) -> None:
        before = self.live()
        if not before:
            return
        if self.random.random() < 0.5:
            left = self.random.randint(0, len(before))
            self.store.xtrim(KEY, maxlen=left, approximate=False)
            self.note(f"xtrim maxlen {left}")
        else:
            to = self.random.choice(list(before))
            self.store.xtrim(KEY, minid=to, approximate=False)
            self.note(f"xtrim minid {to}")
        gone = before.keys() - self.live().keys()
        for archive in self.archives:
            self.lose(archive, gone)

    def lose(self, archive: Archive, gone: set[str]) -> None:
        """Entries are gone from the server: which of them has this archive not got?"""
        log = ManifestLog.read(archive.layout, KEY)
        if log.last is not None or archive is self.running:
            archive.lost[self.db] |= {each for each in gone if parse_entry_id(each) > log.boundary}

    def forget(self) -> None:
        """The stream is another one: what the one before had is no matter any more."""
        for archive in self.archives:
            archive.is_odd[self.db] = True
            archive.lost[self.db].clear()

    def drop(self) -> None:
        self.store.delete(KEY)
        self.forget()
        self.note("drop")

    def write_again(self) -> None:
        """Delete the stream, and write it again with the same IDs and some more."""
        before = self.live()
        for archive in self.archives:
            if self.random.random() < 0.5:
                before = {**archive.rows, **before}
        ids = sorted(before, key=parse_entry_id)
        if not ids:
            return
        how = self.random.choice(["other", "same", "middle", "more"])
        if how != "other" or self.random.random() < 0.7:
            ids = ids[self.random.randint(0, len(ids) - 1) if self.random.random() < 0.3 else 0 :]
        self.store.delete(KEY)
        changed = self.random.choice(ids)
        for each in ids:
            is_same = how in ("same", "more") or (how == "middle" and each != changed)
            self.store.xadd(KEY, {"v": before[each] if is_same else self.value()}, id=each)
            if how == "more" and each == changed:
                self.store.xadd(KEY, {"v": self.value()}, id=f"{each.partition('-')[0]}-9")
        for _ in range(self.random.choice([0, 0, 1, 5])):
            self.store.xadd(KEY, {"v": self.value()}, id=self.new_id())
        self.forget()
        self.note(f"write_again {how} {' '.join(ids)}, {self.store.xlen(KEY)} in all")

    def dump(self) -> None:
        if self.store.exists(KEY):
            self.dumps.append(self.store.dump(KEY))
            self.note("dump")

    def restore_dump(self) -> None:
        if self.dumps:
            at = self.random.randrange(len(self.dumps))
            self.store.restore(KEY, 0, self.dumps[at], replace=True)
            self.forget()
            self.note(f"restore_dump {at}")

    def rename(self) -> None:
        """Move the stream away and back, or another one over it."""
        other = "other"
        if self.random.random() < 0.5 and self.store.exists(KEY):
            self.store.rename(KEY, other)
            self.note("rename away")
        elif self.store.exists(other):
            if self.random.random() < 0.5:
                self.store.rename(other, KEY)
            else:
                self.store.copy(other, KEY, replace=True)
            self.note("rename back")
        else:
            return
        self.forget()

    def replace(self) -> None:
        """An export with corrected values is loaded in the place of the stream, or after that was deleted."""
        if not self.live():
            return
        place = self.folder / f"export{len(self.done)}.jsonl"
        where = ["-p", str(self.port), "-n", str(self.db)]
        self.run_program("export", KEY, "--to", str(place), *where)
        rows = [json.loads(line) for line in place.read_text().splitlines()]
        changed = self.random.sample(rows, self.random.randint(1, len(rows)))
        for row in changed:
            row["fields"] = {"v": self.value()}
        place.write_text("".join(json.dumps(row) + "\n" for row in rows))
        how = self.random.choice([["--replace"], ["--replace"], [], ["--no-groups", "--into", KEY]])
        if "--replace" not in how:
            self.store.delete(KEY)
        self.run_program("load", str(place), *how, *where)
        self.forget()
        self.note(f"replace {' '.join(row['id'] for row in changed)}")

    def run_program(self, *words: str) -> None:
        done = CliRunner().invoke(program, words)
        assert done.exit_code == 0, done.output

    def xsetid(self) -> None:
        if not self.store.exists(KEY):
            return
        self.next_ms += 1000
        words = ["ENTRIESADDED", self.store.xlen(KEY) + self.random.randint(0, 20), "MAXDELETEDID", "0-0"]
        self.store.execute_command("XSETID", KEY, f"{self.next_ms}-0", *(words if self.random.random() < 0.5 else []))
        self.forget()
        self.note("xsetid")

    def fork(self) -> None:
        """The other database becomes a copy of this one."""
        other = 1 - self.db
        self.stores[other].flushdb()
        for key in self.store.scan_iter():
            self.stores[other].restore(key, 0, self.store.dump(key))
        for archive in self.archives:
            archive.is_odd[other] = True
            archive.lost[other] = set(archive.lost[self.db])
            archive.seen[other] = list(archive.seen[self.db])
        self.note("fork")

    def switch(self) -> None:
        if self.stores[1 - self.db].exists(KEY):
            self.db = 1 - self.db
            for archive in self.archives:
                archive.is_odd = [True] * COPIES
            self.note("switch")

    def flush(self) -> None:
        self.store.flushdb()
        self.forget()
        for archive in self.archives:
            archive.seen[self.db].clear()
        self.note("flush")

    def group(self) -> None:
        if not self.store.exists(KEY):
            return
        name = self.random.choice(["g", "h"])
        if self.random.random() < 0.3:
            self.store.xgroup_destroy(KEY, name)
            self.note(f"group {name} destroyed")
            return
        if not any(each["name"].decode() == name for each in self.store.xinfo_groups(KEY)):
            self.store.xgroup_create(KEY, name, self.random.choice(["0", "$"]))
        found: Any = self.store.xreadgroup(name, "c", {KEY: ">"}, count=self.random.randint(1, 10))
        ids = [each for _, entries in found or [] for each, _ in entries]
        done = [each for each in ids if self.random.random() < 0.8]
        if done:
            self.store.xack(KEY, name, *done)
        self.note(f"group {name} {len(ids)} read, {len(done)} acknowledged")

    # --- What archives do

    def interrupted(self, steps: tuple[str, ...], note: list[str]) -> Callable[[str], None]:
        """A hook: nothing, or a kill at a step, or something else that is done there, perhaps with a kill behind it."""
        at, what = self.random.choice(steps), self.random.random()
        is_killed = what < 0.4
        others = [action for _, action in MEANWHILE]
        (action,) = self.random.choices(others, [weight for weight, _ in MEANWHILE]) if 0.25 < what < 0.6 else (None,)
        was_done = False

        def hook(step: str) -> None:
            nonlocal was_done
            if step != at or was_done:
                return
            was_done = True
            if action is not None:
                self.collect()
                before = self.live()
                action(self)
                self.before = self.live()
                self.hide(before)
                self.was_changed = True
            if is_killed:
                note.append(step)
                raise Killed(step)

        return hook

    def figures(self) -> list[Figures]:
        """Of the stream, if there is one."""
        if not self.store.exists(KEY):
            return []
        found = self.store.xinfo_stream(KEY)
        last, deleted = (parse_entry_id(found[each]) for each in ("last-generated-id", "max-deleted-entry-id"))
        first = parse_entry_id(found["first-entry"][0]) if found["first-entry"] else last + 1
        return [(found["entries-added"], found["entries-added"] - found["length"], last, first, deleted)]

    def hide(self, before: Entries | None = None) -> None:
        """Note which entries of the server do not show to differ from the archives.

        before  while an archiver is at work: what was there before something else was done; what is below its end may be archived now
        """
        live, now = self.live(), self.figures()
        if not live:
            return
        for archive in self.archives:
            if not any(can_be(then, now[0]) for then in archive.seen[self.db]):
                continue
            found, boundary = archive.read(), archive.boundary
            if before:
                found, boundary = {**before, **found}, max(boundary, *map(parse_entry_id, before))
            held = [
                (each, value)
                for each, value in live.items()
                if parse_entry_id(each) <= boundary and (each, value) not in archive.purged
            ]
            differs = [each for each in held if found.get(each[0]) != each[1]]
            if held and not {held[0], held[-1]} & set(differs):
                archive.hidden |= set(differs)

    def collect(self) -> None:
        """Note what the archiver has removed since `before`."""
        now = self.live()
        self.removed |= {each: value for each, value in self.before.items() if now.get(each) != value}

    def run(self) -> None:
        at = self.random.randrange(2) if self.random.random() < 0.3 else 0
        archive = self.archives[at]
        seconds, _ = self.store.time()
        cut = BASE_MS + 1000 * self.random.randint(0, 1 + (self.next_ms - BASE_MS) // 1000)
        hot_window_ms = seconds * 1000 - cut if self.random.random() < 0.5 else -(2**50)
        how: dict[str, Any] = {
            "hot_window_ms": hot_window_ms, "depth": self.depth, "merge_files": 3, "checkpoint_every": 4,
            "trim": self.random.random() < 0.8, "allow_gaps": self.random.random() < 0.1, "lock_wait_ms": 0,
            "trim_delay_ms": 0 if self.random.random() < 0.8 else 3_600_000,
        }  # fmt: skip
        lost, was_odd = set(archive.lost[self.db]), archive.is_odd[self.db]
        first = min(map(parse_entry_id, self.live()), default=MAX_ID)
        self.before, self.removed, self.was_changed = self.live(), Entries(), False
        was_there, seen = bool(self.store.exists(KEY)), self.figures()
        archive.seen[self.db] += seen
        killed: list[str] = []
        sequence = archive.sequence
        report: StreamReport | None = None
        self.note(f"run {archive.path.name} {how}")
        try:
            hook = self.interrupted(STEPS, killed)
            self.running = archive
            report = archive_once(archive.path, self.options, hook=hook, **how).streams[0]
        except Killed:
            self.done.append(f"  killed at {killed[0]}")
            self.counts["killed"] += 1
            self.store.delete(key_beside("lock", KEY))
        self.running = None
        self.collect()
        if self.was_changed or report is None or report.status == "failed":
            archive.seen[self.db] += self.figures()
        else:
            archive.seen[self.db] = self.figures()
        found = archive.read()
        given_up = archive.purged | (archive.hidden if self.depth == "ids" else set())
        for each, value in self.removed.items():
            assert found.get(each) == value or (each, value) in given_up, (
                f"{each} was removed, and is archived as {found.get(each)!r}, not {value!r}"
            )
        for other in self.archives:
            if other is not archive:
                self.lose(other, self.removed.keys() - found.keys() | self.removed.keys())
        if report is None or not archive.boundary:
            if (
                how["allow_gaps"] and archive.sequence > sequence
            ):  # what it accepts may have been noted before it was killed
                archive.lost[self.db].clear()
            if not archive.boundary:  # an archive begins with its first manifest
                archive.lost[self.db].clear()
            return
        self.done.append(
            f"  {report.status}: {report.rows} rows, {report.trimmed} trimmed; {report.error} {report.warnings}"
        )
        self.counts[report.status] += 1
        if report.status == "failed":
            self.counts[str(report.error).partition(":")[0]] += 1
            is_told = "DataLossError" in str(report.error)
            if "IncarnationError" in str(report.error) and self.random.random() < 0.6:
                self.archives[at] = Archive(self.folder / f"{archive.path.name}{len(self.done)}")
                self.note("renew")
            # Whatever was done meanwhile may be the reason, too.
            odd = was_odd or archive.is_odd[self.db] or not was_there or bool(archive.lost[self.db])
            assert odd, f"refused for nothing: {report.error}"
            if is_told and report.rows:
                archive.lost[self.db].clear()
        else:
            told = how["allow_gaps"] or any("before" in each for each in report.warnings)
            unseen = {each for each in lost - found.keys() if parse_entry_id(each) < first}
            assert told or not unseen or was_odd, f"{sorted(unseen)} went before they were archived, and nobody is told"
            archive.lost[self.db] = {
                each for each in archive.lost[self.db] if parse_entry_id(each) > archive.boundary and each not in lost
            }

    def run_and_accept(self) -> None:
        """The user says that this is the server. What it has at or below the boundary counts no more."""
        archive, before = self.archives[0], self.live()
        report = archive_once(
            archive.path, self.options, accept_server=True, allow_gaps=True, hot_window_ms=-(2**50), depth=self.depth
        ).streams[0]
        self.note(
            f"accept {report.status} {report.rows} rows, {report.trimmed} trimmed; {report.error} {report.warnings}"
        )
        boundary, found = archive.boundary, archive.read()
        archive.purged |= {
            (each, value)
            for each, value in before.items()
            if found.get(each) != value and parse_entry_id(each) <= boundary
        }
        self.lose(self.archives[1], before.keys() - self.live().keys())
        archive.lost[self.db].clear()
        archive.seen[self.db] += self.figures()

    def purge(self) -> None:
        """Delete entries from an archive, and from the server unless that is left alone."""
        archive = self.archives[0]
        known = {**archive.read(), **self.live()}
        ids = sorted(known, key=parse_entry_id)
        if not ids:
            return
        if self.random.random() < 0.5:
            gone = self.random.sample(ids, min(len(ids), 3))
            ranges = [(parse_entry_id(each), parse_entry_id(each)) for each in gone]
        else:
            first, last = sorted(self.random.choices(range(len(ids)), k=2))
            gone = ids[first : last + 1]
            ranges = [(parse_entry_id(gone[0]), parse_entry_id(gone[-1]))]
        archive_only = self.random.random() < 0.4
        killed: list[str] = []
        self.before, self.removed = self.live(), Entries()
        archive.seen[self.db] += self.figures()
        self.note(f"purge {' '.join(gone)}{', archive only' if archive_only else ''}")
        try:
            delete(
                str(archive.path), KEY, self.options, ranges, archive_only=archive_only,
                hook=self.interrupted(DELETE_STEPS, killed),
            )  # fmt: skip
        except Killed:
            self.done.append(f"  killed at {killed[0]}")
            self.store.delete(key_beside("lock", KEY))
        except (ArchiveError, DataLossError) as error:
            self.done.append(f"  refused: {error}")
            self.counts["refused"] += 1
            odd = archive.is_odd[self.db] or archive.boundary == 0 or archive.lost[self.db]
            self.expect(odd, f"refused for nothing: {error}")
        now, boundary = self.live(), archive.boundary
        for each in gone:
            # What a deletion that was refused or killed has left may be deleted or not.
            archive.purged |= {(each, held[each]) for held in (known, archive.rows, self.before) if each in held}
            if each in now and parse_entry_id(each) > boundary:
                archive.purged.discard((each, now[each]))

    def put_back(self) -> None:
        """Restore what is archived to another key, and perhaps into the stream itself."""
        archive = self.archives[0]
        if not archive.boundary:
            return
        into = "back" if self.store.exists(KEY) or self.random.random() < 0.5 else KEY
        self.store.delete("back")
        restore(str(archive.path), KEY, self.options, into=into)
        self.note(f"put_back into {into}")
        if into == KEY:
            self.forget()
            return
        found = {entry_id.decode(): fields[b"v"] for entry_id, fields in self.store.xrange(into)}
        assert found == archive.read()
        self.store.delete("back")

    # --- What must hold

    def expect(self, is_so: object, otherwise: str) -> None:
        assert is_so, otherwise

    def check(self) -> None:
        for archive in self.archives:
            found = archive.read()
            for each, value in archive.rows.items():
                assert found.get(each) == value or (each, value) in archive.purged, (
                    f"{each} was archived as {value!r}, and is {found.get(each)!r}"
                )
            archive.rows = found
            if self.random.random() < 0.1:
                assert verify_archive(archive.layout, KEY).faults == []
            self.check_history(archive, found)

    def check_history(self, archive: Archive, found: Entries) -> None:
        live = self.live()
        if not archive.boundary and (not live or self.random.random() < 0.9):
            return
        try:
            rows = list(rows_of_history(archive.path, self.options))
        except (DataLossError, OptionError) as error:
            self.counts["no history"] += 1
            odd = archive.is_odd[self.db] or archive.lost[self.db] or "archived elsewhere" in str(error)
            self.expect(odd, f"the history is refused for nothing: {error}")
            return
        ids = [each for each, _ in rows]
        assert len(set(ids)) == len(ids), "an entry comes twice"
        answer = {each: fields[0][1] for each, fields in rows}
        for each, value in {
            **found,
            **{each: value for each, value in live.items() if (each, value) not in archive.purged | archive.hidden},
        }.items():
            assert answer.get(each) == value, f"the history has {answer.get(each)!r} for {each}, not {value!r}"


ACTIONS: list[tuple[float, Callable[[Story], None]]] = [
    (10, Story.write), (14, Story.run), (2, Story.xdel), (3, Story.xtrim), (0.5, Story.drop), (1.5, Story.write_again),
    (1, Story.dump), (0.5, Story.restore_dump), (0.7, Story.rename), (0.7, Story.replace), (0.3, Story.xsetid),
    (1, Story.fork), (0.7, Story.switch), (0.2, Story.flush), (2, Story.group), (0.4, Story.run_and_accept), (2, Story.purge),
    (0.5, Story.put_back),
]  # fmt: skip
"""What is done, and how often."""

MEANWHILE: list[tuple[float, Callable[[Story], None]]] = [
    (6, Story.write), (2, Story.xdel), (3, Story.xtrim), (0.5, Story.drop), (2, Story.write_again), (0.7, Story.restore_dump),
    (0.7, Story.rename), (0.7, Story.replace), (1, Story.group), (1, Story.fork),
]  # fmt: skip
"""The same, while an archiver is at work."""


def main() -> None:

    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("--minutes", type=float, default=1)
    given.add_argument("--seed", type=int, default=1)
    given.add_argument("--steps", type=int, default=40)
    given.add_argument("--port", type=int, required=True, help="of a server whose data is thrown away")
    chosen = given.parse_args()
    end, seed, counts = time.monotonic() + 60 * chosen.minutes, chosen.seed, Counter[str]()
    while time.monotonic() < end:
        with tempfile.TemporaryDirectory() as folder:
            story = Story(chosen.port, Path(folder), seed)
            try:
                story.play(chosen.steps)
            except AssertionError as error:
                print(f"seed {seed}:\n{error}")
                raise SystemExit(1) from None
        counts += story.counts
        seed += 1
    print(f"{seed - chosen.seed} stories: {dict(sorted(counts.items()))}")


if __name__ == "__main__":
    main()
