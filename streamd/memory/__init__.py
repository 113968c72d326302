"""Memory: what it is used for, its limit, and eviction when that is reached."""
