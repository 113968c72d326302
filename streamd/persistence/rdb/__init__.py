"""Redis's snapshot format, both ways."""
