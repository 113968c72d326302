"""From a request of HTTP to its answer: a file of the page, or what a function of `ANSWERS` returns.

/                     the page
/FILE                 its other files
/api/session          GET who is logged in; POST log in; DELETE log out
/api/NAME             as declared: streams.py, server_figures.py, write_actions.py, follow.py
"""

from __future__ import annotations

import hashlib
import json
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

from aiohttp import web

from streamd.client.client_errors import ServerError
from streamd.console import (
    cluster_nodes,
    doctor_findings,
    follow,
    other_keys,
    rule_views,
    search,
    server_figures,
    streams,
    write_actions,
)
from streamd.console.asked import ANSWERS, Asked, read_query
from streamd.console.guard import HEADERS, RefusedError, check
from streamd.console.inner_client import GoneError
from streamd.console.json_bytes import read_bytes
from streamd.console.sessions import LoginError, Session, Sessions
from streamd.core.host import Host
from streamd.observe.last_hour import History
from streamd.process.http_port import break_off, write

__all__ = ["Answers"]

log = logging.getLogger("streamd")

FOLDER = Path(__file__).parent / "page"
TYPES: Mapping[str, str] = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    "": "text/plain; charset=utf-8",
}
PIECE = 64 * 1024
REFUSALS = {"NOPERM": 403, "NOAUTH": 401, "LOADING": 503, "BUSY": 503, "MASTERDOWN": 503, "NOGROUP": 404}
"""The status of an error of the server, by its code; of others 409."""
DECLARING = (
    cluster_nodes,
    doctor_findings,
    follow,
    other_keys,
    rule_views,
    search,
    server_figures,
    streams,
    write_actions,
)
"""What they declare is in ANSWERS."""


class Answers:
    """What the console answers.

    sessions  those that are logged in
    history   the last hour
    port      what it listens on, for the name of the cookie: cookies do not tell ports apart
    """

    def __init__(self, host: Host, sessions: Sessions, history: History, port: Callable[[], int]) -> None:
        self._host = host
        self._sessions = sessions
        self._history = history
        self._port = port
        self._files = {
            "/" + path.relative_to(FOLDER).as_posix(): (TYPES[path.suffix], path.read_bytes())
            for path in FOLDER.rglob("*")
            if path.is_file()
        }
        self._files["/"] = self._files.pop("/index.html")
        self._tags = {name: f'"{hashlib.sha256(data).hexdigest()[:20]}"' for name, (_, data) in self._files.items()}

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            check(request.method, request.path, request.headers, self._host.config.http_hosts)
            if request.path in self._files:
                return self._file(request)
            if request.path == "/api/session":
                return await self._session(request)
            return await self._api(request)
        except RefusedError as error:
            return refusal(error.status, str(error))
        except LoginError as error:
            return refusal(401 if error.needs_password else 403, str(error))
        except ServerError as error:
            return refusal(REFUSALS.get(str(error).partition(" ")[0], 409), str(error))
        except GoneError as error:
            return refusal(401, str(error) or "The session has ended.")
        except ConnectionError:
            raise
        except web.HTTPException as error:
            return refusal(error.status, error.reason)
        except Exception:
            log.exception("console: %s %s failed", request.method, request.path)
            return refusal(500, "This is a bug; the log says more.")

    def _file(self, request: web.BaseRequest) -> web.Response:
        if request.method not in ("GET", "HEAD"):
            raise RefusedError(405, "Files are read with GET.")
        kind, data = self._files[request.path]
        headers = {**HEADERS, "Content-Type": kind, "Cache-Control": "no-cache", "ETag": self._tags[request.path]}
        if request.headers.get("If-None-Match") == headers["ETag"]:
            return web.Response(status=304, headers=headers)
        return web.Response(body=data, headers=headers)

    # --- Sessions ----------------------------------------------------------------------------------------------------

    @property
    def _cookie(self) -> str:
        return f"streamd-{self._port()}"

    def _find_session(self, request: web.BaseRequest) -> Session | None:
        return self._sessions.find(request.cookies.get(self._cookie, ""))

    async def _session(self, request: web.BaseRequest) -> web.Response:
        session = self._find_session(request)
        if request.method == "DELETE":
            if session is not None:
                prove(request, session)
                self._sessions.end(session)
            response = reply({})
            response.del_cookie(self._cookie, path="/", httponly=True, samesite="Strict")
            return response
        if request.method == "POST":
            body = await read_body(request)
            name, password = (read_bytes(body[each]) if each in body else None for each in ("user", "password"))
            transport = request.transport
            ends = [transport.get_extra_info(each) for each in ("peername", "sockname")] if transport else []
            if not all(ends):
                raise ConnectionResetError
            peer, local = (end[:2] for end in ends)
            found = await self._sessions.log_in(name or b"default", password, peer, local)
            if session is not None:
                self._sessions.end(session)
            response = reply(self._about(found))
            response.set_cookie(self._cookie, found.token, path="/", httponly=True, samesite="Strict")
            return response
        if session is None:
            raise RefusedError(401, "Nobody is logged in.")
        return reply(self._about(session))

    def _about(self, session: Session) -> dict[str, Any]:
        config = self._host.config
        return {
            "user": session.user, "proof": session.proof, "writes": config.http_allow_writes,
            "is_cluster": config.cluster_enabled,
        }  # fmt: skip

    # --- What is asked -----------------------------------------------------------------------------------------------

    async def _api(self, request: web.BaseRequest) -> web.StreamResponse:
        session = self._find_session(request)
        if session is None:
            raise RefusedError(401, "Nobody is logged in.")
        answer = ANSWERS.get((request.method, request.path.removeprefix("/api/")))
        if answer is None:
            raise RefusedError(404, "Nothing exists under this name.")
        body: dict[str, Any] = {}
        if request.method == "POST":
            prove(request, session)
            if not self._host.config.http_allow_writes:
                raise RefusedError(403, "The console is read-only: see the setting http-allow-writes.")
            body = await read_body(request)
        query = read_query(request.rel_url.raw_query_string)
        found = await answer(Asked(self._host, self._sessions, self._history, session, request, query, body))
        if isinstance(found, web.StreamResponse):
            return found
        if isinstance(found, AsyncIterator):
            return await send(request, found, "application/json")
        if isinstance(found, bytes):
            disposition = {"Content-Disposition": 'attachment; filename="value"'}
            return await send(request, pieces(found), "application/octet-stream", disposition)
        return reply(found)


def prove(request: web.BaseRequest, session: Session) -> None:
    """Refuse a request that does not come from the session's own page; raises RefusedError."""
    given = request.headers.get("X-Console-Proof", "").encode("utf-8", "surrogateescape")
    if not secrets.compare_digest(given, session.proof.encode()):
        raise RefusedError(403, "The request does not come from this session's page. Load it again.")


async def read_body(request: web.BaseRequest) -> dict[str, Any]:
    """The JSON object of a request; raises RefusedError."""
    data = await request.read()
    try:
        body = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise RefusedError(400, f"The request is not valid JSON: {error}") from None
    if not isinstance(body, dict):
        raise RefusedError(400, "A JSON object is expected.")
    return body


def reply(value: Any, status: int = 200) -> web.Response:
    data = json.dumps(value).encode()
    return web.Response(body=data, status=status, headers={**HEADERS, "Content-Type": "application/json"})


def refusal(status: int, text: str) -> web.Response:
    return reply({"error": text}, status)


async def pieces(data: bytes) -> AsyncIterator[bytes]:
    for at in range(0, len(data), PIECE):
        yield data[at : at + PIECE]


async def send(
    request: web.BaseRequest, found: AsyncIterator[Any], kind: str, headers: Mapping[str, str] | None = None
) -> web.StreamResponse:
    """Send pieces of text or bytes as they come, others having their turn between them."""
    response = web.StreamResponse(headers={**HEADERS, "Content-Type": kind, **(headers or {})})
    waiting, size = [], 0
    try:
        async for piece in found:
            waiting.append(piece.encode() if isinstance(piece, str) else piece)
            size += len(piece)
            if size >= PIECE:
                await write(request, response, b"".join(waiting))
                waiting, size = [], 0
    except Exception:
        if response.prepared:  # too late to say so
            break_off(request)
        raise
    await write(request, response, b"".join(waiting))
    return response
