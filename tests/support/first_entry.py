"""What a wheel is tried with: a server from it, and the first entry of a stream. Needs nothing but the wheel."""

from __future__ import annotations

import streamd.embedded
from streamd.client.connection import dial
from streamd.client.place import Place

for own_process in (False, True):
    with streamd.embedded.start(own_process=own_process) as server, dial(Place.from_url(server.url)) as connection:
        assert connection.command("XADD", "readings", "1-1", "sensor", "a") == b"1-1"
print("1-1")
