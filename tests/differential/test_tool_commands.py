"""What clients and graphical tools ask to learn what a server is, and can: answered as a real Redis answers. Marked `real`.

The real one has a module built in, runs scripts, and counts an offset of replication: that is left out.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.compare.differential import Pair, Request
from support.compare.tables import cases
from support.servers import Server, eventually
from support.wire import Reply

from streamd.core.spec import Command, table
from streamd.serve.families import load_all

pytestmark = pytest.mark.real

load_all()
CLUSTER = sorted(table["CLUSTER"].subcommands.values(), key=lambda command: command.name)

CASES = """
== cluster and its kin
CLUSTER
CLUSTER FOO
CLUSTER HELP x
CLUSTER INFO x
READONLY
READONLY x
READWRITE
ASKING
ASKING x
MULTI
CLUSTER INFO
READONLY
EXEC

== modules
MODULE
MODULE FOO
MODULE LIST x
MODULE LOAD
MODULE LOAD /nosuch
MODULE LOAD /nosuch a b
MODULE LOADEX
MODULE LOADEX /nosuch CONFIG a b ARGS c
MODULE UNLOAD
MODULE UNLOAD nosuch
MODULE HELP x

== scripts
SCRIPT
SCRIPT FOO
SCRIPT EXISTS
SCRIPT EXISTS e0e1f9fabfc9d4800c877a703b823ac0578ff8db
SCRIPT EXISTS a b a
SCRIPT FLUSH
SCRIPT FLUSH sync
SCRIPT FLUSH ASYNC
SCRIPT FLUSH FOO
SCRIPT FLUSH SYNC ASYNC
SCRIPT KILL
SCRIPT KILL x
SCRIPT HELP x

== what a graphical tool asks when it opens a server, and a key
CLIENT SETINFO lib-name tool
CONFIG GET databases
SCRIPT EXISTS a
ACL WHOAMI
LATENCY LATEST
SET text v
XADD s 1-1 f v
SCAN 0 TYPE stream
SCAN 0 MATCH * COUNT 100 TYPE string
SCAN 0 TYPE hash
SCAN 0 TYPE nosuch
TYPE s
TTL s
OBJECT ENCODING s
OBJECT ENCODING text
MEMORY USAGE none
XINFO STREAM s
XINFO GROUPS s
XRANGE s - + COUNT 10
DBSIZE
PUBSUB CHANNELS
PUBSUB NUMPAT
PUBSUB SHARDCHANNELS
COMMAND GETKEYS XADD s * f v
CLUSTER INFO
CLUSTER NODES
FT._LIST
JSON.GET a
TS.INFO a
GRAPH.LIST
SENTINEL masters
CLIENT TRACKINGINFO
CLIENT GETREDIR

== waiting for replicas
WAIT
WAIT 0 0
WAIT -1 0
WAIT 1 1
WAIT 1 -1
WAIT x 0
WAIT 0 x
WAIT 1.5 0
WAIT 1 9223372036854775807
WAIT 0 9223372036854775808
SET s v
WAIT 1 5
MULTI
WAIT 1 0
SET s v
EXEC
ROLE x
"""


@pytest.mark.parametrize("script", cases(CASES))
def test_a_case_is_answered_alike(pair: Pair, script: list[Request]) -> None:
    pair.run(script)


@pytest.mark.parametrize("command", CLUSTER, ids=lambda command: command.name.lower())
def test_every_subcommand_of_cluster_is_refused_as_by_redis(pair: Pair, command: Command) -> None:
    name = command.name.split()
    pair.run([(*name, *["1"] * (count - len(name))) for count in range(2, abs(command.arity) + 3)])


def test_there_are_no_modules(pair: Pair) -> None:
    assert pair.wires[0].call("MODULE", "LIST") == Reply("*", ())


def test_the_role_is_that_of_a_primary_without_replicas(pair: Pair) -> None:
    ours, theirs = (wire.call("ROLE").plain() for wire in pair.wires)
    assert ours == [b"master", 0, []]
    assert [ours[0], ours[2]] == [theirs[0], theirs[2]]


def test_a_client_that_waits_for_replicas_can_be_unblocked(pair: Pair) -> None:
    answers = []
    for wire, server in zip(pair.wires, pair.servers, strict=True):
        with server.connect(pair.protocol) as waiter:
            ident = waiter.call("CLIENT", "ID").value
            for how in ("TIMEOUT", "ERROR"):
                waiter.send("WAIT", "1", "0")
                eventually(lambda wire=wire: b"blocked_clients:1" in wire.call("INFO", "clients").value)
                answers.append((wire.call("CLIENT", "UNBLOCK", str(ident), how), waiter.read()))
    assert answers[:2] == answers[2:]


def test_modules_cannot_be_loaded_where_that_is_allowed(
    new_streamd: Callable[..., Server], new_redis: Callable[..., Server]
) -> None:
    answers = []
    for new_server in (new_streamd, new_redis):
        with new_server(enable_module_command="yes").connect() as wire:
            requests = ["MODULE LOAD /nosuch", "MODULE LOADEX /nosuch FOO", "MODULE UNLOAD nosuch"]
            answers.append([wire.line(request) for request in requests])
    assert answers[0] == answers[1]
