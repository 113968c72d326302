"""Streams to files, and files to streams: `streamd export` and `streamd load`.

state.py   what of a stream is not in its entries: groups, pending entries, counters; read, kept in a file, restored
files.py   Parquet, Arrow, CSV and JSON Lines as batches of rows that can be encoded as XADD
load.py    files into streams, each row once however often the load is killed and repeated
"""
