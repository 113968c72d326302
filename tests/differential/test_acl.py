"""Users and what they may do, beside a real Redis: rules and their text, denials, the log, files, open connections."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from support.compare.differential import Pair
from support.compare.tables import cases
from support.servers import Server, directive_arguments, eventually, find_oracle, free_port, python_environment
from support.wire import ConnectionClosed, Reply, Wire, show, split_line

pytestmark = [pytest.mark.long, pytest.mark.real]

CLIENT_LINE = re.compile(rb"id=\d+ addr=.*")
SEEDS = range(6)
StartServer = Callable[..., Server]


@pytest.fixture(autouse=True)
def _no_users_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """The servers of the whole run have their default user only, and no denials in the log."""
    yield
    for name in ("streamd_server", "redis_server"):
        if name in request.fixturenames:
            with request.getfixturevalue(name).connect() as wire:
                wire.call(
                    "CONFIG", "SET", "requirepass", "", "acl-pubsub-default", "resetchannels", "acllog-max-len", "128"
                )
                wire.call("ACL", "DELUSER", *(user for user in wire.call("ACL", "USERS").plain() if user != b"default"))
                wire.call("ACL", "LOG", "RESET")


def masked(reply: Reply) -> Reply:
    """Without times, numbers of connections and of log entries."""
    if reply.kind in ("*", "%", "~", ">"):
        elements = [masked(element) for element in reply.value]
        for at in range(0, len(elements) - 1, 2):
            if elements[at].value in (
                b"age-seconds",
                b"entry-id",
                b"timestamp-created",
                b"timestamp-last-updated",
                b"id",
            ):
                elements[at + 1] = Reply(elements[at + 1].kind, b"<masked>")
            if elements[at].value == b"modules":
                elements[at + 1] = Reply("*", ())
        return Reply(reply.kind, tuple(elements))
    if isinstance(reply.value, bytes) and CLIENT_LINE.match(reply.value):
        return Reply(reply.kind, b"<client>")
    return Reply("$", b"<id>") if reply.kind == "$" and re.fullmatch(rb"\d{13}-\d+", reply.value) else reply


class Cast:
    """Connections by name to one server, and what they were told. `record` is the play so far."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._wires: dict[str, Wire] = {}
        self.record: list[str] = []

    def wire(self, who: str) -> Wire:
        if who not in self._wires:
            self._wires[who] = self._server.connect()
        return self._wires[who]

    def play(self, text: str) -> None:
        """Lines `who: request`; `who!` expects that the connection has been closed."""
        for line in filter(None, (line.strip() for line in text.splitlines())):
            who, _, request = line.partition(": ")
            if line.endswith("!"):
                who = line[:-1]
                with pytest.raises((ConnectionClosed, OSError)):
                    self.wire(who).call("PING")
                self._wires.pop(who).close()
                self.record.append(f"{who} closed")
            else:
                reply = self.wire(who).call(*split_line(request))
                self.record.append(f"{line} -> {show(masked(reply))}")

    def close(self) -> None:
        for wire in self._wires.values():
            wire.close()


def compare_plays(text: str, servers: Sequence[Server]) -> None:
    records = []
    for server in servers:
        cast = Cast(server)
        try:
            cast.play(text)
        except BaseException as error:
            error.add_note(f"on {server.name}, after:\n    " + "\n    ".join(cast.record))
            raise
        finally:
            cast.close()
        records.append(cast.record)
    assert records[0] == records[1]


# --- Rules and their text --------------------------------------------------------------------------------------------

RULES = r"""
== new user
ACL SETUSER a
ACL GETUSER a
ACL LIST
ACL USERS
ACL WHOAMI
== everything at once
ACL SETUSER a on >p1 >p2 ~k* %R~r* %W~w* %RW~rw* &ch* +@read -get +config|get +select|0 +client
ACL GETUSER a
ACL LIST
== later rules replace earlier ones of the same name
ACL SETUSER a +@read -get +config|get +select|0 +client +CLIENT|KILL
ACL SETUSER a +select|1 -config +XADD +@Read +@STREAM
ACL GETUSER a
== subcommands
ACL SETUSER a +acl|whoami -acl|whoami -acl +acl +object|help -object +acl|WHOAMI
ACL GETUSER a
== first arguments
ACL SETUSER a +get|foo +get|bar -get +get|FOO +GET|foo
ACL GETUSER a
== selectors
ACL SETUSER a (+get ~x) (+set %R~y) "(+get ~z &foo)" () ( +get ~zz )
ACL GETUSER a
ACL LIST
ACL SETUSER a clearselectors
ACL GETUSER a
== selectors that are wrong
ACL SETUSER a (+get
ACL SETUSER a (+get ~a (+foo
ACL SETUSER a "(+get ~a (+foo))"
ACL SETUSER a (+foo)
ACL SETUSER a (on)
ACL SETUSER a "(>abc)"
ACL SETUSER a )
ACL SETUSER a (+get ~x ~*x) on (
ACL GETUSER a
== commands that are not there
ACL SETUSER a +nocmd
ACL SETUSER a -nocmd
ACL SETUSER a +@nocat
ACL SETUSER a +get|x|y
ACL SETUSER a +config|foo
ACL SETUSER a -config|foo
ACL SETUSER a +config|get|x
ACL SETUSER a +foo|bar
ACL SETUSER a -select|0
ACL SETUSER a +select|
ACL SETUSER a +config|
ACL SETUSER a +|x
ACL SETUSER a +
ACL SETUSER a -
ACL SETUSER a +@
ACL SETUSER a -@
ACL SETUSER a "+get x"
ACL SETUSER a "+@all "
ACL GETUSER a
== commands that only the other server may have
ACL SETUSER a +lpush -script +script|flush +hset|x +cluster|info -eval +object|freq
ACL GETUSER a
== nothing changes when a rule is wrong
ACL SETUSER a on ~x +get foo
ACL GETUSER a
ACL SETUSER a on ~x +get
ACL SETUSER a off resetkeys +set -nocmd
ACL GETUSER a
== passwords
ACL SETUSER a on nopass
ACL GETUSER a
ACL SETUSER a >x >x >y ">a b"
ACL GETUSER a
ACL SETUSER a <x
ACL SETUSER a <nope
ACL SETUSER a #abc
ACL SETUSER a !abc
ACL SETUSER a #ABCD000000000000000000000000000000000000000000000000000000000000
ACL SETUSER a !0000000000000000000000000000000000000000000000000000000000000000
ACL SETUSER a #0000000000000000000000000000000000000000000000000000000000000000
ACL GETUSER a
ACL SETUSER a nopass <y
ACL SETUSER a resetpass
ACL GETUSER a
== keys
ACL SETUSER a ~ %R~* %W~*
ACL GETUSER a
ACL SETUSER a resetkeys %RW~* %R~x %W~x ~y %r~z %R
ACL GETUSER a
ACL SETUSER a resetkeys %X~x
ACL SETUSER a %~x
ACL SETUSER a %
ACL SETUSER a %RWR~x
ACL SETUSER a "~a b"
ACL SETUSER a "~a\x00b"
ACL SETUSER a allkeys ~foo
ACL SETUSER a ~* %R~foo
ACL SETUSER a ~* %X~foo
ACL SETUSER a ~* "(allkeys %X~foo)"
ACL SETUSER a allkeys ~* ALLKEYS
ACL GETUSER a
== channels
ACL SETUSER a &a &b &a
ACL GETUSER a
ACL SETUSER a allchannels &foo
ACL SETUSER a &* &foo
ACL SETUSER a "&a b"
ACL SETUSER a allchannels &*
ACL GETUSER a
ACL SETUSER a resetchannels
ACL GETUSER a
== channels that new users have
CONFIG SET acl-pubsub-default allchannels
ACL SETUSER a
ACL GETUSER a
ACL SETUSER a &x
ACL SETUSER a resetchannels &x
ACL SETUSER a reset
ACL GETUSER a
CONFIG SET acl-pubsub-default resetchannels
ACL SETUSER a reset
ACL SETUSER b
ACL LIST
== words in any case
ACL SETUSER a RESET ON NOPASS ALLKEYS ALLCOMMANDS ALLCHANNELS Skip-Sanitize-Payload
ACL GETUSER a
ACL SETUSER a -@ALL +@All NoCommands ""
ACL GETUSER a
ACL SETUSER a foo
ACL SETUSER a "foo\r\nbar"
ACL SETUSER a "foo\x00bar"
== names
ACL SETUSER "a b" on
ACL SETUSER "a\x00b" on
ACL SETUSER "" on
ACL SETUSER caf\xe9 on
ACL LIST
ACL DELUSER "" caf\xe9 nosuch
== deleting
ACL SETUSER a
ACL DELUSER default
ACL DELUSER a default
ACL DELUSER x y a
ACL GETUSER a
== numbers of arguments and their errors
ACL
ACL FOO
ACL GETUSER
ACL DELUSER
ACL SETUSER
ACL CAT a b
ACL CAT foo
ACL GENPASS 0
ACL GENPASS -1
ACL GENPASS 4097
ACL GENPASS x
ACL GENPASS 1 2
ACL LOG x
ACL LOG -1
ACL LOG 1 2
ACL HELP x
ACL LOAD x
ACL SAVE
ACL LOAD
ACL WHOAMI x
== dry runs
ACL SETUSER u on nopass ~k* %R~r* %W~w* &ch* +@all -get -acl|whoami -select +select|0
ACL DRYRUN
ACL DRYRUN x get
ACL DRYRUN u nocmd
ACL DRYRUN u get
ACL DRYRUN u get k
ACL DRYRUN u set zz x
ACL DRYRUN u set r x
ACL DRYRUN u set w x
ACL DRYRUN u set w x GET
ACL DRYRUN u set r x get nx
ACL DRYRUN u config foo
ACL DRYRUN u config get
ACL DRYRUN u config
ACL DRYRUN u acl whoami
ACL DRYRUN u ACL WHOAMI
ACL DRYRUN u SELECT 1
ACL DRYRUN u SELECT 0
ACL DRYRUN u auth x
ACL DRYRUN u xlen r
ACL DRYRUN u xlen w
ACL DRYRUN u xrange w - +
ACL DRYRUN u xread streams k1 zz
ACL DRYRUN u xread streams k1 zz 0 0
ACL DRYRUN u xread count 5 streams k1 r 0 0
ACL DRYRUN u xread foo bar baz
ACL DRYRUN u xreadgroup group g c streams k1 r > >
ACL DRYRUN u xreadgroup group streams c streams k1 k2 > >
ACL DRYRUN u xgroup create w g $
ACL DRYRUN u xgroup create r g $
ACL DRYRUN u xinfo stream w
ACL DRYRUN u copy r w
ACL DRYRUN u copy w r
ACL DRYRUN u rename k1 zz
ACL DRYRUN u del k1 w zz
ACL DRYRUN u exists zz
ACL DRYRUN u mget k1 r w
ACL DRYRUN u mset k1 1 w 2 r 3
ACL DRYRUN u object encoding w
ACL DRYRUN u publish zz x
ACL DRYRUN u publish ch1 x
ACL DRYRUN u spublish zz x
ACL DRYRUN u subscribe ch1 zz
ACL DRYRUN u ssubscribe ch1 zz
ACL DRYRUN u psubscribe ch* zz
ACL DRYRUN u psubscribe ch1*
ACL DRYRUN u unsubscribe zz
ACL DRYRUN u watch k1 zz
ACL SETUSER u off
ACL DRYRUN u xadd k1 * a b
ACL LOG
"""


@pytest.mark.parametrize("script", cases(RULES))
def test_rules_make_what_they_make_in_redis(script: list[tuple[bytes, ...]], pair: Pair) -> None:
    pair.run(script)


def test_a_category_has_the_commands_that_it_has_in_redis(
    pairs: object, streamd_server: Server, redis_server: Server
) -> None:
    with streamd_server.connect() as ours, redis_server.connect() as theirs:
        assert ours.call("ACL", "CAT") == theirs.call("ACL", "CAT")
        known, its_known = (set(wire.call("COMMAND", "LIST").plain()) for wire in (ours, theirs))
        for category in ours.call("ACL", "CAT").plain():
            mine, its = (set(wire.call("ACL", "CAT", category).plain()) for wire in (ours, theirs))
            assert mine & its_known == its & known, category


def test_a_password_is_made_up_in_the_length_asked_for(pair: Pair) -> None:
    for arguments, digits in (((), 64), (("1",), 1), (("5",), 2), (("12",), 3), (("4096",), 1024)):
        for wire in pair.wires:
            reply = wire.call("ACL", "GENPASS", *arguments)
            assert re.fullmatch(rb"[0-9a-f]{%d}" % digits, reply.value)


COMMANDS = [
    "get",
    "set",
    "xadd",
    "xread",
    "xlen",
    "ping",
    "select",
    "config",
    "client",
    "acl",
    "xgroup",
    "object",
    "multi",
]
PARTS = [
    "config|get", "config|set", "client|kill", "client|list", "acl|whoami", "xgroup|create", "object|help", "get|a", "get|B",
    "select|0", "select|1", "xadd|s",
]  # fmt: skip
CATEGORIES = [
    "read",
    "write",
    "stream",
    "admin",
    "slow",
    "fast",
    "dangerous",
    "connection",
    "pubsub",
    "keyspace",
    "all",
]


def random_rules(rng: random.Random) -> list[str]:
    """Rules about commands, keys and channels, most of them good."""
    draw = rng.choice
    kinds: list[Callable[[], str]] = [
        lambda: draw("+-") + draw(COMMANDS),
        lambda: draw("+-") + draw(COMMANDS),
        lambda: draw("+++-") + draw(PARTS),
        lambda: draw("+-") + "@" + draw(CATEGORIES),
        lambda: draw(["~", "%R~", "%W~", "%RW~"]) + draw(["a", "b*", "*"]),
        lambda: "&" + draw(["a", "b*", "*"]),
        lambda: draw(["resetkeys", "resetchannels", "allkeys", "on", "off", "nopass", "resetpass", "clearselectors"]),
        lambda: draw(["reset", "allcommands", "nocommands", ">p", "<p"]),
        lambda: f"({draw('+-')}{draw(COMMANDS)} +@{draw(CATEGORIES)} ~{draw('ab')}*)",
    ]
    return [draw(kinds)() for _ in range(rng.randint(1, 5))]


TRIED = [
    "get a", "get b", "set a 1", "set bb 1 GET", "xadd a * f v", "xread STREAMS a b 0 0", "xlen b1", "ping", "select 0",
    "select 1", "config get hz", "config set hz 5", "client list", "client kill x", "client id", "acl whoami", "acl list",
    "xgroup create a g $", "object help", "object encoding a", "multi", "publish a x", "publish b1 x", "psubscribe b*",
    "subscribe a", "subscribe c", "hello", "keys *", "flushall",
]  # fmt: skip


@pytest.mark.parametrize("seed", SEEDS)
def test_random_rules_mean_and_read_what_they_do_in_redis(seed: int, pair: Pair) -> None:
    rng = random.Random(seed)
    for _ in range(12):
        script: list[Sequence[str]] = [("ACL", "SETUSER", "r", "reset")]
        for _ in range(6):
            script += [("ACL", "SETUSER", "r", *random_rules(rng)), ("ACL", "GETUSER", "r"), ("ACL", "LIST")]
            script += [("ACL", "DRYRUN", "r", *line.split()) for line in rng.sample(TRIED, 8)]
        pair.run(script)


# --- Denials -----------------------------------------------------------------------------------------------------------

PLAYS = {
    "what a user may not do": r"""
        a: ACL SETUSER u on >p ~k* %R~r* %W~w* &ch* +@all -get -config|set -select +select|0
        u: AUTH u p
        u: GET x
        u: CONFIG SET hz 10
        u: CONFIG GET hz
        u: SELECT 1
        u: select 0
        u: XADD k1 1-1 a b
        u: XADD z1 1-1 a b
        u: XADD r1 1-1 a b
        u: XADD w1 1-1 a b
        u: XLEN w1
        u: XRANGE w1 - +
        u: XRANGE r1 - +
        u: XREAD STREAMS k1 w1 0 0
        u: XREAD STREAMS k1 r1 0 0
        u: XREADGROUP GROUP g c STREAMS k1 z1 > >
        u: XREADGROUP GROUP g c STREAMS k1 r1 > >
        u: SET w1 x
        u: SET w1 x GET
        u: COPY r1 w1
        u: COPY w1 r1
        u: PUBLISH ch1 x
        u: PUBLISH zz x
        u: SPUBLISH zz x
        u: SUBSCRIBE zz
        u: PSUBSCRIBE ch*
        u: RESET
        u: AUTH u p
        u: PSUBSCRIBE ch1*
        u: UNSUBSCRIBE zz
        u: ACL WHOAMI
        u: NOSUCH
        u: GET
        a: ACL LOG
        a: ACL LOG 2
        a: ACL LOG 0
        a: ACL LOG RESET
        a: ACL LOG
    """,
    "transactions": r"""
        a: ACL SETUSER u on >p ~k* &ch* +@all -get
        u: AUTH u p
        u: MULTI
        u: GET x
        u: XADD k1 1-1 a b
        u: EXEC
        u: MULTI
        u: SET k1 x
        u: XLEN k2
        a: ACL SETUSER u -set
        u: EXEC
        u: MULTI
        u: PUBLISH ch1 x
        a: ACL SETUSER u resetchannels
        u: EXEC
        u: MULTI
        a: ACL SETUSER u -exec
        u: EXEC
        a: ACL SETUSER u +@all -@transaction
        u: MULTI
        a: ACL LOG
    """,
    "selectors": r"""
        a: ACL SETUSER s on nopass -@all (+get ~x) (+@all ~y &c) (+set ~*)
        s: AUTH s any
        s: GET y
        s: GET x
        s: GET z
        s: SET z 1
        s: XLEN z
        s: PUBLISH c x
        s: PUBLISH d x
        s: MGET x y
        s: MGET y z
        s: HELLO 3 AUTH s x
        s: ACL LOG
    """,
    "commands that are always allowed": r"""
        a: ACL SETUSER u on nopass -@all
        u: AUTH u x
        u: PING
        u: HELLO 2
        u: AUTH u x
        u: RESET
        u: PING
        u: AUTH u x
        u: QUIT
        u!
    """,
    "the log groups what is alike": r"""
        a: ACL SETUSER u on nopass +@all ~a*
        u: AUTH u x
        u: GET k1
        u: GET k2
        u: SET k1 1
        u: MULTI
        u: GET k1
        u: DISCARD
        u: GET k3
        u: GET k4
        u: GET k5
        u: GET k6
        u: GET k7
        u: GET k8
        u: GET k9
        u: GET k10
        u: GET k2
        u: GET k1
        a: ACL LOG 100
        a: CONFIG SET acllog-max-len 3
        a: ACL LOG 100
        u: GET k11
        a: ACL LOG
        a: CONFIG SET acllog-max-len 0
        a: ACL LOG
        u: GET k12
        a: ACL LOG
        a: CONFIG SET acllog-max-len -1
    """,
    "logins": r"""
        a: ACL SETUSER u >p
        a: ACL SETUSER v on >p >q +@all
        b: AUTH u p
        b: AUTH v x
        b: auth v x
        b: AUTH nosuch x
        b: AUTH V p
        b: AUTH v q
        b: ACL WHOAMI
        b: AUTH v wrong
        b: ACL WHOAMI
        b: HELLO 3 AUTH v p SETNAME n
        b: HELLO 2 AUTH v no
        b: CLIENT GETNAME
        b: AUTH x
        a: ACL SETUSER v <q
        b: AUTH v q
        a: ACL SETUSER v nopass
        b: AUTH v anything
        a: ACL SETUSER v off
        b: PING
        b: AUTH v anything
        a: ACL LOG
        a: CLIENT KILL USER nosuch
        a: CLIENT KILL USER v
        b!
    """,
    "the default user": r"""
        a: CONFIG GET requirepass
        a: CONFIG SET requirepass foo
        a: ACL LIST
        a: PING
        b: PING
        b: AUTH bar
        b: AUTH default bar
        a: ACL SETUSER default >bar
        a: CONFIG GET requirepass
        b: AUTH bar
        b: PING
        c: PING
        a: ACL SETUSER default nopass
        c: PING
        c: HELLO 3
        c: AUTH x
        a: CONFIG GET requirepass
        a: ACL SETUSER default resetpass >baz
        c: PING
        c: AUTH baz
        c: PING
        a: CONFIG SET requirepass ""
        a: ACL LIST
        a: ACL SETUSER default off
        d: PING
        d: AUTH default x
        d: AUTH x
        a: ACL SETUSER default on
        d: PING
        a: CONFIG SET requirepass new hz none
        a: ACL LIST
        a: ACL LOG
        a: ACL SETUSER default -get
        d: GET x
        a: ACL SETUSER default +@all
        d: GET x
        a: ACL LIST
    """,
    "open connections": r"""
        a: ACL SETUSER t on nopass +@all ~* &*
        t: AUTH t x
        t: ACL SETUSER t -@all
        t: PING
        a: ACL SETUSER t +@all
        t: PING
        a: ACL SETUSER t off
        t: PING
        a: ACL SETUSER t reset
        t: PING
        a: ACL DELUSER t
        t!
        a: ACL SETUSER s on nopass +@all ~*
        s: AUTH s x
        s: ACL DELUSER s nosuch
        s!
    """,
    "subscriptions that are not allowed any more": r"""
        a: ACL SETUSER t on nopass +@all ~* &c1
        p: AUTH t x
        p: SUBSCRIBE c1
        a: ACL SETUSER t resetchannels &c*
        p: PING
        a: ACL SETUSER t resetchannels &c1 &x
        p: PING
        a: ACL SETUSER t resetchannels (&c* +@all)
        p: PING
        a: ACL SETUSER t clearselectors
        p!
        a: ACL SETUSER t &c*
        p: AUTH t x
        p: PSUBSCRIBE c*
        a: ACL SETUSER t resetchannels &c* &d
        p: PING
        a: ACL SETUSER t resetchannels allchannels
        p: PING
        a: ACL SETUSER t resetchannels &c?
        p!
        a: ACL SETUSER t &s1
        p: AUTH t x
        p: SSUBSCRIBE s1
        a: ACL SETUSER t reset
        p!
    """,
}


@pytest.mark.parametrize("name", PLAYS)
def test_denials_and_connections_are_those_of_redis(name: str, streamd_server: Server, redis_server: Server) -> None:
    for server in (streamd_server, redis_server):
        with server.connect() as wire:
            wire.call("FLUSHALL")
    compare_plays(PLAYS[name], (streamd_server, redis_server))


@pytest.mark.parametrize("request_line", ["SET k v", "GET k", "XREAD STREAMS a k 0 0"])
def test_exec_looks_at_keys_again(request_line: str, streamd_server: Server) -> None:
    # Redis 8.6.3 looks at commands and channels again and runs what the user may not touch any more; 7.0 does not.
    cast = Cast(streamd_server)
    cast.play(f"""
        a: ACL SETUSER u on nopass +@all ~*
        u: AUTH u x
        u: MULTI
        u: {request_line}
        a: ACL SETUSER u resetkeys ~a
        u: EXEC
    """)
    cast.close()
    assert cast.record[-1].endswith(
        "[-NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This command is"
        " no longer allowed for the following reason: no permission to touch the specified keys]"
    )


def test_who_waits_for_a_key_must_be_allowed_it_when_it_comes(streamd_server: Server, redis_server: Server) -> None:
    records = []
    for server in (streamd_server, redis_server):
        with server.connect() as admin, server.connect() as reader, server.connect() as member:
            admin.call("FLUSHALL")
            admin.call("ACL", "SETUSER", "s", "on", "nopass", "+@all", "~*")
            admin.call("XGROUP", "CREATE", "st", "g", "$", "MKSTREAM")
            said = []
            for rule in ("resetkeys", "-@all"):
                admin.call("ACL", "SETUSER", "s", "+@all", "allkeys")
                for wire in (reader, member):
                    wire.call("AUTH", "s", "x")
                member.send("XREADGROUP", "GROUP", "g", "c", "BLOCK", "0", "STREAMS", "st", ">")
                reader.send("XREAD", "BLOCK", "0", "STREAMS", "st", "$")
                eventually(lambda admin=admin: b"blocked_clients:2" in admin.call("INFO", "clients").value)
                admin.call("ACL", "SETUSER", "s", rule)
                admin.call("XADD", "st", "*", "a", "b")
                said += [reader.read(), member.read()]
                admin.call("XGROUP", "SETID", "st", "g", "$")
            admin.call("ACL", "SETUSER", "s", "+@all", "allkeys")
            reader.send("XREAD", "BLOCK", "0", "STREAMS", "st", "$")
            eventually(lambda admin=admin: b"blocked_clients:1" in admin.call("INFO", "clients").value)
            admin.call("ACL", "DELUSER", "s")
            with pytest.raises((ConnectionClosed, OSError)):
                reader.read()
        records.append(said)
    assert records[0] == records[1]


def test_denials_are_counted(streamd_server: Server, redis_server: Server) -> None:
    counted = []
    for server in (streamd_server, redis_server):
        cast = Cast(server)
        before = denials(cast.wire("a"))
        cast.play("""
            a: ACL SETUSER u on >p +@all -get ~a &a
            u: AUTH u x
            u: AUTH u p
            u: GET a
            u: GET a
            u: SET b 1
            u: PUBLISH b x
            a: ACL DRYRUN u GET a
        """)
        after = denials(cast.wire("a"))
        cast.close()
        counted.append({name: after[name] - before[name] for name in after})
    assert counted[0] == counted[1] == {"auth": 1, "cmd": 2, "key": 1, "channel": 1, "tls_cert": 0}


def denials(wire: Wire) -> dict[str, int]:
    text = wire.call("INFO", "stats").value.decode()
    return {name: int(count) for name, count in re.findall(r"acl_access_denied_(\w+):(\d+)", text)}


# --- Files ---------------------------------------------------------------------------------------------------------------


ACL_FILES = [
    "", "user alice on >a ~* +@all\nuser bob on nopass ~* &* +@all\n\n", "user bob on\r\nuser carl on\r\n", "\n\n\nuser x",
    "user bob nopass", "user", "user ", "userx y", "USER bob on", "  user bob\ton", "user default off +@all",
    "user bob +nocmd +nocmd2 foo", "user bob foo +nocmd bar", "user bob foo bar", "user a b c d", "user default foo",
    "user bob (+get +nocmd", "user bob (+get) )x", "user a (x", "user bob (+nocmd)", "user bob %R~a %W~b (%X~c)",
    "user bob ~* ~x", "user bob #abc", "user bob <zz", "user bob -foo|bar", "user bob +get|x +get|x|y", "user b +@nocat",
    'user bob on\nuser bob on +nocmd\nuser alice off\nfoo\nuser "a b"\nuser carl (+get\nuser carl +get|x|y "+get\nuser x ( +get',
]  # fmt: skip


def test_files_are_loaded_and_refused_as_in_redis(
    new_streamd: StartServer, new_redis: StartServer, tmp_path: Path
) -> None:
    outcomes = []
    for start in (new_streamd, new_redis):
        path = tmp_path / "users.acl"
        path.write_bytes(b"user default on nopass ~* &* +@all\n")
        server = start(aclfile=str(path))
        said = []
        for content in ACL_FILES:
            path.write_bytes(content.encode())
            with server.connect() as wire:
                said.append((content, wire.call("ACL", "LOAD"), wire.call("ACL", "LIST")))
                path.write_bytes(b"user default on nopass ~* &* +@all\n")
                wire.call("AUTH", "default", "x")
                wire.call("ACL", "LOAD")
        path.unlink()
        with server.connect() as wire:
            said.append(("gone", wire.call("ACL", "LOAD"), wire.call("ACL", "LIST")))
            wire.call("ACL", "SETUSER", "yan", "on", ">x", "+@read", "~x", "(+set ~y)")
            said.append(("saved", wire.call("ACL", "SAVE"), wire.call("CONFIG", "GET", "aclfile")))
        said.append(("file", Reply("$", path.read_bytes()), Reply("$", b"")))
        outcomes.append(said)
    for ours, theirs in zip(*outcomes, strict=True):
        assert ours == theirs


def test_loading_a_file_closes_the_connections_of_who_is_gone(
    new_streamd: StartServer, new_redis: StartServer, tmp_path: Path
) -> None:
    text = """
        a: ACL LIST
        a: ACL SETUSER alice resetkeys ~foo
        al: AUTH alice a
        b: AUTH bob x
        d: PING
        a: ACL SETUSER zed on nopass +@all
        z: AUTH zed x
        a: ACL LOAD
        a: ACL LIST
        al: PING
        b: PING
        d: PING
        z!
        a: ACL SETUSER alice resetpass >newone
        al: AUTH alice newone
        a: ACL LOAD
        al: PING
        al: SET x 1
        a: ACL SETUSER default -get
        d: GET x
        a: ACL LOAD
        d: GET x
        b: SUBSCRIBE news
        a: ACL SETUSER bob resetchannels &news
        a: ACL LOAD
        b: PING
    """
    path = tmp_path / "users.acl"
    path.write_bytes(b"user alice on >a ~* +@all\nuser bob on nopass ~* &* +@all\n\n")
    compare_plays(text, [start(aclfile=str(path)) for start in (new_streamd, new_redis)])


CONFIG_FILES = {
    "twice": "user alice on +@all ~* nopass\nuser alice off\n",
    "unknown command": "user alice on +nocmd\n",
    "blank in a name": 'user "a b" on\n',
    "open selector": "user alice (+get\n",
    "no name": "user\n",
    "file as well": "user alice on\naclfile users.acl\n",
    "file that is not there": "aclfile none\n",
    "unknown later": "user alice on +get|x|y\nuser bob (+nocmd)\n",
    "syntax": 'user Alice ON +@Read >x ~a "~b c"\n',
    "empty part": "user a +get|\n",
    "part of a part": "user a +config|get|x\n",
    "hash": "user a on ~x &y #abc\n",
}


@pytest.mark.parametrize("name", CONFIG_FILES)
def test_user_lines_that_are_wrong_keep_a_server_from_starting(name: str, tmp_path: Path) -> None:
    oracle = find_oracle()
    assert oracle is not None
    (tmp_path / "users.acl").write_text("")
    (tmp_path / "a.conf").write_text(CONFIG_FILES[name])
    reasons = []
    for program in ([sys.executable, "-m", "streamd", "server"], [oracle.server]):
        ended = subprocess.run(
            [*program, "a.conf", "--port", str(free_port()), "--save", ""],
            capture_output=True, text=True, timeout=110, cwd=tmp_path, env=python_environment(),
        )  # fmt: skip
        assert ended.returncode == 1
        said = (ended.stdout + ended.stderr).strip().splitlines()
        reasons.append([re.sub(r"^.* # ", "", line) for line in said if "Critical error" not in line][-1])
    if name in ("file as well", "file that is not there"):  # in our own words
        reasons = [reason.rpartition(": ")[2] if name != "file as well" else "" for reason in reasons]
    assert reasons[0] == reasons[1]


def test_users_of_the_configuration_are_there_and_are_written_back(tmp_path: Path) -> None:
    oracle = find_oracle()
    assert oracle is not None
    outcomes = []
    for name, program in (("ours", [sys.executable, "-m", "streamd", "server"]), ("theirs", [oracle.server])):
        folder = tmp_path / name
        folder.mkdir()
        file = folder / "a.conf"
        file.write_text(
            'save ""\n# comment\nrequirepass foo\nuser alice on +@all ~* nopass\nuser carl off\n\n'
            "user bob on >x ~a (~b +get) &c\nmaxmemory 100mb\n"
        )
        port = free_port()
        server = Server(
            name,
            [*program, "a.conf", *directive_arguments({}), "--port", str(port)],
            port,
            folder,
            python_environment(),
        )
        try:
            server.wait_until_ready()
            cast = Cast(server)
            files = []
            for text in (
                "a: AUTH foo\na: ACL DELUSER carl\na: ACL LIST\na: ACL SETUSER dave on >zz +@read\na: CONFIG REWRITE",
                "a: ACL DELUSER alice bob\na: CONFIG SET requirepass bar\na: CONFIG REWRITE",
                "a: ACL SETUSER default nopass\na: CONFIG REWRITE\na: CONFIG GET requirepass",
            ):
                cast.play(text)
                files.append([line for line in file.read_text().splitlines() if re.match("user|requirepass|#|$", line)])
            cast.close()
        finally:
            server.stop()
        outcomes.append((cast.record, files))
    assert outcomes[0] == outcomes[1]


def test_rules_name_commands_by_their_own_names(new_streamd: StartServer, new_redis: StartServer) -> None:
    text = """
        a: ACL SETUSER u on nopass ~* +@all -xlen
        a: ACL SETUSER u -length
        a: ACL GETUSER u
        a: ACL DRYRUN u xlen s
        a: ACL DRYRUN u length s
        u: AUTH u x
        u: LENGTH s
        u: PING
        u: XLEN s
        a: ACL LOG
    """
    servers = [start(rename_command="XLEN length") for start in (new_streamd, new_redis)]
    compare_plays(text, servers)
