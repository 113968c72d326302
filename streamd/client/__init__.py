"""Talking to a server as a client: options, connections, IDs as numbers, names of keys, errors."""
