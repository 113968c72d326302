"""The keyspace above the core: the commands of any key, expiry, freeing in the background, figures."""
