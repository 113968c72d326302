"""The types of values: a room for each, and the list of all of them.

A room holds everything about its type: its values in memory, their commands, their forms in files, and what their waiting clients
wait for. Its ValueType declares it to the rest of the server, which knows no type by name.
"""

from __future__ import annotations

from streamd.keyspace.value_type import register
from streamd.values.hashes.hash_type import HashType
from streamd.values.lists.list_type import ListType
from streamd.values.sets.set_type import SetType
from streamd.values.sorted_sets.sorted_set_type import SortedSetType
from streamd.values.streams.stream_type import StreamType
from streamd.values.strings.string_type import StringType

__all__ = ["VALUE_TYPES"]

VALUE_TYPES = (StringType(), HashType(), ListType(), SetType(), SortedSetType(), StreamType())
"""All types, those first of which there are most keys."""

for _type in VALUE_TYPES:
    register(_type)
