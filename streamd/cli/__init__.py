"""The `streamd` program: one module per subcommand.

`streamd server` is looked at first: what reads the command lines of the others takes longer to import than all else that a server
needs before it listens.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence

from streamd.cli.exit_status import STOPPED

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the program; does not return."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["server"]:
        gc.disable()  # what is imported stays; from then on it is the server's `Collector` that collects
        from streamd.cli.server import serve

        sys.exit(serve(words[1:], program="streamd server"))
    if words[:1] == ["cli"]:
        from streamd.cli.prompt import converse

        sys.exit(converse(words[1:], program="streamd cli"))
    try:
        from streamd.cli.subcommands import program
    except KeyboardInterrupt:
        sys.exit(STOPPED)
    program(words, prog_name="streamd")
