"""What the subcommands of `streamd archive` share: options that are times, and sizes in words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

__all__ = ["duration_option", "positive_duration_option", "size_text"]

F = TypeVar("F", bound=Callable[..., Any])


def duration(text: str) -> int:
    from streamd.client.points import parse_duration_ms

    try:
        return parse_duration_ms(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def duration_option(*names: str, default: str, help: str) -> Callable[[F], F]:
    return click.option(
        *names,
        default=default,
        show_default=True,
        metavar="TIME",
        callback=lambda _, __, text: duration(text),
        help=help,
    )


def positive_duration_option(*names: str, help: str) -> Callable[[F], F]:
    """A time that need not be given; None then."""

    def parse(context: click.Context, parameter: click.Parameter, text: str | None) -> int | None:
        if text is None:
            return None
        if (found := duration(text)) < 1000:
            raise click.BadParameter(f"{text!r} is too short; the shortest time is 1s")
        return found

    return click.option(*names, default=None, metavar="TIME", callback=parse, help=help)


def size_text(size: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
