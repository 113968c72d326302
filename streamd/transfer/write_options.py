"""The options of a write, batch and streaming."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from streamd.client.client_errors import OptionError
from streamd.client.key_names import stream_key
from streamd.client.key_slots import tag_beside
from streamd.client.points import parse_duration_ms
from streamd.client.url_options import (
    ConnectionOptions,
    Options,
    boolean,
    choice,
    named_by_path,
    needs,
    only_one_of,
    option,
    read_fields,
    refuse_unknown,
    text,
    whole_number,
)

__all__ = ["SinkOptions"]


@dataclass(frozen=True)
class SinkOptions:
    """How to write. The target is `stream`, or each row's `stream` column."""

    connection: ConnectionOptions = field(default_factory=ConnectionOptions)
    stream: str | None = option(
        "stream", text, None, "key of the stream to write to. Default: that in `streamColumn` of each row"
    )
    stream_column: str = option(
        "streamColumn", text, "stream", "column that names the stream of a row; not a field of the entry"
    )
    id_column: str | None = option(
        "idColumn",
        text,
        None,
        "column with the entry's ID (`ms-seq`, `ms-*`, `*`); not a field of the entry. Default: the server creates the IDs",
    )
    fields_column: str = option(
        "fieldsColumn",
        text,
        "fields",
        "column whose array of field and value, or map, is the entry; without such a column each remaining column is a field",
    )
    null_values: str = option(
        "nullValues",
        choice("omit", "empty", "fail"),
        "omit",
        "how a null is written: as no field, as an empty value, or as an error",
    )
    maxlen: int | None = option(
        "maxLen", whole_number(0), None, "trim the stream to this number of entries while writing"
    )
    minid: str | None = option(
        "minId", text, None, "trim entries below this ID, or older than a time like `-7d`, while writing"
    )
    trim_exactly: bool = option("trimExactly", boolean, False, "trim exactly, not only whole nodes")
    trim_limit: int | None = option(
        "trimLimit",
        whole_number(0),
        None,
        "maximum number of entries to trim at a time (LIMIT), if not trimming exactly",
    )
    trim_policy: str | None = option(
        "trimPolicy",
        choice("KEEPREF", "DELREF", "ACKED"),
        None,
        "what trimming does to pending references; ACKED: only entries that every group has acknowledged",
    )
    create: bool = option(
        "createStream",
        boolean,
        True,
        "whether a missing stream is created (otherwise NOMKSTREAM, and rows for it are an error)",
    )
    delivery: str = option(
        "delivery",
        choice("at-least-once", "exactly-once"),
        "at-least-once",
        "exactly-once writes each chunk in a transaction with a marker, and on replay skips the rows that the marker covers",
    )
    idempotency_key: str | None = option(
        "idempotencyKey",
        text,
        None,
        "column whose value makes a repeated XADD a no-op (IDMP; Redis 8.6, streamd); independent of order",
    )
    idmp_duration_s: int | None = option(
        "idempotencyDuration",
        lambda value: max(1, parse_duration_ms(value) // 1000),
        None,
        "how long keys are remembered (XCFGSET); at most a day",
    )
    idmp_maxsize: int | None = option(
        "idempotencyMaxSize", whole_number(1, 10_000), None, "number of keys remembered for each producer (XCFGSET)"
    )
    idmp_producers: int = option(
        "idempotencyProducers",
        whole_number(1, 65_536),
        256,
        "number of producers that the keys of a query are spread over: this times idempotencyMaxSize keys are remembered; "
        "must not be changed while a batch is unfinished",
    )
    run_id: str | None = option(
        "runId",
        text,
        None,
        "name of a batch write, for exactly-once: the same name again is the same write; without it only repeated tasks of one "
        "write are recognized. A streaming query has its own",
    )
    marker_prefix: str = option(
        "markerPrefix", text, "streamd:sink:", "prefix of the keys that hold the markers of exactly-once"
    )
    marker_ttl_ms: int | None = option(
        "markerTtl", parse_duration_ms, None, "how long a marker is kept after the last write. Default: forever"
    )
    verify_replay: bool = option(
        "verifyReplay",
        boolean,
        True,
        "whether rows that are skipped because the marker covers them are compared with those that were written",
    )
    chunk_size: int = option("chunkSize", whole_number(1, 100_000), 1_000, "rows of a transaction, or of a round trip")

    @property
    def is_marked(self) -> bool:
        """Whether rows are written exactly once by a marker."""
        return self.delivery == "exactly-once" and self.id_column is None and self.idempotency_key is None

    @classmethod
    def parse(cls, options: Options) -> SinkOptions:
        """Read the options of a sink. Raises OptionError."""
        given = named_by_path(options, ("stream",))
        refuse_unknown(given, cls, ConnectionOptions)
        only_one_of(given, "maxLen", "minId")
        only_one_of(given, "idempotencyKey", "idColumn")
        made = cls(connection=ConnectionOptions.parse(given), **read_fields(cls, given))
        if made.trim_exactly and made.trim_limit is not None:
            raise OptionError("trimLimit", "cannot be combined with trimExactly")
        is_keyed, is_marked = made.idempotency_key is not None, made.is_marked
        if is_keyed and made.delivery == "exactly-once":
            raise OptionError(
                "idempotencyKey",
                "cannot be combined with delivery=exactly-once: either recognizes repeated rows, by key or by number",
            )
        is_trimmed = made.maxlen is not None or made.minid is not None
        needs(given, ("trimExactly", "trimLimit", "trimPolicy"), "maxLen or minId", has=is_trimmed)
        keyed = ("idempotencyDuration", "idempotencyMaxSize", "idempotencyProducers")
        needs(given, keyed, "idempotencyKey", has=is_keyed)
        needs(given, ("verifyReplay",), "delivery=exactly-once", has=is_marked)
        named = ("runId", "markerPrefix", "markerTtl")
        needs(given, named, "delivery=exactly-once without idColumn, or idempotencyKey", has=is_marked or is_keyed)
        if made.connection.cluster_nodes and "{" in made.marker_prefix:
            raise OptionError("markerPrefix", "must not contain a hash tag: on a cluster, it gets that of the stream")
        return made if made.stream is None else made.beside(stream_key(made.stream))

    @property
    def is_spread(self) -> bool:
        """Whether rows go to streams in different slots of a cluster, in which no transaction has them all."""
        return self.stream is None and bool(self.connection.cluster_nodes)

    def beside(self, key: bytes) -> SinkOptions:
        """The options for streams with the hash tag of a key, and markers in their slot: one transaction writes both."""
        if not self.connection.cluster_nodes:
            return self
        return replace(
            self,
            connection=self.connection.at_key(key),
            marker_prefix=f"{self.marker_prefix}{{{tag_beside(key)}}}:",
        )
