"""When free memory is returned to the system."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from streamd.core.host import Host
from streamd.keyspace.commands.freeing import Freeing
from streamd.keyspace.database import Database
from streamd.keyspace.lazyfree import LazyFree
from streamd.serve.families import load_all

load_all()

SIZE = 64 << 20


class Server:
    """What Freeing uses of a server, all of it real."""

    def __init__(self) -> None:
        self.db, self.trash = Database(), LazyFree()
        self.freeing = Freeing(cast("Host", SimpleNamespace(databases=[self.db], trash=self.trash)))

    def look(self) -> bool:
        """Look whether much has been freed; whether memory is returned then, by a thread."""
        before = set(threading.enumerate())
        self.freeing.cron(0)
        return bool(set(threading.enumerate()) - before) or self.trash.pending_objects() > 0


@pytest.fixture
def servers() -> Any:
    made = Server(), Server()
    yield made
    for each in made:
        each.trash.close()


def test_memory_is_returned_when_much_has_been_freed(servers: tuple[Server, Server]) -> None:
    server, _ = servers
    server.look()
    server.db.set(b"k", bytes(SIZE))
    assert not server.look()
    server.db.delete(b"k")
    assert server.look()


def test_two_servers_of_a_process_of_different_size_return_no_memory_while_nothing_is_freed(
    servers: tuple[Server, Server],
) -> None:
    large, small = servers
    large.db.set(b"k", bytes(SIZE))
    looks = [each.look() for _ in range(3) for each in (large, small)]
    assert not any(looks)
