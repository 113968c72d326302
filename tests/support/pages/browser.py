"""A headless Chromium, driven over its DevTools protocol: pages are opened, typed into, looked at and photographed.

    with Browser(folder) as browser:
        page = browser.open("http://127.0.0.1:8080/", width=400, is_dark=True)
        page.wait("document.querySelector('h1')")
        page.press("Tab")
        assert not page.complaints

The expressions are JavaScript; what they return comes as JSON. `complaints` are errors and violations of the content security policy.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import subprocess
import time
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import aiohttp

from ..tools import find_tool

__all__ = ["Browser", "Page"]

DEADLINE_S = 120.0
T = TypeVar("T")

OPTIONS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--mute-audio",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions",
    "--disable-default-apps", "--remote-debugging-port=0", "--remote-allow-origins=*", "--force-color-profile=srgb",
)  # fmt: skip
KEYS = {
    "Enter": (13, "\r"), "Tab": (9, ""), "Escape": (27, ""), " ": (32, " "), "Home": (36, ""), "End": (35, ""),
    "ArrowUp": (38, ""), "ArrowDown": (40, ""), "PageUp": (33, ""), "PageDown": (34, ""),
}  # fmt: skip


class DevToolsError(Exception):
    """What was asked for was not done; of a page, also since it is just replaced by another."""


class Browser:
    """A browser with a profile in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "chromium"
        self._loop = asyncio.new_event_loop()
        self._process = subprocess.Popen(
            [find_tool("chromium"), *OPTIONS, f"--user-data-dir={self._folder}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": str(folder), "TMPDIR": str(folder)},
        )
        self._number = 0
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self.pages: dict[str, Page] = {}
        try:
            self.run(self._connect())
        except BaseException:
            self._process.kill()
            self._process.wait()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(asyncio.wait_for(work, DEADLINE_S))

    async def _connect(self) -> None:
        place = self._folder / "DevToolsActivePort"
        while not place.exists() or len(place.read_text().split()) < 2:
            assert self._process.poll() is None, "chromium has ended"
            await asyncio.sleep(0.02)
        port, path = place.read_text().split()
        self._http = aiohttp.ClientSession()
        self._socket = await self._http.ws_connect(f"ws://127.0.0.1:{port}{path}", max_msg_size=0)
        self._reader = self._loop.create_task(self._read())

    async def _read(self) -> None:
        async for message in self._socket:
            said = json.loads(message.data)
            if "id" in said:
                self._answers.pop(said["id"]).set_result(said)
            elif (page := self.pages.get(said.get("sessionId", ""))) is not None:
                page.heard(said["method"], said["params"])

    async def send(self, method: str, session: str | None = None, **parameters: Any) -> Any:
        self._number += 1
        answer = self._answers[self._number] = self._loop.create_future()
        await self._socket.send_json(
            {"id": self._number, "method": method, "params": parameters}
            | ({} if session is None else {"sessionId": session})
        )
        said = await answer
        if "error" in said:
            raise DevToolsError(f"{method}: {said['error']['message']}")
        return said["result"]

    def open(self, url: str, *, width: int = 1280, height: int = 800, is_dark: bool = False) -> Page:
        """A page, in a context of its own: it shares no cookies with others."""
        return self.run(self._open(url, width, height, is_dark))

    async def _open(self, url: str, width: int, height: int, is_dark: bool) -> Page:
        context = (await self.send("Target.createBrowserContext"))["browserContextId"]
        target = await self.send("Target.createTarget", url="about:blank", browserContextId=context)
        session = (await self.send("Target.attachToTarget", targetId=target["targetId"], flatten=True))["sessionId"]
        page = self.pages[session] = Page(self, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self.send(f"{domain}.enable", session)
        await self.send(
            "Emulation.setDeviceMetricsOverride", session, width=width, height=height, deviceScaleFactor=1, mobile=False
        )
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}]
        await self.send("Emulation.setEmulatedMedia", session, features=scheme)
        await self.send("Page.navigate", session, url=url)
        return page

    async def _disconnect(self) -> None:
        # It ends its own processes, which write to the profile until then.
        await self.send("Browser.close")
        await self._socket.close()
        await self._http.close()
        await self._reader

    def close(self) -> None:
        try:
            self.run(self._disconnect())
            self._process.wait(DEADLINE_S)
        finally:
            self._process.kill()
            self._process.wait()
            self._loop.close()


class Page:
    """A page.

    complaints  errors so far, and what the content security policy forbade
    """

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self._session = session
        self.complaints: list[str] = []

    def heard(self, method: str, said: Any) -> None:
        if method == "Runtime.exceptionThrown":
            details = said["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Runtime.consoleAPICalled" and said["type"] in ("error", "assert"):
            self.complaints.append(" ".join(str(each.get("value", each.get("description"))) for each in said["args"]))
        elif method == "Log.entryAdded" and said["entry"]["level"] == "error":
            entry = said["entry"]
            if "the server responded with a status of" not in entry["text"]:
                self.complaints.append(f"{entry['text']} {entry.get('url', '')}")

    def call(self, method: str, **parameters: Any) -> Any:
        return self._browser.run(self._browser.send(method, self._session, **parameters))

    def js(self, expression: str) -> Any:
        """The value of an expression; promises are awaited."""
        found = self.call(
            "Runtime.evaluate",
            expression=expression,
            awaitPromise=True,
            returnByValue=True,
            userGesture=True,
            allowUnsafeEvalBlockedByCSP=False,
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait(self, expression: str, timeout_s: float = DEADLINE_S) -> Any:
        """Wait until an expression is true; its value."""
        deadline = time.monotonic() + timeout_s
        true_for_nodes = f"((found) => found instanceof Node ? true : found)({expression})"
        while True:
            with suppress(DevToolsError):
                if found := self.js(true_for_nodes):
                    return found
            assert time.monotonic() < deadline, (
                f"{expression} did not become true; {self.complaints}; the page: {self.text('body')[:600]}"
            )
            self._browser.run(asyncio.sleep(0.02))

    def text(self, selector: str = "main") -> str:
        found = self.js(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")
        assert isinstance(found, str)
        return found

    def reload(self) -> None:
        """Load the page anew, and wait until the old one is gone."""
        self.js("window.isOld = true")
        self.call("Page.reload")
        self.wait("!window.isOld && document.readyState === 'complete'")

    def go(self, address: str) -> None:
        """Change what follows `#` in the address."""
        self.js(f"location.hash = {json.dumps(address)}")

    def click(self, selector: str) -> None:
        self.wait(f"document.querySelector({json.dumps(selector)})")
        self.js(f"document.querySelector({json.dumps(selector)}).click()")

    def press(self, *keys: str) -> None:
        for key in keys:
            code, text = KEYS.get(key, (0, key))
            known = {"key": key, "windowsVirtualKeyCode": code, "nativeVirtualKeyCode": code, "text": text}
            self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", **known)
            self.call("Input.dispatchKeyEvent", type="keyUp", **known)

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def photograph(self, path: Path, *, whole: bool = False) -> None:
        found = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(found["data"]))
