"""How conditions narrow the streams and the range of IDs that are read."""

from __future__ import annotations

from collections.abc import Iterable

from streamd.client.points import MAX_ID, MIN_ID, first_id_of, last_id_of, ms_of
from streamd.printable import key_text

__all__ = ["Narrowed"]


class Narrowed:
    """What filters leave of streams and IDs: never less than they accept, so that Spark can apply them again.

    low, high      inclusive IDs
    streams        the only streams that are wanted, or None
    stream_prefix  what their names start with
    id_texts       conditions on `id` as text, `(operator, text)`, for `of_id_texts`
    """

    def __init__(self) -> None:
        self.low = MIN_ID
        self.high = MAX_ID
        self.streams: set[str] | None = None
        self.stream_prefix = ""
        self.id_texts: list[tuple[str, str]] = []

    def narrow(self, low: int, high: int) -> None:
        self.low, self.high = max(self.low, low), min(self.high, high)

    def only_streams(self, names: Iterable[str]) -> None:
        self.streams = set(names) if self.streams is None else self.streams & set(names)

    def wants(self, stream: str) -> bool:
        """Whether a stream is wanted, by the text that the column has of its key."""
        text = key_text(stream)
        return (self.streams is None or text in self.streams) and text.startswith(self.stream_prefix)

    def of_id_texts(self, first: int, last: int) -> tuple[int, int]:
        """The part of [first, last], the extent of a stream, that satisfies the conditions on `id` as text.

        Text order is ID order as far as all the numbers have the same number of digits, which those of milliseconds have
        from 2001 to 2286; otherwise nothing is narrowed. Within one millisecond it never is.
        """
        digits = len(str(ms_of(first)))
        if digits != len(str(ms_of(last))):
            return first, last
        low, high = first, last
        for operator, text in self.id_texts:
            ms_text = text.partition("-")[0]
            if not (ms_text.isascii() and ms_text.isdigit()):
                continue
            if operator == "prefix" and ("-" in text or len(ms_text) <= digits):
                padding = digits - len(ms_text)
                low = max(low, first_id_of(int(ms_text + "0" * padding)))
                high = min(high, last_id_of(int(ms_text + "9" * padding)))
            elif len(ms_text) == digits and operator == "from":
                low = max(low, first_id_of(int(ms_text)))
            elif len(ms_text) == digits and operator == "to":
                high = min(high, last_id_of(int(ms_text)))
        return low, high
