"""The event loop that a server runs in.

ServerLoop        waits for plain connections itself: see sockets/loop.py
uvloop's          is faster with transports: where TLS is configured, or `socket-poller no`
asyncio's own     where neither can be had
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from streamd.settings.config import Config
from streamd.sockets.loop import ServerLoop
from streamd.sockets.poller import is_supported

__all__ = ["has_uvloop", "run_in_new_loop"]

T = TypeVar("T")


def has_uvloop() -> bool:
    """Whether uvloop is installed. It has no wheels for some platforms, such as Windows."""
    try:
        import uvloop  # noqa: F401
    except ImportError:
        return False
    return True


def new_loop(config: Config) -> asyncio.AbstractEventLoop:
    if is_supported() and config.socket_poller and not config.tls_port:
        return ServerLoop()
    if has_uvloop():
        import uvloop

        return uvloop.new_event_loop()
    return asyncio.new_event_loop()


def run_in_new_loop(main: Coroutine[Any, Any, T], config: Config) -> T:
    """Run `main` to its end in an event loop of its own, of the kind that suits `config`."""
    with asyncio.Runner(loop_factory=lambda: new_loop(config)) as runner:
        return runner.run(main)
