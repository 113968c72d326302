"""Log lines made comparable: those of streamd and of a real Redis without times and process IDs."""

from __future__ import annotations

import re

from ..servers import Server

__all__ = ["plain_lines", "said"]

LINE = re.compile(r"\d+:(?P<role>[MCS]) \d\d \w{3} \d{4} [\d:.]{12} (?P<mark>[.*#-]) (?P<text>.*)")
FROM_SIGNAL = re.compile(r"\d+:signal-handler \(\d+\) (?P<text>.*)")
REDIS_ONLY = re.compile(r"Fork CoW for|Received SIGUSR1 in child")
"""Logged by children of Redis; ours report to the server, and are killed."""

TORN = re.compile(r"^(\d+:signal-handler \(\d+\) )(\d+:\w .*\n)", re.MULTILINE)


def said(server: Server, mark: int = 0) -> list[str]:
    """The lines since a mark: the level's sign and the text, numbers of processes as PID; `!` for signal handlers."""
    return [_plain(line, server) for line in plain_lines(server.log_since(mark)) if not REDIS_ONLY.search(line)]


def plain_lines(text: str) -> list[str]:
    """As `said`, with names and numbers as they are."""
    lines = []
    # A handler writes its line in two pieces, between which another process may write its own.
    for line in TORN.sub(r"\2\1", text).splitlines():
        if match := LINE.fullmatch(line):
            lines.append(f"{match['mark']} {match['text']}")
        elif match := FROM_SIGNAL.fullmatch(line):
            lines.append(f"! {match['text']}")
        elif line:
            lines.append(line)
    return lines


def _plain(line: str, server: Server) -> str:
    line = line.replace(str(server.folder), "FOLDER").replace(str(server.port), "PORT")
    line = re.sub(r"\b(streamd|Redis)( is now ready to exit)", r"NAME\2", line)
    line = re.sub(r"(pid |child: |temp-(?:rewriteaof-bg-)?)\d+", r"\1PID", line)
    line = re.sub(r"[\d.]+ (seconds|Mb|MB)", r"N \1", line)
    return re.sub(r"\d+ bytes written", "N bytes written", line)
