"""Where an archive lies: a folder, or a prefix of an object store (`s3://`, `gs://`, `az://`).

An archive addresses its files by `Place`: a `pathlib.Path`, or an `ObjectPath`, which has those methods of it that archives
use. What changes files goes through a `Disk` (object_disk.py).

Object stores are spoken to by obstore, which takes credentials, region and endpoint from the environment (AWS_*, GOOGLE_*,
AZURE_*). What follows from their having no rename is described at `StreamWork.recover`.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamd.archive.archive_errors import ArchiveError

if TYPE_CHECKING:
    from obstore.store import ObjectStore

__all__ = [
    "ENDPOINTS",
    "ObjectPath",
    "ObjectReader",
    "Place",
    "files_below",
    "files_in",
    "folders_in",
    "parse_place",
    "plain_errors",
]

SCHEMES = ("s3", "gs", "az")
BUFFER = 8 << 20
"""Bytes of one request when an object is read from its start to its end."""
RETRY: Any = {"max_retries": 5, "retry_timeout": timedelta(seconds=30)}
CLIENT: Any = {"connect_timeout": "5s", "allow_http": True}
"""The endpoint, where one is named, decides whether it is HTTP."""

ENDPOINTS = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "gs": ("GOOGLE_BASE_URL",),
    "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}
"""Variables that name an endpoint, by scheme. obstore panics when one is no URL."""

METADATA_SERVICE = "169.254.169.254"
"""Where machines of a cloud ask for credentials, if they are given none."""

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)


@dataclass(frozen=True)
class Stat:
    """What a listing says of an object, under the names that os.stat uses."""

    st_size: int
    st_mtime: float

    @classmethod
    def of(cls, meta: Any) -> Stat:
        return cls(meta["size"], meta["last_modified"].timestamp())


class ObjectPath:
    """The address of an object, or of all objects below a prefix.

    url    of the whole store: `s3://bucket`
    key    below it, without a slash at either end
    known  what a listing has said of the object
    """

    __slots__ = ("_known", "key", "store", "url")

    def __init__(self, store: ObjectStore, url: str, key: str, known: Stat | None = None) -> None:
        self.store = store
        self.url = url
        self.key = key
        self._known = known

    def __str__(self) -> str:
        return f"{self.url}/{self.key}".rstrip("/")

    __fspath__ = __str__

    def __repr__(self) -> str:
        return f"ObjectPath({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectPath) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __lt__(self, other: ObjectPath) -> bool:
        return str(self) < str(other)

    # --- Names

    def __truediv__(self, name: str) -> Place:
        """As of a Path: an absolute path takes the place of everything, and is a file of this machine."""
        if name.startswith("/"):
            return Path(name)
        return self._at(f"{self.key}/{name}".strip("/"))

    def _at(self, key: str, known: Stat | None = None) -> ObjectPath:
        return ObjectPath(self.store, self.url, key, known)

    @property
    def scheme(self) -> str:
        return self.url.partition(":")[0]

    @property
    def name(self) -> str:
        return self.key.rpartition("/")[2]

    @property
    def parent(self) -> ObjectPath:
        return self._at(self.key.rpartition("/")[0])

    def with_suffix(self, suffix: str) -> ObjectPath:
        name = self.name
        stem = name.rpartition(".")[0] or name
        return self._at(f"{self.parent.key}/{stem}{suffix}".strip("/"))

    def relative_to(self, root: ObjectPath) -> Path:
        return Path(self.key).relative_to(root.key)

    # --- What is there

    def children(self) -> tuple[list[ObjectPath], list[ObjectPath]]:
        """The objects directly below this prefix, and the prefixes."""
        import obstore

        with plain_errors(self):
            found = obstore.list_with_delimiter(self.store, f"{self.key}/" if self.key else None)
        objects = [self._at(meta["path"], Stat.of(meta)) for meta in found["objects"]]
        return objects, [self._at(each) for each in found["common_prefixes"]]

    def below(self) -> Iterator[ObjectPath]:
        """All objects below this prefix."""
        import obstore

        with plain_errors(self):
            for batch in obstore.list(self.store, f"{self.key}/" if self.key else None):
                for meta in batch:
                    yield self._at(meta["path"], Stat.of(meta))

    def exists(self) -> bool:
        try:
            self.stat()
        except FileNotFoundError:
            return False
        return True

    def stat(self) -> Stat:
        import obstore

        with plain_errors(self):
            return self._known or Stat.of(obstore.head(self.store, self.key))

    # --- Content

    def read_bytes(self) -> bytes:
        import obstore

        with plain_errors(self):
            return bytes(obstore.get(self.store, self.key).bytes())

    def open(self, mode: str = "rb") -> io.BufferedReader:
        """For reading from the start to the end."""
        return io.BufferedReader(ObjectReader(self), BUFFER)


class ObjectReader(io.RawIOBase):
    """Reads an object in pieces, one request for each."""

    def __init__(self, path: ObjectPath) -> None:
        self._path = path
        self._size = path.stat().st_size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        import obstore

        view = memoryview(buffer)
        end = min(self._at + len(view), self._size)
        if end <= self._at:
            return 0
        with plain_errors(self._path):
            found = memoryview(obstore.get_range(self._path.store, self._path.key, start=self._at, end=end))
        view[: len(found)] = found
        self._at += len(found)
        return len(found)


Place = Path | ObjectPath


def parse_place(text: str) -> Place:
    """The place that a user names: a folder, `file:///folder`, or a URL of an object store. Raises ArchiveError."""
    if text.startswith("file:"):
        text = "/" + text.removeprefix("file:").lstrip("/")
    match = _URL.fullmatch(text)
    if match is None:
        scheme, is_scheme, rest = text.partition(":/")
        if is_scheme and scheme.lower() in SCHEMES:  # as pathlib writes an address, for one
            raise ArchiveError(f"{text}: an object store's address is written {scheme.lower()}://{rest}")
        if not is_text(text):
            raise ArchiveError(f"{text!r}: the path of an archive must be UTF-8, which Parquet's libraries need")
        return Path(text).absolute()
    scheme, rest = match[1].lower(), match[2]
    if scheme not in SCHEMES:
        raise ArchiveError(f"{text}: an archive is in a folder, or in an object store: {', '.join(SCHEMES)}")
    bucket, _, key = rest.strip("/").partition("/")
    if not bucket:
        raise ArchiveError(f"{text} has no bucket")
    try:
        from obstore.store import from_url
    except ModuleNotFoundError as error:
        raise ArchiveError(f"{error}: object stores need the extra `store`: ./install '.[store]'") from error
    for name in ENDPOINTS[scheme]:
        value = os.environ.get(name)
        if value is not None and not re.fullmatch(r"https?://[^/\s]\S*", value):
            raise ArchiveError(f"{name}={value}: an endpoint is written http://host:port or https://host")
    url = f"{scheme}://{bucket}"
    try:
        store = from_url(url, client_options=CLIENT, retry_config=RETRY)
    except Exception as error:  # obstore's own kinds, by store
        raise ArchiveError(f"{url}: {first_line(error)}") from error
    return ObjectPath(store, url, key)


def is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def files_in(folder: Place) -> list[Place]:
    """The files of a folder, which may be missing, in no particular order."""
    if isinstance(folder, ObjectPath):
        return list(folder.children()[0])
    return [each for each in folder.iterdir() if not each.is_dir()] if folder.is_dir() else []


def folders_in(folder: Place) -> list[Place]:
    """The folders of a folder, which may be missing, in no particular order."""
    if isinstance(folder, ObjectPath):
        return list(folder.children()[1])
    return [each for each in folder.iterdir() if each.is_dir()] if folder.is_dir() else []


def files_below(folder: Place) -> Iterator[Place]:
    """All files below a folder, which may be missing, in no particular order."""
    if isinstance(folder, ObjectPath):
        yield from folder.below()
    elif folder.is_dir():
        yield from (each for each in folder.rglob("*") if each.is_file())


class plain_errors:
    """Raises OSError for what obstore raises, with the address and the first line of what it says."""

    def __init__(self, path: ObjectPath) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        from obstore import exceptions

        if isinstance(error, exceptions.AlreadyExistsError | exceptions.PreconditionError):
            raise FileExistsError(17, "there is such an object already", str(self._path)) from None
        if isinstance(error, FileNotFoundError) and error.filename is None:
            raise FileNotFoundError(2, "there is no such object", str(self._path)) from None
        # Writers of objects raise plain ones.
        if isinstance(error, exceptions.BaseError) or type(error) is OSError:
            said = first_line(error)
            if METADATA_SERVICE in said:
                said = f"the environment has no credentials for {self._path.url}, nor does this machine: {said}"
            raise OSError(f"{self._path}: {said}") from error
