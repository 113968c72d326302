"""The keyspace: databases, what is known of each key, and what a type of value declares.

`commands` is the floor above the core: the commands of any key, expiry, and what else needs a server.
"""
