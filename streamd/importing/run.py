"""One import from its first look at both servers to its last line: see `run_import`.

What it prints, and how it is told to go on or to stop, is the business of its caller: a `Screen` and a `Signals`.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from streamd.client.client_errors import ServerError
from streamd.client.place import Place
from streamd.importing.as_replica import Replica, State, find_obstacle
from streamd.importing.cluster_target import ClusterTarget, check_cluster
from streamd.importing.copying import Copied, copy_keys
from streamd.importing.into_cluster import IntoCluster
from streamd.importing.peers import (
    ImportFailedError,
    Peer,
    check_source,
    check_target,
    keys_of,
    source_slots,
    version_of,
)
from streamd.importing.survey import Survey, survey

__all__ = ["ImportStoppedError", "Plan", "Screen", "Signals", "run_import"]

POLL_S = 0.1
LAG_EVERY_S = 1.0
PATIENCE_S = 5.0
"""How long a target that is behind is waited for before the user is told why."""
SOURCE_PATIENCE_S = 60.0
"""How long a source that does not answer is waited for, until the target is in sync."""


class ImportStoppedError(ImportFailedError):
    """The user has stopped the import; str() says in what state the data are."""


class Screen(Protocol):
    """Where an import shows what it does."""

    def line(self, text: str) -> None:
        """A line that stays."""

    def progress(self, step: str, done: int, size: int, text: str) -> None:
        """How far a step is, of a size that may be 0: not known."""

    def finish(self) -> None:
        """No more progress for now."""


class Signals(Protocol):
    """What the user asks for while an import runs."""

    @property
    def times(self) -> int:
        """How often the user has asked to stop, or to promote."""

    def wait(self, seconds: float, *, listens: bool = False) -> None:
        """Wait so long, or until the user asks; `listens`: Enter asks as well."""


@dataclass(frozen=True)
class Plan:
    """What is wanted.

    database   the only one that is wanted; None: all
    address    host and port of the source as the target sees it; None: those of the source's place
    follows    stay a replica until told, or until the lag is small
    until_lag  bytes from which on a target that follows is promoted; None: when told
    pause_s    seconds for which the source's writes are paused at the end; 0: not
    replace    drop what the target holds
    skip       leave out keys of types that are not supported
    copies     copy key by key even if the source could be replicated
    """

    database: int | None = None
    address: tuple[str, int] | None = None
    follows: bool = False
    until_lag: int | None = None
    pause_s: float = 0.0
    replace: bool = False
    skip: bool = False
    copies: bool = False


def run_import(source_place: Place, target_place: Place, plan: Plan, screen: Screen, signals: Signals) -> None:
    """Import. Raises ImportFailedError; whatever happens, the target is a primary with its own settings afterwards."""
    source, target = Peer("source", source_place), Peer("target", target_place)
    try:
        _Import(source, target, plan, screen, signals).run()
    finally:
        screen.finish()
        source.close()
        target.close()


class _Import:
    """The steps of an import."""

    def __init__(self, source: Peer, target: Peer, plan: Plan, screen: Screen, signals: Signals) -> None:
        self.source = source
        self.target = target
        self.plan = plan
        self.screen = screen
        self.signals = signals
        self.began = time.monotonic()
        self.expected = 0  # keys
        self.held_before = 0  # keys of the target
        self.silent_since: float | None = None  # when the source did not answer for the first time since it did

    def run(self) -> None:
        info = check_source(self.source)
        if self.target.info().get("cluster_enabled") == "1":
            self._run_into_cluster(info)
            return
        target_info = check_target(self.target, info, replace=self.plan.replace)
        self.held_before = sum(keys_of(target_info).values())
        obstacle = self._find_way(info)
        databases = [*keys_of(info)] if self.plan.database is None else [self.plan.database]
        found = self._survey(databases, info)
        self.began = time.monotonic()
        if obstacle is None:
            address = self.plan.address or (self.source.place.host, self.source.place.port)
            skip = bool(found.unsupported) or self.plan.skip or self.plan.database is not None
            self._replicate(Replica(self.source, self.target, address, skip=skip))
            self._drop_other_databases()
        else:
            self._copy(databases, obstacle)
            self._copy_functions(found)

    def _run_into_cluster(self, info: dict[str, str]) -> None:
        cluster = ClusterTarget(self.target.place)
        try:
            slots = source_slots(self.source)
            self.held_before = check_cluster(
                cluster, self.source, info, slots, self.plan.database, replace=self.plan.replace
            )
            if (obstacle := self._find_way(info)) is not None:
                raise ImportFailedError(f"{self.source} cannot be followed, which a cluster needs: {obstacle}")
            db = self.plan.database or 0
            found = self._survey([db], info)
            self.began = time.monotonic()
            following = IntoCluster(
                self.source,
                cluster,
                db=db,
                only=self.plan.database is not None,
                slots=slots,
                skip=self.plan.skip,
                has_functions=bool(found.functions),
            )
            self._replicate(following)
        finally:
            cluster.close()
        for name, count in following.left_out.most_common():
            self.screen.line(f"{count:,} commands {name} of the source have no keys, and were left out")

    def _find_way(self, info: dict[str, str]) -> str | None:
        """Why keys are copied one by one; None when the source is replicated."""
        if self.plan.copies:
            return "--copy asks for it"
        obstacle = find_obstacle(self.source, info)
        if self.source.place.unix_path and self.plan.address is None:
            obstacle = obstacle or "its place is a unix socket; --source-address gives the target another one"
        if obstacle is not None and self.plan.follows:
            raise ImportFailedError(f"{self.source} cannot be followed: {obstacle}")
        if self.plan.pause_s and obstacle is None:
            self._check_that_it_can_be_paused(info)
        return obstacle

    def _check_that_it_can_be_paused(self, info: dict[str, str]) -> None:
        if info["role"] == "slave":
            raise ImportFailedError(f"{self.source} is a replica: pausing its writes does not stop its primary")
        if version_of(info) < (6, 2):
            raise ImportFailedError(
                f"{self.source} is Redis {info['redis_version']}: only 6.2 or newer pauses writes alone"
            )
        try:
            self.source.call("CLIENT", "PAUSE", 0, "WRITE")
        except ServerError as error:
            raise ImportFailedError(f"{self.source} refuses CLIENT PAUSE: {error}") from None

    # --- What cannot be taken --------------------------------------------------------------------------------------------

    def _survey(self, databases: Collection[int], info: dict[str, str]) -> Survey:
        counts = keys_of(info)
        total = sum(counts.get(db, 0) for db in databases)

        def show(seen: int) -> None:
            self._stop_if_told("Nothing was changed")
            self.screen.progress("looking at the keys", min(seen, total), total, f"{seen:,} keys")

        found = survey(self.source, databases, info, show)
        self.screen.finish()
        self.expected = found.supported
        release = info.get("server_name", "redis").capitalize()
        self.screen.line(
            f"The source is {release} {info.get('valkey_version', info['redis_version'])}: "
            f"{found.supported:,} keys in {len(databases)} database{plural(len(databases))}"
        )
        lines = [*found.lines()]
        if lines:
            self.screen.line("This cannot be taken:")
            for line in lines:
                self.screen.line(line)
        if found.functions:
            count = len(found.functions)
            self.screen.line(
                f"The source has {count:,} librar{'y' if count == 1 else 'ies'} of functions, which the target gets, too: "
                f"{', '.join(found.functions)}"
            )
        for note in found.notes():
            self.screen.line(f"The source also has {note}; the target will not")
        if found.functions is None and version_of(info) >= (7, 0):
            self.screen.line("Whether it has functions is not known: this user may not list them")
        if found.unsupported and not self.plan.skip:
            raise ImportFailedError(
                f"Nothing was changed: {found.unsupported_keys:,} key{plural(found.unsupported_keys)} cannot be taken."
                " --skip-unsupported leaves them out"
            )
        return found

    def _stop_if_told(self, state: str) -> None:
        if self.signals.times:
            raise ImportStoppedError(f"Stopped. {state}")

    # --- As a replica ----------------------------------------------------------------------------------------------------

    def _replicate(self, replica: Replica | IntoCluster) -> None:
        is_paused = False
        try:
            replica.begin()
            self._wait_until_linked(replica)
            if self.plan.follows:
                self._follow(replica)
            is_paused = self._pause()
            self._catch_up(replica)
            state = replica.state()
            replica.end()
            if not replica.was_linked:
                raise ImportFailedError("Not all keys have been copied")
        except ImportStoppedError:
            raise ImportStoppedError(f"Stopped. {self._put_back(replica, is_paused=is_paused)}") from None
        except ImportFailedError as error:
            raise ImportFailedError(f"{error}. {self._put_back(replica, is_paused=is_paused)}") from None
        except BaseException:
            self.screen.line(self._put_back(replica, is_paused=is_paused))
            raise
        self._tell_the_end(replica, state)

    def _wait_until_linked(self, replica: Replica | IntoCluster) -> None:
        """Wait for the snapshot and for the changes that were made meanwhile."""
        goal: int | None = None
        history = ""  # which the goal is an offset of
        since = 0.0  # when it had everything
        while True:
            self._stop_if_told("")
            state = replica.state()
            keys = f"{state.keys:,} of {self.expected:,} keys" if state.step in ("copying", "loading", "linked") else ""
            text = ", ".join(filter(None, (keys, f"{size_text(state.received)} received")))
            position = self._position_of_source()
            if goal is not None and position is not None and position[0] != history:
                self.screen.finish()
                self.screen.line(
                    "The source has started again, or its primary has failed: the target follows what it has now"
                )
                goal = None
            if state.step == "linked" and position is not None and position[0] == state.history:
                if goal is None:
                    history, goal = position
                    since = time.monotonic()
                if state.offset < goal:
                    since = time.monotonic()
                elif replica.is_whole_since(since):
                    self.screen.finish()
                    return
                self.screen.progress("catching up", 0, 0, f"{max(goal - state.offset, 0):,} bytes behind, {text}")
            elif state.step == "linked":
                self.screen.progress("connecting", 0, 0, text)
            elif state.step in ("copying", "loading") and not state.size:
                self.screen.progress(state.step, min(state.keys, self.expected), self.expected, text)
            else:
                self.screen.progress(state.step, state.done, state.size, text)
            self.signals.wait(POLL_S)

    def _position_of_source(self) -> tuple[str, int] | None:
        """Where its stream of replication is; None while it does not answer. Raises ImportFailedError when that lasts."""
        try:
            position = self.source.position()
        except ImportFailedError as error:
            self.silent_since = self.silent_since or time.monotonic()
            if time.monotonic() > self.silent_since + SOURCE_PATIENCE_S:
                raise ImportFailedError(f"{error}, for {SOURCE_PATIENCE_S:.0f} s") from None
            return None
        self.silent_since = None
        return position

    def _follow(self, replica: Replica | IntoCluster) -> None:
        """Show the lag each second, until the target is to be promoted."""
        self.screen.line(
            "In sync. Enter, Ctrl-C or SIGTERM promotes the target as soon as it has all changes of the source"
        )
        while not self.signals.times:
            state = replica.state()
            behind: int | None = None
            with suppress(ImportFailedError):
                behind = max(self.source.offset() - state.offset, 0)
            if state.step != "linked":
                has = f"everything up to offset {state.offset:,}" if replica.was_linked else "not all keys"
                self.screen.line(f"the link is down ({state.step}); the target has {has}")
            elif behind is None:
                self.screen.line("the source does not answer")
            else:
                self.screen.line(f"lag {behind:,} bytes, offset {state.offset:,}, {state.keys:,} keys")
                if self.plan.until_lag is not None and behind <= self.plan.until_lag:
                    return
            self.signals.wait(LAG_EVERY_S, listens=True)

    def _pause(self) -> bool:
        """Pause the writes of the source, if that is wanted."""
        if not self.plan.pause_s:
            return False
        try:
            self.source.call("CLIENT", "PAUSE", int(self.plan.pause_s * 1000), "WRITE")
        except ServerError as error:
            raise ImportFailedError(f"{self.source} refuses CLIENT PAUSE: {error}") from None
        self.screen.line(f"Writes to the source are paused for {self.plan.pause_s:g} s")
        return True

    def _catch_up(self, replica: Replica | IntoCluster) -> None:
        """Wait until the target has all that the source has, or until the user asks again.

        Without --follow and --pause-source it has what the source had when both were in sync, which is what was asked for.
        """
        if not (self.plan.follows or self.plan.pause_s):
            return
        asked = self.signals.times
        since = even_since = time.monotonic()
        was_told = False
        while self.signals.times == asked:
            applied = replica.state().offset
            try:
                missing = self.source.offset() - applied
                reason = f"The target is {missing:,} bytes behind: stop the writers of the source (--pause-source does)"
                if not replica.was_linked:
                    reason = "The target does not have all keys"
            except ImportFailedError as error:
                missing, reason = -1, str(error)
            if missing:
                even_since = time.monotonic()
            elif replica.is_whole_since(even_since):
                return
            if not was_told and (missing < 0 or time.monotonic() > since + PATIENCE_S):
                self.screen.line(f"{reason}; or ask again to promote the target with what it has")
                was_told = True
            self.signals.wait(POLL_S, listens=self.plan.follows)

    def _put_back(self, replica: Replica | IntoCluster, *, is_paused: bool) -> str:
        """Put both servers back before the end has been reached; what the target holds then. Raises ImportFailedError."""
        self.screen.finish()
        if is_paused:
            with suppress(ImportFailedError, ServerError):
                self.source.call("CLIENT", "UNPAUSE")
        with suppress(ImportFailedError):
            if replica.state().step == "loading":
                self.screen.line("The target is loading the snapshot; it cannot be made a primary before that is done")
        replica.end()
        keys = replica.keys()
        if replica.was_linked:
            state = f"a complete copy, as the source was when it was last heard of: {keys:,} keys"
        elif not replica.has_replaced and keys == self.held_before:
            state = f"what it held before: {keys:,} keys" if keys else "no keys"
        else:
            state = f"{keys:,} keys, of {self.expected:,} that were found: import again with --replace"
        return f"{replica.ended}. It holds {state}"

    def _drop_other_databases(self) -> None:
        if self.plan.database is None:
            return
        for db in keys_of(self.target.info()):
            if db != self.plan.database:
                self.target.ask([("SELECT", db), ("FLUSHDB",)])

    def _tell_the_end(self, replica: Replica | IntoCluster, state: State) -> None:
        """The last lines; `state` is that of the moment before the promotion."""
        self.screen.finish()
        end = f"{self.target} is a primary" if isinstance(replica, Replica) else "The cluster has all of them"
        self.screen.line(
            f"{replica.keys():,} keys, {size_text(state.received)} received, {time.monotonic() - self.began:.1f} s. {end}"
        )
        if self.plan.follows:
            self.signals.wait(LAG_EVERY_S)  # so that writers that are still there show
        try:
            later = self.source.offset() - replica.last_offset()
        except ImportFailedError as error:
            self.screen.line(f"{error}. Changes that it made after offset {state.offset:,} may be missing")
            return
        if later > 0:
            self.screen.line(
                f"The source has been changed since, by {later:,} bytes of commands: they are not in the target"
            )

    # --- Key by key ------------------------------------------------------------------------------------------------------

    def _copy(self, databases: Collection[int], obstacle: str) -> None:
        self.screen.line(
            f"The source is not replicated but copied key by key: {obstacle}. Keys that are written meanwhile may be missing,"
            " old or from different moments: stop the writers for an exact copy"
        )
        if self.held_before:
            try:
                self.target.call("FLUSHALL")
            except ServerError as error:
                raise ImportFailedError(f"{self.target} refuses FLUSHALL: {error}") from None

        def show(copied: Copied) -> None:
            text = f"{copied.keys:,} of {self.expected:,} keys, {size_text(copied.size)}"
            self.screen.progress("copying", min(copied.keys, self.expected), self.expected, text)
            self._stop_if_told(
                f"The target holds {copied.keys:,} keys of {self.expected:,}: import again with --replace"
            )

        copied = copy_keys(self.source, self.target, databases, show)
        self.screen.finish()
        self.screen.line(f"{copied.keys:,} keys, {size_text(copied.size)}, {time.monotonic() - self.began:.1f} s")
        if copied.failures:
            for each in copied.refused:
                self.screen.line(f"  {each}")
            raise ImportFailedError(f"{copied.failures:,} keys could not be copied; these are the first of them")

    def _copy_functions(self, found: Survey) -> None:
        """Give the target the libraries of functions of the source."""
        if not found.functions:
            return
        try:
            payload = self.source.call("FUNCTION", "DUMP")
            assert isinstance(payload, bytes)  # noqa: S101
            self.target.call("FUNCTION", "RESTORE", payload, "FLUSH")
        except ServerError as error:
            raise ImportFailedError(f"The libraries of functions could not be copied: {error}") from None


def size_text(size: float) -> str:
    for unit in ("bytes", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def plural(count: int) -> str:
    """The ending of a word of which there are so many."""
    return "" if count == 1 else "s"
