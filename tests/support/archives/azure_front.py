"""What Azurite lacks of Azure's lists, in which deltalake reads a log: those from a name on (`startFrom`).

    python azure_front.py PORT BACKEND

A server passes all requests on to BACKEND (host:port) as they are, since they are signed, and leaves out of its answers to lists
what comes before that name.
"""

from __future__ import annotations

import http.client
import http.server
import re
import sys
from html import unescape
from typing import Any
from urllib.parse import parse_qs, urlsplit

BLOB = re.compile(rb"<Blob><Name>(.*?)</Name>.*?</Blob>", re.DOTALL)
OF_THE_CONNECTION = {"transfer-encoding", "content-length", "connection", "keep-alive", "date"}


class Front(http.server.BaseHTTPRequestHandler):
    """One connection.

    server_behind  its address
    """

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server_behind: str

    def setup(self) -> None:
        super().setup()
        self.behind = http.client.HTTPConnection(self.server_behind)

    def finish(self) -> None:
        self.behind.close()
        super().finish()

    def log_message(self, *given: Any) -> None:
        """Nobody reads it."""

    def do_GET(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.behind.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            self.behind.putheader(name, value)
        self.behind.endheaders(content)
        reply = self.behind.getresponse()
        body = reply.read()
        size = reply.getheader("Content-Length", "0") if self.command == "HEAD" else None
        for start in parse_qs(urlsplit(self.path).query).get("startFrom", []):
            body = BLOB.sub(lambda found, start=start: found[0] if unescape(found[1].decode()) >= start else b"", body)
        self.send_response(reply.status)
        for name, value in reply.getheaders():
            if name.lower() not in OF_THE_CONNECTION:
                self.send_header(name, value)
        self.send_header("Content-Length", size or str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_PUT = do_POST = do_DELETE = do_GET


def main(port: str, backend: str) -> None:
    Front.server_behind = backend
    with http.server.ThreadingHTTPServer(("127.0.0.1", int(port)), Front) as server:
        server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
