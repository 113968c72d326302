"""Tiered storage: reads of a stream reach from memory into its archive."""
