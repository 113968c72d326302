"""The doctor: looks at a server a few times, and finds what is wrong, worst first."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from textwrap import wrap
from typing import Any, Protocol, TypeVar

from streamd.client.client_errors import UnreachableError
from streamd.client.place import Place
from streamd.watching.archive_checks import ARCHIVE_CHECKS
from streamd.watching.case import Case, Thresholds
from streamd.watching.cluster_checks import CLUSTER_CHECKS, ClusterCase
from streamd.watching.cluster_reading import ClusterLook, ClusterReader, reader_of
from streamd.watching.findings import SEVERITIES, Finding, counted, duration, number, size
from streamd.watching.look import Limits, Look, Reader
from streamd.watching.rule_checks import RULE_CHECKS
from streamd.watching.server_checks import SERVER_CHECKS, replication_lags
from streamd.watching.stream_checks import STREAM_CHECKS

L = TypeVar("L", Look, ClusterLook, covariant=True)


class ReaderOf(Protocol[L]):
    """A `Reader`, or a `ClusterReader`."""

    def look(self) -> L: ...


__all__ = ["KINDS", "Diagnosis", "diagnose", "examine"]

KINDS = (
    "slots-uncovered", "node-down", "epochs-differ", "group-lag-grows", "consumer-gone", "poison-entry", "rules-do-not-parse", "rule-fails", "dead-letters-unread", "retention-held", "keyed-without-limit", "stream-unbounded", "done-and-kept", "persistence", "no-password",
    "settings-conflict", "slow-command", "replication-lag", "files-fail", "group-abandoned", "key-large", "hash-unbounded",
    "archive-gap", "archive-fails", "archive-late", "archive-held", "cluster-skew",
    "stream-hot",
)  # fmt: skip

LOOKS = 3
INDENT = " " * 10
WIDTH = 100
SHOWN = 3
"""Findings of a kind and severity that the page shows."""


@dataclass(frozen=True)
class Diagnosis:
    """What was found.

    findings  worst first
    look      the last look
    seconds   between the first look and the last
    """

    place: Place
    findings: Sequence[Finding]
    look: Look
    seconds: float
    other_keys: int

    def count(self, severity: str) -> int:
        return sum(each.severity == severity for each in self.findings)

    # --- For people --------------------------------------------------------------------------------------------------

    def page(self, *, shows_all: bool = False) -> str:
        """The findings on one page; all of them, however many there are, if told so."""
        lines = [*self._head(), ""]
        hidden: dict[tuple[str, str], int] = {}
        shown: dict[tuple[str, str], int] = {}
        for at, finding in enumerate(self.findings):
            sort = finding.severity, finding.kind
            if not shows_all and shown.get(sort, 0) >= SHOWN:
                hidden[sort] = hidden.get(sort, 0) + 1
            else:
                shown[sort] = shown.get(sort, 0) + 1
                lines += lines_of(finding)
            if sort in hidden and (at + 1 == len(self.findings) or sort_of(self.findings[at + 1]) != sort):
                lines += [f"{INDENT}{finding.kind}: {number(hidden[sort])} more; --all shows them", ""]
        if not self.findings:
            lines += ["Nothing was found.", ""]
        return "\n".join([*lines, *self._foot()]).rstrip() + "\n"

    def _head(self) -> list[str]:
        look = self.look
        own = look.info.get("streamd_version")
        name = "Valkey" if "valkey_version" in look.info else "streamd" if own else "Redis"
        version = own or look.info.get("valkey_version") or look.info.get("redis_version", "?")
        groups = sum(1 for _ in look.groups())
        tally = ", ".join(f"{self.count(each)} {each}" for each in SEVERITIES)
        return [
            f"{self.place}: {name} {version}, {self._role()}, up {duration(look.number('uptime_in_seconds'))},"
            f" {counted(len(look.streams), 'stream')}, {counted(groups, 'group')}, {size(look.number('used_memory'))} used",
            f"Findings: {tally}. Watched for {self.seconds:.1f} s.",
        ]

    def _role(self) -> str:
        if isinstance(self.look, ClusterLook):
            replicas = len([each for each in self.look.nodes if not each.node.is_primary])
            return f"a cluster of {counted(len(self.look.nodes) - replicas, 'primary', 'primaries')}, {counted(replicas, 'replica')}"
        return "replica" if self.look.is_replica else "primary"

    def _foot(self) -> list[str]:
        lines = []
        if not self.look.is_whole:
            lines.append(
                f"More streams exist than the {number(len(self.look.streams))} that were examined: --streams, --keys, --match"
            )
        if self.other_keys:
            lines.append(
                f"{counted(self.other_keys, 'key')} of other databases not looked at: /NUMBER at the end of the URL"
            )
        lines += [f"Not looked at: {name} ({error})" for name, error in sorted(self.look.refused.items())]
        return lines

    # --- For programs ------------------------------------------------------------------------------------------------

    def as_dict(self) -> dict[str, Any]:
        return {
            "server": str(self.place),
            "version": self.look.info.get("redis_version"),
            "role": self._role(),
            "seconds": round(self.seconds, 3),
            "streams": len(self.look.streams),
            "is_whole": self.look.is_whole,
            "refused": self.look.refused,
            "counts": {each: self.count(each) for each in SEVERITIES},
            "findings": [
                {name: value for name, value in asdict(each).items() if name != "weight"} for each in self.findings
            ],
        }


def sort_of(finding: Finding) -> tuple[str, str]:
    return finding.severity, finding.kind


def lines_of(finding: Finding) -> list[str]:
    return [
        f"{finding.severity:<9} {finding.kind}: {finding.subject}{f' ({finding.node})' if finding.node else ''}",
        *(f"{INDENT}{line}" for text in (finding.figure, finding.why) for line in wrap(text, WIDTH)),
        *(f"{INDENT}{'' if line.startswith('#') else '> '}{line}" for line in finding.fix),
        "",
    ]


def diagnose(
    place: Place,
    limits: Limits,
    thresholds: Thresholds,
    *,
    interval_s: float,
    ignored: Collection[str] = (),
    wait: Callable[[float], None] = time.sleep,
) -> Diagnosis:
    """Look at a server, or at all nodes of the cluster that it belongs to, `LOOKS` times in `interval_s` seconds.

    Raises UnreachableError, ServerError.

    ignored  kinds of findings that are left out
    """
    found = reader_of(place, limits)
    if isinstance(found, ClusterReader):
        return examine_cluster(found, place, thresholds, interval_s=interval_s, ignored=ignored, wait=wait)
    return examine(found, place, thresholds, interval_s=interval_s, ignored=ignored, wait=wait)


def look_around(reader: ReaderOf[L], interval_s: float, wait: Callable[[float], None]) -> list[L]:
    """The looks, at equal distances."""
    looks = [reader.look()]
    for _ in range(LOOKS - 1):
        wait(interval_s / (LOOKS - 1))
        looks.append(reader.look())
    return looks


def examine(
    reader: Reader,
    place: Place,
    thresholds: Thresholds,
    *,
    interval_s: float,
    ignored: Collection[str] = (),
    wait: Callable[[float], None] = time.sleep,
) -> Diagnosis:
    """As `diagnose`, of one server by a reader, which is closed."""
    try:
        looks = look_around(reader, interval_s, wait)
        case = Case(place, reader, looks, thresholds)
        found = [
            each for check in (*STREAM_CHECKS, *RULE_CHECKS, *ARCHIVE_CHECKS, *SERVER_CHECKS) for each in check(case)
        ]
    finally:
        reader.close()
    return Diagnosis(place, sifted(found, ignored), looks[-1], case.seconds, keys_elsewhere(place, looks[-1]))


def examine_cluster(
    reader: ClusterReader,
    place: Place,
    thresholds: Thresholds,
    *,
    interval_s: float,
    ignored: Collection[str] = (),
    wait: Callable[[float], None] = time.sleep,
) -> Diagnosis:
    """As `diagnose`, of a cluster by a reader, which is closed: what ails the whole, each primary with its streams, and each replica."""
    try:
        looks = look_around(reader, interval_s, wait)
        case = ClusterCase(looks, thresholds)
        found = [each for check in CLUSTER_CHECKS for each in check(case)]
        for node in looks[-1].nodes:
            # A node that did not answer once has nothing to be compared with.
            own = [
                seen.look for look in looks if (seen := look.find(node.node.id)) is not None and seen.look is not None
            ]
            if node.look is None or len(own) < len(looks):
                continue
            checks = (
                (*STREAM_CHECKS, *RULE_CHECKS, *ARCHIVE_CHECKS, *SERVER_CHECKS)
                if node.node.is_primary
                else (replication_lags,)
            )
            of_node = Case(node.node.place, reader.reader(node.node.place), own, thresholds)
            with suppress(UnreachableError):
                found += [replace(each, node=str(node.node)) for check in checks for each in check(of_node)]
    finally:
        reader.close()
    return Diagnosis(place, sifted(found, ignored), looks[-1], case.seconds, 0)


def sifted(found: Iterable[Finding], ignored: Collection[str]) -> list[Finding]:
    """The findings, worst first."""
    kept = (each for each in found if each.kind not in ignored)
    return sorted(kept, key=lambda each: (SEVERITIES.index(each.severity), KINDS.index(each.kind), -each.weight))


def keys_elsewhere(place: Place, look: Look) -> int:
    """Keys of databases that were not looked at."""
    return sum(
        int(value[5:].partition(",")[0])
        for name, value in look.info.items()
        if name.startswith("db") and name[2:].isdecimal() and int(name[2:]) != place.db and value.startswith("keys=")
    )
