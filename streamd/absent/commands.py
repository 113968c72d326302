"""The commands of Redis 8.6 that are not supported.

ACL rules and `rename-command` in files of Redis may name them: this has no effect, but is not an error.
"""

from __future__ import annotations

__all__ = ["FOREIGN_COMMANDS"]

_NAMES = """
    geoadd geodist geohash geopos georadius georadius_ro georadiusbymember georadiusbymember_ro geosearch
    geosearchstore pfdebug pfselftest sort sort_ro vadd vcard vdim vemb vgetattr vinfo vismember vlinks
    vrandmember vrange vrem vsetattr vsim
"""

FOREIGN_COMMANDS = frozenset(_NAMES.split())
"""Names in lower case: `zadd`."""
