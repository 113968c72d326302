"""Append-only files, snapshots, and the servers that die over them."""
