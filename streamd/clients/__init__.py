"""Connections as their users see them: HELLO, AUTH, CLIENT, SELECT, transactions."""
