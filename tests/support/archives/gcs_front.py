"""What fake-gcs-server lacks of Google's XML interface, which obstore speaks: puts, whole and in parts, and lists from a name on.

    python gcs_front.py PORT BACKEND KIND

A server takes such requests, makes them requests of the JSON interface, and passes everything else on to BACKEND (host:port)
as it is. Conditions are judged by fake-gcs-server: in its uploads of KIND `multipart`, those of kind `media` ignore them. It
is a process of its own, since pyarrow keeps the interpreter to itself while it reads.
"""

from __future__ import annotations

import http.client
import http.server
import json
import re
import sys
import uuid
from html import unescape
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

CONTENTS = re.compile(rb"<Contents>.*?<Key>(.*?)</Key>.*?</Contents>", re.DOTALL)
BORDER = "border-of-two-parts"


class Front(http.server.BaseHTTPRequestHandler):
    """One connection.

    server_behind  its address
    kind           of the uploads that are made of puts
    uploads        in parts, which are not completed yet: their parts by number
    """

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server_behind: str
    kind: str
    uploads: dict[str, dict[int, bytes]] = {}

    def setup(self) -> None:
        super().setup()
        self.behind = http.client.HTTPConnection(self.server_behind)

    def finish(self) -> None:
        self.behind.close()
        super().finish()

    def log_message(self, *given: Any) -> None:
        return

    def do_GET(self) -> None:
        status, headers, body = self.ask(self.command, self.path, b"", {})
        after = self.asked().get("start-after")
        if after is not None:
            body = CONTENTS.sub(lambda found: found[0] if unescape(found[1].decode()) > after else b"", body)
        self.answer(status, headers, body)

    do_HEAD = do_DELETE = do_GET

    def do_PUT(self) -> None:
        content, asked = self.content(), self.asked()
        if "uploadId" in asked:
            self.uploads[asked["uploadId"]][int(asked["partNumber"])] = content
            self.answer(200, {"ETag": f'"{asked["partNumber"]}"'}, b"")
            return
        self.put(content)

    def do_POST(self) -> None:
        content, asked = self.content(), self.asked()
        if urlsplit(self.path).path.startswith(("/storage/", "/upload/")):  # of the JSON interface
            self.answer(*self.ask("POST", self.path, content, {"Content-Type": self.headers["Content-Type"]}))
            return
        if "uploads" in asked:
            upload = uuid.uuid4().hex
            self.uploads[upload] = {}
            self.answer_xml(
                f"<InitiateMultipartUploadResult><UploadId>{upload}</UploadId></InitiateMultipartUploadResult>"
            )
            return
        parts = self.uploads.pop(asked["uploadId"])
        self.put(b"".join(parts[number] for number in sorted(parts)), is_in_parts=True)

    def content(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def asked(self) -> dict[str, str]:
        query = parse_qs(urlsplit(self.path).query, keep_blank_values=True)
        return {name: values[0] for name, values in query.items()}

    def put(self, content: bytes, *, is_in_parts: bool = False) -> None:
        bucket, _, name = urlsplit(self.path).path.lstrip("/").partition("/")
        where = f"/upload/storage/v1/b/{bucket}/o?uploadType={self.kind}&name={quote(unquote(name), safe='')}"
        condition = self.headers.get("x-goog-if-generation-match")
        where += f"&ifGenerationMatch={condition}" if condition else ""
        media = "application/octet-stream"
        if self.kind == "multipart":
            about = json.dumps({"name": unquote(name)}).encode()
            head = f"--{BORDER}\r\nContent-Type: application/json\r\n\r\n".encode() + about
            middle = f"\r\n--{BORDER}\r\nContent-Type: {media}\r\n\r\n".encode()
            content, media = (
                head + middle + content + f"\r\n--{BORDER}--".encode(),
                f"multipart/related; boundary={BORDER}",
            )
        status, _, said = self.ask("POST", where, content, {"Content-Type": media})
        if status != 200:
            self.answer(status, {}, said)
        elif is_in_parts:
            self.answer_xml('<CompleteMultipartUploadResult><ETag>"1"</ETag></CompleteMultipartUploadResult>')
        else:
            made = json.loads(said)
            self.answer(200, {"ETag": made["etag"], "x-goog-generation": made["generation"]}, b"")

    def ask(self, method: str, path: str, body: bytes, more: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        headers = {name: value for name, value in self.headers.items() if name.lower() in ("range", "accept")}
        self.behind.request(method, path, body, {**headers, **more})
        reply = self.behind.getresponse()
        kept = {name: value for name, value in reply.getheaders() if name.lower() not in ("transfer-encoding", "date")}
        return reply.status, kept, reply.read()

    def answer_xml(self, text: str) -> None:
        self.answer(200, {"Content-Type": "application/xml"}, f'<?xml version="1.0"?>{text}'.encode())

    def answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        if self.command != "HEAD":
            headers = {name: value for name, value in headers.items() if name.lower() != "content-length"}
            headers["Content-Length"] = str(len(body))
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


def main(port: str, backend: str, kind: str) -> None:
    Front.server_behind, Front.kind = backend, kind
    with http.server.ThreadingHTTPServer(("127.0.0.1", int(port)), Front) as server:
        server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
