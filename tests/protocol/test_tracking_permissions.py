"""CLIENT TRACKING ON BCAST names no key that a client's user may not read.

Redis does so since 8.10, and 8.6 does not: what must be told is written down here.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.compare.dialogues import Dialogue
from support.servers import Server, start_streamd

SETUP = """
    admin2: ACL SETUSER reader reset on nopass ~open:* %R~read:* %W~write:* +@all (~second:* +get)
    admin2: ACL SETUSER other reset on nopass ~* +@all
    a: AUTH reader x
    a: CLIENT TRACKING ON BCAST
"""
DIALOGUES = {
    "only what may be read is told": """
        admin2: MSET open:1 x read:1 x second:1 x write:1 x hidden x
            admin2 is told +OK
            a hears >["invalidate", ["open:1", "read:1", "second:1"]]
        admin2: MSET write:1 x hidden x
            admin2 is told +OK
        a: MSET open:1 x write:1 x
            a is told +OK
            a hears >["invalidate", ["open:1"]]
    """,
    "who may read everything is told everything": """
        b: AUTH other x
            b is told +OK
        b: CLIENT TRACKING ON BCAST
            b is told +OK
        c: CLIENT TRACKING ON BCAST NOLOOP
            c is told +OK
        admin2: MSET open:1 x hidden x
            admin2 is told +OK
            a hears >["invalidate", ["open:1"]]
            b hears >["invalidate", ["hidden", "open:1"]]
            c hears >["invalidate", ["hidden", "open:1"]]
    """,
    "noloop": """
        a: CLIENT TRACKING ON BCAST NOLOOP
            a is told +OK
        admin2: MSET open:1 x hidden x
            admin2 is told +OK
            a hears >["invalidate", ["open:1"]]
        a: SET open:1 x
            a is told +OK
    """,
    "the rights of who tracks count, not those of who is told": """
        r: PING
            r is told +PONG
        a: CLIENT TRACKING ON BCAST REDIRECT {r}
            a is told +OK
        admin2: MSET open:1 x hidden x
            admin2 is told +OK
            r hears >["invalidate", ["open:1"]]
    """,
    "ACL SETUSER takes effect after what has changed before": """
        admin2: SET hidden x ; SET open:1 x ; ACL SETUSER reader allkeys ; SET hidden2 x
            admin2 is told +OK  +OK  +OK  +OK
            a hears >["invalidate", ["open:1"]]  >["invalidate", ["hidden2"]]
        admin2: SET hidden x ; ACL SETUSER reader resetkeys ; SET hidden2 x
            admin2 is told +OK  +OK  +OK
            a hears >["invalidate", ["hidden"]]
    """,
    "AUTH and HELLO take effect after what has changed before": """
        a: SET write:1 x ; SET open:1 x ; AUTH other x ; SET hidden x
            a is told +OK  +OK  +OK  >["invalidate", ["open:1"]]  +OK
            a hears >["invalidate", ["hidden"]]
        a: SET hidden x ; HELLO 3 AUTH reader x ; SET hidden x
            a is told +OK  {HELLO}  >["invalidate", ["hidden"]]  -NOPERM No permissions to access a key
    """,
    "ACL LOAD takes effect after what has changed before": """
        admin2: ACL SAVE
            admin2 is told +OK
        admin2: ACL SETUSER reader allkeys ; SET hidden x ; ACL LOAD ; SET hidden x
            admin2 is told +OK  +OK  +OK  +OK
            a hears >["invalidate", ["hidden"]]
    """,
    "ACL DELUSER takes effect after what has changed before": """
        r: PING
            r is told +PONG
        a: CLIENT TRACKING ON BCAST REDIRECT {r}
            a is told +OK
        a~
        admin2: SET open:1 x ; ACL DELUSER reader
            admin2 is told +OK  :1
            r hears >["invalidate", ["open:1"]]
    """,
    "after RESET nothing is told": """
        a: SET open:1 x ; RESET ; SET open:1 x
            a is told +OK  +RESET  +OK
    """,
    "overlapping prefixes turn nothing on": """
        c: CLIENT TRACKING ON BCAST PREFIX BAZ PREFIX FOOBAR PREFIX FOO
            c is told -ERR Prefix 'FOOBAR' overlaps with another provided prefix 'FOO'. Prefixes for a single client \
must not overlap.
        c: CLIENT TRACKINGINFO
            c is told {"flags": ~["off"], "redirect": :-1, "prefixes": []}
    """,
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One with an ACL file."""
    folder: Path = tmp_path_factory.mktemp("users")
    (folder / "users.acl").touch()
    server = start_streamd(folder, {"aclfile": "users.acl"})
    yield server
    server.stop()


@pytest.mark.parametrize("name", DIALOGUES, ids=lambda name: name.replace(" ", "_"))
def test_dialogues(server: Server, name: str) -> None:
    expected = textwrap.dedent(DIALOGUES[name]).strip().splitlines()
    dialogue = Dialogue(server)
    try:
        dialogue.play(SETUP)
        dialogue.record.clear()
        told = dialogue.play("\n".join(line for line in expected if not line.startswith(" ")))
    finally:
        dialogue.close()
    assert [re.sub(r"\{\"server\".*?\]\}", "{HELLO}", line) for line in told] == expected
