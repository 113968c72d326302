"""Talking to a server as a client: options, connections, IDs, names."""
