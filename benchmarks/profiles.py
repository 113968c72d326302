"""Where the instructions of each path go: regenerates the tables of docs/performance.md, and leaves the text unchanged.

    python -m benchmarks.profiles

A table is put between `<!-- profile: TITLE -->` and `<!-- end -->`. Its rows are the most expensive functions of the
project, each including what it calls in Python, its extensions and the C library.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path

import click

from benchmarks.counted import IDLE, NOTHING, OPERATIONS
from benchmarks.instructions import counted_run, find_profiles
from benchmarks.profile import Profile

__all__ = ["PATHS", "fill_in", "find_shares", "render"]

PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
MOST = 8
LEAST = 0.02
"""Functions with a smaller share are not shown, nor those that add less to their callees."""

PATHS: dict[str, tuple[str, ...]] = {
    "append": ("XADD, pipeline 16",),
    "append of 1 KB": ("XADD of 1 KB, pipeline 16",),
    "range": ("XRANGE COUNT 100",),
    "group read and acknowledgement": ("XREADGROUP COUNT 100", "XACK of 100"),
    "claim": ("XCLAIM, pipeline 16",),
    "automatic claim": ("XAUTOCLAIM COUNT 100",),
    "publish": ("PUBLISH to 100",),
    "wake": ("message to a group with 100 waiting",),
    "load": ("snapshot: load",),
    "save": ("snapshot: save",),
}
"""The operations of each table, by its title; for several, their sum."""

ROOMS = (
    "values.",
    "engine.",
    "keyspace.",
    "core.",
    "pubsub.",
    "caching.",
    "protocol.",
    "persistence.",
    "memory.",
    "observe.",
    "users.",
    "heap.",
)

WORDS = {
    "core.args.parse_id": "words become IDs",
    "values.streams.xack.xack": "XACK",
    "values.streams.xclaim.xautoclaim": "XAUTOCLAIM",
    "values.streams.xclaim.xclaim": "XCLAIM",
    "pubsub.publish.publish": "PUBLISH",
    "values.streams.xread.reply_new": "new entries are delivered and become a reply",
    "values.streams.xread.wait": "the client is noted as waiting",
    "values.streams.xread.xread": "XREAD",
    "values.streams.xread.xreadgroup": "XREADGROUP",
    "values.streams.xrange.answer_range": "the range is found and answered",
    "values.streams.xadd_xtrim.xadd": "XADD",
    "values.streams.arguments.find_stream_for_write": "the key's stream is found",
    "values.streams.entry_replies.write_entries": "entries become a reply",
    "values.streams.entry_replies.write_entry": "an entry becomes a reply",
    "values.streams.entry_replies.write_fields": "its fields and values",
    "keyspace.database.Database.find_for_write": "the key is looked up",
    "keyspace.database.Database.find_record": "the key is looked up",
    "keyspace.database.Database.lookup": "the key is looked up",
    "values.streams.delivery.find_entry": "an entry is looked for in the stream",
    "values.streams.group.Group.forget": "an entry is pending no more",
    "values.streams.group.Group.hand_over": "a pending entry changes hands",
    "engine.listpack.lp_get": "an element of a listpack is read",
    "engine.listpack.lp_put_string": "a string goes into a listpack",
    "values.streams.pel_index.count_below": "records of a block are counted",
    "values.streams.pel_index.index_add": "a record's place is counted",
    "values.streams.pel.pel_remove": "a record is taken out of its block",
    "values.streams.pel_index.tidy_chunk": "a block is packed",
    "engine.rax.rax_floor": "the block is found in the radix tree",
    "engine.rax.search_down": "one way down the radix tree",
    "values.streams.stream.Stream.add_node": "a new node is begun",
    "values.streams.stream.Stream.adopt_node": "a node is checked and put into the stream",
    "values.streams.stream.Stream.append_args": "the entry goes into the node's listpack",
    "values.streams.stream.Stream.reserve": "the node's block grows",
    "values.streams.stream.cursor_next": "on to the next entry",
    "values.streams.stream.cursor_seek": "an ID is looked for in the stream",
    "values.streams.node_check.walk_node": "a node is checked, entry by entry",
    "values.streams.node_check.sound_int": "a number of a listpack is checked and read",
    "persistence.rdb.lzf.lzf_compress": "LZF",
    "persistence.rdb.lzf.lzf_expand": "LZF",
    "persistence.rdb.window.Window.get_block": "a string is read into a block of its own",
    "persistence.rdb.read.RdbReader.load": "the whole of it",
    "values.streams.loading.StreamLoader.load_node": "a node is read",
    "persistence.rdb.write.RdbWriter.hand_over": "a buffer goes to the file, with its checksum",
    "persistence.rdb.write.RdbWriter.put_compressed": "a node is compressed and written",
    "values.streams.saving.put_stream": "a stream is written",
    "persistence.rdb.write.RdbWriter.reserve": "room in the buffer",
    "persistence.rdb.write.RdbWriter.write": "the whole of it",
    "protocol.reply.ReplyWriter.bulk_id": "an ID as text",
    "protocol.reply.ReplyWriter.consume": "what has been sent is forgotten",
    "protocol.reply.ReplyWriter.grow": "the reply's block grows",
    "protocol.reply.ReplyWriter.raw_c": "bytes are copied into the output",
    "protocol.request.RequestParser.add": "an argument joins the request",
    "protocol.request.RequestParser.feed": "received bytes are kept",
    "protocol.request.RequestParser.next_request": "bytes become a request",
    "protocol.request.RequestParser.read_bulk_len": "the length of an argument",
    "protocol.request.RequestParser.read_count": "the number of arguments",
    "protocol.request.RequestParser.read_plain_arguments": "arguments become bytes objects",
    "protocol.request.new_argument": "an argument becomes a bytes object",
    "core.blocking.BlockedClients.serve": "a waiting client gets its entries",
    "core.blocking.BlockedClients.serve_line": "... those of one line, a group, until there is no more",
    "core.blocking.BlockedClients.serve_key": "those who wait for a key",
    "core.blocking.BlockedClients.serve_ready": "all keys that something has come for",
    "core.client.Client.data_received": "the loop hands over what it has read",
    "core.client.Client.deliver_parts": "a message is added to a subscriber's output",
    "core.client.Client.flush": "the output is sent",
    "core.client.Client.send_some": "... with one system call, and counted",
    "core.client.Client.want_write": "the client is noted for the end of the turn",
    "core.turn.Turn.before_sleep": "the end of a turn: replies are sent",
    "core.dispatch.Dispatcher.call": "the handler, and its errors",
    "core.dispatch.Dispatcher.count": "the command is counted",
    "core.dispatch.Dispatcher.execute": "from a request to its reply",
    "core.route.Routes.find": "the command is found by its name",
    "core.dispatch.Dispatcher.perform": "the command, counted and timed",
    "core.dispatch.Dispatcher.process": "requests are taken and run",
    "core.dispatch.Dispatcher.run": "the command, and what follows from it",
    "core.dispatch.Dispatcher.serve_ready": "clients that wait for the key are served",
    "core.dispatch.ServerContext.block_on": "the client waits",
    "pubsub.hub.Hub.publish": "the message goes to all who want it",
}
"""What each function in a table does; one that is not here has an empty cell, which the command tells and a test refuses."""


def find_shares(profiles: list[Profile], overhead: float) -> list[tuple[str, float]]:
    """The functions that take most, with what they call, and their shares of all but `overhead`; the largest first.

    One that does little but call another is left out for the other.
    """
    costs: dict[str, int] = defaultdict(int)
    calls: set[tuple[str, str]] = set()
    for profile in profiles:
        calls |= profile.calls.keys()
        for function, cost in profile.inclusive.items():
            if function.startswith(ROOMS) and not function.endswith("(arguments)"):
                costs[function] += cost
    total = sum(profile.total for profile in profiles) - overhead
    shares = {function: min(1.0, cost / total) for function, cost in costs.items()}
    for caller, callee in calls:
        if caller != callee and caller in costs and costs.get(callee, 0) >= costs[caller] - LEAST * total:
            shares.pop(caller, None)
    found = [share for share in shares.items() if share[1] >= LEAST]
    return sorted(found, key=lambda share: (-share[1], share[0]))[:MOST]


def render(shares: list[tuple[str, float]]) -> str:
    """A table in Markdown."""
    lines = ["| function | share | what it does |", "|---|---:|---|"]
    for function, share in shares:
        lines.append(f"| `{function}` | {share:.0%} | {WORDS.get(function, '')} |")
    return "\n".join(lines)


def fill_in(page: str, tables: dict[str, str]) -> str:
    """The page with its tables replaced; raises KeyError for one that is not known."""

    def replaced(match: re.Match[str]) -> str:
        return f"{match[1]}\n{tables[match[2]]}\n{match[3]}"

    return re.sub(r"(<!-- profile: (.+?) -->)\n.*?(<!-- end -->)", replaced, page, flags=re.DOTALL)


@click.command(help=__doc__.partition("\n")[0] if __doc__ else None)
def main() -> None:
    with counted_run() as folder:
        profiles = find_profiles(folder)
        brackets = {told["name"]: told["brackets"] for told in json.loads((folder / "told.json").read_text())}
    has_turns = {operation.name: operation.has_turns for operation in OPERATIONS}
    tables = {}
    for title, names in PATHS.items():
        overhead = 0.0
        for name in names:
            empty = IDLE if has_turns[name] else NOTHING
            overhead += profiles[empty].total / brackets[empty] * brackets[name]
        shares = find_shares([profiles[name] for name in names], overhead)
        for function in (function for function, _ in shares if function not in WORDS):
            click.echo(f"{title}: {function} has no words in benchmarks/profiles.py: its cell is empty", err=True)
        tables[title] = render(shares)
    PAGE.write_text(fill_in(PAGE.read_text(), tables))


if __name__ == "__main__":
    main()
