"""Redis's snapshot format: reading and writing."""
