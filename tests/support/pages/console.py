"""A client of the console's HTTP side, as a browser would be one: with a cookie, an origin and the proof of its session."""

from __future__ import annotations

import json
from http.client import HTTPConnection, HTTPResponse
from typing import Any
from urllib.parse import quote

__all__ = ["Visitor"]

DEADLINE_S = 100.0


class Visitor:
    """Somebody who visits the console on a port.

    status, headers  of the last answer
    """

    def __init__(self, port: int) -> None:
        self.port = port
        self.cookie = ""
        self.proof = ""
        self.status = 0
        self.headers: dict[str, str] = {}

    def open(
        self, method: str, path: str, body: Any = None, **headers: str | None
    ) -> tuple[HTTPConnection, HTTPResponse]:
        """Send a request; a header given as None is left out, `_` in names stands for `-`."""
        sent: dict[str, str | None] = {"Host": f"127.0.0.1:{self.port}", "Cookie": self.cookie or None}
        if method != "GET":
            sent |= {
                "Origin": f"http://127.0.0.1:{self.port}",
                "Content-Type": "application/json",
                "X-Console-Proof": self.proof or None,
            }
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        connection = HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_S)
        connection.request(
            method,
            path,
            body=None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode(),
            headers={name: value for name, value in sent.items() if value is not None},
        )
        response = connection.getresponse()
        self.status, self.headers = response.status, dict(response.headers)
        return connection, response

    def ask(self, method: str, path: str, body: Any = None, **headers: str | None) -> bytes:
        connection, response = self.open(method, path, body, **headers)
        data = response.read()
        connection.close()
        return data

    def get(self, name: str, **parameters: str | bytes | int) -> Any:
        """What is at /api/NAME, with parameters."""
        query = "&".join(
            f"{key}={quote(value if isinstance(value, bytes) else str(value), safe='')}"
            for key, value in parameters.items()
        )
        return json.loads(self.ask("GET", f"/api/{name}?{query}"))

    def post(self, name: str, **body: Any) -> Any:
        return json.loads(self.ask("POST", f"/api/{name}", body))

    def log_in(self, user: str | None = None, password: str = "") -> Any:
        """Log in; without a user, as the default one that needs no password."""
        told = self.post("session", **({} if user is None else {"user": user, "password": password}))
        if self.status == 200:
            self.cookie, self.proof = self.headers["Set-Cookie"].partition(";")[0], told["proof"]
        return told
