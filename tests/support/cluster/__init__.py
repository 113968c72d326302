"""Nodes of a cluster in one process, without sockets, clocks or files; and one node over real sockets (`peer`)."""
