"""A node of a Redis Cluster. `bus` is the part that does no I/O: what the node knows, and what it decides."""
