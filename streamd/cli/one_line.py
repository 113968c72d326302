"""What subcommands print, so that nothing in it is obeyed by a terminal; errors in one line."""

from __future__ import annotations

import codecs
import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from streamd.printable import printable

__all__ = ["OnTerminal", "errors_in_one_line", "escaped_errors", "missing_module", "say"]


def say(text: str = "", *, err: bool = False, nl: bool = True) -> None:
    """Print text for a person."""
    click.echo(printable(text), err=err, nl=nl)


EXTRAS = {
    **dict.fromkeys(("pyarrow", "rich", "prometheus_client"), "archive"),
    **dict.fromkeys(("pyspark", "py4j"), "spark"),
    **dict.fromkeys(("pyiceberg", "deltalake"), "tables"),
    "obstore": "store",
    "textual": "top",
    "redis": "client",
}
"""The smallest extra that brings a package."""


def missing_module(error: ImportError) -> str:
    """What to install where a module is missing."""
    extra = EXTRAS.get((error.name or "").partition(".")[0])
    return f"{error}; it comes with the extra `{extra}`: ./install '.[{extra}]'" if extra else str(error)


@contextmanager
def errors_in_one_line() -> Iterator[None]:
    """Report errors of the user and of the environment in one line, without a traceback."""
    from streamd.errors import StreamdError

    try:
        yield
    except ModuleNotFoundError as error:
        raise click.ClickException(missing_module(error)) from None
    except (StreamdError, OSError) as error:
        raise click.ClickException(str(error)) from None


@contextmanager
def escaped_errors() -> Iterator[None]:
    """Escape what click will print of errors."""
    try:
        yield
    except click.ClickException as error:
        error.message = printable(error.message)  # type: ignore[misc]
        raise


class OnTerminal(io.BufferedIOBase):
    """A binary file for data that goes to a terminal after all, where it is escaped as text."""

    def __init__(self) -> None:
        super().__init__()
        self._decode = codecs.getincrementaldecoder("utf-8")("surrogateescape").decode

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        sys.stdout.write(printable(self._decode(bytes(data))))
        return len(data)

    def flush(self) -> None:
        sys.stdout.flush()
