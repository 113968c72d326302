"""The server: all capabilities together, its listeners and its process."""
