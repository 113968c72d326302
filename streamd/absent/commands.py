"""The commands of Redis 8.6 that are not supported.

ACL rules and `rename-command` in files of Redis may name them: this has no effect, but is not an error.
"""

from __future__ import annotations

__all__ = ["FOREIGN_COMMANDS"]

_NAMES = """
    bitcount bitfield bitfield_ro bitop bitpos geoadd geodist geohash geopos georadius georadius_ro
    georadiusbymember georadiusbymember_ro geosearch geosearchstore getbit pfadd pfcount pfdebug pfmerge
    pfselftest setbit sort sort_ro vadd vcard vdim vemb vgetattr vinfo vismember vlinks vrandmember vrange
    vrem vsetattr vsim
"""

FOREIGN_COMMANDS = frozenset(_NAMES.split())
"""Names in lower case: `zadd`."""
