"""What outlives the process: snapshots (RDB files) and what they are made of.

    rdb_format   what writer and reader must agree on: opcodes, types, forms, options
    rdb_write    databases into an RDB stream, a value into a DUMP payload
    rdb_read     an RDB stream into databases, a RESTORE payload into a value
    rdb_check    a file looked through without loading it
    snapshot     an RDB file on disk: saved so that a crash leaves the old one or the new one whole, and loaded
    lzf, crc64   the compression and the checksum of the format

Knows no connections: it is given databases, paths and options, and writes to any object with `write`.
"""
