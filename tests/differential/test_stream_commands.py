"""Every stream command, option, boundary and refusal, written down by hand and compared with a real Redis.

Each case runs in RESP2 and RESP3 on emptied servers; afterwards the whole state of its keys is compared. Marked `real`.
"""

from __future__ import annotations

import pytest
from support.compare.differential import Pair, Request
from support.compare.tables import cases, keys_of

pytestmark = pytest.mark.real

MAX = "18446744073709551615"

CASES = f"""
== xadd choosing ids
XADD s 0-* f v
XADD s 0-* f v
XADD s 5-* f v
XADD s 5-* f v
XADD s 4-* f v
XADD s 7 f v
XADD s 7-1 f v
XADD s 8-{MAX} f v
XADD s 8-* f v
XADD s 9-* f v

== xadd with ids written oddly
XADD s 0010-02 f v
XADD s +11-+3 f v
XADD s " 12-4" f v
XADD s "13- 5" f v
XADD s "\\t14" f v
XADD s 15-0x1 f v
XADD s "16-1 " f v
XADD s 17-1\\x00junk f v
XADD s "18-1\\x00junk" f v
XADD s 00000000000000000000000000000000000019-1 f v
XADD s 1844674407370955161600-1 f v
XADD s {"0" * 120}20-1 f v
XADD s {"0" * 130}21-1 f v
XADD s --1 f v
XADD s 1e3 f v

== xadd at the end of the id space
XADD s {MAX}-0 f v
XADD s {MAX}-* f v
XADD s * f v
XADD s {MAX}-{MAX} f v
XADD s * f v
XADD s {MAX}-* f v
XADD s {MAX}-{MAX} f v
XADD s 1-1 f v
XINFO STREAM s

== xadd carries into the next millisecond
XADD s 99999999999999-{MAX} f v
XADD s * f v
XRANGE s - +

== xadd nomkstream
XADD s NOMKSTREAM 1-1 f v
EXISTS s
XADD s 1-1 f v
XADD s NOMKSTREAM 1-2 f v
XADD s nomkstream NOMKSTREAM 1-3 f v
XADD none NOMKSTREAM 0-0 f v
XADD none NOMKSTREAM x f v

== xadd keeps fields and values as they are
XADD s 1-1 "" "" f f f g
XADD s 1-2 f -1 g 0 h 127 i 128 j 4095 k 4096 l -4096 m -4097
XADD s 1-3 f 32767 g 32768 h 8388607 i 8388608 j 2147483647 k 2147483648
XADD s 1-4 f 9223372036854775807 g -9223372036854775808 h 9223372036854775808 i 01 j -0 k +1 l " 1" m 1.0
XADD s 1-5 f "\\x00\\xff\\r\\n"
XADD s 1-6 f {"x" * 63} g {"x" * 64} h {"x" * 4095} i {"x" * 4096}
XADD s 1-7 1 2 3 4
XADD s 1-8 1 2 3 4
XRANGE s - +
XREVRANGE s + -

== xadd same and other fields than the first entry of a node
XADD s 1-1 temperature 20 humidity 50
XADD s 1-2 temperature 21 humidity 51
XADD s 1-3 humidity 51 temperature 21
XADD s 1-4 temperature 21
XADD s 1-5 temperature 21 humidity 50 pressure 1000
XADD s 2-0 temperature 21 humidity 50
XDEL s 1-1
XADD s 2-1 temperature 22 humidity 50
XRANGE s - +

== xadd maxlen
XADD s MAXLEN 3 1-1 f v
XADD s MAXLEN 3 1-2 f v
XADD s MAXLEN 3 1-3 f v
XADD s MAXLEN 3 1-4 f v
XADD s MAXLEN = 2 1-5 f v
XADD s maxlen = 1 1-6 f v
XADD s MAXLEN 0 1-7 f v
XADD s MAXLEN 0 1-7 f v
XLEN s
XADD s MAXLEN ~ 2 1-8 f v
XADD s MAXLEN ~ 2 LIMIT 0 1-9 f v
XADD s LIMIT 3 MAXLEN ~ 2 1-10 f v

== xadd minid
XADD s 1-1 f v
XADD s 2-1 f v
XADD s MINID 2 3-1 f v
XADD s MINID = 3-1 4-1 f v
XADD s MINID ~ 4 5-1 f v
XADD s MINID 99 6-1 f v
XLEN s
XADD s MINID 0 7-1 f v
XADD s MINID {MAX}-{MAX} 8-1 f v

== xadd cuts nodes by number
CONFIG SET stream-node-max-entries 3
XADD s 1-1 f v
XADD s 1-2 f v
XADD s 1-3 f v
XINFO STREAM s
XADD s 1-4 f v
XINFO STREAM s
XADD s MAXLEN ~ 2 1-5 f v
XADD s MAXLEN ~ 2 1-6 f v
XADD s MAXLEN ~ 2 1-7 f v
XINFO STREAM s
XDEL s 1-7
XINFO STREAM s

== xadd counts deleted entries when it cuts nodes
CONFIG SET stream-node-max-entries 3
XADD s 1-1 f v
XADD s 1-2 f v
XADD s 1-3 f v
XDEL s 1-2
XADD s 1-4 f v
XINFO STREAM s

== xadd cuts nodes by size
CONFIG SET stream-node-max-bytes 100
XADD s 1-1 f {"x" * 10}
XADD s 1-2 f {"x" * 10}
XADD s 1-3 f {"x" * 10}
XADD s 1-4 f {"x" * 10}
XADD s 1-5 f {"x" * 200}
XADD s 1-6 f v
XINFO STREAM s
CONFIG SET stream-node-max-bytes 0
XADD s 1-7 f {"x" * 5000}
XADD s 1-8 f {"x" * 5000}
XINFO STREAM s

== xadd with entries larger than a node
XADD s 1-1 f {"x" * 5000}
XADD s 1-2 f {"x" * 5000}
XADD s 1-3 f v
XADD s 1-4 f v
XINFO STREAM s FULL

== radix tree of far and near ids
CONFIG SET stream-node-max-entries 1
XADD s 1-1 f v
XADD s 1-2 f v
XADD s 1-256 f v
XADD s 1-65536 f v
XADD s 2-0 f v
XADD s 256-0 f v
XADD s 65536-65536 f v
XADD s 4294967296-0 f v
XADD s 1099511627776-1 f v
XADD s {MAX}-1 f v
XINFO STREAM s
XDEL s 1-256
XINFO STREAM s
XDEL s 4294967296-0 1-1
XINFO STREAM s
XTRIM s MAXLEN 2
XINFO STREAM s
XTRIM s MAXLEN 0
XINFO STREAM s

== xadd idmp
XADD s IDMP p i * f v
XADD s IDMP p i * f other
XADD s IDMP p j * f v
XADD s IDMP q i * f v
XLEN s
XINFO STREAM s
XDEL s 1-1
XADD s NOMKSTREAM IDMP p i MAXLEN 1 * f v
XLEN s
XADD none NOMKSTREAM IDMP p i * f v
XCFGSET s IDMP-MAXSIZE 1
XADD s IDMP p i * f v
XADD s IDMP p j * f v
XADD s IDMP p i * f v
XLEN s
XINFO STREAM s

== xadd idmpauto knows equal pairs in any order
XADD s IDMPAUTO p * f v g w
XADD s IDMPAUTO p * g w f v
XADD s IDMPAUTO p * f w g v
XADD s IDMPAUTO p * f v
XADD s IDMPAUTO p * f v f v
XADD s IDMPAUTO q * f v
XADD s IDMPAUTO p * fv ""
XADD s IDMPAUTO p * "" fv
XADD s IDMP p "\\x6e\\x95\\x72\\x9e\\xe7\\x27\\xf0\\x81\\x4a\\xed\\xff\\xba\\x55\\x73\\x00\\x79" * other entry
XLEN s
XINFO STREAM s

== idmp survives copies and renames and not deletion
XADD s IDMP p i * f v
COPY s t
XADD t IDMP p i * f v
RENAME t u
XADD u IDMP p i * f v
XLEN u
DEL u
XADD u IDMP p i * f v
XINFO STREAM u

== xcfgset
XADD s 1-1 f v
XCFGSET s IDMP-DURATION 50
XCFGSET s IDMP-MAXSIZE 7 IDMP-DURATION 60
XCFGSET s idmp-maxsize 7
XINFO STREAM s
XADD s IDMP p i * f v
XCFGSET s IDMP-MAXSIZE 7
XADD s IDMP p i * f v
XCFGSET s IDMP-MAXSIZE 8
XADD s IDMP p i * f v
XINFO STREAM s
XLEN s
CONFIG SET stream-idmp-duration 33 stream-idmp-maxsize 44
XADD t 1-1 f v
XINFO STREAM t
XINFO STREAM s

== xidmprecord
XADD s 99999999999999-1 f v
XIDMPRECORD s p i 99999999999999-1
XIDMPRECORD s p i 99999999999999-1
XIDMPRECORD s p i 99999999999999-2
XADD s 99999999999999-2 f v
XIDMPRECORD s p i 99999999999999-2
XIDMPRECORD s p j abc
XIDMPRECORD s "" j 99999999999999-1
XIDMPRECORD s p "" 99999999999999-1
XIDMPRECORD none p i 99999999999999-1
XIDMPRECORD s p
XADD s IDMP p i * f v
XINFO STREAM s

== xtrim exact
XADD s 1-1 f v
XADD s 1-2 f v
XADD s 1-3 f v
XADD s 1-4 f v
XADD s 1-5 f v
XTRIM s MAXLEN 10
XTRIM s MAXLEN 4
XINFO STREAM s
XTRIM s MAXLEN = 3
XTRIM s MINID 1-4
XTRIM s MINID = 1-5
XTRIM s MINID 1-1
XTRIM s MINID 2
XTRIM s MAXLEN 0
XTRIM none MAXLEN 0
XTRIM none MINID 0
XADD s 1-6 f v
XINFO STREAM s

== xtrim approximate by length
CONFIG SET stream-node-max-entries 3
XADD s 1-1 f v
XADD s 1-2 f v
XADD s 1-3 f v
XADD s 1-4 f v
XADD s 1-5 f v
XADD s 1-6 f v
XADD s 1-7 f v
XTRIM s MAXLEN ~ 5
XTRIM s MAXLEN ~ 4
XTRIM s MAXLEN ~ 2 LIMIT 2
XTRIM s MAXLEN ~ 1 LIMIT 3
XTRIM s MAXLEN ~ 0
XTRIM s MAXLEN ~ 0 LIMIT 0
XADD s 1-8 f v
XDEL s 1-8

== xtrim approximate by id
CONFIG SET stream-node-max-entries 3
XADD s 1-1 f v
XADD s 1-2 f v
XADD s 1-3 f v
XADD s 1-4 f v
XADD s 1-5 f v
XADD s 1-6 f v
XADD s 1-7 f v
XTRIM s MINID ~ 1-3
XTRIM s MINID ~ 1-4
XDEL s 1-4 1-6
XTRIM s MINID ~ 1-6
XTRIM s MINID ~ 1-7 LIMIT 1
XTRIM s MINID ~ 9 LIMIT 1
XTRIM s MINID ~ 9
XINFO STREAM s

== xtrim with policies
XADD s 1-1 f v
XADD s 1-2 f v
XADD s 1-3 f v
XADD s 1-4 f v
XGROUP CREATE s g 0
XGROUP CREATE s h 0
XREADGROUP GROUP g a COUNT 3 STREAMS s >
XREADGROUP GROUP h a COUNT 2 STREAMS s >
XTRIM s MAXLEN 0 ACKED
XACK s g 1-1 1-2
XTRIM s MAXLEN 0 ACKED
XACK s h 1-1
XTRIM s MAXLEN 0 ACKED
XTRIM s ACKED MINID 9
XPENDING s h
XTRIM s DELREF MAXLEN 2
XPENDING s h
XPENDING s g
XTRIM s KEEPREF MAXLEN 1
XTRIM s keepref MAXLEN 0
XPENDING s g - + 10

== xtrim with policies and nodes
CONFIG SET stream-node-max-entries 2
XADD s 1-1 f v
XADD s 1-2 f v
XADD s 1-3 f v
XADD s 1-4 f v
XADD s 1-5 f v
XADD s 1-6 f v
XGROUP CREATE s g 0
XREADGROUP GROUP g a COUNT 5 STREAMS s >
XACK s g 1-2 1-3 1-4
XTRIM s MAXLEN ~ 2 ACKED
XINFO STREAM s
XTRIM s MAXLEN ~ 1 LIMIT 1 DELREF
XTRIM s MINID ~ 1-6 DELREF
XINFO STREAM s FULL

== xadd with policies
XADD s 1-1 f v
XADD s 1-2 f v
XGROUP CREATE s g 0
XREADGROUP GROUP g a COUNT 1 STREAMS s >
XADD s ACKED MAXLEN 1 1-3 f v
XADD s DELREF MAXLEN 1 1-4 f v
XADD s KEEPREF MAXLEN 1 1-5 f v
XADD s KEEPREF 1-6 f v
XADD s DELREF NOMKSTREAM MINID 1-6 1-7 f v
XPENDING s g

== xdel
XADD s 1-1 f v
XADD s 1-2 f v
XADD s 1-3 f v
XDEL s 1-2 1-2 9-9
XDEL s 1-2
XINFO STREAM s
XDEL s 1
XDEL s 0
XDEL s 1-1 1-3
XINFO STREAM s
XDEL s 1-1
XADD s 1-3 f v
XADD s 1-4 f v
XDEL none 1-1

== xdel at both ends of nodes
CONFIG SET stream-node-max-entries 3
XADD s 1-1 f v
XADD s 1-2 f v
XADD s 1-3 f v
XADD s 1-4 f v
XADD s 1-5 f v
XADD s 1-6 f v
XADD s 1-7 f v
XDEL s 1-1
XINFO STREAM s
XDEL s 1-3
XDEL s 1-4
XDEL s 1-6
XRANGE s - +
XREVRANGE s + -
XDEL s 1-5
XINFO STREAM s
XDEL s 1-7
XINFO STREAM s
XREAD STREAMS s +
XREAD STREAMS s 1-2
XADD s 1-8 f v
XRANGE s 1-3 1-8

== xdelex
XADD s 1-1 f v
XADD s 1-2 f v
XADD s 1-3 f v
XADD s 1-4 f v
XGROUP CREATE s g 0
XREADGROUP GROUP g a COUNT 2 STREAMS s >
XDELEX s IDS 1 1-1
XPENDING s g
XDELEX s KEEPREF IDS 2 1-1 9-9
XDELEX s ACKED IDS 4 1-2 1-3 9-9 0-1
XDELEX s IDS 2 1-2 1-3 DELREF
XPENDING s g
XDELEX s DELREF IDS 2 1-1 1-2
XPENDING s g
XDELEX s IDS 1 1-4 IDS 1 1-3
XDELEX none ACKED IDS 2 1-1 abc
XDELEX s ids 01 1-4
XINFO STREAM s FULL

== xack
XADD s 1-1 f v
XADD s 1-2 f v
XGROUP CREATE s g 0
XREADGROUP GROUP g a STREAMS s >
XACK s g 1-1 1-1 9-9
XACK s g 1-2
XACK s g 1-2
XACK s none 1-1
XACK none g 1-1
XPENDING s g

== xackdel
XADD s 1-1 f v
XADD s 1-2 f v
XADD s 1-3 f v
XADD s 1-4 f v
XGROUP CREATE s g 0
XGROUP CREATE s h 0
XREADGROUP GROUP g a COUNT 3 STREAMS s >
XREADGROUP GROUP h a COUNT 2 STREAMS s >
XACKDEL s g IDS 2 1-1 1-4
XACKDEL s g ACKED IDS 2 1-2 1-3
XACKDEL s h ACKED IDS 2 1-2 1-1
XDEL s 1-3
XREADGROUP GROUP h a STREAMS s >
XACKDEL s h DELREF IDS 3 1-3 1-4 1-1
XACKDEL s h IDS 1 9-9
XACKDEL s none IDS 1 1-1
XACKDEL none g IDS 2 1-1 abc
XINFO STREAM s FULL

== xrange
XADD s 1-1 f v
XADD s 1-2 f v
XADD s 2-1 f v
XADD s 3-1 f v
XRANGE s - +
XRANGE s 1 1
XRANGE s 1 2
XRANGE s 1-2 2
XRANGE s (1-1 (3-1
XRANGE s (1 +
XRANGE s - (2
XRANGE s (1-1 (1-2
XRANGE s 2 1
XRANGE s + -
XRANGE s 3-1 3-1
XRANGE s 9 +
XRANGE s - + COUNT 2
XRANGE s - + count 2 COUNT 1
XRANGE s - + COUNT 0
XRANGE s - + COUNT -1
XRANGE s - + COUNT 9223372036854775807
XRANGE none - + COUNT 0
XRANGE s 0 {MAX}-{MAX}
XRANGE s - {MAX}
XRANGE s (0-0 +
XRANGE s - ({MAX}-{MAX}

== xrevrange
XADD s 1-1 f v
XADD s 1-2 f v
XADD s 2-1 f v
XADD s 3-1 f v
XREVRANGE s + -
XREVRANGE s 1 1
XREVRANGE s 2 1
XREVRANGE s 2 1-2
XREVRANGE s (3-1 (1-1
XREVRANGE s + (1
XREVRANGE s (2 -
XREVRANGE s 1 2
XREVRANGE s - +
XREVRANGE s + - COUNT 2
XREVRANGE s + - COUNT 0
XREVRANGE s + - COUNT -5
XREVRANGE none + -

== ranges over nodes with deleted entries
CONFIG SET stream-node-max-entries 2
XADD s 1-1 f v
XADD s 1-2 f v
XADD s 1-3 f v
XADD s 1-4 f v
XADD s 1-5 f v
XDEL s 1-2 1-3
XRANGE s 1-2 1-4
XRANGE s (1-1 +
XREVRANGE s 1-4 1-2
XREVRANGE s (1-5 -
XRANGE s 1-2 1-3
XREVRANGE s 1-3 1-2
XRANGE s - + COUNT 2
XREVRANGE s + - COUNT 2

== xlen
XLEN none
XADD s 1-1 f v
XLEN s
XDEL s 1-1
XLEN s

== xread
XADD s 1-1 f v
XADD s 1-2 f v
XADD t 1-1 f v
XREAD STREAMS s 0
XREAD STREAMS s 1
XREAD STREAMS s 1-1
XREAD STREAMS s 1-2
XREAD STREAMS s {MAX}-{MAX}
XREAD STREAMS s $
XREAD STREAMS s +
XREAD STREAMS s t none 0 + $
XREAD STREAMS none 0
XREAD STREAMS none +
XREAD STREAMS s s 0 1-1
XREAD COUNT 1 STREAMS s t 0 0
XREAD COUNT 0 STREAMS s 0
XREAD COUNT -1 STREAMS s 0
XREAD count 1 COUNT 2 block 5 streams s 0
XREAD BLOCK 1 STREAMS s 1-2
XREAD BLOCK 1 BLOCK 2 STREAMS s t $ $
XREAD BLOCK 0 STREAMS s t $ 0
XDEL s 1-2
XREAD STREAMS s +
XREAD STREAMS s $
XDEL s 1-1
XREAD STREAMS s +
XREAD STREAMS s 0
XREAD STREAMS STREAMS STREAMS 0 0

== xgroup create
XGROUP CREATE s g $
XGROUP CREATE s g $ MKSTREAM
XGROUP CREATE s g 0
XGROUP CREATE s h 0 mkstream entriesread 3
XGROUP CREATE s "" 5-5
XGROUP CREATE s i $ ENTRIESREAD 100
XGROUP CREATE t g 5 MKSTREAM
XADD s 1-1 f v
XGROUP CREATE s j $
XGROUP CREATE s k 1 ENTRIESREAD 1
XGROUP CREATE s l 0 ENTRIESREAD 99
XGROUP CREATE s m 0 ENTRIESREAD -1
XGROUP CREATE s n 0 ENTRIESREAD 1 ENTRIESREAD 0
XGROUP CREATE s "with space\\r\\n" 0
XINFO GROUPS s
XGROUP CREATE s
XGROUP

== xgroup setid
XADD s 1-1 f v
XADD s 1-2 f v
XGROUP CREATE s g 0
XREADGROUP GROUP g a COUNT 1 STREAMS s >
XGROUP SETID s g $
XINFO GROUPS s
XGROUP SETID s g 0
XINFO GROUPS s
XGROUP SETID s g -
XGROUP SETID s g +
XINFO GROUPS s
XGROUP SETID s g 1-1 ENTRIESREAD 1
XINFO GROUPS s
XGROUP SETID s g 1-1 ENTRIESREAD 100
XINFO GROUPS s
XGROUP SETID s g 0 ENTRIESREAD -1
XINFO GROUPS s
XREADGROUP GROUP g b STREAMS s >
XPENDING s g - + 10

== xgroup destroy and consumers
XGROUP CREATE s g $ MKSTREAM
XGROUP CREATECONSUMER s g a
XGROUP CREATECONSUMER s g a
XGROUP CREATECONSUMER s g ""
XADD s 1-1 f v
XREADGROUP GROUP g a STREAMS s >
XINFO CONSUMERS s g
XGROUP DELCONSUMER s g nobody
XGROUP DELCONSUMER s g a
XGROUP DELCONSUMER s g ""
XPENDING s g
XREADGROUP GROUP g a STREAMS s 0
XGROUP DESTROY s g
XGROUP DESTROY s g
XINFO GROUPS s

== xreadgroup
XADD s 1-1 f v
XADD s 1-2 f v
XADD s 1-3 f v
XGROUP CREATE s g 0
XGROUP CREATE t g 0 MKSTREAM
XREADGROUP GROUP g a COUNT 1 STREAMS s >
XREADGROUP GROUP g b STREAMS s t > >
XREADGROUP GROUP g a STREAMS s >
XREADGROUP GROUP g a STREAMS t >
XREADGROUP GROUP g a STREAMS s 0
XREADGROUP GROUP g b STREAMS s 1-2
XREADGROUP GROUP g b STREAMS s 1-3
XREADGROUP GROUP g b COUNT 1 STREAMS s 0
XREADGROUP GROUP g new STREAMS s t 0 0
XREADGROUP GROUP g newer STREAMS s >
XREADGROUP group g a count 0 streams s 0
XREADGROUP COUNT 5 GROUP g a STREAMS s {MAX}-{MAX}
XDEL s 1-2
XREADGROUP GROUP g b STREAMS s 0
XREADGROUP GROUP g b BLOCK 0 NOACK STREAMS s 0
XREADGROUP GROUP g b BLOCK 1 STREAMS s >
XREADGROUP GROUP g b BLOCK 1 STREAMS s t > >
XREADGROUP GROUP g b BLOCK 0 STREAMS s t > 0
XREADGROUP GROUP g b GROUP g c STREAMS s 0
XINFO CONSUMERS s g
XINFO CONSUMERS t g

== xreadgroup noack
XADD s 1-1 f v
XADD s 1-2 f v
XGROUP CREATE s g 0
XREADGROUP GROUP g a COUNT 1 NOACK STREAMS s >
XPENDING s g
XREADGROUP GROUP g a NOACK STREAMS s 0
XREADGROUP GROUP g a noack STREAMS s >
XREADGROUP GROUP g a NOACK STREAMS s >
XINFO GROUPS s
XINFO CONSUMERS s g

== xreadgroup takes over entries after setid back
XADD s 1-1 f v
XADD s 1-2 f v
XGROUP CREATE s g 0
XREADGROUP GROUP g a STREAMS s >
XREADGROUP GROUP g a STREAMS s 0
XPENDING s g - + 10
XGROUP SETID s g 0
XREADGROUP GROUP g b COUNT 1 STREAMS s >
XPENDING s g - + 10
XINFO CONSUMERS s g

== xreadgroup of what was deleted before it was read
XADD s 1-1 f v
XADD s 1-2 f v
XADD s 1-3 f v
XGROUP CREATE s g 0
XDEL s 1-1 1-3
XREADGROUP GROUP g a STREAMS s >
XINFO GROUPS s
XREADGROUP GROUP g a STREAMS s >
XADD s 1-4 f v
XDEL s 1-4
XREADGROUP GROUP g a STREAMS s >
XINFO GROUPS s

== xreadgroup claim
XADD s 1-1 f v
XADD s 1-2 f v
XADD s 1-3 f v
XGROUP CREATE s g 0
XREADGROUP GROUP g a COUNT 1 STREAMS s >
DEBUG SLEEP 0.003
XREADGROUP GROUP g a COUNT 1 STREAMS s >
DEBUG SLEEP 0.003
XREADGROUP GROUP g b CLAIM 100000 STREAMS s >
DEBUG SLEEP 0.003
XREADGROUP GROUP g b CLAIM 0 COUNT 1 STREAMS s >
XPENDING s g - + 10
DEBUG SLEEP 0.003
XREADGROUP GROUP g b COUNT 2 CLAIM 0 STREAMS s >
XADD s 1-4 f v
XADD s 1-5 f v
DEBUG SLEEP 0.003
XREADGROUP GROUP g c CLAIM 1 COUNT 4 NOACK STREAMS s >
XPENDING s g - + 10
XDEL s 1-1
DEBUG SLEEP 0.003
XREADGROUP GROUP g c CLAIM 1 STREAMS s >
XPENDING s g - + 10
XREADGROUP GROUP g c CLAIM 1 STREAMS s 0
XREADGROUP GROUP g c CLAIM 100000 BLOCK 1 STREAMS s >
XREADGROUP GROUP g c CLAIM 1 CLAIM 100000 STREAMS s >
XACK s g 1-1 1-2 1-3 1-4 1-5
XREADGROUP GROUP g c CLAIM 0 STREAMS s >

== xreadgroup claims the oldest delivery first
XADD s 1-1 f v
XADD s 1-2 f v
XADD s 1-3 f v
XGROUP CREATE s g 0
XREADGROUP GROUP g a STREAMS s >
XCLAIM s g a 0 1-3 IDLE 3000000
XCLAIM s g a 0 1-1 IDLE 2000000
XCLAIM s g a 0 1-2 IDLE 1000000
XREADGROUP GROUP g b CLAIM 1500000 STREAMS s >
XREADGROUP GROUP g b CLAIM 900000 COUNT 1 STREAMS s >
XPENDING s g - + 10

== xreadgroup claims entries of one delivery time in the order in which they got it
XADD s 1-1 f v
XADD s 1-2 f v
XADD s 1-3 f v
XADD s 1-4 f v
XADD s 1-5 f v
XGROUP CREATE s g 0
XREADGROUP GROUP g a STREAMS s >
XCLAIM s g a 0 1-4 1-2 1-3 TIME 1000 JUSTID
XREADGROUP GROUP g b CLAIM 1000000 STREAMS s >
XCLAIM s g a 0 1-4 1-2 1-3 1-1 TIME 1000 JUSTID
XCLAIM s g a 0 1-2 TIME 1000 JUSTID
XCLAIM s g a 0 1-5 TIME 999 JUSTID
XREADGROUP GROUP g b CLAIM 1000000 COUNT 3 STREAMS s >
XREADGROUP GROUP g b CLAIM 1000000 STREAMS s >

== a copy of a stream claims entries of one delivery time by ID
XADD s 1-1 f v
XADD s 1-2 f v
XADD s 1-3 f v
XADD s 1-4 f v
XGROUP CREATE s g 0
XREADGROUP GROUP g a STREAMS s >
XCLAIM s g a 0 1-4 1-2 1-3 TIME 1000 JUSTID
XCLAIM s g b 0 1-1 TIME 999 JUSTID
COPY s t
XREADGROUP GROUP g b CLAIM 1000000 STREAMS s >
XREADGROUP GROUP g b CLAIM 1000000 STREAMS t >

== xreadgroup claims twice in one command
XADD s 1-1 f v
XADD s 1-2 f v
XADD s 1-3 f v
XGROUP CREATE s g 0
XREADGROUP GROUP g a STREAMS s >
DEBUG SLEEP 0.003
XCLAIM s g a 0 1-1
DEBUG SLEEP 0.003
XREADGROUP GROUP g b CLAIM 0 STREAMS s s > >

== xreadgroup claim over several streams
XADD s 1-1 f v
XADD t 1-1 f v
XGROUP CREATE s g 0
XGROUP CREATE t g 0
XREADGROUP GROUP g a STREAMS s t > >
XCLAIM s g a 0 1-1 IDLE 2000000
XCLAIM t g a 0 1-1 IDLE 2000000
XREADGROUP GROUP g b CLAIM 1000000 STREAMS s t > >
XCLAIM s g a 0 1-1 IDLE 2000000
XCLAIM t g a 0 1-1 IDLE 2000000
XREADGROUP GROUP g b CLAIM 1000000 STREAMS s t 0 >
XREADGROUP GROUP g b CLAIM 1000000 STREAMS t s > 0

== xpending
XADD s 1-1 f v
XADD s 1-2 f v
XADD s 1-3 f v
XADD s 2-1 f v
XGROUP CREATE s g 0
XPENDING s g
XPENDING s g - + 10
XREADGROUP GROUP g bob COUNT 2 STREAMS s >
XREADGROUP GROUP g alice STREAMS s >
XGROUP CREATECONSUMER s g carol
XPENDING s g
XPENDING s g - + 10
XPENDING s g - + 2
XPENDING s g 1-2 2 10
XPENDING s g (1-1 (2-1 10
XPENDING s g 1 1 10
XPENDING s g + - 10
XPENDING s g - + 0
XPENDING s g - + -1
XPENDING s g - + 10 alice
XPENDING s g - + 1 alice
XPENDING s g - + 10 carol
XPENDING s g - + 10 nobody
XPENDING s g IDLE 0 - + 10
XPENDING s g IDLE 1000000 - + 10
XPENDING s g idle 0 - + 10 alice
XPENDING s g IDLE -1 - + 10
XCLAIM s g alice 0 1-1 IDLE 2000000 RETRYCOUNT 7
XPENDING s g IDLE 1000000 - + 10
XPENDING s g IDLE 1000000 - + 10 bob
XPENDING s g - + 10 alice
XPENDING s g - + 10 alice more

== xclaim
XADD s 1-1 f v
XADD s 1-2 f v
XADD s 1-3 f v
XGROUP CREATE s g 0
XREADGROUP GROUP g a COUNT 2 STREAMS s >
XCLAIM s g b 0 1-1
XCLAIM s g b 1000000 1-2
XCLAIM s g b 0 1-1 1-2 1-3 9-9 JUSTID
XPENDING s g - + 10
XCLAIM s g c 0 1-3
XCLAIM s g c 0 1-3 FORCE
XCLAIM s g c 0 9-9 FORCE
XCLAIM s g c 0 1-3 FORCE JUSTID RETRYCOUNT 5
XCLAIM s g c 0 1-1 RETRYCOUNT 0
XCLAIM s g c 0 1-1 RETRYCOUNT -1
XCLAIM s g c -5 1-1 IDLE 100
XCLAIM s g c 0 1-1 IDLE -100
XCLAIM s g c 0 1-1 TIME 1
XCLAIM s g c 0 1-1 TIME 99999999999999
XCLAIM s g c 0 1-1 IDLE 5 TIME 6 IDLE 7
XCLAIM s g c 0 1-1 LASTID 9-9
XCLAIM s g c 0 9-9 LASTID 1-1
XINFO GROUPS s
XPENDING s g - + 10
XCLAIM s g newone 0 9-9
XINFO CONSUMERS s g
XDEL s 1-2
XCLAIM s g c 0 1-2 1-1
XPENDING s g - + 10
XCLAIM s g c 0 1-2 FORCE
XCLAIM s g c 0 1 JUSTID

== xclaim of an entry never delivered
XADD s 1-1 f v
XGROUP CREATE s g 0
XCLAIM s g a 1000000 1-1 FORCE
XPENDING s g - + 10
XREADGROUP GROUP g b STREAMS s >
XPENDING s g - + 10

== xautoclaim
XADD s 1-1 f v
XADD s 1-2 f v
XADD s 1-3 f v
XADD s 1-4 f v
XADD s 1-5 f v
XGROUP CREATE s g 0
XREADGROUP GROUP g a STREAMS s >
XAUTOCLAIM s g b 0 - COUNT 2
XAUTOCLAIM s g b 0 1-3 COUNT 2 JUSTID
XAUTOCLAIM s g b 0 (1-3 COUNT 1
XAUTOCLAIM s g b 0 1-5
XAUTOCLAIM s g b 0 9
XAUTOCLAIM s g b 1000000 -
XAUTOCLAIM s g b 1000000 - COUNT 1
XAUTOCLAIM s g b -1 +
XDEL s 1-1 1-2 1-4
XAUTOCLAIM s g c 0 - COUNT 1
XAUTOCLAIM s g c 0 - COUNT 2
XAUTOCLAIM s g c 0 0-0 JUSTID
XPENDING s g - + 10
XAUTOCLAIM s g newone 1000000 0
XINFO CONSUMERS s g
XAUTOCLAIM s g c 0 - COUNT 100 COUNT 1

== xsetid
XADD s 1-1 f v
XSETID s 5-5
XADD s 5-5 f v
XADD s 5-* f v
XSETID s 9-9 ENTRIESADDED 100 MAXDELETEDID 8-8
XINFO STREAM s
XSETID s 9-9 MAXDELETEDID 0-0
XINFO STREAM s
XSETID s 8-8
XSETID s 5-6
XSETID s 20 entriesadded 2
XDEL s 1-1 5-6
XSETID s 9-9
XSETID s 20-0
XINFO STREAM s

== xinfo stream
XINFO STREAM none
XGROUP CREATE s g $ MKSTREAM
XINFO STREAM s
XINFO STREAM s FULL
XADD s 1-1 f v
XADD s 1-2 f v
XADD s 1-3 f v
XREADGROUP GROUP g a COUNT 2 STREAMS s >
XREADGROUP GROUP g b STREAMS s >
XGROUP CREATE s h 0
XGROUP CREATECONSUMER s h c
XINFO STREAM s
XINFO STREAM s FULL
XINFO STREAM s FULL COUNT 1
XINFO STREAM s full count 0
XINFO STREAM s FULL COUNT -5
XINFO GROUPS s
XINFO CONSUMERS s g
XINFO CONSUMERS s h

== xinfo stream full shows ten by default
XGROUP CREATE s g $ MKSTREAM
XADD s 1-1 f v
XADD s 1-2 f v
XADD s 1-3 f v
XADD s 1-4 f v
XADD s 1-5 f v
XADD s 1-6 f v
XADD s 1-7 f v
XADD s 1-8 f v
XADD s 1-9 f v
XADD s 1-10 f v
XADD s 1-11 f v
XADD s 1-12 f v
XREADGROUP GROUP g a STREAMS s >
XINFO STREAM s FULL

== names in byte order
XGROUP CREATE s b 0 MKSTREAM
XGROUP CREATE s a 0
XGROUP CREATE s B 0
XGROUP CREATE s "" 0
XGROUP CREATE s "\\xff" 0
XGROUP CREATE s aa 0
XGROUP CREATECONSUMER s a z
XGROUP CREATECONSUMER s a Y
XGROUP CREATECONSUMER s a "\\x00"
XGROUP CREATECONSUMER s a ""
XINFO GROUPS s
XINFO CONSUMERS s a
XINFO STREAM s FULL

== a deleted and made again stream forgets its groups
XADD s 1-1 f v
XGROUP CREATE s g 0
DEL s
XADD s 1-1 f v
XINFO STREAM s FULL

== an emptied stream stays
XADD s 1-1 f v
XGROUP CREATE s g 0
XDEL s 1-1
EXISTS s
TYPE s
XINFO STREAM s FULL
XTRIM s MAXLEN 0
XREADGROUP GROUP g a STREAMS s >
XADD s 1-1 f v
XADD s 2-1 f v
XREADGROUP GROUP g a STREAMS s >

== wrong types
SET text value
XADD text * f v
XADD text NOMKSTREAM * f v
XTRIM text MAXLEN 0
XDEL text x
XDELEX text IDS 1 x
XACK text g x
XACKDEL text g IDS 1 x
XLEN text
XRANGE text - +
XREVRANGE text + -
XREAD STREAMS text 0
XREAD BLOCK 0 STREAMS text $
XREADGROUP GROUP g a STREAMS text >
XPENDING text g
XPENDING text g - + 1
XCLAIM text g a 0 1-1
XAUTOCLAIM text g a 0 0
XGROUP CREATE text g 0 MKSTREAM
XGROUP SETID text g 0
XGROUP DESTROY text g
XINFO STREAM text
XINFO STREAM text FULL
XINFO GROUPS text
XINFO CONSUMERS text g
XSETID text 1-1
XCFGSET text IDMP-MAXSIZE 1
XIDMPRECORD text p i 1-1

== which check comes first
SET text value
XADD text 0-0 f v
XADD text x f v
XADD s 0-0 f
XADD none NOMKSTREAM 0-0 f v
XDEL none x
XDEL text x
XACK none g x
XACKDEL text g IDS 0 x
XACKDEL none g IDS 0 x
XDELEX none IDS 1 x
XRANGE none x x
XRANGE text - + COUNT 0
XRANGE text x +
XPENDING none g x + 1
XPENDING none g - + x
XCLAIM none g a x x
XCLAIM text g a x x
XAUTOCLAIM none g a x x
XAUTOCLAIM none g a 0 x
XAUTOCLAIM text g a 0 0 COUNT 0
XREAD COUNT x STREAMS text 0
XREAD STREAMS s text x 0
XREAD STREAMS text s 0 x
XREAD STREAMS none x
XREADGROUP GROUP g a STREAMS none x
XREADGROUP GROUP g a STREAMS none $
XREADGROUP GROUP g a STREAMS text $
XGROUP CREATE none g x
XGROUP CREATE none g x FOO
XGROUP CREATE text g x
XGROUP SETID none g x
XSETID none x
XSETID none 1-1 ENTRIESADDED x
XSETID text 1-1 ENTRIESADDED x
XCFGSET none FOO
XCFGSET text FOO
XINFO STREAM none FULL COUNT x
XINFO STREAM none FOO

== subcommand names in any case
xgroup create s g $ mkstream
XGROUP cReAtE s h $
xinfo Stream s
XINFO groups s
Xinfo Consumers s g
xGroup SetId s g 0
xgroup destroy s h
XGROUP x
XINFO "a\\r\\nb"
"""


@pytest.mark.parametrize("script", cases(CASES))
def test_a_case_is_answered_alike(pair: Pair, script: list[Request]) -> None:
    has_clock_ids = any(b"*" in request for request in script)
    pair.compare_script(script, keys=keys_of(script), groups=(b"g", b"h", b""), has_clock_ids=has_clock_ids)


# What entries-read and lag say, for the cases in which they can be told and those in which they cannot.
FIVE = "\n".join(f"XADD s 1-{n} f v" for n in range(1, 6))
LAG_CASES = f"""
== of an empty stream
XGROUP CREATE s g $ MKSTREAM
XINFO GROUPS s

== from the start
{FIVE}
XGROUP CREATE s g 0
XINFO GROUPS s
XREADGROUP GROUP g a COUNT 2 STREAMS s >
XINFO GROUPS s
XDEL s 1-4
XINFO GROUPS s
XREADGROUP GROUP g a COUNT 1 STREAMS s >
XINFO GROUPS s
XREADGROUP GROUP g a STREAMS s >
XINFO GROUPS s

== from the end
{FIVE}
XGROUP CREATE s g $
XINFO GROUPS s
XADD s 2-1 f v
XINFO GROUPS s

== from the first entry
{FIVE}
XGROUP CREATE s g 1-1
XINFO GROUPS s

== from the middle
{FIVE}
XGROUP CREATE s g 1-3
XINFO GROUPS s
XREADGROUP GROUP g a COUNT 1 STREAMS s >
XINFO GROUPS s
XREADGROUP GROUP g a STREAMS s >
XINFO GROUPS s

== from the middle with a count
{FIVE}
XGROUP CREATE s g 1-3 ENTRIESREAD 3
XINFO GROUPS s
XREADGROUP GROUP g a COUNT 1 STREAMS s >
XINFO GROUPS s

== with a tombstone behind
{FIVE}
XGROUP CREATE s g 0
XREADGROUP GROUP g a COUNT 3 STREAMS s >
XDEL s 1-2
XINFO GROUPS s

== with the first entry deleted
{FIVE}
XGROUP CREATE s g 0
XDEL s 1-1
XINFO GROUPS s
XREADGROUP GROUP g a COUNT 1 STREAMS s >
XINFO GROUPS s

== with a middle entry deleted
{FIVE}
XGROUP CREATE s g 0
XDEL s 1-3
XINFO GROUPS s

== with the last entry deleted
{FIVE}
XGROUP CREATE s g 0
XDEL s 1-5
XINFO GROUPS s
XREADGROUP GROUP g a STREAMS s >
XINFO GROUPS s

== trimmed before reading
{FIVE}
XGROUP CREATE s g 0
XTRIM s MAXLEN 2
XINFO GROUPS s
XREADGROUP GROUP g a COUNT 1 STREAMS s >
XINFO GROUPS s

== trimmed while reading
{FIVE}
XGROUP CREATE s g 0
XREADGROUP GROUP g a COUNT 1 STREAMS s >
XTRIM s MAXLEN 2
XINFO GROUPS s
XREADGROUP GROUP g a COUNT 1 STREAMS s >
XINFO GROUPS s
XTRIM s MAXLEN 0
XINFO GROUPS s

== set to other places
{FIVE}
XGROUP CREATE s g 0
XGROUP SETID s g +
XINFO GROUPS s
XGROUP SETID s g -
XINFO GROUPS s
XGROUP SETID s g 1-5
XINFO GROUPS s
XGROUP SETID s g 0 ENTRIESREAD 100
XINFO GROUPS s
XGROUP SETID s g 9-9
XINFO GROUPS s

== without acknowledgement
{FIVE}
XGROUP CREATE s g 0
XREADGROUP GROUP g a COUNT 2 NOACK STREAMS s >
XINFO GROUPS s

== moved by a claim
{FIVE}
XGROUP CREATE s g 0
XREADGROUP GROUP g a COUNT 1 STREAMS s >
XCLAIM s g a 0 1-1 LASTID 1-3
XINFO GROUPS s

== after xsetid
{FIVE}
XGROUP CREATE s g 0
XSETID s 9-9 ENTRIESADDED 50 MAXDELETEDID 8-0
XINFO GROUPS s
XADD s 10-0 f v
XREADGROUP GROUP g a STREAMS s >
XINFO GROUPS s

== everything deleted
{FIVE}
XGROUP CREATE s g 0
XREADGROUP GROUP g a COUNT 2 STREAMS s >
XDEL s 1-1 1-2 1-3 1-4 1-5
XINFO GROUPS s
XADD s 2-0 f v
XINFO GROUPS s
"""


@pytest.mark.parametrize("script", cases(LAG_CASES))
def test_entries_read_and_lag_are_notified_alike(pair: Pair, script: list[Request]) -> None:
    pair.compare_script(script, keys=(b"s",), groups=(b"g",))


def test_large_streams_are_cut_into_the_same_nodes(pair: Pair) -> None:
    """Ten thousand entries of growing values with the default node sizes: the radix trees must be the same."""
    adds = [(b"XADD", b"s", b"%d-%d" % (n, n % 3), b"field", b"x" * (n % 97)) for n in range(1, 10_001)]
    deletes = [(b"XDEL", b"s", b"%d-%d" % (n, n % 3)) for n in range(1, 5_000, 7)]
    looks = [
        (b"XINFO", b"STREAM", b"s"),
        (b"XTRIM", b"s", b"MAXLEN", b"~", b"5000"),
        (b"XINFO", b"STREAM", b"s"),
        (b"XTRIM", b"s", b"MINID", b"~", b"8000"),
        (b"XINFO", b"STREAM", b"s"),
        (b"XTRIM", b"s", b"MAXLEN", b"777"),
        (b"XINFO", b"STREAM", b"s"),
        (b"XRANGE", b"s", b"-", b"+"),
    ]
    pair.compare_script([*adds, *deletes, *looks], keys=(b"s",), groups=())


@pytest.mark.parametrize("command", ["XGROUP", "XINFO"])
def test_help_is_framed_alike(pair: Pair, command: str) -> None:
    """The texts of HELP are each server's own; their frame and their type are not."""
    ours, theirs = (wire.call(command, "HELP") for wire in pair.wires)
    for reply in (ours, theirs):
        assert {line.kind for line in reply.value} == {"+"}
    assert ours.value[0] == theirs.value[0]
    assert ours.value[-2:] == theirs.value[-2:]
    subcommands = [{line.value.split()[0] for line in r.value[1:] if line.value[:1] != b" "} for r in (ours, theirs)]
    assert subcommands[0] == subcommands[1]
