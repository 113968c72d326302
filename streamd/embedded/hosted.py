"""The process of a server that another program embeds: what hosts.ProcessHost starts.

Orders arrive on standard input, one line of JSON each: first the settings, then by how much to set its time forward, at last
how to stop. End of file, which comes however the program ends, also stops the server, as SIGTERM would. A line on standard
output reports the port, or what went wrong, and each advance is answered with one. The exit code is EX_IOERR when not all data could be written.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
import threading

from streamd.errors import StreamdError
from streamd.serve.app import ListenError, Server
from streamd.serve.loop_choice import run_in_new_loop
from streamd.settings.config import Config

__all__ = ["main"]


def main() -> None:
    """Serve until ordered to stop; does not return."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the program
    order = json.loads(sys.stdin.readline())
    # A single word stays as it is: for_embedding splits a text where a setting has several words.
    settings = {name: words[0] if len(words) == 1 else words for name, words in order["settings"].items()}
    config = Config.for_embedding(settings)
    sys.exit(run_in_new_loop(_serve(config, order["any_port"], order["lost_folder"]), config))


async def _serve(config: Config, any_port: bool, lost_folder: str | None) -> int:
    server = Server(config, any_port=any_port)
    try:
        await server.start()
    except ListenError as error:
        _say({"error": "ListenError", "text": str(error), "place": error.place})
        return 1
    except (StreamdError, OSError) as error:
        _say({"error": type(error).__name__, "text": str(error)})
        return 1
    _say({"port": server.port})
    loop = asyncio.get_running_loop()
    failed = is_lost = False

    def stop(line: str) -> None:
        nonlocal failed, is_lost
        is_lost = not line
        save = json.loads(line)["save"] if line else None
        if not server.request_shutdown(save=save):
            failed = True
            server.request_shutdown(force=True)

    def advance(by_us: int) -> None:
        try:
            server.advance(by_us)
        except Exception as error:
            _say({"error": type(error).__name__, "text": str(error)})
        else:
            _say({"advanced": by_us})

    def obey() -> None:
        while "advance" in (line := sys.stdin.readline()):
            loop.call_soon_threadsafe(advance, json.loads(line)["advance"])
        loop.call_soon_threadsafe(stop, line)

    threading.Thread(target=obey, name="orders", daemon=True).start()
    await server.wait_closed()
    await asyncio.sleep(0)
    if is_lost and lost_folder is not None:
        shutil.rmtree(lost_folder, ignore_errors=True)
    return os.EX_IOERR if failed else 0


def _say(words: dict[str, object]) -> None:
    print(json.dumps(words), flush=True)
