"""Atomic slot migration: slots are moved with all their keys at once. See migrations.py."""
