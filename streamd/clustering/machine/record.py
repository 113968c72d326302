"""cluster.json: what is recorded of a cluster on this machine."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from streamd.clustering.cluster_error import ClusterError
from streamd.disk import replace_file

__all__ = ["Member", "Record", "locked", "merge_settings", "read_record"]

NAME = "cluster.json"
LOCK = "lock"


@dataclass(frozen=True)
class Member:
    """A node: its port, and its ID, empty until it belongs to the cluster."""

    port: int
    id: str = ""


@dataclass(frozen=True)
class Record:
    """
    settings   directives that all nodes are started with: a name and its arguments
    replicas   of each primary, at first
    is_formed  whether the nodes have become a cluster
    """

    folder: Path
    members: tuple[Member, ...]
    replicas: int = 0
    settings: tuple[tuple[str, ...], ...] = ()
    is_formed: bool = field(default=False)

    def save(self) -> None:
        content = {
            "nodes": [{"port": each.port, "id": each.id} for each in self.members],
            "replicas": self.replicas,
            "settings": self.settings,
            "is_formed": self.is_formed,
        }
        replace_file(self.folder / NAME, (json.dumps(content, indent=1) + "\n").encode())

    def folder_of(self, member: Member) -> Path:
        return self.folder / str(member.port)

    def member_at(self, port: int) -> Member:
        """The node with a port. Raises ClusterError."""
        for each in self.members:
            if each.port == port:
                return each
        known = ", ".join(str(each.port) for each in self.members)
        raise ClusterError(f"{self.folder} has no node with the port {port}: its ports are {known}")

    def value_of(self, name: str) -> str:
        """The first argument of a setting that was given; empty if it was not."""
        return next((words[1] for words in self.settings if words[0] == name and len(words) > 1), "")

    def with_members(self, members: Sequence[Member]) -> Record:
        return replace(self, members=tuple(members))


def read_record(folder: Path) -> Record | None:
    """The record of a folder; None if it has none. Raises ClusterError for a damaged one."""
    path = folder / NAME
    try:
        found = json.loads(path.read_bytes())
        return Record(
            folder,
            tuple(Member(int(each["port"]), str(each["id"])) for each in found["nodes"]),
            int(found["replicas"]),
            tuple(tuple(map(str, words)) for words in found["settings"]),
            bool(found["is_formed"]),
        )
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, TypeError, KeyError) as error:
        raise ClusterError(f"{path} is damaged ({error}): restore it, or choose another --dir") from None


def merge_settings(old: Sequence[tuple[str, ...]], new: Sequence[tuple[str, ...]]) -> tuple[tuple[str, ...], ...]:
    """Directives, of which the new ones replace the old ones with the same name."""
    names = {words[0] for words in new}
    return (*(words for words in old if words[0] not in names), *new)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other commands away from a folder that exists. Raises ClusterError when one is at work."""
    fd = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ClusterError(
                f"Another command is changing the cluster in {folder}: try again when it has ended"
            ) from None
        yield
    finally:
        os.close(fd)
