"""Benchmarks: one script per question, each run as `python -m benchmarks.NAME`."""
