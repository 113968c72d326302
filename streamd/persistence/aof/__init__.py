"""The append-only file: format, writing, rewriting, loading and checking."""
