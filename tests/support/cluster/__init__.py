"""Nodes of a cluster in one process, without sockets, clocks or files; one node over real sockets (`peer`); nodes as processes (`nodes`)."""
