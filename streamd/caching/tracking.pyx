# cython: language_level=3, boundscheck=False, wraparound=False
"""Tracking: client-side caching. Clients cache what they read, and are notified when it has changed.

There are two modes, chosen by CLIENT TRACKING:

    by default   what a client reads is recorded in `table`; the first change of a key is reported to all that have read
                 it, and the key is removed until it is read again
    BCAST        nothing is recorded; all changes of keys with some prefixes are reported, together at the end of the
                 turn, except names of keys that the client's user may not read

The table holds IDs, not clients: one that has gone, or no longer tracks, leaves its IDs behind, and they are removed
with the first change of each key. When the table holds more keys than it may (`tracking-table-max-keys`), before each
request some are reported as if they had changed, those first that have not been read for the longest time.

Keys are known by name alone: keys of the same name in different databases are not distinguished.

The running client is notified after its reply (in a transaction: after EXEC's), others immediately. A client may have
another client notified in its place (REDIRECT); RESP2 has no other way, and that client must be a subscriber.

What must hold (check_invariants): `total_items` is the number of IDs in `table`; every client in an Audience tracks
with BCAST and has that prefix; every Audience has a client; `lengths` are those of the prefixes, counted in
`length_counts`; `unsent` has the audiences that have keys.

Behaviour: Redis 8.6.
"""

from libc.stdint cimport int64_t

from collections import Counter, OrderedDict

from streamd.core.spec import keys_of
from streamd.core.capability cimport Capability
from streamd.core.client cimport IN_MULTI, LIMITED, REPLY_ON, SUBSCRIBED, TRACKING, Client
from streamd.core.dispatch cimport TRACKING_FULL
from streamd.core.info cimport numbers
from streamd.core.route cimport Route

__all__ = ["ClientTracking", "Tracking", "tracking_of"]

cdef enum:
    ITEM_BYTES = 96     # memory of a key in the table, besides its name, and of each client that has read it
    EFFORT = 100        # keys that are removed before a request when there are too many; more when that is not enough

# What precedes the keys: in a push, and in a message to a subscriber in RESP2.
cdef bytes PUSH = b">2\r\n$10\r\ninvalidate\r\n"
cdef bytes MESSAGE = b"*3\r\n$7\r\nmessage\r\n$20\r\n__redis__:invalidate\r\n"


cdef class ClientTracking:
    """What one client has asked for with CLIENT TRACKING."""

    def __init__(
        self, *, long long redirect=0, bint is_bcast=False, bint is_optin=False, bint is_optout=False,
        bint is_noloop=False,
    ):
        self.redirect = redirect
        self.is_bcast = is_bcast
        self.is_optin = is_optin
        self.is_optout = is_optout
        self.is_noloop = is_noloop
        self.prefixes = []


def tracking_of(Client client not None) -> ClientTracking | None:
    """What a client has asked for; None while CLIENT TRACKING is off."""
    return client.tracking


cdef class Audience:
    def __cinit__(self, bytes prefix):
        self.prefix = prefix
        self.clients = {}
        self.keys = {}


class ForgottenTable:
    """The table as it was before a flush: freed in slices (lazyfree.Sliced), since it may hold a million keys."""

    def __init__(self, table):
        self._table = table

    @property
    def count(self):
        return len(self._table)

    def release_some(self, budget, trash):
        """Free at most `budget` keys; return how many were freed."""
        released = min(budget, len(self._table))
        for _ in range(released):
            self._table.popitem()
        return released


cdef int read_clients(object capability, int64_t *to) except -1:
    to[0] = (<Tracking>capability).client_count
    return 0


cdef int read_totals(object capability, int64_t *to) except -1:
    cdef Tracking self = <Tracking>capability
    to[0], to[1], to[2] = len(self.table), self.total_items, len(self.prefixes)
    return 0


cdef class Tracking(Capability):
    """Which clients have read what, and the messages that they get when it changes."""

    info = {
        "clients": (numbers("tracking_clients", read_clients),),
        "stats": (numbers("tracking_total_keys tracking_total_items tracking_total_prefixes", read_totals),),
    }
    refusal_rank = 100   # it refuses nothing: it acts before requests that nothing else refuses
    observer_rank = 10

    def __init__(self, host not None):
        self.dispatcher = host.dispatcher
        self.config = host.config
        self.trash = host.trash
        self.server_bits = TRACKING_FULL
        self.dispatcher.read_observer = self
        host.memory_users.append(self)
        self.table = OrderedDict()
        self.prefixes = {}
        self.unsent = {}
        self.length_counts = Counter()
        self.lengths = []
        self.pending = []
        self.ranges = {}
        self.effort = EFFORT
        self.flush_command = -1

    # --- CLIENT TRACKING, CLIENT CACHING -------------------------------------------------------------------------

    def enable(self, Client client not None, ClientTracking wanted not None, list prefixes not None):
        """CLIENT TRACKING ON. `prefixes` are added to those that the client has; with BCAST, none means all keys."""
        cdef ClientTracking old = client.tracking
        cdef Audience audience
        if old is None:
            self.client_count += 1
        else:
            wanted.is_caching = old.is_caching
            wanted.prefixes = old.prefixes
        client.tracking = wanted
        client.change_state(TRACKING, True)
        if wanted.is_bcast:
            for prefix in prefixes or [b""]:
                audience = self.prefixes.get(prefix)
                if audience is None:
                    audience = self.prefixes[prefix] = Audience(prefix)
                    self.length_counts[len(prefix)] += 1
                if client.id not in audience.clients:
                    audience.clients[client.id] = client
                    client.hold_name(prefix)
                    wanted.prefixes.append(prefix)
            wanted.prefixes.sort()
            self.lengths = sorted(self.length_counts)
        self.refresh()

    def disable(self, Client client not None):
        """CLIENT TRACKING OFF, or the end of the client. What it has read stays in the table."""
        cdef ClientTracking record = client.tracking
        cdef Audience audience
        if record is None:
            return
        for prefix in record.prefixes:
            audience = self.prefixes[prefix]
            del audience.clients[client.id]
            client.drop_name(prefix)
            if not audience.clients:
                del self.prefixes[prefix]
                self.unsent.pop(prefix, None)
                self.length_counts[len(prefix)] -= 1
                if not self.length_counts[len(prefix)]:
                    del self.length_counts[len(prefix)]
        if record.prefixes:
            self.lengths = sorted(self.length_counts)
        if self.pending and client is self.dispatcher.executing:
            self.former = record
        client.tracking = None
        client.change_state(TRACKING, False)
        self.client_count -= 1
        self.refresh()

    def set_caching(self, Client client not None):
        """CLIENT CACHING: the opposite of the mode's default, for the next command or transaction."""
        (<ClientTracking>client.tracking).is_caching = True

    def apply_settings(self):
        self.max_keys = self.config.tracking_table_max_keys

    def client_gone(self, Client client not None):
        self.disable(client)

    def client_reset(self, Client client not None):
        self.disable(client)

    def permissions_change(self):
        self.before_replies()

    def refresh(self):
        """Observe changed keys only while some client tracks."""
        self.dispatcher.key_changes.observe(self, self.is_used())

    cdef bint is_used(self) noexcept:
        """Whether it matters that a key changes."""
        return self.client_count > 0 or self.total_items > 0

    @property
    def total_keys(self):
        """Number of keys in the table."""
        return len(self.table)

    cpdef long long memory(self) except -1:
        """About how many bytes `table` takes."""
        return self.table_names_size + (len(self.table) + self.total_items) * ITEM_BYTES

    @property
    def total_prefixes(self):
        return len(self.prefixes)

    @property
    def max_keys(self):
        """The setting tracking-table-max-keys; 0: no limit."""
        return self._max_keys

    @max_keys.setter
    def max_keys(self, long long limit):
        self._max_keys = limit
        self.effort = EFFORT
        self.dispatcher.change_state(TRACKING_FULL, 0 < limit < len(self.table))

    # --- What clients read ---------------------------------------------------------------------------------------

    cdef int command_read(self, Client client, Route route, list args) except -1:
        """Record the keys of a read-only command that a tracking client has run."""
        cdef ClientTracking record = client.tracking
        if record.is_bcast or (record.is_optin and not record.is_caching) or (record.is_optout and record.is_caching):
            return 0
        for key in self.request_keys(route.command, args):
            self.add_item(key, client.id)
        if 0 < self._max_keys < len(self.table):
            self.dispatcher.change_state(TRACKING_FULL, True)
        return 0

    cdef list request_keys(self, object command, list args):
        """The keys of a request."""
        cdef Py_ssize_t first, last, step
        found = self.ranges.get(command, command)
        if found is command:
            found = None if command.has_movable_keys or not command.legacy_keys[0] else command.legacy_keys
            self.ranges[command] = found
        if found is None:
            return [args[use.position] for use in keys_of(command, args)]
        first, last, step = found
        if last < 0:
            last += len(args)
        return args[first:last + 1:step]

    cdef int add_item(self, bytes key, long long client_id) except -1:
        """Record that a client has read a key. A single reader needs no set."""
        found = self.table.get(key)
        if found is None:
            self.table[key] = client_id
            self.table_names_size += len(key)
            self.total_items += 1
            return 0
        self.table.move_to_end(key)
        if type(found) is set:
            self.total_items += client_id not in <set>found
            (<set>found).add(client_id)
        elif found != client_id:
            self.table[key] = {found, client_id}
            self.total_items += 1
        return 0

    cdef int request_done(self, Client client, Route route) except -1:
        """CLIENT CACHING holds for one command, or one transaction, that follows it."""
        cdef ClientTracking record = client.tracking
        if record is not None and record.is_caching and client.blocked is None and not client.state & IN_MULTI:
            if route is None or not route.command.name.startswith("CLIENT "):
                record.is_caching = False
        return 0

    cpdef str find_refusal(self, Client client, Route route, list args):
        """Remove some keys, because there are too many; clients drop them as if they had changed."""
        cdef int left = self.effort
        while left and 0 < self._max_keys < len(self.table):
            key, ids = self.table.popitem(False)
            self.table_names_size -= len(<bytes>key)
            self.invalidate(key, ids)
            left -= 1
        if 0 < self._max_keys < len(self.table):
            self.effort += EFFORT
        else:
            self.effort = EFFORT
            self.dispatcher.change_state(TRACKING_FULL, False)
        return None

    # --- What changes --------------------------------------------------------------------------------------------

    cdef int key_touched(self, object db, bytes key, bint by_server) except -1:
        """A key has changed; `by_server`: not by the running command, but because it has expired or must make room."""
        if self.prefixes:
            self.note(key, by_server)
        ids = self.table.pop(key, None)
        if ids is not None:
            self.table_names_size -= len(key)
            self.invalidate(key, ids)
            if not self.client_count:
                self.refresh()
        return 0

    cdef int invalidate(self, bytes key, object ids) except -1:
        """Notify clients that a key, already removed from the table, has changed."""
        cdef Client client
        for client_id in ids if type(ids) is set else (ids,):
            self.total_items -= 1
            client = self.dispatcher.clients.get(client_id)
            if client is not None and client.state & TRACKING and not (<ClientTracking>client.tracking).is_bcast:
                self.tell(client, key)
        return 0

    cdef int tell(self, Client client, bytes key) except -1:
        """Notify a client of one key; the running one later, or not at all with NOLOOP."""
        if client is not self.dispatcher.executing:
            return self.send(client, one_key(key))
        if not (<ClientTracking>client.tracking).is_noloop:
            self.pending.append(key)
            self.dispatcher.has_after_reply = True
        return 0

    cdef int flushing(self, object db) except -1:
        """All keys of a database, or of several in one command, are deleted: the table is cleared, notified once."""
        cdef Client client
        cdef int db_index = db.index
        cdef Client executing = self.dispatcher.executing
        cdef bint is_notified = self.flush_command == self.dispatcher.total_commands and db_index > self.flush_index
        self.flush_command = self.dispatcher.total_commands
        self.flush_index = db_index
        if is_notified or not self.is_used():
            return 0
        self.trash.add(ForgottenTable(self.table))
        self.table = OrderedDict()
        self.total_items = self.table_names_size = 0
        # Redis lets a client that flushes wait until the memory is free, so that it is notified before the reply (of
        # FLUSHALL ASYNC, after it: that handler replies first).
        if executing is not None and not self.dispatcher.context.in_transaction and executing.reply_mode == REPLY_ON:
            self.dispatcher.executing = None
        try:
            for client in self.dispatcher.clients.values():
                if client.state & TRACKING:
                    if client is self.dispatcher.executing:
                        self.pending.append(None)
                        self.dispatcher.has_after_reply = True
                    else:
                        self.send(client, None)
        finally:
            self.dispatcher.executing = executing
        self.refresh()
        return 0

    cdef int unit_done(self, Client client) except -1:
        """Notify a client of its own changes, after its reply."""
        cdef list pending = self.pending
        self.pending = []
        self.dispatcher.has_after_reply = False
        for key in pending:
            self.send(client, None if key is None else one_key(key))
        self.former = None
        return 0

    # --- BCAST ---------------------------------------------------------------------------------------------------

    cdef int note(self, bytes key, bint by_server) except -1:
        """Keep a changed key for the clients that are notified at the end of the turn."""
        cdef Audience audience
        cdef Client author = None if by_server else self.dispatcher.executing
        for length in self.lengths:
            if length > len(key):
                break
            audience = self.prefixes.get(key[:length])
            if audience is None:
                continue
            audience.keys[key] = author if audience.keys.get(key, author) is author else None
            if not self.unsent:
                self.dispatcher.ask_before_replies()
            self.unsent[audience.prefix] = audience
        return 0

    cpdef int before_replies(self) except -1:
        """Send the keys changed since the last time, in one message for each prefix.

        Called at the end of a turn, and before users change: what has changed until then is sent to those who may read
        it now.
        """
        cdef Audience audience
        cdef Client client
        cdef dict changed, unsent = self.unsent
        cdef bytes everything
        self.unsent = {}
        for prefix in sorted(unsent):
            audience = unsent[prefix]
            changed = audience.keys
            audience.keys = {}
            everything = None
            for client in audience.clients.values():
                if client.state & LIMITED or (<ClientTracking>client.tracking).is_noloop:
                    keys = keys_for(client, changed)
                    if keys:
                        self.send(client, several_keys(keys))
                else:
                    if everything is None:
                        everything = several_keys(sorted(changed))
                    self.send(client, everything)
        return 0

    # --- Messages ------------------------------------------------------------------------------------------------

    cdef int send(self, Client client, bytes keys) except -1:
        """Send keys, an encoded array, to a client or the one that it redirects to; None: all keys."""
        cdef ClientTracking record = self.former if client.tracking is None else client.tracking
        cdef Client target = client
        cdef bytes message
        if record is not None and record.redirect:
            target = self.dispatcher.clients.get(record.redirect)
            if target is None or target.close_after_reply:
                record.is_broken = True
                if client.reply.resp > 2:
                    message = b">2\r\n$21\r\ntracking-redir-broken\r\n:%d\r\n" % record.redirect
                    client.deliver(message, len(message))
                return 0
        if target.reply.resp > 2:
            message = PUSH + (b"_\r\n" if keys is None else keys)
        elif record is not None and record.redirect and target.state & SUBSCRIBED:
            message = MESSAGE + (b"$-1\r\n" if keys is None else keys)
        else:
            return 0
        return target.deliver(message, len(message))

    # --- Self-check ----------------------------------------------------------------------------------------------

    def check_invariants(self):
        """Walk everything and assert that it is consistent."""
        cdef Audience audience
        cdef Client client
        assert self.total_items == sum([len(ids) if type(ids) is set else 1 for ids in self.table.values()])
        assert self.table_names_size == sum(map(len, self.table))
        assert self.length_counts == Counter(map(len, self.prefixes)) and self.lengths == sorted(self.length_counts)
        assert self.unsent == {prefix: audience for prefix, audience in self.prefixes.items() if audience.keys}
        for prefix, audience in self.prefixes.items():
            assert audience.prefix == prefix
            assert audience.clients, "a prefix has a client"
            for client in audience.clients.values():
                assert client.tracking.is_bcast and prefix in client.tracking.prefixes
        tracking = [client for client in self.dispatcher.clients.values() if client.tracking is not None]
        assert len(tracking) == self.client_count
        for client in tracking:
            assert client.state & TRACKING
            assert client.tracking.prefixes == sorted(client.tracking.prefixes)


cdef list keys_for(Client client, dict changed):
    """Changed keys of which a client is notified, sorted: not its own changes when it has asked for that (NOLOOP), and
    not what its user may not read.
    """
    cdef bint is_noloop = (<ClientTracking>client.tracking).is_noloop
    cdef list keys = [key for key, author in changed.items() if not is_noloop or author is not client]
    if client.state & LIMITED:
        allow = client.user.permissions.allow_reading
        keys = [key for key in keys if allow(key)]
    keys.sort()
    return keys


cdef bytes one_key(bytes key):
    return b"*1\r\n$%d\r\n%b\r\n" % (len(key), key)


cdef bytes several_keys(list keys):
    return b"*%d\r\n" % len(keys) + b"".join([b"$%d\r\n%b\r\n" % (len(key), key) for key in keys])
