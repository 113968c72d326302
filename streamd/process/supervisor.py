"""The supervisor of a server's process, systemd or upstart, and what it is told: `--supervised`.

systemd reads datagrams from the socket that NOTIFY_SOCKET names: READY=1, STOPPING=1, STATUS= and a text for people. upstart waits
until the process stops itself, once. Behaviour: Redis 8.6.
"""

from __future__ import annotations

import errno
import logging
import os
import signal
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streamd.settings.config import Config

__all__ = ["Supervisor"]

log = logging.getLogger("streamd")

SEND_TIMEOUT_S = 5.0
"""How long a supervisor that does not read may delay the server."""


class Supervisor:
    """
    kind  who supervises this process: systemd, upstart, or no: nobody, as in a program that embeds a server
    """

    def __init__(self) -> None:
        self.kind = "no"
        self._is_told = False

    def take_up(self, config: Config) -> None:
        """Find the supervisor that the settings ask for; `supervised auto` becomes what was found.

        Called before the process goes to the background, which a supervised process does not.
        """
        wanted = config.supervised
        if wanted == "auto":
            wanted = "upstart" if "UPSTART_JOB" in os.environ else "systemd" if "NOTIFY_SOCKET" in os.environ else "no"
        if wanted == "upstart" and _stop_for_upstart():
            self.kind = config.supervised = wanted
        elif wanted == "systemd":
            self._is_told = True
            if self.tell("STATUS=streamd is loading..."):
                log.info(
                    "Supervised by systemd. Please make sure you set appropriate values for TimeoutStartSec and"
                    " TimeoutStopSec in your service unit."
                )
                self.kind = config.supervised = wanted
            # Asked for by name, he is tried again each time.
            self._is_told = config.supervised == wanted

    def tell(self, text: str) -> bool:
        """Tell systemd, if it is to be told; returns whether it was. A failure is logged, and changes nothing."""
        if not self._is_told:
            return False
        address = os.environ.get("NOTIFY_SOCKET")
        if address is None:
            log.warning("systemd supervision error: NOTIFY_SOCKET not found!")
            return False
        try:
            _send(address, f"{text}\n".encode())
        except OSError as error:
            log.warning("systemd supervision error: sd_notify: %d", -(error.errno or errno.ETIMEDOUT))
            return False
        return True


def _send(address: str, message: bytes) -> None:
    """Send to a path, or with `@` before it to an abstract name; raises OSError."""
    if not address.startswith(("/", "@")):
        raise OSError(errno.EPROTO, "NOTIFY_SOCKET is not a socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.settimeout(SEND_TIMEOUT_S)
        sender.sendto(message, "\0" + address[1:] if address[0] == "@" else address)


def _stop_for_upstart() -> bool:
    """Stop this process until upstart has seen it; False when it is not upstart's."""
    if os.environ.pop("UPSTART_JOB", None) is None:
        log.warning("upstart supervision requested, but UPSTART_JOB not found!")
        return False
    log.info("supervised by upstart, will stop to signal readiness.")
    signal.raise_signal(signal.SIGSTOP)
    return True
