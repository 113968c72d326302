# cython: language_level=3
"""The lines that describe nodes in nodes.conf and in CLUSTER NODES; see nodes_conf.py for their form.

nodes.conf is written for each step of a slot that moves, while a client waits: so this is compiled.
"""

from .nodes import Flag
from .slots import ranges_of

__all__ = ["FLAG_NAMES", "describe_node", "format_state"]

FLAG_NAMES = (
    (Flag.MYSELF, "myself"),
    (Flag.PRIMARY, "master"),
    (Flag.REPLICA, "slave"),
    (Flag.PFAIL, "fail?"),
    (Flag.FAIL, "fail"),
    (Flag.HANDSHAKE, "handshake"),
    (Flag.NOADDR, "noaddr"),
    (Flag.NOFAILOVER, "nofailover"),
)

cdef int MYSELF = Flag.MYSELF
cdef int HANDSHAKE = Flag.HANDSHAKE

cdef dict flag_texts = {}       # those that have been written


def format_state(state not None):
    """The content of nodes.conf.

    Slots that their owner has stopped claiming are not among its slots: whoever reads this would tell others that it
    claims them.
    """
    cdef list lines = []
    hidden = state.unclaimed
    for node in state.nodes.values():
        if not <int>node.flags & HANDSHAKE:
            lines.append(describe(state, node, file_address(state, node), hidden))
    lines.append(f"vars currentEpoch {state.current_epoch} lastVoteEpoch {state.last_vote_epoch}\n")
    return "\n".join(lines).encode("latin-1")


def describe_node(state not None, node not None):
    """The line of a node in CLUSTER NODES."""
    port = node.tls_port if state.options.is_tls else node.port
    hostname = f",{node.hostname}" if node.hostname else ""
    return describe(state, node, f"{node.ip}:{port}@{node.bus_port}{hostname}", 0)


cdef str file_address(state, node):
    name = f",nodename={node.human_name}" if node.human_name else ""
    shard = (<bytes>node.shard_id).decode("latin-1")
    if state.options.is_tls:
        return f"{node.ip}:{node.tls_port}@{node.bus_port},{node.hostname},tcp-port={node.port}{name},shard-id={shard}"
    return f"{node.ip}:{node.port}@{node.bus_port},{node.hostname},tls-port={node.tls_port}{name},shard-id={shard}"


cdef str describe(state, node, str address, hidden):
    """The line of a node. hidden: slots to leave out."""
    cdef int flags = node.flags
    primary, link = node.primary, node.link
    epoch = node.config_epoch if primary is None else primary.config_epoch
    primary_id = "-" if primary is None else (<bytes>primary.id).decode("latin-1")
    is_connected = flags & MYSELF or (link is not None and link.is_open)
    if node.slots & hidden:
        slots = slot_text(node.slots & ~hidden)
    else:
        slots = node.slot_text
        if slots is None:
            slots = node.slot_text = slot_text(node.slots)
    text = (
        f"{(<bytes>node.id).decode('latin-1')} {address} {flag_text(flags)} {primary_id} {node.ping_sent_ms} "
        f"{node.pong_received_ms} {epoch} {'connected' if is_connected else 'disconnected'}{slots}"
    )
    return text + moving_text(state.migrating, state.importing) if flags & MYSELF else text


cdef str flag_text(int flags):
    cdef str text = flag_texts.get(flags)
    if text is None:
        text = flag_texts[flags] = ",".join([name for flag, name in FLAG_NAMES if flags & flag]) or "noflags"
    return text


cdef str slot_text(slots):
    return "".join([f" {first}" if first == last else f" {first}-{last}" for first, last in ranges_of(slots)])


cdef str moving_text(dict migrating, dict importing):
    """Slots that are being moved, by whom from here, and by whom to here."""
    cdef str text = ""
    for slot in sorted({*migrating, *importing}):
        if slot in migrating:
            text += f" [{slot}->-{migrating[slot].id.decode()}]"
        if slot in importing:
            text += f" [{slot}-<-{importing[slot].id.decode()}]"
    return text
