"""Helpers of the tests: servers as subprocesses, a raw RESP client, comparison of replies."""
