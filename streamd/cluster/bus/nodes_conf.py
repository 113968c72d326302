"""nodes.conf: what a node keeps over a restart, in Redis's format, as it is read. It is written by node_lines.pyx.

    <id> <ip>:<port>@<bus port>,<hostname>,tls-port=<n>[,nodename=<name>],shard-id=<id> <flags> <primary or -> <ping> <pong> <epoch> <link> <slots>
    vars currentEpoch <n> lastVoteEpoch <n>

A line for each node, without those in handshake; the one with the flag `myself` must exist exactly once. After the eighth column come
slots: `5`, `0-99`, and on the own line `[10->-<id>]`, which is being moved to a node, and `[10-<-<id>]`, from a node. Where the bus uses
TLS, `port` is that for clients with TLS, and `tcp-port=` is the other one. `ping` and `pong` are times; 0 for never.

Files of older versions are read as well: without bus port it is port + 10000, without shard id a random one.
"""

from __future__ import annotations

from random import Random

from streamd.errors import StreamdError

from .node_lines import FLAG_NAMES
from .nodes import Node, State, make_id
from .options import Local, Options
from .packets import is_hostname, is_human_name, is_id, parse_ip
from .slots import SLOT_COUNT, from_ranges

__all__ = ["NodesFileError", "parse_state"]

_FLAGS = {name: flag for flag, name in FLAG_NAMES} | {"noflags": 0}

_PORT_OFFSET = 10000


class NodesFileError(StreamdError):
    """A damaged nodes.conf. Its text contains the line."""

    def __init__(self, line: str) -> None:
        super().__init__(f'corrupted cluster config file "{line}".')
        self.line = line


# --- Reading -------------------------------------------------------------------------------------------------------------


def parse_state(content: bytes, options: Options, local: Local, random: Random, now_ms: int) -> State:
    """What a node knew when it wrote the file. Raises NodesFileError for a line that is damaged."""
    return _Parser(options, random, now_ms).parse(content, local)


class _Parser:
    """Lines may mention nodes whose own line comes later: these are made when they are mentioned, and filled then."""

    def __init__(self, options: Options, random: Random, now_ms: int) -> None:
        self._options = options
        self._random = random
        self._now_ms = now_ms
        self._nodes: dict[bytes, Node] = {}
        self._described: set[bytes] = set()
        self._primaries: list[tuple[Node, Node, str]] = []
        self._slots: list[tuple[Node, int, str]] = []
        self._moving: list[tuple[bool, int, Node]] = []
        self._epochs = {"currentEpoch": 0, "lastVoteEpoch": 0}

    def parse(self, content: bytes, local: Local) -> State:
        lines = content.decode("latin-1").split("\n")
        for line in lines:
            words = line.split()
            if not words:
                continue
            try:
                if words[0] == "vars":
                    self._read_vars(words[1:])
                else:
                    self._read_node(words, line)
            except ValueError:
                raise NodesFileError(line) from None
        return self._build(local, next((line for line in reversed(lines) if line.strip()), ""))

    def _build(self, local: Local, last_line: str) -> State:
        mine = [node for node in self._nodes.values() if node.is_myself]
        if len(mine) != 1 or self._described != set(self._nodes):
            raise NodesFileError(last_line)
        state = State(mine[0], self._options, local, self._random, self._now_ms)
        state.nodes = self._nodes
        for replica, primary, line in self._primaries:
            if replica is primary or not replica.is_replica:
                raise NodesFileError(line)
            state.attach(replica, primary)
        for node, slots, line in self._slots:
            if slots & state.assigned or (slots and not node.is_primary):
                raise NodesFileError(line)
            state.assign(slots, node)
        for is_migrating, slot, node in self._moving:
            (state.migrating if is_migrating else state.importing)[slot] = node
        state.last_vote_epoch = self._epochs["lastVoteEpoch"]
        state.current_epoch = self._epochs["currentEpoch"]
        state.current_epoch = state.greatest_epoch()
        state.must_save = state.must_sync = False
        state.sync_due_ms = 0
        state.left_slots = 0
        return state

    def _read_vars(self, words: list[str]) -> None:
        """Pairs of names and numbers; names of later versions are ignored."""
        for name, text in zip(words[::2], words[1::2], strict=True):
            if name in self._epochs:
                self._epochs[name] = _number(text)

    def _read_node(self, words: list[str], line: str) -> None:
        if len(words) < 8:
            raise ValueError
        node_id, address, flags, primary_id, ping, pong, epoch, _, *slots = words
        node = self._get(node_id)
        if node.id in self._described:
            raise ValueError
        self._described.add(node.id)
        self._read_address(node, address)
        for name in flags.split(","):
            if name not in _FLAGS:
                raise ValueError
            node.flags |= _FLAGS[name]
        if node.is_primary and node.is_replica:
            raise ValueError
        if node.is_failed:
            node.fail_ms = self._now_ms
        if primary_id != "-":
            self._primaries.append((node, self._get(primary_id), line))
        # What the times were is of no use now, but whether there were any is.
        node.ping_sent_ms = self._now_ms if _number(ping) else 0
        node.pong_received_ms = self._now_ms if _number(pong) else 0
        # The line of a replica contains the epoch of its primary.
        node.config_epoch = 0 if node.is_replica else _number(epoch)
        self._read_slots(node, slots, line)

    def _get(self, text: str) -> Node:
        node_id = text.encode("latin-1")
        if not is_id(node_id):
            raise ValueError
        if node_id not in self._nodes:
            self._nodes[node_id] = Node(node_id, 0, self._now_ms, make_id(self._random))
        return self._nodes[node_id]

    def _read_address(self, node: Node, text: str) -> None:
        address, *fields = text.split(",")
        ip, separator, ports = address.rpartition(":")
        port, _, bus_port = ports.partition("@")
        checked = parse_ip(ip.encode("latin-1"))
        if not separator or checked is None:
            raise ValueError
        node.ip = checked
        main = _number(port, 0xFFFF)
        other = 0
        node.bus_port = _number(bus_port, 0xFFFF) if bus_port else main + _PORT_OFFSET
        if fields:
            node.hostname = fields[0]
            if not is_hostname(fields[0].encode("latin-1")):
                raise ValueError
        is_tls = self._options.is_tls
        for field in fields[1:]:
            name, _, value = field.partition("=")
            raw = value.encode("latin-1")
            if name == "shard-id" and is_id(raw):
                node.shard_id = raw
            elif name == "nodename" and is_human_name(raw):
                node.human_name = value
            elif name in ("tcp-port", "tls-port"):
                other = _number(value, 0xFFFF)
                is_tls = name == "tcp-port"
            else:
                raise ValueError
        node.port, node.tls_port = (other, main) if is_tls else (main, other)

    def _read_slots(self, node: Node, words: list[str], line: str) -> None:
        ranges = []
        for word in words:
            if word.startswith("["):
                self._read_moving(node, word)
                continue
            first, separator, last = word.partition("-")
            low = _number(first, SLOT_COUNT - 1)
            high = _number(last, SLOT_COUNT - 1) if separator else low
            if high < low:
                raise ValueError
            ranges.append((low, high))
        self._slots.append((node, from_ranges(ranges), line))

    def _read_moving(self, node: Node, word: str) -> None:
        """`[10->-<id>]`, `[10-<-<id>]`."""
        slot, sign, other = word[1:-1].partition("->-" if "->-" in word else "-<-")
        if not word.endswith("]") or not sign or not node.is_myself:
            raise ValueError
        self._moving.append((sign == "->-", _number(slot, SLOT_COUNT - 1), self._get(other)))


def _number(text: str, greatest: int = 2**64 - 1) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) > greatest:
        raise ValueError
    return int(text)
