"""Scripts and what surrounds them: transactions, waiting clients, observers, permissions, limits; as a real Redis has it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.compare.dialogues import compare_dialogue
from support.compare.observing import Watcher, command_counts, same_story
from support.servers import Server, eventually
from support.wire import Wire, show, split_line

from streamd.digests import sha1_hex

pytestmark = pytest.mark.real

StartServer = Callable[..., Server]

DIALOGUES = {
    "transactions": """
        a: SCRIPT FLUSH
        a: MULTI ; SET k 1 ; EVAL "return redis.call('incr',KEYS[1])" 1 k ; EVALSHA nope 0 ; EVAL "x=" 0 ; EVAL "return 1" x ; EXEC
        a: MULTI ; EVAL "redis.call('set','k',5) error('x')" 0 ; INCR k ; SCRIPT LOAD "return 2" ; SCRIPT EXISTS 7f923f79fe76194c868d7e1d0820de36700eb649 ; EXEC
        a: WATCH k
        b: EVAL "return redis.call('set',KEYS[1],7)" 1 k
        a: MULTI ; GET k ; EXEC
        a: WATCH k
        b: EVAL "return redis.call('get',KEYS[1])" 1 k
        a: MULTI ; GET k ; EXEC
        a: WATCH k ; EVAL "return redis.call('set',KEYS[1],8)" 1 k ; MULTI ; GET k ; EXEC
        a: MULTI ; SELECT 1 ; EVAL "redis.call('set','one',1) redis.call('select',2) redis.call('set','two',2)" 0 ; SET more 1 ; EXEC
        a: DBSIZE ; SELECT 2 ; DBSIZE ; SELECT 0 ; DBSIZE
        a: EVAL "redis.call('select',5) error('x')" 0
        a: EVAL "return redis.call('multi')" 0 ; EVAL "return redis.call('exec')" 0
        a: MULTI ; EVAL ; EXEC
        a: EVAL "return 1" 0 0 ; EVALSHA "" 0 ; EVALSHA e0e1f9fabfc9d4800c877a703b823ac0578ff8db 0 ; EVALSHA E0E1F9FABFC9D4800C877A703B823AC0578FF8DB 0
        a: SCRIPT EXISTS e0e1f9fabfc9d4800c877a703b823ac0578ff8db E0E1F9FABFC9D4800C877A703B823AC0578FF8DB x ; SCRIPT FLUSH ; EVALSHA e0e1f9fabfc9d4800c877a703b823ac0578ff8db 0
        a: SCRIPT LOAD "return 1" ; EVALSHA e0e1f9fabfc9d4800c877a703b823ac0578ff8db 0 ; SCRIPT LOAD "x=" ; SCRIPT LOAD "#!lua x" ; SCRIPT LOAD "#!lua\\nreturn 3"
        a: SCRIPT FLUSH ASYNC ; SCRIPT FLUSH SYNC ; SCRIPT FLUSH NOW ; SCRIPT FLUSH SYNC ASYNC ; SCRIPT KILL ; SCRIPT ; SCRIPT LOAD ; SCRIPT FOO
        a: EVAL "math.randomseed(1) return {cjson.encode_max_depth(5),tostring(math.random())}" 0 ; EVAL "return {cjson.encode_max_depth(),tostring(math.random())}" 0
        a: SCRIPT FLUSH ; EVAL "return {cjson.encode_max_depth(),tostring(math.random())}" 0
        a: SCRIPT DEBUG x
        a: SCRIPT DEBUG NO
        a: EVAL "" 0 ; EVAL " " 0 ; EVAL "return ARGV" 0 "" "x"
        a: EVAL_RO "return redis.call('get','k')" 0 ; EVAL_RO "return redis.call('set','k',1)" 0 ; EVAL_RO "return redis.call('publish','k',1)" 0
        a: EVAL_RO "#!lua\\nreturn 1" 0 ; EVAL_RO "#!lua flags=no-writes\\nreturn 1" 0 ; EVALSHA_RO nope 0 ; EVALSHA_RO e0e1f9fabfc9d4800c877a703b823ac0578ff8db 0
        a: CLIENT REPLY SKIP ; EVAL "return 1" 0 ; EVAL "return 2" 0
        a: COMMAND GETKEYS EVAL x 2 a b c ; COMMAND GETKEYS EVALSHA_RO x 1 a ; COMMAND GETKEYS EVAL x 0 ; COMMAND GETKEYS EVAL x 5 a
    """,
    "waiting readers": """
        a: XADD s 0-1 f v ; XGROUP CREATE s g $
        r& XREAD BLOCK 0 STREAMS s $
        a: EVAL "for i=1,3 do redis.call('xadd','s',i..'-1','f',i) end redis.call('xdel','s','2-1')" 0
        r.
        a: XREADGROUP GROUP g d STREAMS s >
        h& XREADGROUP GROUP g c2 BLOCK 0 STREAMS s >
        a: EVAL "redis.call('xadd','s','9-1','f','v') redis.call('del','s')" 0
        h.
        a: EVAL "return redis.call('xread','block',0,'streams','s','$')" 0 ; EVAL "redis.setresp(3) return redis.call('xread','block',0,'streams','s','$')" 0
    """,
    "client-side caching": """
        a: CLIENT TRACKING ON
        a: SET k 1 ; EVAL "return redis.call('get','k')" 0
        b: SET k 2
        a: EVAL "return redis.call('get','k')" 1 k
        b: EVAL "return redis.call('set','k',3)" 0
        a: EVAL "redis.call('get','k') return redis.call('set','k',4)" 0
        b: SET k 5
        a: CLIENT TRACKING OFF ; CLIENT TRACKING ON NOLOOP
        a: EVAL "redis.call('get','k') return redis.call('set','k',4)" 0
        b: SET k 6
        a: CLIENT TRACKING OFF ; CLIENT TRACKING ON OPTIN ; CLIENT CACHING YES
        a: EVAL "return redis.call('get','k')" 0
        b: SET k 7
        a: EVAL "return redis.call('get','k')" 0
        b: SET k 8
        a: CLIENT TRACKING OFF ; CLIENT TRACKING ON BCAST
        b: EVAL "redis.call('set','x',1) redis.call('set','y',1)" 0
    """,
    "messages": """
        a: CONFIG SET notify-keyspace-events KEA
        e: PSUBSCRIBE *
        a: EVAL "redis.call('set','k',1) redis.call('publish','c','x') redis.call('xadd','s','1-1','f','v') redis.call('expire','k',100) redis.call('del','k') return 5" 0
        e: EVAL "redis.call('publish','c','mine') return 6" 0
        e: MULTI ; EVAL "redis.call('publish','c','mine') return 7" 0 ; EXEC
        a: EVAL "return redis.call('spublish','c','x')" 0
        a: CONFIG SET notify-keyspace-events ""
    """,
    "permissions": """
        a: ACL SETUSER bob on nopass ~k* &c* +@all -set
        a: ACL SETUSER eve on nopass ~* +get +ping
        a: ACL LOG RESET
        b: AUTH bob x
        e: AUTH eve x
        b: EVAL "return redis.call('get',KEYS[1])" 1 k1 ; EVAL "return redis.call('get',KEYS[1])" 1 other ; EVAL "return redis.call('get','other')" 0
        b: EVAL "return redis.call('set','k1',1)" 0 ; EVAL "return redis.pcall('set','k1',1)" 0 ; EVAL "return redis.call('publish','d','x')" 0
        b: EVAL "return redis.call('nope')" 0 ; EVAL "return redis.call('set')" 0 ; EVAL "return redis.call('config','get','x')" 0
        b: EVAL "return {redis.acl_check_cmd('set','k1','x'),redis.acl_check_cmd('get','k1'),redis.acl_check_cmd('get','other'),redis.acl_check_cmd('publish','d','x')}" 0
        b: MULTI ; EVAL "return redis.call('get','other')" 0 ; EXEC
        e: EVAL "return 1" 0 ; SCRIPT LOAD x ; GET k
        a: ACL LOG COUNT
        a: EVAL "return #redis.call('acl','log')" 0
    """,
    "pauses": """
        a: SET k 1
        a: CLIENT PAUSE 600000 WRITE
        a: EVAL "#!lua flags=no-writes\\nreturn redis.call('get','k')" 0 ; EVAL_RO "return 1" 0
        b~ EVAL "return 1" 0
        c~ EVAL "#!lua\\nreturn 2" 0
        a: CLIENT UNPAUSE
        b:
        c:
    """,
    "statistics": """
        a: SCRIPT FLUSH ; CONFIG RESETSTAT
        a: EVAL "redis.call('get','x') redis.pcall('incr') redis.pcall('nope') return redis.pcall('set','x')" 0
        a: EVAL "return redis.call('set','x','y') and redis.call('incr','x')" 0
        a: EVAL "return redis.status_reply('x')" 0 ; EVALSHA nope 0 ; EVAL x x ; EVAL "x=" 0
    """,
}


@pytest.mark.parametrize("name", DIALOGUES)
def test_dialogue(streamd_server: Server, redis_server: Server, name: str) -> None:
    compare_dialogue(streamd_server, redis_server, DIALOGUES[name])


def call_all(wire: Wire, lines: str) -> list[str]:
    """The replies to lines as typed into redis-cli."""
    return [show(wire.call(*split_line(line))) for line in filter(None, map(str.strip, lines.splitlines()))]


def test_monitors_see_the_script_and_its_commands(streamd_server: Server, redis_server: Server) -> None:
    def story(server: Server) -> list[str]:
        with Watcher(server) as watcher, server.connect() as wire:
            call_all(
                wire,
                """
                EVAL "redis.call('set',KEYS[1],'a b') redis.call('SELECT',3) redis.pcall('get') redis.pcall('incr','x')" 1 k
                EVAL "return redis.call('nope')" 0
                EVALSHA nope 0
                EVAL x y
                EVAL
                MULTI
                EVAL "return redis.call('get','k')" 0
                EXEC
                SCRIPT EXISTS x
                SCRIPT LOAD "return 1"
                EVAL_RO "return redis.call('ping')" 0
                """,
            )
            return watcher.until_end(wire)

    same_story(story, streamd_server, redis_server)


def test_slow_scripts_and_their_commands_are_logged(streamd_server: Server, redis_server: Server) -> None:
    def story(server: Server) -> object:
        with server.connect() as wire:
            call_all(wire, "CONFIG SET slowlog-log-slower-than 0\nCLIENT SETNAME me\nSLOWLOG RESET")
            wire.call("EVAL", "redis.call('set',KEYS[1],'x') return redis.pcall('incr',KEYS[1])", "1", "k")
            entries = wire.call("SLOWLOG", "GET").plain()
            wire.call("CONFIG", "SET", "slowlog-log-slower-than", "10000")
            own = wire.socket.getsockname()[1]
            return [(entry[3], entry[4] == b"127.0.0.1:%d" % own, entry[5]) for entry in entries]

    same_story(story, streamd_server, redis_server)


COUNTED = (
    "cmdstat_eval", "cmdstat_get", "cmdstat_set", "cmdstat_incr", "errorstat_", "number_of_cached_scripts",
    "evicted_scripts", "total_error_replies",
)  # fmt: skip


def test_statistics_of_commands(streamd_server: Server, redis_server: Server) -> None:
    def story(server: Server) -> object:
        with server.connect() as wire:
            call_all(wire, "FLUSHALL\nSCRIPT FLUSH\nCONFIG RESETSTAT")
            call_all(wire, DIALOGUES["statistics"].replace("a: ", "").replace(" ; ", "\n"))
            text = wire.call("INFO", "everything").value.decode()
            return sorted(command_counts(line) for line in text.splitlines() if line.startswith(COUNTED))

    same_story(story, streamd_server, redis_server)


def test_of_the_scripts_that_came_by_eval_500_are_kept(streamd_server: Server, redis_server: Server) -> None:
    def story(server: Server) -> object:
        with server.connect() as wire:
            call_all(wire, "SCRIPT FLUSH\nCONFIG RESETSTAT")
            loaded = wire.call("SCRIPT", "LOAD", "return 'loaded'").value
            first = wire.call("EVAL", "return redis.sha1hex('return -1')", "0").value
            wire.call("EVAL", "return -1", "0")
            wire.pipeline([("EVAL", f"return {number}", "0") for number in range(499)])
            looks = [wire.call("SCRIPT", "EXISTS", loaded, first)]
            wire.call("EVAL", "return -1", "0")
            wire.pipeline([("EVAL", f"return {number}", "0") for number in range(499, 600)])
            looks.append(wire.call("SCRIPT", "EXISTS", loaded, first))
            # Those thrown out are as good as new, by their text and then by their digest.
            looks += [wire.call("EVAL", f"return {number}", "0") for number in range(3)]
            looks += [wire.call("EVALSHA", sha1_hex(b"return %d" % number), "0") for number in range(3)]
            text = wire.call("INFO", "everything").value.decode()
            wire.call("SCRIPT", "FLUSH")
            lines = [line for line in text.splitlines() if "cached_scripts" in line or "evicted_scripts" in line]
            return list(map(show, looks)), lines

    same_story(story, streamd_server, redis_server)


LIMITED = """
    EVAL "return redis.call('get','k')" 0
    EVAL "return redis.call('set','k',1)" 0
    EVAL "return redis.pcall('set','k',1)" 0
    EVAL "redis.call('del','k') return redis.call('set','k',1)" 0
    EVAL "redis.pcall('get') redis.pcall('incr','k') return {redis.pcall('set','k',1),redis.pcall('get','k')}" 0
    EVAL "redis.pcall('publish','c','x') return redis.pcall('xgroup','create','none','g','0')" 0
    EVAL "#!lua\\nreturn 1" 0
    EVAL "#!lua\\nreturn redis.call('set','k',1)" 0
    EVAL "#!lua flags=no-writes\\nreturn redis.call('get','k')" 0
    EVAL "#!lua flags=allow-oom\\nreturn redis.call('set','k',2)" 0
    EVAL "#!lua flags=allow-stale\\nreturn redis.call('set','k',2)" 0
    EVAL "#!lua flags=allow-stale,no-writes\\nreturn redis.call('get','k')" 0
    EVAL "#!lua flags=allow-stale,no-writes\\nreturn redis.call('echo','k')" 0
    EVAL_RO "return redis.call('get','k')" 0
    EVAL_RO "#!lua\\nreturn redis.call('get','k')" 0
    EVAL "return redis.call('publish','c','x')" 0
    EVAL "return redis.call('xadd','s','5-1','f','v')" 0
    SCRIPT LOAD "#!lua\\nreturn redis.call('set','k',1)"
    EVALSHA a3ab7d4cf98a5df6b1ec0b4b54bdf4c07a2d0d4e 0
    MULTI
    EVAL "return redis.call('set','k',1)" 0
    EVAL "#!lua flags=no-writes\\nreturn redis.call('get','k')" 0
    EXEC
    MULTI
    EVAL "#!lua\\nreturn redis.call('set','k',1)" 0
    EXEC
"""


SCRIPTS = [line for line in map(str.strip, LIMITED.splitlines()) if line.startswith("EVAL")]
LIMITS = pytest.mark.parametrize(
    ("limit", "undo"),
    [
        ("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"),
        ("CONFIG SET min-replicas-to-write 1", "CONFIG SET min-replicas-to-write 0"),
        ("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"),
        ("REPLICAOF 127.0.0.1 1\nCONFIG SET replica-serve-stale-data no",
         "CONFIG SET replica-serve-stale-data yes\nREPLICAOF NO ONE"),
        ("REPLICAOF 127.0.0.1 1\nCONFIG SET replica-read-only no", "CONFIG SET replica-read-only yes\nREPLICAOF NO ONE"),
        ("CONFIG SET min-replicas-to-write 1 maxmemory 1", "CONFIG SET min-replicas-to-write 0 maxmemory 0"),
        ("REPLICAOF 127.0.0.1 1\nCONFIG SET min-replicas-to-write 1",
         "REPLICAOF NO ONE\nCONFIG SET min-replicas-to-write 0"),
        ("ACL SETUSER default -set", "ACL SETUSER default +@all"),
    ],
    ids=["memory", "replicas", "a replica", "a stale replica", "a replica that may write", "memory and replicas",
         "a replica without replicas", "permissions"],
)  # fmt: skip


@LIMITS
def test_limits(streamd_server: Server, redis_server: Server, limit: str, undo: str) -> None:
    def story(server: Server) -> list[str]:
        with server.connect() as wire:
            call_all(wire, "FLUSHALL\nSET k old")
            call_all(wire, limit)
            try:
                return call_all(wire, LIMITED)
            finally:
                call_all(wire, undo)

    same_story(story, streamd_server, redis_server)


@LIMITS
def test_limits_that_come_inside_a_transaction(
    streamd_server: Server, redis_server: Server, limit: str, undo: str
) -> None:
    """A script that declares its flags is refused at its start, any other at its first write, and not after that."""

    def story(server: Server) -> list[str]:
        said = []
        with server.connect() as wire:
            for script in SCRIPTS:
                call_all(wire, "FLUSHALL\nSET k old")
                said += call_all(wire, f"MULTI\nSET first 1\n{limit}\n{script}\nEXEC")
                call_all(wire, undo)
        return said

    same_story(story, streamd_server, redis_server)


def test_a_limit_that_comes_after_a_script_was_queued(streamd_server: Server, redis_server: Server) -> None:
    def story(server: Server) -> list[str]:
        with server.connect() as wire, server.connect() as other:
            call_all(wire, "FLUSHALL\nMULTI")
            call_all(wire, "EVAL \"#!lua\\nreturn redis.call('set','k',1)\" 0")
            call_all(other, "CONFIG SET maxmemory 1")
            try:
                return call_all(wire, "EXEC\nGET k")
            finally:
                call_all(other, "CONFIG SET maxmemory 0")

    same_story(story, streamd_server, redis_server)


STOP = "stop-writes-on-bgsave-error"


def test_a_failed_save_refuses_scripts(new_streamd: StartServer, new_redis: StartServer) -> None:
    def story(server: Server) -> list[str]:
        with server.connect() as wire:
            wire.call("SET", "k", "1")
            wire.call("BGSAVE")
            eventually(lambda: b"bgsave_status:err" in wire.call("INFO", "persistence").value)
            said = call_all(wire, LIMITED)
            for script in SCRIPTS:
                for limit in (f"CONFIG SET {STOP} yes", f"CONFIG SET {STOP} yes\nREPLICAOF 127.0.0.1 1"):
                    call_all(wire, f"REPLICAOF NO ONE\nCONFIG SET {STOP} no")
                    said += call_all(wire, f"MULTI\nSET first 1\n{limit}\n{script}\nEXEC")
            return said

    server_settings = {"save": "3600 1", "dbfilename": "no.rdb", "enable_debug_command": "yes"}
    servers = [new_streamd(**server_settings), new_redis(**server_settings)]
    for server in servers:
        (server.folder / "no.rdb").mkdir()
        (server.folder / "no.rdb" / "x").touch()
    same_story(story, *servers)
    for server in servers:
        server.kill()  # a shutdown would be refused
