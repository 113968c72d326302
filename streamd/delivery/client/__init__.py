"""Rules as programs set and read them, with any client of redis-py: for threads or asyncio, of one server or of a cluster.

    rule_values   how Python's values are written in requests and read from replies
    group_rules   STREAMD.GROUP, STREAMD.LAG, STREAMD.REDRIVE
    stream_rules  STREAMD.STREAM, STREAMD.COUNT

Nothing of the server is imported, nor redis-py: the caller passes a client.
"""

from streamd.delivery.client.group_rules import GroupRules, group
from streamd.delivery.client.stream_rules import Retain, StreamRules, stream

__all__ = ["GroupRules", "Retain", "StreamRules", "group", "stream"]
