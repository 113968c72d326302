"""A local S3 server: moto's, in a process of its own, which refuses to replace an object when it is asked to."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

from support.servers import eventually, free_port

__all__ = ["environment", "make_bucket", "s3_server"]


def environment(endpoint: str) -> dict[str, str]:
    """What tells programs of the server."""
    return {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": "true",
    }


@contextmanager
def s3_server() -> Iterator[str]:
    """Run a server; its address."""
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ}) as process:
        endpoint = f"http://127.0.0.1:{port}"
        try:
            eventually(lambda: answers(endpoint), 60, "the S3 server")
            yield endpoint
        finally:
            process.kill()


def answers(endpoint: str) -> bool:
    try:
        with urllib.request.urlopen(f"{endpoint}/", timeout=5):
            return True
    except OSError:
        return False


def make_bucket(endpoint: str, name: str) -> str:
    with urllib.request.urlopen(urllib.request.Request(f"{endpoint}/{name}", method="PUT"), timeout=30):
        return f"s3://{name}"
