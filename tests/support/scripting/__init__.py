"""Lua scripts, drawn and without a server."""
