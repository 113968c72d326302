# cython: language_level=3, boundscheck=False, wraparound=False
"""Hub: who is subscribed to what, and how a published message reaches them.

There are three kinds of names, each a Namespace: channels, patterns of channels, and shard channels, which are
independent of the other two. A subscription is recorded twice: in the namespace (name -> clients) and in the client
(`Client.subscribed[kind]`: name -> the client's place in that list), so that neither end is ever searched.

A message is encoded once. RESP2 and RESP3 differ in its first byte only, `*` or `>`:

    |<---- head ---->|<----- tail ----->|
    *3 $7 message     $n channel $n payload          the first byte is set for each client, the rest is copied
    *4 $8 pmessage $n pattern | tail                 the head is stored with the pattern, the tail is the same

A long message is put together once for RESP2 and once for RESP3, and only linked to each client (`push_shared`).

Patterns are tried one after the other, in one loop over an array without Python objects. Most are rejected quickly:
each element holds the last eight bytes of the pattern's literal prefix, and only where the channel has the same bytes
in that place is the pattern itself matched. The last eight, because the first ones are often the same in all patterns
(`orders:...`).

What must hold: a name is in a namespace exactly as long as a client is subscribed to it; a client has the state
SUBSCRIBED, and the output class of subscribers, exactly as long as it has a subscription of any kind.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from streamd.engine.glob cimport Glob
from streamd.protocol.reply cimport ReplyWriter
from streamd.core.capability cimport Capability
from streamd.core.info cimport numbers
from streamd.core.route cimport FOR_SUBSCRIBERS, Route
from streamd.core.client cimport CLASS_NORMAL, CLASS_PUBSUB, SUBSCRIBED, Client
from streamd.shared_bytes cimport SHARED_LEAST, SharedBytes, shared_drop, shared_new

__all__ = ["Hub", "Namespace", "Patterns"]

cdef enum:
    CHANNELS            # the kinds, as Client.subscribed has them
    PATTERNS
    SHARD_CHANNELS

MESSAGE_HEAD = b"*3\r\n$7\r\nmessage\r\n"
SHARD_MESSAGE_HEAD = b"*3\r\n$8\r\nsmessage\r\n"


cdef inline uint64_t load_word(const char *p) noexcept nogil:
    """Eight bytes as one number, in any byte order."""
    cdef uint64_t value
    memcpy(&value, p, 8)
    return value


cdef uint64_t first_bytes(const char *p, Py_ssize_t n) noexcept nogil:
    """The first eight of n bytes as one number, padded with zeros."""
    cdef uint64_t value = 0
    memcpy(&value, p, <size_t>(n if n < 8 else 8))
    return value


cdef Py_ssize_t literal_length(const char *p, Py_ssize_t n) noexcept nogil:
    """Length of the literal prefix of a pattern."""
    cdef Py_ssize_t i = 0
    while i < n and p[i] != c'*' and p[i] != c'?' and p[i] != c'[' and p[i] != c'\\':
        i += 1
    return i


cdef int confirm(ReplyWriter reply, bytes what, bytes name, Py_ssize_t total) except -1:
    """Confirm one subscription, or its end, to a client; without a name, that there was none."""
    reply.push(3)
    reply.bulk(what)
    reply.bulk(name)
    return reply.integer(total)


# --- Names of one kind ----------------------------------------------------------------------------------------------

cdef class Namespace:
    """Names of one kind, and the clients subscribed to each. `len()` is the number of names."""

    def __cinit__(self, Hub hub, int kind, *args):
        self.hub = hub
        self.kind = kind
        self.is_sharded = kind == SHARD_CHANNELS
        self.names = {}

    def __len__(self):
        return len(self.names)

    def __iter__(self):
        """The names that have subscribers."""
        return iter(self.names)

    cdef list add_name(self, bytes name):
        """The empty list of the subscribers of a name that has none yet."""
        cdef list clients = []
        self.names[name] = clients
        return clients

    cdef list clients_of(self, bytes name):
        """The subscribers of a name, or None."""
        return self.names.get(name)

    cdef int drop_name(self, bytes name) except -1:
        """Remove a name without subscribers."""
        del self.names[name]
        return 0

    def count_clients(self, bytes name not None):
        """How many clients are subscribed to a name."""
        cdef list clients = self.clients_of(name)
        return 0 if clients is None else len(clients)

    def names_of(self, Client client not None):
        """The names that a client is subscribed to, in the order in which it subscribed, as a list."""
        return [] if client.subscribed is None else list(client.subscribed[self.kind])

    cdef Py_ssize_t total_of(self, Client client) except -1:
        """The number of subscriptions as reported to a client: sharded ones count alone, the others together."""
        if client.subscribed is None:
            return 0
        if self.is_sharded:
            return len(<dict>client.subscribed[SHARD_CHANNELS])
        return len(<dict>client.subscribed[CHANNELS]) + len(<dict>client.subscribed[PATTERNS])

    cpdef bint subscribe(self, Client client, bytes name) except -1:
        """Subscribe a client to a name; False when it already is."""
        cdef dict own
        cdef list clients
        if client.subscribed is None:
            self.hub.begin(client)
        own = client.subscribed[self.kind]
        if name in own:
            return False
        clients = self.clients_of(name)
        if clients is None:
            clients = self.add_name(name)
        own[name] = len(clients)
        clients.append(client)
        client.hold_name(name)
        return True

    def subscribe_all(self, Client client not None, list names not None, bytes what, ReplyWriter reply not None):
        """Subscribe a client to names, and confirm each; `what` is the first word of confirmations."""
        for name in names:
            self.subscribe(client, name)
            confirm(reply, what, name, self.total_of(client))

    def unsubscribe_all(self, Client client not None, list names not None, bytes what, ReplyWriter reply not None):
        """End a client's subscriptions to names, all of this kind when there are none, and confirm each."""
        for name in names or self.names_of(client) or [None]:
            if name is not None:
                self.unsubscribe(client, name)
            confirm(reply, what, name, self.total_of(client))

    cpdef bint unsubscribe(self, Client client, bytes name) except -1:
        """End a client's subscription to a name; False when there is none."""
        cdef list clients
        cdef Client last
        cdef dict own
        cdef Py_ssize_t at
        if client.subscribed is None:
            return False
        own = client.subscribed[self.kind]
        if name not in own:
            return False
        at = own.pop(name)
        client.drop_name(name)
        clients = self.clients_of(name)
        last = clients.pop()
        if last is not client:
            clients[at] = last
            (<dict>last.subscribed[self.kind])[name] = at
        elif not clients:
            self.drop_name(name)
        if not own and not any(client.subscribed):
            self.hub.end(client)
        return True

    def drop_all(self, bytes name not None, bytes what not None):
        """End all subscriptions to a name, and tell the subscribers; `what` is the first word of what they are told."""
        cdef Client client
        cdef ReplyWriter notice
        for client in list(self.clients_of(name) or ()):
            self.unsubscribe(client, name)
            notice = client.new_writer()
            confirm(notice, what, name, self.total_of(client))
            client.deliver(notice.data, notice.length)

    def check_invariants(self, client_list):
        """Assert that both ends of each subscription agree; `client_list`: all clients."""
        cdef Client client
        for name in self.names:
            clients = self.clients_of(name)
            assert clients, f"{name!r} has no subscribers"
            for at, client in enumerate(clients):
                assert client.subscribed[self.kind][name] == at
        for client in client_list:
            if client.subscribed is not None:
                for name, at in client.subscribed[self.kind].items():
                    assert self.clients_of(name)[at] is client


@cython.final
cdef class Pattern(Glob):
    def __cinit__(self, bytes text):
        self.head2 = b"*4\r\n$8\r\npmessage\r\n$%d\r\n%b\r\n" % (len(text), text)
        self.head3 = b">" + self.head2[1:]
        self.clients = []


@cython.final
cdef class Patterns(Namespace):
    """The patterns; a message goes to the subscribers of each that matches its channel."""

    def __dealloc__(self):
        free(self.slots)

    cdef list add_name(self, bytes name):
        cdef Pattern pattern = Pattern(name)
        cdef Py_ssize_t room
        cdef Py_ssize_t literal = literal_length(PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name))
        cdef Slot *slots
        if self.count == self.room:
            room = 2 * self.room if self.room else 8
            slots = <Slot *>realloc(self.slots, <size_t>room * sizeof(Slot))
            if slots is NULL:
                raise MemoryError("no memory for a pattern")
            self.slots = slots
            self.room = room
        self.names[name] = pattern
        pattern.at = self.count
        slots = self.slots + self.count
        slots.need = <uint32_t>literal
        slots.offset = <uint32_t>(literal - 8 if literal > 8 else 0)
        slots.word = first_bytes(PyBytes_AS_STRING(name) + slots.offset, literal)
        slots.mask = first_bytes(b"\xff\xff\xff\xff\xff\xff\xff\xff", literal)
        slots.pattern = <PyObject *>pattern
        self.count += 1
        return pattern.clients

    cdef list clients_of(self, bytes name):
        cdef Pattern pattern = self.names.get(name)
        return None if pattern is None else pattern.clients

    cdef int drop_name(self, bytes name) except -1:
        cdef Pattern pattern = self.names.pop(name)
        self.count -= 1
        self.slots[pattern.at] = self.slots[self.count]
        (<Pattern>self.slots[pattern.at].pattern).at = pattern.at
        return 0

    cdef long long publish(self, bytes channel, const char *tail, size_t tail_length) except -1:
        """Push a message to the subscribers of each pattern that matches; return how many they are."""
        cdef const char *text = PyBytes_AS_STRING(channel)
        cdef Py_ssize_t length = PyBytes_GET_SIZE(channel)
        # Words may be loaded from the channel itself if it has at least eight bytes; otherwise only from its start.
        cdef uint64_t beginning = first_bytes(text, length)
        cdef const char *words = text if length >= 8 else <const char *>&beginning
        cdef Slot *slot = self.slots
        cdef Slot *end = self.slots + self.count
        cdef long long receivers = 0
        cdef Pattern pattern
        while slot < end:
            if slot.need <= length and (load_word(words + slot.offset) & slot.mask) == slot.word:
                pattern = <Pattern>slot.pattern
                if pattern.matches(text, length):
                    receivers += push_to_all(pattern, tail, tail_length)
            slot += 1
        return receivers

    def check_invariants(self, client_list):
        cdef Pattern pattern
        Namespace.check_invariants(self, client_list)
        assert self.count == len(self.names) <= self.room
        for at in range(self.count):
            pattern = <Pattern>self.slots[at].pattern
            assert pattern.at == at and self.names[pattern.text] is pattern
            assert self.slots[at].word & ~self.slots[at].mask == 0
            assert self.slots[at].need <= len(pattern.text)
            assert self.slots[at].offset == max(0, <Py_ssize_t>self.slots[at].need - 8)


cdef Py_ssize_t push_to_all(Pattern pattern, const char *tail, size_t tail_length) except -1:
    """Push a message to the subscribers of one pattern; return how many they are."""
    cdef Py_ssize_t i
    cdef Py_ssize_t count = PyList_GET_SIZE(pattern.clients)
    cdef const char *text2 = PyBytes_AS_STRING(pattern.head2)
    cdef const char *text3 = PyBytes_AS_STRING(pattern.head3)
    cdef size_t length = PyBytes_GET_SIZE(pattern.head2)
    cdef Client client
    if tail_length >= SHARED_LEAST:
        push_shared(pattern.clients, text2, length, tail, tail_length)
        return count
    for i in range(count):
        client = <Client>PyList_GET_ITEM(pattern.clients, i)
        client.deliver_parts(text3 if client.reply.resp == 3 else text2, length, tail, tail_length)
    return count


cdef int push_shared(
    list clients, const char *head, size_t head_length, const char *tail, size_t tail_length
) except -1:
    """Push a long message in two parts, in RESP2's form, to clients without copying it for each."""
    cdef SharedBytes *encoded = NULL
    cdef SharedBytes *encoded3 = NULL
    cdef SharedBytes **form
    cdef Py_ssize_t i
    cdef Client client
    try:
        for i in range(PyList_GET_SIZE(clients)):
            client = <Client>PyList_GET_ITEM(clients, i)
            form = &encoded3 if client.reply.resp == 3 else &encoded
            if form[0] is NULL:
                form[0] = shared_new(head, head_length, tail, tail_length)
                if form[0] is NULL:
                    raise MemoryError("no memory for a message")
                if client.reply.resp == 3:
                    form[0].data[0] = c'>'
            if client.takes_shared():
                client.deliver_shared(form[0])
            else:
                client.deliver(form[0].data, form[0].size)
    finally:
        if encoded is not NULL:
            shared_drop(encoded)
        if encoded3 is not NULL:
            shared_drop(encoded3)
    return 0


# --- The hub --------------------------------------------------------------------------------------------------------

cdef int read_clients(object capability, int64_t *to) except -1:
    to[0] = (<Hub>capability).client_count
    return 0


cdef int read_names(object capability, int64_t *to) except -1:
    cdef Hub self = <Hub>capability
    to[0] = len(self.channels.names)
    to[1] = len(self.patterns.names)
    to[2] = len(self.shard_channels.names)
    return 0


@cython.final
cdef class Hub(Capability):
    """All subscriptions of a server.

    channels, patterns, shard_channels  the namespaces
    client_count                        clients with at least one subscription
    """

    info = {
        "clients": (numbers("pubsub_clients", read_clients),),
        "stats": (numbers("pubsub_channels pubsub_patterns pubsubshard_channels", read_names),),
    }
    refusal_rank = 40

    def __cinit__(self, host=None):
        self.client_bits = SUBSCRIBED
        self.channels = Namespace(self, CHANNELS)
        self.patterns = Patterns(self, PATTERNS)
        self.shard_channels = Namespace(self, SHARD_CHANNELS)
        self.message = ReplyWriter()

    cpdef str find_refusal(self, Client client, Route route, list args):
        if client.reply.resp == 2 and not route.flags & FOR_SUBSCRIBERS:
            return (
                f"ERR Can't execute '{route.command.full_name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT /"
                " RESET are allowed in this context"
            )
        return None

    def client_gone(self, Client client not None):
        self.drop(client)

    def client_reset(self, Client client not None):
        self.drop(client)

    cdef bint has_listeners(self) noexcept:
        """Whether any channel or pattern has subscribers."""
        return len(self.channels.names) > 0 or self.patterns.count > 0

    cpdef long long publish(self, bytes channel, bytes payload, bint is_sharded=False) except -1:
        """Push a message to the subscribers of its channel; return the number of matching subscriptions.

        Subscribers of the channel come first, then those of patterns. O(subscribers + patterns).
        """
        cdef Namespace namespace = self.shard_channels if is_sharded else self.channels
        cdef list clients = <list>namespace.names.get(channel)
        cdef bytes head = SHARD_MESSAGE_HEAD if is_sharded else MESSAGE_HEAD
        cdef ReplyWriter message = self.message
        cdef long long receivers = 0
        cdef size_t head_length = PyBytes_GET_SIZE(head)
        cdef Py_ssize_t i
        cdef Client client
        if clients is None and (is_sharded or self.patterns.count == 0):
            return 0
        try:
            message.raw_c(PyBytes_AS_STRING(head), head_length)
            message.bulk_c(PyBytes_AS_STRING(channel), PyBytes_GET_SIZE(channel))
            message.bulk_c(PyBytes_AS_STRING(payload), PyBytes_GET_SIZE(payload))
            if clients is not None:
                receivers = PyList_GET_SIZE(clients)
            if receivers and message.length >= SHARED_LEAST:
                push_shared(clients, message.data, message.length, message.data, 0)
            else:
                for i in range(receivers):
                    client = <Client>PyList_GET_ITEM(clients, i)
                    message.data[0] = c'>' if client.reply.resp == 3 else c'*'
                    client.deliver_parts(message.data, message.length, NULL, 0)
            if not is_sharded and self.patterns.count:
                receivers += self.patterns.publish(channel, message.data + head_length, message.length - head_length)
        finally:
            message.release()
        return receivers

    def begin(self, Client client not None):
        """Called before a client's first subscription."""
        client.subscribed = [{}, {}, {}]
        client.change_state(SUBSCRIBED, True)
        if client.output_class == CLASS_NORMAL:
            client.output_class = CLASS_PUBSUB
            client.limit_output()
        self.client_count += 1

    def end(self, Client client not None):
        """Called after a client's last subscription has ended."""
        client.subscribed = None
        client.change_state(SUBSCRIBED, False)
        if client.output_class == CLASS_PUBSUB:
            client.output_class = CLASS_NORMAL
            client.limit_output()
        self.client_count -= 1

    def drop(self, Client client not None):
        """End every subscription of a client, without confirmations."""
        cdef Namespace namespace
        for namespace in (self.channels, self.patterns, self.shard_channels):
            for name in namespace.names_of(client):
                namespace.unsubscribe(client, name)

    def check_invariants(self, client_list):
        """Assert the invariants at the head of this file; `client_list`: all clients."""
        cdef Client client
        client_list = list(client_list)
        for namespace in (self.channels, self.patterns, self.shard_channels):
            namespace.check_invariants(client_list)
        subscribers = 0
        for client in client_list:
            has_any = client.subscribed is not None
            subscribers += has_any
            assert has_any == bool(client.state & SUBSCRIBED)
            assert not has_any or any(client.subscribed)
            assert has_any or client.output_class != CLASS_PUBSUB
        assert subscribers == self.client_count
        assert self.message.length == 0
