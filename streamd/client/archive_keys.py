"""The keys that archivers keep on a server beside a stream, as `streamd load` must know them too: see archive/lock.py.

streamd:archive:<kind>:{<tag>}:<key>   the tag puts it into the slot of the stream, so that both are changed in one transaction, and move
                                       together, in a cluster; elsewhere it has no meaning
"""

from __future__ import annotations

from urllib.parse import quote_from_bytes, unquote_to_bytes

from streamd.client.key_names import stream_key
from streamd.client.key_slots import tag_beside

__all__ = ["key_beside", "quote_key", "replaced_key", "token_key", "unquote_key"]

PREFIX = "streamd:archive:"


def quote_key(stream: str) -> str:
    """A key as it is written in manifests and in the names of companion keys; percent-encoded, never empty, no dot alone."""
    quoted = quote_from_bytes(stream.encode(errors="surrogateescape"), safe="")
    # `~` separates the hash of long names, `.` and `..` have a meaning of their own, and a name must not be empty.
    return quoted.replace("~", "%7E").replace(".", "%2E") or "%"


def unquote_key(quoted: str) -> str:
    return "" if quoted == "%" else unquote_to_bytes(quoted).decode(errors="surrogateescape")


def key_beside(kind: str, stream: str) -> str:
    """The key that archivers keep beside a stream."""
    return f"{PREFIX}{kind}:{{{tag_beside(stream_key(stream))}}}:{quote_key(stream)}"


def token_key(stream: str) -> str:
    """The counter of a stream's fencing tokens: it is there as soon as an archiver has worked on the stream."""
    return key_beside("token", stream)


def replaced_key(stream: str) -> str:
    """The key that says which load has last written to a stream that is archived."""
    return key_beside("replaced", stream)
