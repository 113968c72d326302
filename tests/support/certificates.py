"""Certificates for tests, made with the openssl program."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

__all__ = ["OPENSSL", "Certificates", "make_certificates"]

OPENSSL = shutil.which("openssl")


def openssl(*arguments: object) -> None:
    assert OPENSSL is not None
    subprocess.run([OPENSSL, *map(str, arguments)], check=True, capture_output=True)


@dataclass(frozen=True)
class Certificates:
    """A folder with an authority (ca) and what it has signed: server, other, client, alice; `stranger` is of nobody."""

    folder: Path

    def certificate(self, name: str) -> str:
        return str(self.folder / f"{name}.crt")

    def key(self, name: str) -> str:
        return str(self.folder / f"{name}.key")

    @property
    def directives(self) -> dict[str, str]:
        return {
            "tls_cert_file": self.certificate("server"),
            "tls_key_file": self.key("server"),
            "tls_ca_cert_file": self.certificate("ca"),
        }


def make_certificates(folder: Path) -> Certificates:
    """Fill a folder."""
    made = Certificates(folder)
    new_key = ("-newkey", "rsa:2048", "-nodes")
    for name in ("ca", "stranger"):
        openssl(
            "req",
            "-x509",
            *new_key,
            "-days",
            2,
            "-subj",
            f"/CN={name}",
            "-keyout",
            made.key(name),
            "-out",
            made.certificate(name),
        )
    for name in ("server", "other", "client", "alice"):
        request = made.folder / f"{name}.csr"
        openssl("req", *new_key, "-subj", f"/CN={name}", "-keyout", made.key(name), "-out", request)
        openssl(
            "x509", "-req", "-in", request, "-CA", made.certificate("ca"), "-CAkey", made.key("ca"), "-CAcreateserial",
            "-days", 2, "-out", made.certificate(name),
        )  # fmt: skip
    openssl("rsa", "-aes256", "-passout", "pass:secret", "-in", made.key("server"), "-out", made.key("locked"))
    return made
