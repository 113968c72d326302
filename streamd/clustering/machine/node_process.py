"""A node as a process of this machine."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from streamd.client.client_errors import ServerError, UnreachableError
from streamd.client.place import Place
from streamd.clustering.cluster_error import ClusterError
from streamd.clustering.deadline_waits import Patience
from streamd.clustering.machine.record import Member, Record
from streamd.clustering.node_connection import BUS_OFFSET, Node

__all__ = ["LOG", "MemberProcess"]

LOG = "streamd.log"
HOST = "127.0.0.1"


class MemberProcess:
    """A node of a record, which may run.

    node   it, over the wire
    child  its process, if this one has started it
    """

    def __init__(self, record: Record, member: Member) -> None:
        self.member = member
        self.folder = record.folder_of(member).absolute()
        self._settings = record.settings
        password = record.value_of("requirepass") or None
        self.node = Node(Place(HOST, member.port, password=password), member.port + BUS_OFFSET)
        self.child: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    def __str__(self) -> str:
        return f"node {self.member.port}"

    # --- Its beginning ---------------------------------------------------------------------------------------------------

    def arguments(self) -> list[str]:
        """The command line of the server."""
        own: list[tuple[str, ...]] = [
            ("port", str(self.member.port)),
            ("dir", str(self.folder)),
            ("cluster-enabled", "yes"),
        ]
        names = {words[0] for words in self._settings}
        if "bind" not in names:
            own.append(("bind", HOST))
        if "requirepass" in names and "masterauth" not in names:
            own += [("masterauth", *words[1:]) for words in self._settings if words[0] == "requirepass"]
        return [argument for name, *values in (*own, *self._settings) for argument in (f"--{name}", *values)]

    def start(self) -> None:
        """Start its process, without waiting."""
        self.folder.mkdir(exist_ok=True)
        with open(self.folder / LOG, "ab") as log:
            self._log_start = log.tell()
            # Not in the terminal's process group: Ctrl-C is for the command that has started it.
            self.child = subprocess.Popen(
                [sys.executable, "-m", "streamd", "server", *self.arguments()],
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    def wait_until_it_answers(self, patience: Patience) -> None:
        """Return when it accepts connections and has loaded its data. Raises ClusterError when it ends before that."""

        def answers() -> bool:
            if self.child is not None and self.child.poll() is not None:
                raise ClusterError(f"The {self} did not start: {self.last_words()}")
            return self.node.answers()

        while True:  # loading may last longer than any time-out
            patience.wait(answers, lambda: f"The {self} does not answer: see {self.folder / LOG}")
            if self._has_loaded():
                return
            patience.pause()

    def _has_loaded(self) -> bool:
        """Whether it runs commands. Raises ClusterError when it refuses this one."""
        try:
            self.node.cluster_info()
        except ServerError as error:
            if error.code != "LOADING":
                raise ClusterError(f"The {self} refuses this command: {error}") from None
            return False
        except UnreachableError:
            return False
        return True

    def last_words(self) -> str:
        """Why it has ended, as its log says since it was started."""
        with open(self.folder / LOG, "rb") as log:
            log.seek(self._log_start)
            lines = [line.strip() for line in log.read().decode(errors="replace").splitlines() if line.strip()]
        said = [re.sub(r"^\d+:\w .*? [.*#-] ", "", line) for line in lines]
        chosen = next((line for line in reversed(said) if not line.startswith(("***", ">>>", "Reading the"))), "")
        status = self.child.poll() if self.child is not None else None
        ended = (
            ""
            if status is None
            else f"exit status {status}"
            if status >= 0
            else f"ended by {signal.Signals(-status).name}"
        )
        return f"{chosen or 'it wrote nothing'} ({ended}, see {self.folder / LOG})"

    # --- While it runs ---------------------------------------------------------------------------------------------------

    def is_running(self) -> bool:
        """Whether the server at its port is this node. Raises ClusterError when it is another one."""
        try:
            folder = self.node.setting("dir")
        except UnreachableError:
            return False
        except ServerError as error:
            if error.code == "LOADING":
                return True
            raise ClusterError(
                f"The server at port {self.member.port} is not a node of this cluster: {error}"
            ) from None
        if not folder or Path(folder).resolve() != self.folder.resolve():
            raise ClusterError(f"The server at port {self.member.port} is not a node of this cluster, but in {folder}")
        return True

    # --- Its end ---------------------------------------------------------------------------------------------------------

    def request_stop(self) -> int:
        """Let it save its data and end; returns its process ID. Raises ClusterError when it refuses."""
        pid = int(self.node.info("server")["process_id"])
        # A server does not end before the append-only file is whole, which a replica begins when it has its snapshot.
        Patience().wait(
            lambda: self.node.info("persistence")["aof_rewrite_in_progress"] == "0",
            lambda: f"The {self} does not stop: it rewrites its append-only file; see {self.folder / LOG}",
        )
        try:
            with suppress(UnreachableError):  # it closes the connection when it ends
                self.node.ask("SHUTDOWN")
        except ServerError as error:
            raise ClusterError(f"The {self} does not stop: {error}; see {self.folder / LOG}") from None
        self.node.close()
        return pid

    def kill(self) -> None:
        """End the process that was started here, without saving anything."""
        self.node.close()
        if self.child is not None:
            self.child.kill()
            self.child.wait()

    def has_ended(self, pid: int) -> bool:
        if self.child is not None:
            return self.child.poll() is not None
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        return False
