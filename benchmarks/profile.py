"""What callgrind has counted for one operation, by function."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field

__all__ = ["Profile", "read_profile", "readable"]


@dataclass
class Profile:
    """
    total      instructions in all
    own        by function: in the function itself
    inclusive  by function: including what it calls; for recursive functions, each call is counted
    calls      by caller and callee: in the callee, including what it calls
    """

    total: int
    own: dict[str, int]
    inclusive: dict[str, int]
    calls: dict[tuple[str, str], int] = field(default_factory=dict)


def read_profile(text: str) -> Profile:
    """Read a file of callgrind, with neither names nor positions compressed."""
    own: dict[str, int] = defaultdict(int)
    inclusive: dict[str, int] = defaultdict(int)
    calls: dict[tuple[str, str], int] = defaultdict(int)
    function, called, is_call = "", "", False
    for line in text.splitlines():
        if line.startswith("fn="):
            function = readable(line[3:])
        elif line.startswith("cfn="):
            called = readable(line[4:])
        elif line.startswith("calls="):
            is_call = True
        elif line[:1].isdigit():
            cost = int(line.split()[1]) if " " in line else 0
            inclusive[function] += cost
            if is_call:
                calls[function, called] += cost
            else:
                own[function] += cost
            is_call = False
    return Profile(sum(own.values()), own, inclusive, calls)


def readable(symbol: str) -> str:
    """`__pyx_f_7streamd_6values_7streams_6stream_6Stream_append_args` -> `values.streams.stream.Stream.append_args`.

    A method that Python calls is two functions: the one that unpacks the arguments is marked.
    """
    symbol = symbol.partition("'")[0]  # the rest is the depth of recursion
    found = re.match(r"__pyx_(pw|pf|f|tp_new|tp_dealloc|getprop|setprop)_(?=\d)", symbol)
    if not found:
        return symbol
    rest, parts = symbol[found.end() :], []
    # Each name follows its length, except the last, which follows its number among the methods.
    while (match := re.match(r"(\d+)", rest)) and rest[match.end() + int(match[1]) :][:1] in ("_", ""):
        end = match.end() + int(match[1])
        parts.append(rest[match.end() : end])
        rest = rest[end + 1 :]
    if rest:
        parts.append(re.sub(r"^\d+", "", rest))
    name = ".".join(parts).removeprefix("streamd.")
    return f"{name} (arguments)" if found[1] == "pw" else name
