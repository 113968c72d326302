"""Values and files as releases of Redis wrote them that no test can start."""

from __future__ import annotations

from support.compiled import compiled

from .rdb import make_file, make_length, make_string, make_ziplist, make_zipmap

__all__ = ["FAR", "old_bodies", "old_file"]

FAR = "70000000000000"
"""Unix time in ms, far in the future."""


def old_bodies() -> dict[int, bytes]:
    """Values in forms that only older releases write, by their RDB types: type byte and value."""
    encode = compiled("listpack").encode
    words = [f"word {at}".encode() if at % 3 else b"%d" % (at * 1000) for at in range(40)]
    strings = [*map(make_string, words)]
    flat = b"".join(strings)
    scored = [part for at, word in enumerate(words) for part in (word, b"%d" % at)]
    timed = [part for word in words for part in (word, b"v", FAR.encode())]
    entry_id = (1).to_bytes(8, "big") * 2
    node = encode([b"1", b"0", b"1", b"f", b"0", b"2", b"0", b"0", b"v", b"4"])
    consumer = b"\x01" + make_string(b"c") + bytes(8) + b"\x01" + entry_id
    group = make_string(b"g") + b"\x01\x01" + b"\x01" + entry_id + bytes(8) + b"\x01" + consumer
    bodies = {
        1: make_length(40) + flat,
        3: make_length(40) + b"".join(each + b"\x031.5" for each in strings),
        9: make_string(make_zipmap(*zip(words, words, strict=True), unused=2)),
        10: make_string(make_ziplist(words)),
        12: make_string(make_ziplist(scored)),
        13: make_string(make_ziplist(scored)),
        14: b"\x02" + make_string(make_ziplist(words[:20])) + make_string(make_ziplist(words[20:])),
        15: b"\x01" + make_string(entry_id) + make_string(node) + b"\x01\x01\x01" + b"\x01" + group,
        22: make_length(40) + b"".join(b"\x81" + int(FAR).to_bytes(8, "big") + each + b"\x01v" for each in strings),
        23: make_string(encode(timed)),
    }
    return {kind: bytes([kind]) + body for kind, body in bodies.items()}


def old_file(version: int) -> bytes:
    """A file of Redis 5.0 to 6.2 (version 9), or of the candidates of 7.4 (12), with all types that it has."""
    kinds = [kind for kind in old_bodies() if (kind > 15) == (version > 9)]
    body = (
        b"\xfa"
        + make_string(b"redis-ver")
        + make_string(b"5.0.14")
        + b"\xfe\x00\xfb"
        + make_length(len(kinds) + 9)
        + b"\x01"
    )
    for kind in kinds:
        value = old_bodies()[kind]
        body += value[:1] + make_string(b"old:%d" % kind) + value[1:]
    strings = [make_string(b"word %d" % at) for at in range(700)]
    numbers = b"".join((at * 70_000).to_bytes(4, "little") for at in range(40))
    plain = {
        b"string": b"\x00" + make_string(b"text" * 20),
        b"string of 8 bits": b"\x00\xc0\x85",
        b"string of 16 bits": b"\x00\xc1\x00\x80",
        b"string of 32 bits": b"\x00\xc2\x00\x00\x00\x80",
        b"compressed": b"\x00\xc3\x06\x14\x01aa\xe0\x09\x00",
        b"large set": b"\x02" + make_length(700) + b"".join(strings),
        b"large hash": b"\x04" + make_length(700) + b"".join(each + b"\x01v" for each in strings),
        b"large sorted set": b"\x05" + make_length(700) + b"".join(each + bytes(6) + b"\xf8\x3f" for each in strings),
        b"intset": b"\x0b" + make_string((4).to_bytes(4, "little") + (40).to_bytes(4, "little") + numbers),
    }
    for at, (key, value) in enumerate(plain.items()):
        expiry = b"\xfc" + int(FAR).to_bytes(8, "little") if at == 0 else b""
        body += expiry + value[:1] + make_string(key) + value[1:]
    return make_file(body, version)
