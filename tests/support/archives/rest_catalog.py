"""A small Iceberg REST catalog for tests: http.server over pyiceberg's SqlCatalog.

It is not one that anybody runs, but it speaks the interface of the Iceberg REST specification as far as a client needs that
makes, reads, changes, lists and drops tables, and checks the requirements of each commit against the table as it is then:
a commit on top of another version is answered with 409. All requests but the commits of a test's hook are served in turn.
What may go wrong is switched on by attributes.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pyiceberg.catalog.rest import CreateTableRequest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.table import CommitTableRequest, Table

__all__ = ["RestCatalogServer", "rest_catalog"]

SEPARATOR = "\x1f"
"""Between the levels of a namespace in a path."""

STATUS: dict[type[Exception], int] = {
    NoSuchNamespaceError: 404, NoSuchTableError: 404, NamespaceAlreadyExistsError: 409, TableAlreadyExistsError: 409,
    CommitFailedException: 409,
}  # fmt: skip


class RestCatalogServer(ThreadingHTTPServer):
    """The server.

    asked          methods and paths of all requests, with the status of the answer
    before_commit  called before the next commit, once: whoever comes in between
    lost_answers   so many of the next creations and commits are done, and the connection is closed without an answer
    statuses       the next commits are refused with these, one after the other
    is_silent      nothing is answered any more
    """

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.catalog = SqlCatalog("rest", uri=f"sqlite:///{folder}/rest.db", warehouse=folder.as_uri())
        self.lock = threading.Lock()
        self.asked: list[tuple[str, str, int]] = []
        self.before_commit: Callable[[], None] | None = None
        self.lost_answers = 0
        self.statuses: list[int] = []
        self.is_silent = False
        self.end_of_silence = threading.Event()

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: RestCatalogServer

    def log_message(self, *given: Any) -> None:
        """Nobody reads it."""

    def do_GET(self) -> None:
        self.serve()

    def do_HEAD(self) -> None:
        self.serve()

    def do_POST(self) -> None:
        self.serve()

    def do_DELETE(self) -> None:
        self.serve()

    def serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.server.is_silent:
            self.server.end_of_silence.wait()
            self.close_connection = True
            return
        names = [unquote(each) for each in urlsplit(self.path).path.strip("/").split("/")]
        try:
            found = self.route(names, body)
        except tuple(STATUS) as error:
            status = next(STATUS[kind] for kind in STATUS if isinstance(error, kind))
            self.answer(status, {"error": {"message": str(error), "type": type(error).__name__, "code": status}})
        else:
            if not self.close_connection:
                self.answer(200 if found is not None else 204, found)

    def answer(self, status: int, found: Any) -> None:
        self.server.asked.append((self.command, self.path, status))
        content = b"" if found is None or self.command == "HEAD" else json.dumps(found).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def route(self, names: list[str], body: bytes) -> Any:
        """The answer to a request; None: there is nothing to say."""
        match (self.command, names):
            case ("POST", ["v1", "namespaces", namespace, "tables", name]):
                return self.commit((*namespace.split(SEPARATOR), name), body)
            case _:
                with self.server.lock:
                    return self.look(names, body)

    def look(self, names: list[str], body: bytes) -> Any:
        catalog = self.server.catalog
        match (self.command, names):
            case ("GET", ["v1", "config"]):
                return {"defaults": {}, "overrides": {}}
            case ("POST", ["v1", "namespaces"]):
                given = json.loads(body)
                catalog.create_namespace(tuple(given["namespace"]), given["properties"])
                return given
            case ("GET" | "HEAD", ["v1", "namespaces", namespace]):
                levels = namespace.split(SEPARATOR)
                return {"namespace": levels, "properties": catalog.load_namespace_properties(tuple(levels))}
            case ("GET", ["v1", "namespaces", namespace, "tables"]):
                found = catalog.list_tables(tuple(namespace.split(SEPARATOR)))
                return {"identifiers": [{"namespace": each[:-1], "name": each[-1]} for each in found]}
            case ("POST", ["v1", "namespaces", namespace, "tables"]):
                return self.create(tuple(namespace.split(SEPARATOR)), CreateTableRequest.model_validate_json(body))
            case ("GET" | "HEAD", ["v1", "namespaces", namespace, "tables", name]):
                return described(catalog.load_table((*namespace.split(SEPARATOR), name)))
            case ("DELETE", ["v1", "namespaces", namespace, "tables", name]):
                catalog.drop_table((*namespace.split(SEPARATOR), name))
                return None
        raise NoSuchNamespaceError(f"{self.command} {self.path}: this catalog does not serve that")

    def create(self, namespace: tuple[str, ...], given: CreateTableRequest) -> Any:
        if given.partition_spec is None or given.write_order is None:
            raise CommitFailedException("a partition spec and a sort order are expected")
        made = self.server.catalog.create_table(
            (*namespace, given.name), given.table_schema, given.location, given.partition_spec, given.write_order,
            given.properties,
        )  # fmt: skip
        self.lose_answer()
        return described(made)

    def lose_answer(self) -> None:
        if self.server.lost_answers:
            self.server.lost_answers -= 1
            self.close_connection = True

    def commit(self, identifier: tuple[str, ...], body: bytes) -> Any:
        server = self.server
        if (hook := server.before_commit) is not None:
            server.before_commit = None
            hook()
        if server.statuses:
            status = server.statuses.pop(0)
            self.answer(status, {"error": {"message": "told to", "type": "Told", "code": status}})
            self.close_connection = True
            return None
        given = CommitTableRequest.model_validate_json(body)
        with server.lock:
            table = server.catalog.load_table(identifier)
            found = server.catalog.commit_table(table, given.requirements, given.updates)
        self.lose_answer()
        return {"metadata-location": found.metadata_location, "metadata": json.loads(found.metadata.model_dump_json())}


def described(table: Table) -> Any:
    return {
        "metadata-location": table.metadata_location,
        "metadata": json.loads(table.metadata.model_dump_json()),
        "config": {},
    }


@contextmanager
def rest_catalog(folder: Path) -> Iterator[RestCatalogServer]:
    """Run a server whose database is in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    server = RestCatalogServer(folder)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield server
    finally:
        server.end_of_silence.set()
        server.shutdown()
        thread.join()
        server.server_close()
        server.catalog.close()
