"""TieredReads: the setting `stream-archive-dir`, and the life of what follows from it."""

from __future__ import annotations

from streamd.core.capability import Capability
from streamd.core.client import Client
from streamd.core.host import Host
from streamd.settings.declarations import boolean, declare, integer, memory, text
from streamd.tiered.archived_entries import ArchivedEntries
from streamd.tiered.readers import Readers

__all__ = ["TieredReads"]

MB = 1 << 20

declare(
    "Tiered storage",
    text(
        "stream-archive-dir",
        flags="protected",
        apply="refresh",
        doc="Archive (a folder, or the URL of an object store) for reads that begin below the first entry in memory; empty for none.",
    ),
    boolean(
        "stream-archive-groups",
        False,
        apply="refresh",
        doc="Let consumer groups read the archive, too: new entries below the first one in memory, and pending ones that are no longer there.",
    ),
    integer(
        "stream-archive-readers",
        2,
        lo=1,
        hi=64,
        apply="refresh",
        doc="Maximum number of processes that read the archive at a time.",
    ),
    integer(
        "stream-archive-timeout",
        10_000,
        lo=1,
        hi=3_600_000,
        unit="ms",
        apply="refresh",
        doc="How long a request waits for the archive before it gets an error.",
    ),
    memory(
        "stream-archive-cache",
        64 * MB,
        apply="refresh",
        doc="Memory for the decoded row groups that each of these processes keeps.",
    ),
    memory(
        "stream-archive-max-reply",
        64 * MB,
        lo=MB,
        apply="refresh",
        doc="The longest archived part of a reply; a longer one is an error.",
    ),
)


class TieredReads(Capability):
    """Reads of streams that reach into the archive, while one is set.

    entries  the archived entries; handlers get them from the context, as long as there are readers
    """

    rests = True

    def __init__(self, host: Host) -> None:
        self._host = host
        self._made_of: tuple[object, ...] = ()
        self.entries = ArchivedEntries(host)

    @property
    def is_on(self) -> bool:
        return self.entries.readers is not None

    def apply_settings(self) -> None:
        config, entries = self._host.config, self.entries
        entries.max_bytes = config.stream_archive_max_reply
        entries.serve_groups = config.stream_archive_groups
        if entries.readers is not None:
            entries.readers.timeout_ms = config.stream_archive_timeout
        made_of = config.stream_archive_dir, config.stream_archive_readers, config.stream_archive_cache
        if made_of == self._made_of:
            return
        self._made_of = made_of
        former, entries.readers = entries.readers, None
        self._host.dispatcher.context.tiers = None
        if config.stream_archive_dir:
            entries.readers = Readers(
                self._host,
                config.stream_archive_dir,
                most=config.stream_archive_readers,
                timeout_ms=config.stream_archive_timeout,
                cache_bytes=config.stream_archive_cache,
            )
            entries.readers.prepare()
            self._host.wake(self)
            self._host.dispatcher.context.tiers = entries
        if former is not None:
            # Only now: the requests that wait for it are run again, with the present setting.
            former.close()

    def cron(self, now_ms: int) -> None:
        if self.is_on:
            self.entries.resume_held()

    def each_second(self, now_ms: int) -> None:
        self.entries.forget_streams()

    def client_gone(self, client: Client) -> None:
        self.entries.forget(client)
        self.entries.live_only.discard(client.id)

    def client_reset(self, client: Client) -> None:
        self.entries.live_only.discard(client.id)

    def close(self) -> None:
        if self.entries.readers is not None:
            self.entries.readers.close()
