"""What went wrong, in one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

__all__ = ["errors_in_one_line"]


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
