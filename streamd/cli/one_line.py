"""What subcommands show in one line: errors, and names of keys and groups."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

__all__ = ["errors_in_one_line", "name_in_one_line"]


@contextmanager
def errors_in_one_line() -> Iterator[None]:
    """Report errors of the user and of the environment in one line, without a traceback."""
    from streamd.errors import StreamdError

    try:
        yield
    except ModuleNotFoundError as error:
        raise click.ClickException(f"{error}; it comes with the extra `spark`: ./install '.[spark]'") from None
    except (StreamdError, OSError) as error:
        raise click.ClickException(str(error)) from None


def name_in_one_line(name: str) -> str:
    """A name with escapes for bytes that are not text, which could not be printed, and for what would break the line."""
    text = name.encode(errors="surrogateescape").decode(errors="backslashreplace")
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
