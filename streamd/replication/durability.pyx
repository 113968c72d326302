# cython: language_level=3, boundscheck=False, wraparound=False
"""Durability: replies that leave only when what they acknowledge cannot be lost (min-replicas-durable).

A reply to a command that reads or writes data is held until the stream, up to the last change of data, is on this
server's disk and on those of N replicas, as their acknowledgements say (REPLCONF ACK ... FACK). Reads are held as well:
they may have seen what is not safe yet. Later replies of the same client wait behind held ones, so order is kept.

    reply  |  sendable  |  held: turn 1  |  held: turn 2  |  written in this turn  |
                         offset 1200      offset 1460       becomes held at its end

Requests go on meanwhile: what a client gets per second depends on how much it has in flight, not on the round trip.

Whose confirmations count, and from when on, is decided by views (standing.py): a primary serves nothing before N
replicas have joined its view, and nothing while fewer are connected.

A primary that is cut off from its replicas may not notice that they have joined another view, and what it read then is
old. So nothing is let go either while most of the Sentinels that have watched this server are silent: they send PING
every second, and replace a primary that has not answered for longer than this one waits (down-after-milliseconds).

When N replicas have not acknowledged for `min-replicas-durable-timeout`, the server fences itself: held replies are
replaced by NOREPLICAS errors (what they would have acknowledged may or may not survive a fail-over), and commands that
read or write data are refused, until N replicas have everything. So a primary that is cut off from its replicas
acknowledges nothing while one of them may have been promoted.

Invariants: `turns` is ordered by offset; a client has `sendable >= 0` exactly as long as it is in `holds`.
"""

cimport cython
from libc.stdint cimport int64_t

from collections import deque
import logging

from streamd.core.capability cimport Capability
from streamd.core.client cimport Client
from streamd.core.clock cimport monotonic_us
from streamd.core.dispatch cimport FENCED, Dispatcher
from streamd.core.info cimport HIDDEN, numbers
from streamd.core.route cimport FAILED, SEES_DATA, WRITE, Route

from streamd.errors import TOO_FEW_REPLICAS, ConfigError
from streamd.persistence.persistence import Persistence, do_nothing
from streamd.replication.replacement import Replacement
from streamd.replication.replication import Replication
from streamd.replication.views import Views
from streamd.replication.wait_commands import Waiting
from streamd.settings.declarations import declare, integer

__all__ = ["Durability"]

UNKNOWN = "NOREPLICAS Not enough replicas have confirmed this in time. It was executed, and may or may not be lost."

ASK_AGAIN_S = 0.001

log = logging.getLogger("streamd")

cdef enum:
    PING_PERIOD_US = 1000000    # how often Sentinels send PING

declare(
    "Replication",
    integer(
        "min-replicas-durable", 0, hi=1000, apply="refresh",
        doc="Send replies only when the writes that they acknowledge are on disk here and on this many replicas;"
        " needs appendonly.",
    ),
    integer(
        "min-replicas-durable-timeout", 5000, lo=1, hi=2**31 - 1, unit="milliseconds",
        doc="How long to wait for that before commands that read or write data are refused.",
    ),
    integer(
        "min-replicas-durable-to-start", 0, hi=1000,
        doc="How many replicas must have joined before a server that has started or was promoted serves data, if more"
        " than min-replicas-durable. With more than twice as many replicas: their number minus min-replicas-durable.",
    ),
    integer(
        "min-replicas-durable-sentinel-timeout", 3000, lo=0, hi=2**31 - 1, unit="milliseconds",
        doc="Send no such replies while most Sentinels have been silent for this long. Keep it below their"
        " down-after-milliseconds. 0: ignore Sentinels.",
    ),
)


@cython.final
cdef class Holds:
    """What is held of one client's replies."""

    cdef Client client
    cdef Py_ssize_t size              # bytes of the replies of earlier turns
    cdef Py_ssize_t replies           # how many there are in this turn
    cdef bint is_touched              # there are some in this turn


@cython.final
cdef class Held:
    """The replies that one client got in one turn."""

    cdef Holds holds
    cdef Py_ssize_t size              # bytes
    cdef Py_ssize_t replies
    cdef long long offset             # what must be safe before they leave
    cdef long long since_us           # monotonic


cdef int read_figures(object capability, int64_t *to) except -1:
    cdef Durability self = <Durability>capability
    if self.wanted == 0:
        to[0] = to[1] = to[2] = to[3] = to[4] = HIDDEN
        return 0
    to[0], to[1], to[2], to[3], to[4] = self.durable, self.is_fenced, self.is_watched, len(self.holds), self.refused
    return 0


@cython.final
cdef class Durability(Capability):
    """
    is_on      replies are held
    is_fenced  commands that read or write data are refused
    is_watched  most Sentinels have been heard lately; also true without Sentinels
    is_covered  as many replicas as must confirm are connected: no other primary has been established
    durable    the offset up to which the stream is safe; -1: not known
    refused    replies that were replaced by errors
    """

    cdef object host
    cdef Dispatcher dispatcher
    cdef readonly object config
    cdef object replication
    cdef object waiting
    cdef object views
    cdef object persistence
    cdef object tail
    cdef int wanted                   # replicas that the setting asks for; 0: it is off
    cdef readonly bint is_on
    cdef readonly bint is_fenced
    cdef readonly bint is_watched
    cdef readonly bint is_covered
    cdef long long begun_at           # the offset behind the beginning of the own view
    cdef object sentinels             # those that watch this server
    cdef long long looked_us          # monotonic: when that was found out
    cdef long long silence_us         # how long Sentinels may be silent; 0: for ever
    cdef long long trusted_us         # monotonic: what came earlier may have waited while this process was stopped
    cdef readonly long long durable
    cdef readonly long long refused
    cdef long long turn_offset        # the offset after the last change that a request of this turn may have seen
    cdef object turns                 # deque of Held, oldest first
    cdef object retry                 # timer for the next question to replicas; None: not set
    cdef list touched                 # of Holds: those with replies in this turn
    cdef dict holds                   # client ID -> Holds

    refusal_rank = 31
    info = {
        "replication": (
            numbers(
                "durable_offset durable_fenced durable_sentinels_heard durable_clients_waiting durable_replies_refused",
                read_figures,
            ),
        ),
    }

    def __init__(self, host):
        self.host = host
        self.dispatcher = host.dispatcher
        self.config = host.config
        self.replication = host.get(Replication)
        self.waiting = host.get(Waiting)
        self.views = host.get(Views)
        self.views.observers.append(self.follow_view)
        self.persistence = host.get(Persistence)
        self.tail = self.persistence.append_only.aof.tail
        self.server_bits = FENCED
        self.turns = deque()
        self.touched = []
        self.holds = {}
        self.sentinels = host.get(Replacement).sentinels
        self.is_watched = self.skips_turns = self.rests = True
        self.looked_us = monotonic_us()
        self.replication.role_observers.append(self.follow_role)

    # --- On and off ---------------------------------------------------------------------------------------------------

    def apply_settings(self):
        if self.config.min_replicas_durable and not self.config.appendonly:
            raise ConfigError("min-replicas-durable", "min-replicas-durable needs appendonly yes")
        self.wanted = self.config.min_replicas_durable
        self.silence_us = self.config.min_replicas_durable_sentinel_timeout * 1000
        self.follow_role()

    def follow_role(self):
        """Hold replies if the settings say so, and this is a primary."""
        cdef bint is_primary = not self.replication.is_replica or self.views.is_taking_over
        cdef bint is_wanted = self.config.min_replicas_durable > 0 and is_primary
        if is_wanted == self.is_on:
            return
        self.is_on = is_wanted
        self.skips_turns = not is_wanted
        self.dispatcher.reply_keeper = self if is_wanted else None
        self.persistence.before_sync = self.send_ahead if is_wanted else do_nothing
        if is_wanted:
            self.host.wake(self)
            self.follow_view()
        else:
            self.refuse_held()
            self.drop_fence()

    def follow_view(self):
        """Nothing is safe in a view that is not established: others may have more, or be the primary."""
        if self.is_on and not self.views.standing.is_established:
            self.durable = -1
            self.is_covered = False
            self.raise_fence()

    # --- Requests -----------------------------------------------------------------------------------------------------

    cpdef str find_refusal(self, Client client, Route route, list args):
        return TOO_FEW_REPLICAS if self.dispatcher.has_flags(client, route, SEES_DATA | WRITE) else None

    cdef int reply_written(self, Client client, int flags, size_t mark) except -1:
        cdef Holds holds = self.holds.get(client.id)
        cdef bint is_safe
        if client.blocked is not None or client.is_silent():
            return 0
        if holds is None:
            if not flags & SEES_DATA:
                return 0
            is_safe = self.dispatcher.effects.data_offset <= self.durable and self.is_covered
            if is_safe and self.is_watched and not self.was_stopped():
                return 0
            holds = Holds.__new__(Holds)
            holds.client = client
            client.sendable = <Py_ssize_t>mark
            self.holds[client.id] = holds
        holds.replies += 1
        if not holds.is_touched:
            holds.is_touched = True
            self.touched.append(holds)
            self.waiting.ask()
        self.turn_offset = self.dispatcher.effects.data_offset
        return 0

    def client_gone(self, Client client not None):
        self.holds.pop(client.id, None)
        if self.is_on:
            self.is_covered = self.is_covered and self.confirmed(client.id) >= 0

    # --- A turn -------------------------------------------------------------------------------------------------------

    def send_ahead(self):
        """Send the effects of this turn before they are synced here: disks then work at the same time.

        Nothing is acknowledged before all have it, so a replica may be ahead of a primary that dies.
        """
        if self.touched:
            self.waiting.put_question()
            for replica in self.replication.replicas.values():
                if replica.is_fed:
                    (<Client>replica.client).flush()

    cpdef int before_replies(self) except -1:
        """The replies of this turn wait for the stream as it is now."""
        cdef Holds holds
        cdef Held held
        for holds in self.touched:
            held = Held.__new__(Held)
            held.holds = holds
            held.size = <Py_ssize_t>holds.client.reply.length - holds.client.sendable - holds.size
            held.replies = holds.replies
            held.offset = self.turn_offset
            held.since_us = monotonic_us()
            holds.size += held.size
            holds.replies = 0
            holds.is_touched = False
            self.turns.append(held)
        self.touched.clear()
        if self.turns:
            self.advance()
        return 0

    def advance(self):
        """Acknowledgements have come, or the file was synced: let go what is safe."""
        cdef Held held
        cdef long long offset
        if not self.is_on or self.replication.is_replica or not self.establish():
            return
        offset = self.confirmed()
        self.is_covered = offset >= 0
        offset = min(self.tail.synced_offset, offset)
        if not self.watch() or not self.is_covered or offset < self.begun_at:
            return
        self.durable = max(self.durable, offset)
        while self.turns:
            held = self.turns[0]
            if held.offset > self.durable:
                break
            self.turns.popleft()
            self.let_go(held)
        if self.is_fenced and self.durable >= self.dispatcher.effects.data_offset:
            self.drop_fence()
        if self.turns and self.retry is None:
            # An acknowledgement may have left before the replica's file was synced.
            self.retry = self.dispatcher.loop.call_later(ASK_AGAIN_S, self.ask_again)

    def ask_again(self):
        """Ask replicas again while replies are held."""
        self.retry = None
        if self.turns:
            self.waiting.ask()

    def close(self):
        self.refuse_held()      # before clients are sent the rest of their replies
        if self.retry is not None:
            self.retry.cancel()

    cdef int let_go(self, Held held) except -1:
        cdef Holds holds = held.holds
        cdef Client client = holds.client
        if self.holds.get(client.id) is not holds:
            return 0
        holds.size -= held.size
        client.sendable += held.size
        if holds.size == 0 and not holds.is_touched:
            client.sendable = -1
            del self.holds[client.id]
        return client.send_later()

    cdef bint establish(self) except -1:
        """Establish this server's view as soon as enough replicas have joined; whether it is established."""
        if self.views.standing.is_established:
            return True
        if not self.views.can_establish(len(self.joined_offsets(0))):
            return False
        self.begun_at = self.dispatcher.effects.data_offset = self.views.establish()
        self.waiting.ask()
        return True

    cdef list joined_offsets(self, long long leaving):
        """What each replica that has joined this server's view has on disk; without the one that is leaving, by ID."""
        cdef object joined = self.views.has_joined
        return [
            each.fack_offset for client_id, each in self.replication.replicas.items()
            if client_id != leaving and joined(each)
        ]

    cdef long long confirmed(self, long long leaving=0) except -2:
        """What as many replicas as are needed have on disk; -1: there are not so many. See `joined_offsets`."""
        cdef list offsets = sorted(self.joined_offsets(leaving), reverse=True)
        cdef Py_ssize_t needed = self.config.min_replicas_durable
        return max(0, offsets[needed - 1]) if len(offsets) >= needed else -1

    def is_safe(self, long long offset):
        """Whether the stream up to `offset` cannot be lost, as far as that is promised. If not, replicas are asked."""
        if not self.is_on:
            return True
        self.advance()
        self.waiting.ask()
        return self.is_covered and self.durable >= offset

    # --- The fence ----------------------------------------------------------------------------------------------------

    def cron(self, long long now_ms):
        cdef Held held
        if not self.is_on:
            return
        self.advance()
        if self.turns:
            held = self.turns[0]
            if monotonic_us() - held.since_us > self.config.min_replicas_durable_timeout * 1000:
                self.give_up()
        if self.turns or self.is_fenced:
            self.waiting.ask()

    cdef int give_up(self) except -1:
        """Replies have waited for too long."""
        reason = "Most Sentinels have been silent"
        if self.is_watched:
            reason = f"Fewer than {self.config.min_replicas_durable} replicas have confirmed writes"
        log.warning(
            "%s for %d ms: commands that read or write data are refused until that changes."
            " Clients that were waiting: %d.",
            reason, self.config.min_replicas_durable_timeout, len(self.holds),
        )
        self.refuse_held()
        return self.raise_fence()

    # --- Sentinels ----------------------------------------------------------------------------------------------------

    cdef bint was_stopped(self) noexcept:
        """Whether this process has not run for long."""
        return self.silence_us and monotonic_us() - self.looked_us > self.silence_us // 2

    cdef bint watch(self) except -1:
        """Whether most Sentinels have been heard lately."""
        cdef double since
        if self.was_stopped():
            self.trusted_us = monotonic_us() + PING_PERIOD_US       # by then what had piled up has been read
        self.looked_us = monotonic_us()
        since = max(self.looked_us - self.silence_us, self.trusted_us) / 1e6
        self.is_watched = self.silence_us == 0 or self.sentinels.is_majority_heard(since)
        return self.is_watched

    cdef int raise_fence(self) except -1:
        self.is_fenced = True
        return self.dispatcher.change_state(FENCED, True)

    cdef int drop_fence(self) except -1:
        if self.is_fenced and self.is_on:
            log.info("Enough replicas have confirmed all writes: commands that read or write data are served again.")
        self.is_fenced = False
        self.dispatcher.change_state(FENCED, False)
        self.dispatcher.serve_held_back()
        return 0

    cdef int refuse_held(self) except -1:
        """Replace held replies by errors; what they would have acknowledged may survive or not."""
        cdef Held held
        cdef Holds holds
        cdef Client client
        cdef dict replies = {}
        for held in self.turns:
            replies[held.holds.client.id] = replies.get(held.holds.client.id, 0) + held.replies
        self.turns.clear()
        self.touched.clear()
        for holds in list(self.holds.values()):
            client = holds.client
            count = replies.get(client.id, 0) + holds.replies
            self.refused += count
            if client.is_subscribed or client.tracking is not None:
                client.close()  # messages among the replies cannot be told from them
                continue
            client.reply.truncate(<size_t>client.sendable)
            client.sendable = -1
            for _ in range(count):
                self.dispatcher.answer_error(client, None, FAILED, UNKNOWN)
            client.send_later()
        self.holds.clear()
        return 0

    def check_invariants(self):
        """Assert what the head of this file says."""
        cdef Held held
        cdef Holds holds
        cdef dict sizes = {}
        before = 0
        for held in self.turns:
            assert held.offset >= before, "turns are ordered"
            before = held.offset
            if self.holds.get(held.holds.client.id) is held.holds:
                sizes[held.holds.client.id] = sizes.get(held.holds.client.id, 0) + held.size
        for client_id, holds in self.holds.items():
            assert holds.client.id == client_id and holds.client.sendable >= 0
            assert holds.size == sizes.get(client_id, 0)
            assert <size_t>(holds.client.sendable + holds.size) <= holds.client.reply.length
