"""Payloads of DUMP and RESTORE, according to the server's settings."""

from __future__ import annotations

import logging

from streamd.core.capability import Capability
from streamd.core.host import Host
from streamd.errors import WRONG_PAYLOAD, CommandError, CorruptFileError
from streamd.persistence.rdb.format import LoadOptions, WriteOptions, lossless_form
from streamd.persistence.rdb.read import PayloadError, restore_value
from streamd.persistence.rdb.write import dump_value

__all__ = ["Payloads"]

log = logging.getLogger("streamd")


class Payloads(Capability):
    """What the commands DUMP and RESTORE need from the server."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def dump(self, value: object) -> bytes:
        """The payload of a value, in a lossless form."""
        config = self._host.config
        return dump_value(value, WriteOptions(lossless_form(config.rdb_form), compression=config.rdbcompression))

    def restore(self, payload: bytes) -> object:
        """The value of a payload; raises CommandError when it is not valid."""
        try:
            return restore_value(payload, LoadOptions(context=self._host.dispatcher.context))
        except PayloadError as error:
            raise CommandError(WRONG_PAYLOAD) from error
        except (CorruptFileError, MemoryError) as error:  # a few bytes may claim to expand to many
            log.debug("RESTORE of a payload that is damaged: %s", error)
            raise CommandError("ERR Bad data format") from error
