"""Writing rows as entries: at least once, or exactly once."""
