"""Sockets of our own: plain connections without transports of the event loop."""
