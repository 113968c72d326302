"""The metrics of streams, their groups and consumers, read in slices between which clients are served.

Costs are bounded by the settings metrics-max-streams and metrics-max-consumers, and by the constants below.
"""

from __future__ import annotations

from collections.abc import Iterator

from streamd.core.host import Host
from streamd.core.slices import Slices
from streamd.delivery.defaults import group_rule_in_force, stream_rule_in_force
from streamd.delivery.progress import Progress, all_progress
from streamd.delivery.state import Place
from streamd.delivery.state import state_of as delivery_state_of
from streamd.delivery.trimmed import Amount, trimmed_of
from streamd.engine.glob import Glob
from streamd.keyspace.database import Database
from streamd.observe.metrics.exposition import escaped
from streamd.observe.metrics.metric_families import Family
from streamd.stream_state import EARLIEST_MS, ConsumerState, GroupState, StreamState
from streamd.values.streams.delivery import lag, next_unread
from streamd.values.streams.group import Group
from streamd.values.streams.stream import Stream

__all__ = ["CONSUMER", "GROUP", "STREAM", "StreamMetrics"]

KEYS_PER_SCRAPE = 100_000
"""Keys that are looked at to find streams; where there are more, the next scrape goes on."""
KEYS_PER_STEP = 500
PENDING_LOOKED_AT = 1000
"""Pending entries of a group whose deliveries are counted."""

STREAM = {
    "entries": Family("streamd_stream_entries", "gauge", "Entries of a stream, labels `db` and `stream`."),
    "memory": Family("streamd_stream_memory_bytes", "gauge", "Memory of a stream and its groups."),
    "added": Family("streamd_stream_entries_added", "counter", "Entries added to a stream: its rate is what comes in."),
    "removed": Family("streamd_stream_entries_removed", "counter", "Entries trimmed or deleted."),
    "last": Family("streamd_stream_last_entry_timestamp_seconds", "gauge", "When its last entry was added, by its ID."),
}
GROUP = {
    "lag": Family(
        "streamd_group_lag_entries", "gauge", "Entries that a group has not read, labels `db`, `stream`, `group`."
    ),
    "lag_s": Family("streamd_group_lag_seconds", "gauge", "How long the first of them has been waiting, by its ID."),
    "read": Family(
        "streamd_group_entries_read", "counter", "Entries that a group has read: its rate is what goes out."
    ),
    "pending": Family("streamd_group_pending_entries", "gauge", "Entries delivered and not acknowledged."),
    "oldest": Family("streamd_group_oldest_pending_seconds", "gauge", "The age of the oldest of them, by its ID."),
    "often": Family(
        "streamd_group_often_delivered_entries",
        "gauge",
        "Those delivered more than metrics-max-deliveries times, of the first 1,000.",
    ),
    "consumers": Family("streamd_group_consumers", "gauge", "Consumers of a group."),
}
STREAM_RULE = {
    "moved": Family(
        "streamd_stream_delayed_moved", "counter", "Entries that were due, and moved to the target of FEEDS."
    ),
    "replaced": Family("streamd_stream_delayed_replaced", "counter", "Waiting entries that later ones have replaced."),
    "expired": Family("streamd_stream_expired_entries", "counter", "Entries whose time was over (EXPIRES)."),
    "unreadable": Family("streamd_stream_bad_times", "gauge", "Entries with a time that is not a number."),
    "not_moving": Family("streamd_stream_delays_not_moving", "gauge", "Whether an entry is due and cannot be moved."),
    "waiting": Family("streamd_stream_delayed_entries", "gauge", "Entries that wait until they are due (FEEDS)."),
    "trimmed": Family("streamd_stream_trimmed_entries", "counter", "Entries trimmed by the rule (RETAIN)."),
    "trimmed_bytes": Family("streamd_stream_trimmed_bytes", "counter", "Memory of the nodes that were trimmed."),
}
"""Of streams that have a rule."""
GROUP_RULE = {
    "held": Family("streamd_group_held_back_entries", "gauge", "Entries that failed and wait (BACKOFF)."),
    "moved": Family("streamd_group_dead_letters", "counter", "Entries moved to the dead-letter stream."),
    "not_moved": Family("streamd_group_dead_letters_not_moved", "gauge", "Entries that cannot be moved there."),
}
"""Of groups that have a rule."""
TRIMMED = {
    "entries": Family(
        "streamd_trimmed_entries", "counter", "Entries trimmed by rules, of all streams, label `option`."
    ),
    "bytes": Family("streamd_trimmed_bytes", "counter", "Memory of the nodes that were trimmed."),
}
CONSUMER = {
    "pending": Family(
        "streamd_consumer_pending_entries", "gauge", "Pending entries of a consumer, label `consumer` as well."
    ),
    "seen": Family("streamd_consumer_last_seen_timestamp_seconds", "gauge", "When a consumer last asked for entries."),
}


class StreamMetrics:
    """Reads the streams that the settings ask for (ValueMetrics)."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._known: dict[tuple[int, bytes], None] = {}
        self._scanned = (0, 0)
        self._has_more = False
        self.left_out: dict[str, int] = {}

    async def read(self, slices: Slices) -> dict[Family, list[str]]:
        """The samples of all streams that are read, by metric, as they are written."""
        lines: dict[Family, list[str]] = {
            family: []
            for families in (STREAM, STREAM_RULE, GROUP, GROUP_RULE, CONSUMER, TRIMMED)
            for family in families.values()
        }
        config = self._host.config
        await self._find_streams(slices)
        consumers_left, consumers_left_out = config.metrics_max_consumers, 0
        for index, key in list(self._known):
            database = self._host.databases[index]
            stream = None if database.is_overdue(key) else database.peek(key)
            if type(stream) is not Stream:
                self._known.pop((index, key), None)
                continue
            labels = f'{{db="{index}",stream="{escaped(key)}"'
            now_ms = self._host.dispatcher.unix_ms()
            add_stream(lines, labels, StreamState(
                key=key, length=stream.length, entries_added=stream.entries_added, first_id=None,
                last_id=stream.last_entry_id, bytes=stream.memory_usage(),
            ))  # fmt: skip
            self._add_stream_rule(lines, labels, database, key, stream)
            for group in list(stream.groups.values()):
                state = state_of(stream, group, now_ms, consumers_left)
                consumers_left -= len(state.consumers)
                consumers_left_out |= len(state.consumers) < state.consumer_count
                often = (
                    group.count_delivered_above(config.metrics_max_deliveries, PENDING_LOOKED_AT)
                    if state.pending
                    else 0
                )
                own = f'{labels},group="{escaped(group.name)}"'
                add_group(lines, own, state, often, now_ms)
                self._add_group_rule(lines, own, database, key, group)
                await slices.breathe()
            await slices.breathe()
        for option, amount in trimmed_of(self._host.dispatcher.context).by_reason.items():
            add(lines, TRIMMED["entries"], f'{{option="{option}"', amount.entries)
            add(lines, TRIMMED["bytes"], f'{{option="{option}"', amount.bytes)
        self.left_out = {"streams": int(self._has_more), "consumers": int(consumers_left_out)}
        return lines

    def _add_stream_rule(
        self, lines: dict[Family, list[str]], labels: str, database: Database, key: bytes, stream: Stream
    ) -> None:
        context = self._host.dispatcher.context
        rule = stream_rule_in_force(context, database, key)
        if rule.feeds or rule.expires:
            progress = all_progress(context).by_stream.get((database.index, key), Progress())
            add(lines, STREAM_RULE["moved"], labels, progress.moved)
            add(lines, STREAM_RULE["replaced"], labels, progress.replaced)
            add(lines, STREAM_RULE["expired"], labels, progress.expired)
            add(lines, STREAM_RULE["unreadable"], labels, progress.unreadable)
            add(lines, STREAM_RULE["not_moving"], labels, int(bool(progress.error)))
            add(lines, STREAM_RULE["waiting"], labels, stream.length if rule.feeds else 0)
        if rule.retain:
            amount = trimmed_of(context).by_stream.get((database.index, key), Amount())
            add(lines, STREAM_RULE["trimmed"], labels, amount.entries)
            add(lines, STREAM_RULE["trimmed_bytes"], labels, amount.bytes)

    def _add_group_rule(
        self, lines: dict[Family, list[str]], labels: str, database: Database, key: bytes, group: Group
    ) -> None:
        context = self._host.dispatcher.context
        if group_rule_in_force(context, database, key, group.name) is None:
            return
        failure = delivery_state_of(context).failures.get(Place(database.index, key, group.name))
        add(lines, GROUP_RULE["held"], labels, group.held_back_count)
        add(lines, GROUP_RULE["moved"], labels, group.dead_letter_count)
        add(lines, GROUP_RULE["not_moved"], labels, 0 if failure is None else len(failure.ids))

    async def _find_streams(self, slices: Slices) -> None:
        """Look for the streams that the settings ask for. They stay known, in the order in which they were found."""
        config = self._host.config
        glob, most = Glob(config.metrics_streams.encode("utf-8", "surrogateescape")), config.metrics_max_streams
        for index, key in list(self._known):
            if not glob.match(key) or len(self._known) > most:
                del self._known[index, key]
        self._has_more = False
        databases = [database for database in self._host.databases if len(database)]
        left = KEYS_PER_SCRAPE
        for database, cursor in self._round(databases):
            while left > 0:
                cursor, records = database.records(cursor, KEYS_PER_STEP)
                left -= KEYS_PER_STEP
                for record in records:
                    place = database.index, record.key
                    if record.type.value_class is Stream and place not in self._known and glob.match(record.key):
                        if len(self._known) >= most:
                            self._has_more = True
                        else:
                            self._known[place] = None
                await slices.breathe()
                self._scanned = database.index, cursor
                if not cursor:
                    break

    def _round(self, databases: list[Database]) -> Iterator[tuple[Database, int]]:
        """The databases from where the last scrape has stopped, each with the cursor to begin with."""
        index, cursor = self._scanned
        later = [database for database in databases if database.index >= index]
        for database in [*later, *(each for each in databases if each.index < index)]:
            yield database, cursor if database.index == index else 0


def state_of(stream: Stream, group: Group, now_ms: int, most_consumers: int) -> GroupState:
    """A group as it is, with the first of its consumers."""
    consumers = group.consumers
    return GroupState(
        name=group.name,
        last_delivered=group.last_delivered_id,
        entries_read=group.entries_read if group.entries_read >= 0 else None,
        lag=lag(stream, group),
        next_id=next_unread(stream, group),
        pending=group.pending_count,
        oldest_pending=group.oldest_pending_id,
        consumer_count=len(consumers),
        consumers=[
            ConsumerState(each.name, group.pending_count_of(each.name), now_ms - each.seen_ms)
            for each in list(consumers.values())[:most_consumers]
        ] if most_consumers > 0 else [],
    )  # fmt: skip


def add(lines: dict[Family, list[str]], family: Family, labels: str, value: int) -> None:
    """A sample; `labels` lacks its closing brace."""
    lines[family].append(f"{family.name}{'_total' if family.kind == 'counter' else ''}{labels}}} {value}\n")


def add_stream(lines: dict[Family, list[str]], labels: str, state: StreamState) -> None:
    lines[STREAM["entries"]].append(f"streamd_stream_entries{labels}}} {state.length}\n")
    lines[STREAM["memory"]].append(f"streamd_stream_memory_bytes{labels}}} {state.bytes}\n")
    lines[STREAM["added"]].append(f"streamd_stream_entries_added_total{labels}}} {state.entries_added}\n")
    lines[STREAM["removed"]].append(
        f"streamd_stream_entries_removed_total{labels}}} {state.entries_added - state.length}\n"
    )
    if state.last_id is not None and state.last_id[0] >= EARLIEST_MS:
        lines[STREAM["last"]].append(
            f"streamd_stream_last_entry_timestamp_seconds{labels}}} {state.last_id[0] / 1000!r}\n"
        )


def add_group(lines: dict[Family, list[str]], labels: str, state: GroupState, often: int, now_ms: int) -> None:
    lag_s, oldest_s = state.lag_s(now_ms), state.oldest_pending_s(now_ms)
    if state.lag is not None:
        lines[GROUP["lag"]].append(f"streamd_group_lag_entries{labels}}} {state.lag}\n")
    if lag_s is not None:
        lines[GROUP["lag_s"]].append(f"streamd_group_lag_seconds{labels}}} {lag_s!r}\n")
    if state.entries_read is not None:
        lines[GROUP["read"]].append(f"streamd_group_entries_read_total{labels}}} {state.entries_read}\n")
    lines[GROUP["pending"]].append(f"streamd_group_pending_entries{labels}}} {state.pending}\n")
    if oldest_s is not None:
        lines[GROUP["oldest"]].append(f"streamd_group_oldest_pending_seconds{labels}}} {oldest_s!r}\n")
    lines[GROUP["often"]].append(f"streamd_group_often_delivered_entries{labels}}} {often}\n")
    lines[GROUP["consumers"]].append(f"streamd_group_consumers{labels}}} {state.consumer_count}\n")
    for consumer in state.consumers:
        own = f'{labels},consumer="{escaped(consumer.name)}"'
        lines[CONSUMER["pending"]].append(f"streamd_consumer_pending_entries{own}}} {consumer.pending}\n")
        seen_s = (now_ms - consumer.idle_ms) / 1000
        lines[CONSUMER["seen"]].append(f"streamd_consumer_last_seen_timestamp_seconds{own}}} {seen_s!r}\n")
