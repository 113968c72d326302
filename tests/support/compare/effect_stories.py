"""Lines whose effects are compared with Redis's: in append-only files, and in what replicas receive."""

from __future__ import annotations

__all__ = ["GENERIC_STORIES", "MEETINGS", "NO_CYCLE", "STREAM_STORIES", "UNIT_STORIES"]

NO_CYCLE = "DEBUG SET-ACTIVE-EXPIRE 0\n"

GENERIC_STORIES = {
    "set": """
        SET a 1
        SET a 3 EX 100
        SET a 4 KEEPTTL
        SET a 4 GET KEEPTTL
        SET a 4 get get
        SET a 5 NX
        SET b 5 NX GET
        SET a 5 PX 100000 XX GET
        SET a 5 EXAT 99999999999
        SET a 5 PXAT 99999999999999
        SET a 6 IFEQ 5
        SET a 6 IFEQ 9
        SET a 6 IFEQ 6 EX 100 GET
        SET c 6 IFNE 6
        SET none 6 XX
        SETNX a 1
        SETNX d 1
        SETEX a 10 v
        PSETEX b 10000 v
        GETSET a 1
        MSET a 1 b 2
        MSETNX a 1 e 2
        MSETNX e 1 f 2
        MSETEX 2 a 1 g 2
        MSETEX 2 a 1 h 2 NX
        MSETEX 2 a 1 h 2 XX
        MSETEX 2 h 1 i 2 NX EX 100
        MSETEX 2 h 1 i 2 EX 10 ex 100 xx
        MSETEX 2 h 1 i 2 KEEPTTL
        MSETEX 2 h 1 i 2 PX 100000 KEEPTTL
        MSETEX 2 h 1 i 2 PX 100000
        MSETEX 2 h 1 i 2 EXAT 99999999999
        MSETEX 2 h 1 i 2 PXAT 99999999999999
        MSETEX 2 h 1 h 2
        MSETEX 2 h 1 j 2 EXAT 1
        MSETEX 2 j 1 j 2 PXAT 1
        XADD s 1-1 f v
        MSETEX 1 s v EX 100
    """,
    "scripts": """
        EVAL "return redis.call('get',KEYS[1])" 1 a
        EVAL "return redis.call('sEt',KEYS[1],1)" 1 a
        EVAL "redis.call('SET','a',1,'ex',100) redis.call('incr','a')" 0
        EVAL "redis.call('select',2) redis.call('set','a',1) redis.call('select',0) redis.call('set','b',1)" 0
        EVAL "redis.call('xadd','x','1-1','f','v') redis.call('xgroup','create','x','g','0') redis.call('xreadgroup','group','g','c','streams','x','>')" 0
        EVAL "redis.call('set','half',1) error('x')" 0
        MULTI
        SET m 1
        EVAL "redis.call('set','n',1) redis.call('set','o',1)" 0
        EXEC
    """,
    "changing": """
        INCR a
        DECR a
        INCRBY a 5
        DECRBY a 5
        INCRBYFLOAT a 1.5
        INCR a
        APPEND c v
        APPEND c ""
        SETRANGE c 1 abc
        SETRANGE c 1 ""
        GETDEL c
        GETDEL c
        SET e v
        GETEX e
        GETEX e EX 100
        GETEX e PXAT 99999999999999
        GETEX e EXAT 99999999999
        GETEX e PERSIST
        GETEX e PERSIST
        GETEX e PXAT 1
        SET d v
        DELEX d IFEQ no
        DELEX d IFNE no
        DELEX d
        SET d v
        DELEX d
    """,
    "whole keys": """
        SET a 1
        SET b 1 EX 100
        DEL none
        UNLINK none a
        SET a 1
        DEL a none a
        RENAME b c
        RENAME c c
        RENAMENX c d
        RENAMENX d d
        COPY d e
        COPY d e
        COPY d e DB 1 REPLACE
        MOVE e 1
        MOVE d 2
        TOUCH d
        SWAPDB 0 1
        SWAPDB 0 0
        FLUSHDB
        FLUSHDB ASYNC
        FLUSHALL
    """,
    "expiry": """
        SET s v
        EXPIRE s 1000
        EXPIRE s 1000 NX
        EXPIRE s 2000 gt
        PEXPIRE s 200000
        EXPIREAT s 99999999999
        PEXPIREAT s 99999999999999
        PERSIST s
        PERSIST s
        EXPIRE s 0
        EXPIRE none 10
        SET s v
        PEXPIREAT s 1
        XADD s 1-1 f v
        EXPIRE s -1
    """,
    "other databases": """
        SET a 1
        SELECT 3
        SET a 1
        INCR a
        GET a
        SELECT 0
        DEL a
    """,
    "transactions": """
        MULTI
        SET a 1
        EXEC
        MULTI
        SET a 1
        INCR a
        GETDEL a
        EXEC
        MULTI
        GET a
        DEL none
        EXEC
        MULTI
        SELECT 1
        SET a 1
        SELECT 0
        SET a 1
        EXEC
        MULTI
        FLUSHDB
        SET a 1
        EXEC
    """,
}  # fmt: skip

MEETINGS = [
    "GET k", "SET k w", "SET k w NX", "SET k w XX", "SETNX k w", "SETEX k 10 w", "GETSET k w", "GETDEL k", "GETEX k EX 10",
    "MSET k w l w", "MSETNX k w l w", "MSETEX 2 k w l w NX", "MSETEX 2 k w k w XX", "LCS k k", "INCR k", "APPEND k w", "SETRANGE k 1 w", "DEL k", "DEL k other", "DELEX k IFEQ v",
    "EXISTS k k", "TYPE k", "TTL k", "EXPIRE k 10", "PERSIST k", "RENAME k l", "RENAME other k", "RENAMENX other k",
    "COPY other k", "COPY other k REPLACE", "MOVE k 1", "OBJECT ENCODING k", "SCAN 0", "KEYS *", "XADD k 1-1 f v",
    "WATCH k", "FLUSHALL", "DUMP k", "MGET k k",
]  # fmt: skip


FILL = "".join(f"XADD s 1-{seq} f v\n" for seq in range(1, 8))

STREAM_STORIES = {
    "IDs are propagated as they came out": """
        XADD s NOMKSTREAM * f v
        XADD s 1-1 f v
        XADD s 5 f v
        XADD s * f v
        xadd s 9999999999999-* f v
        XADD s 9999999999999-* f v
        XADD s 1-1 f v
        XADD s NOMKSTREAM * f v
    """,
    "trims while adding": FILL
    + """
        xadd s maxlen ~ 2 * f v
        XADD s MAXLEN = 3 * f v
        XADD s MAXLEN 3 * f v
        XADD s MAXLEN ~ 0 LIMIT 5 * f v
        XADD s LIMIT 0 MAXLEN ~ 1 NOMKSTREAM KEEPREF 1-* f v
        XADD s LIMIT 1 MAXLEN ~ 1 NOMKSTREAM * f v
        XADD s MINID ~ 1-3 * f v
        XADD s MINID = 1-4 * f v
        XADD s MINID ~ 9999999999999 LIMIT 100 * f v
        XADD s MINID 9999999999999 * f v
        XADD s MAXLEN ~ 0 * f v
        XADD s MAXLEN 0 * f v
    """,
    "trims": FILL
    + """
        XTRIM s MAXLEN 8
        XTRIM s MAXLEN ~ 6
        XTRIM s MAXLEN ~ 5 LIMIT 2
        xtrim s maxlen ~ 5
        XTRIM s MAXLEN = 4
        XTRIM s MINID ~ 1-5
        XTRIM s MINID ~ 1-6
        XDEL s 1-5
        XTRIM s MINID ~ 1-7
        XTRIM s MINID 1-7
        XADD s 9-9 f v
        XTRIM s MINID ~ 2 LIMIT 100 KEEPREF
        XTRIM s MINID ~ 10
        XTRIM s MAXLEN 0
        XTRIM none MAXLEN 0
    """,
    "trims and groups": FILL
    + """
        XGROUP CREATE s g 1-6
        XCLAIM s g a 0 1-1 FORCE
        XTRIM s MAXLEN ~ 3 ACKED
        XTRIM s DELREF MAXLEN ~ 2
        XTRIM s MAXLEN = 1 ACKED
        XTRIM s ACKED MAXLEN 0
        XADD s ACKED MAXLEN ~ 0 9-9 f v
        XADD s DELREF MAXLEN ~ 0 9-10 f v
    """,
    "idempotent producers": """
        XADD s IDMP p i * f v
        XADD s IDMP p i * f v
        XADD s IDMPAUTO p * f v
        XADD s IDMPAUTO p * f v
        XADD s IDMP p j MAXLEN ~ 1 * f v
        XADD s IDMP p j MAXLEN ~ 1 * f v
        XADD s MAXLEN 0 IDMP q j * f v
        XADD s IDMP q j 1-1 f v
        XCFGSET s IDMP-DURATION 100
        XCFGSET s IDMP-DURATION 101
        xcfgset s idmp-duration 101 IDMP-MAXSIZE 7
        XADD t 6-1 f v
        XIDMPRECORD t p i 6-1
        XIDMPRECORD t p i 6-1
        XIDMPRECORD t p i 6-2
        XADD t 6-2 f v
        XIDMPRECORD t p i 6-2
    """,
    "deleting and acknowledging": FILL
    + """
        XDEL s 1-1 1-1 9-9
        XDEL s 9-9
        XGROUP CREATE s g 0
        XREADGROUP GROUP g a STREAMS s >
        XACK s g 1-2 1-2 1-1
        XACK s g 1-2
        XDELEX s ACKED IDS 1 1-2
        XDELEX s ACKED IDS 2 1-3 1-2
        XDELEX s DELREF IDS 2 1-3 9-9
        XACKDEL s g IDS 2 1-3 1-4
        XACKDEL s g IDS 1 1-4
        XGROUP CREATE s h 1-4
        XACKDEL s g ACKED IDS 1 1-5
        XDELEX s KEEPREF IDS 1 1-6
        XACKDEL s g IDS 1 1-6
        XACKDEL s g DELREF IDS 2 1-6 1-7
    """,
    "groups, consumers and what XSETID sets": """
        XGROUP CREATE s g $ MKSTREAM ENTRIESREAD 3
        XGROUP CREATE s g 0
        XADD s 5-5 f v
        XGROUP CREATE s h $ ENTRIESREAD 99
        XGROUP SETID s g 0
        XGROUP SETID s g 0
        XGROUP SETID s g $ ENTRIESREAD 98
        XGROUP SETID s nogroup 0
        XGROUP CREATECONSUMER s g a
        XGROUP CREATECONSUMER s g a
        XGROUP DELCONSUMER s g a
        XGROUP DELCONSUMER s g a
        XGROUP DESTROY s g
        XGROUP DESTROY s g
        XSETID s 5-5
        XSETID s 5-5 ENTRIESADDED 10 MAXDELETEDID 5-5
        XSETID s 1-1
    """,
    "reading for a group": FILL
    + """
        XGROUP CREATE s g 0
        XADD t 1-1 f v
        XGROUP CREATE t g 0
        XREADGROUP GROUP g a COUNT 1 STREAMS s >
        XREADGROUP GROUP g a COUNT 2 STREAMS s >
        XREADGROUP GROUP g a STREAMS s 0
        XREADGROUP GROUP g new1 STREAMS s 0
        XREADGROUP GROUP g new2 NOACK COUNT 1 STREAMS s >
        XREADGROUP GROUP g new2 NOACK COUNT 1 STREAMS s t > >
        XREADGROUP GROUP g new2 NOACK STREAMS s t > >
        XREADGROUP GROUP g new3 NOACK STREAMS s t > >
        XREADGROUP GROUP g new4 STREAMS s t > >
        XREADGROUP GROUP g new5 NOACK STREAMS s 0
        XREADGROUP GROUP g new6 BLOCK 1 NOACK STREAMS s >
        XREADGROUP GROUP g new6 BLOCK 1 NOACK STREAMS s >
        XREADGROUP GROUP g new7 BLOCK 1 STREAMS s >
        XADD t 5-5 f v
        XREADGROUP GROUP g a STREAMS s t > >
        XADD t 5-6 f v
        XREADGROUP GROUP g new8 STREAMS t s > 0
        XADD t 5-7 f v
        XREADGROUP GROUP g new9 NOACK STREAMS s t 0 >
        XGROUP SETID s g 1-2
        XREADGROUP GROUP g a STREAMS s >
        XGROUP SETID s g 0 ENTRIESREAD 2
        XREADGROUP GROUP g b NOACK STREAMS s >
        XDEL s 1-3
        XGROUP SETID s g 1-2
        XREADGROUP GROUP g b COUNT 1 STREAMS s >
        XREADGROUP GROUP nogroup b COUNT 1 STREAMS s >
    """,
    "claiming while reading": FILL
    + """
        XGROUP CREATE s g 0
        XREADGROUP GROUP g a COUNT 3 STREAMS s >
        XREADGROUP GROUP g b COUNT 2 CLAIM 0 STREAMS s >
        XREADGROUP GROUP g b CLAIM 0 STREAMS s >
        XREADGROUP GROUP g c CLAIM 0 STREAMS s >
        XADD s 1-8 f v
        XREADGROUP GROUP g d CLAIM 0 NOACK STREAMS s >
        XADD s 1-9 f v
        XDEL s 1-2
        XREADGROUP GROUP g d CLAIM 0 STREAMS s >
        XREADGROUP GROUP g d CLAIM 1000000 STREAMS s >
    """,
    "claiming": FILL
    + """
        XGROUP CREATE s g 0
        XREADGROUP GROUP g a COUNT 4 STREAMS s >
        XCLAIM s g c 0 1-1 1-3
        XCLAIM s g c 0 1-1 JUSTID
        XCLAIM s g c 1000000 1-1
        XCLAIM s g new1 1000000 1-1
        XDEL s 1-2
        XCLAIM s g c 0 1-2
        XCLAIM s g c 0 1-2
        XCLAIM s g c 0 1-1 IDLE 1000 RETRYCOUNT 9
        XCLAIM s g c 0 1-1 1-3 TIME 1000 RETRYCOUNT 9 LASTID 7-7
        XCLAIM s g c 0 1-2 LASTID 8-8
        XCLAIM s g c 0 1-2 LASTID 8-7
        XCLAIM s g c 0 1-5 FORCE
        XCLAIM s g c 0 1-5 FORCE LASTID 9-9 JUSTID
        XCLAIM s g new2 1000000 1-5 LASTID 10-10
        XCLAIM s g new2 0 99-99 FORCE
        XDEL s 1-5
        XCLAIM s g new2 1000000 1-5 LASTID 11-11
        XCLAIM s g c 0 1-1 WHAT
        XCLAIM s g c 0 1-1 TIME -1
        XCLAIM s g c 0 1-1 TIME 99999999999999 RETRYCOUNT 0
        XCLAIM s g c 0 1-6 1-6 FORCE RETRYCOUNT 5
        XADD s 10 f v
        XCLAIM s g c 0 10 010-00 FORCE LASTID 12
        XAUTOCLAIM s g c 0 10
    """,
    "claiming automatically": FILL
    + """
        XGROUP CREATE s g 0
        XREADGROUP GROUP g a COUNT 5 STREAMS s >
        XDEL s 1-2 1-4
        XAUTOCLAIM s g b 0 0 COUNT 2
        XAUTOCLAIM s g b 0 0 JUSTID
        XAUTOCLAIM s g new1 1000000 0
        XDEL s 1-1
        XAUTOCLAIM s g b 1000000 0
        XAUTOCLAIM s g b 0 +
    """,
}


UNIT_STORIES = {
    "who is served after a wait is propagated after what served it": """
        m: XGROUP CREATE s g $ MKSTREAM
        m: XGROUP CREATE s h $
        a> XREADGROUP GROUP g alice BLOCK 0 STREAMS s >
        b> XREADGROUP GROUP h bob NOACK BLOCK 0 STREAMS s >
        r> XREAD BLOCK 0 STREAMS s $
        m: XADD s 1-1 f v
        abr.
    """,
    "each of several that one command serves is a unit": """
        m: XGROUP CREATE s g $ MKSTREAM
        m: XGROUP CREATE s h $
        m: XGROUP CREATE s i $
        a> XREADGROUP GROUP g alice BLOCK 0 STREAMS s >
        b> XREADGROUP GROUP h bob NOACK BLOCK 0 STREAMS s >
        c> XREADGROUP GROUP i carol BLOCK 0 STREAMS s >
        m: XADD s 1-1 f v
        abc.
    """,
    "a transaction is a unit, and who it serves comes after it": """
        m: XGROUP CREATE s g $ MKSTREAM
        a> XREADGROUP GROUP g alice BLOCK 0 STREAMS s >
        m: MULTI
        m: XADD s * f v
        m: XADD s MAXLEN ~ 1000 * f v
        m: XREADGROUP GROUP g bob COUNT 1 STREAMS s >
        m: XREADGROUP GROUP g bob BLOCK 0 STREAMS t >
        m: EXEC
        a.
    """,
    "a transaction with one effect": """
        m: XADD s 1-1 f v
        m: MULTI
        m: XADD s 1-2 f v
        m: XLEN s
        m: EXEC
        m: MULTI
        m: XLEN s
        m: EXEC
    """,
    "a consumer that was deleted while it waited": """
        m: XGROUP CREATE s g $ MKSTREAM
        m: XGROUP CREATE t g $ MKSTREAM
        a> XREADGROUP GROUP g alice NOACK BLOCK 0 STREAMS s t > >
        m: XGROUP DELCONSUMER s g alice
        m: XGROUP DELCONSUMER t g alice
        m: XADD s MAXLEN 0 1-1 f v
        m: XADD s 1-2 f v
        a.
    """,
    "claiming by waiting": """
        m: XADD s 1-1 f v
        m: XGROUP CREATE s g 0
        m: XREADGROUP GROUP g alice STREAMS s >
        b> XREADGROUP GROUP g bob BLOCK 0 CLAIM 1500 STREAMS s >
        b.
    """,
}
