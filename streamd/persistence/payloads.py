"""Payloads of DUMP and RESTORE, according to the server's settings."""

from __future__ import annotations

import logging

from streamd.core.capability import Capability
from streamd.core.host import Host
from streamd.errors import WRONG_PAYLOAD, CommandError, CorruptFileError
from streamd.persistence.rdb.crc64 import crc64
from streamd.persistence.rdb.format import LoadOptions, WriteOptions, lossless_form
from streamd.persistence.rdb.read import PayloadError, PayloadReader
from streamd.persistence.rdb.write import RdbWriter

__all__ = ["Payloads"]

log = logging.getLogger("streamd")


class Payloads(Capability):
    """What the commands DUMP and RESTORE need from the server."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._writer: RdbWriter | None = None  # both know the settings, and are made again when these change
        self._reader: PayloadReader | None = None

    def start(self) -> None:
        if self._host.config.cluster_enabled:
            crc64(b"")  # loads its library now, not while the first MIGRATE holds up both nodes

    def apply_settings(self) -> None:
        self._writer = self._reader = None

    def dump(self, value: object) -> bytes:
        """The payload of a value, in a lossless form."""
        if self._writer is None:
            config = self._host.config
            self._writer = RdbWriter(
                None, WriteOptions(lossless_form(config.rdb_form), compression=config.rdbcompression)
            )
        return self._writer.payload(value)

    def restore(self, payload: bytes) -> object:
        """The value of a payload; raises CommandError when it is not valid."""
        try:
            if self._reader is None:
                self._reader = PayloadReader(LoadOptions(context=self._host.dispatcher.context))
            return self._reader.read(payload)
        except PayloadError as error:
            raise CommandError(WRONG_PAYLOAD) from error
        except (CorruptFileError, MemoryError) as error:  # a few bytes may claim to expand to many
            log.debug("RESTORE of a payload that is damaged: %s", error)
            raise CommandError("ERR Bad data format") from error
