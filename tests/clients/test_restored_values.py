"""RESTORE after CONFIG SET: values get the settings of that moment."""

from __future__ import annotations

from typing import Any

import redis
from support.files.rdb import make_stream
from support.servers import Server

from streamd.persistence.rdb.format import WriteOptions
from streamd.persistence.rdb.write import dump_value


def test_a_stream_of_an_older_form_gets_the_settings_of_the_moment(new_streamd: Any) -> None:
    server: Server = new_streamd()
    client = redis.Redis(port=server.port)
    payload = dump_value(make_stream(1), WriteOptions("7.2"))
    for seconds in (200, 300):
        client.config_set("stream-idmp-duration", seconds)
        client.restore(f"s{seconds}", 0, payload)
        assert client.xinfo_stream(f"s{seconds}")["idmp-duration"] == seconds


def test_payloads_have_the_form_and_compression_of_the_moment(new_streamd: Any) -> None:
    server: Server = new_streamd()
    client = redis.Redis(port=server.port)
    client.set("s", b"a" * 1000)
    sizes = []
    for compression in ("yes", "no", "yes"):
        client.config_set("rdbcompression", compression)
        sizes.append(len(client.dump("s") or b""))
    assert sizes[0] == sizes[2] < 100 < 1000 < sizes[1]
