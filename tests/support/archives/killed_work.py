"""Work on an archive in a process of its own, which ends by SIGKILL at a point that is named beforehand.

    STEPS of an archiver, DELETE_STEPS       names of the hook
    module:Owner.function#2 before, after    a call of a function, and whether the call is still made

A server of processes that has imported everything forks them, so that each of them begins at once.
"""

from __future__ import annotations

import importlib
import itertools
import multiprocessing
import os
import re
import signal
from collections.abc import Callable, Mapping
from typing import Any

from support.archives.runs import KEY, archive_once

__all__ = ["delete_entries", "is_killed", "merge_beside_rounds", "publish_tables", "run_once"]

LIBRARIES = ("pyiceberg.catalog.sql", "pyiceberg.table", "deltalake", "pyarrow.parquet")
_CALL = re.compile(r"(?P<module>[\w.]+):(?P<path>[\w.]+)#(?P<number>\d+) (?P<when>before|after)")

Hook = Callable[[str], None]


def is_killed(work: Callable[..., None], point: str, *given: Any) -> bool:
    """Do the work up to a point; False if it was done without coming there. Any other end is a failure of the test.

    work  a function of this module, which gets a hook, and what is given
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, *LIBRARIES])
    process = context.Process(target=_work, args=(work, point, given))
    process.start()
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL), (point, process.exitcode)
    return process.exitcode != 0


def _work(work: Callable[..., None], point: str, given: tuple[Any, ...]) -> None:
    match = _CALL.fullmatch(point)
    if match is not None:
        _end_at_call(match["module"], match["path"], int(match["number"]), is_done=match["when"] == "after")

    def hook(step: str) -> None:
        if step == point:
            _end()

    work(hook, *given)


def _end_at_call(module: str, path: str, number: int, *, is_done: bool) -> None:
    owner: Any = importlib.import_module(module)
    *owners, name = path.split(".")
    for each in owners:
        owner = getattr(owner, each)
    function, calls = getattr(owner, name), itertools.count(1)

    def ending(*given: Any, **named: Any) -> Any:
        is_last = next(calls) == number
        if is_last and not is_done:
            _end()
        found = function(*given, **named)
        if is_last:
            _end()
        return found

    setattr(owner, name, ending)


def _end() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


# --- Work -----------------------------------------------------------------------------------------------------------------


def run_once(hook: Hook, path: str, options: Mapping[str, str]) -> None:
    report = archive_once(path, options, hook=hook, merge_files=2, checkpoint_every=2)
    assert report.is_success, report.to_json()


def merge_beside_rounds(hook: Hook, path: str, options: Mapping[str, str]) -> None:
    """Rounds of a service, until one of them has committed what was merged beside them."""
    from streamd.archive.background_merge import BackgroundMerges

    merges, steps = BackgroundMerges(), list[str]()

    def noted(step: str) -> None:
        steps.append(step)
        hook(step)

    while "merge published" not in steps:
        report = archive_once(path, options, hook=noted, merges=merges, merge_files=2)
        assert report.is_success, report.to_json()
    merges.close()


def delete_entries(hook: Hook, path: str, options: Mapping[str, str], ranges: list[tuple[int, int]]) -> None:
    from streamd.archive.delete import delete

    delete(path, KEY, options, ranges, hook=hook)


def publish_tables(hook: Hook, path: str, schema: str) -> None:
    """Typed tables of both formats with their rejects, made, or grown to the schema."""
    from streamd.archive.layout import Layout
    from streamd.archive.open_format import TYPED_NAME, TableConfig
    from streamd.archive.publishing import publish

    for form in ("iceberg", "delta"):
        for config in TableConfig(form, TYPED_NAME, schema=schema).with_rejects():
            publish(Layout(path), config)
