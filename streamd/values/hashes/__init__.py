"""Hashes."""
