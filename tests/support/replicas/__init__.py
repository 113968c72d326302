"""Servers that replicate, the links between them, and the side that a test plays."""
