"""Entries in bulk, between a server and files or record batches: `streamd export`, `streamd load`, and what the archive and Spark share.

read_options.py      what to read; partitions.py and density.py cut it, ranges.py reads a part
write_options.py     how to write; chunk_delivery.py, with marked.py each row once
stream_copy.py       the state of a stream besides its entries: groups, pending entries, counters; read, kept in a file, restored
files.py             Parquet, Arrow, CSV and JSON Lines as batches of rows that can be encoded as XADD
load_files.py        files into streams, each row once however often the load is killed and repeated
"""
