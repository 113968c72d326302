"""The log: line format, levels, file."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamd.errors import ConfigError
from streamd.process.log import LEVELS, VERBOSE, LineFormatter, set_level, setup
from streamd.settings.config import Config

log = logging.getLogger("streamd")

LINE = re.compile(
    r"\d+:M \d\d (?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) \d{4} \d\d:\d\d:\d\d\.\d{3} [.*#-] .*"
)


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """The logger as it was before."""
    before = (log.level, log.propagate, list(log.handlers))
    yield
    for handler in log.handlers:
        if handler not in before[2]:
            handler.close()
    log.level, log.propagate, log.handlers = before


def config(**settings: str) -> Config:
    made = Config()
    for name, value in settings.items():
        setattr(made, name, value)
    return made


def record(level: int, message: str, *args: object) -> logging.LogRecord:
    made = logging.LogRecord("streamd", level, "", 0, message, args, None)
    made.process, made.created, made.msecs = 1234, 1_795_255_200.0, 7.9
    return made


@pytest.mark.parametrize(
    ("level", "mark"),
    [(logging.DEBUG, "."), (VERBOSE, "-"), (logging.INFO, "*"), (logging.WARNING, "#"), (logging.CRITICAL, "#")],
)
def test_a_line_is_as_redis_writes_it(level: int, mark: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    line = LineFormatter().format(record(level, "Ready to accept connections %s", "tcp"))
    assert LINE.fullmatch(line)
    assert line.startswith("1234:M ")
    assert line.endswith(f".007 {mark} Ready to accept connections tcp")


def test_a_traceback_follows_its_line() -> None:
    try:
        raise RuntimeError("broken")
    except RuntimeError:
        made = record(logging.ERROR, "Unexpected error")
        made.exc_info = sys.exc_info()
    first, *rest = LineFormatter().format(made).splitlines()
    assert LINE.fullmatch(first)
    assert rest[0] == "Traceback (most recent call last):"
    assert rest[-1] == "RuntimeError: broken"


@pytest.mark.parametrize("level", LEVELS)
def test_the_level_is_the_least_that_is_logged(level: str, tmp_path: Path) -> None:
    setup(config(loglevel=level, logfile=str(tmp_path / "log")))
    for each in (logging.DEBUG, VERBOSE, logging.INFO, logging.WARNING):
        log.log(each, "text")
    marks = [line.split(" ")[5] for line in (tmp_path / "log").read_text().splitlines()]
    expected = {"debug": ".-*#", "verbose": "-*#", "notice": "*#", "warning": "#", "nothing": ""}
    assert "".join(marks) == expected[level]


def test_the_level_can_change(tmp_path: Path) -> None:
    settings = config(logfile=str(tmp_path / "log"))
    setup(settings)
    log.debug("one")
    settings.loglevel = "debug"
    set_level(settings)
    log.debug("two")
    assert (tmp_path / "log").read_text().rstrip().endswith("two")
    assert "one" not in (tmp_path / "log").read_text()


def test_lines_are_appended_and_a_file_that_was_moved_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("before\n")
    setup(config(logfile=str(path)))
    log.warning("one")
    path.rename(tmp_path / "log.1")
    log.warning("two")
    assert (tmp_path / "log.1").read_text().splitlines()[0] == "before"
    assert "one" in (tmp_path / "log.1").read_text()
    assert path.read_text().rstrip().endswith("two")


def test_a_relative_file_is_in_the_directory_of_the_server(tmp_path: Path) -> None:
    setup(config(dir=str(tmp_path), logfile="server.log"))
    log.warning("here")
    assert (tmp_path / "server.log").exists()


def test_text_that_is_not_utf8_is_logged(tmp_path: Path) -> None:
    setup(config(logfile=str(tmp_path / "log")))
    log.warning("%s", "ä\udcff")
    assert (tmp_path / "log").read_text().rstrip().endswith("ä\\xff")


def test_without_a_file_the_standard_output_is_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    setup(config())
    log.warning("hello")
    assert LINE.fullmatch(capsys.readouterr().out.rstrip())


def test_a_file_that_cannot_be_opened_is_an_error_of_the_configuration(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Can't open the log file: No such file or directory"):
        setup(config(logfile=str(tmp_path / "no" / "log")))
    assert os.listdir(tmp_path) == []


def test_setting_up_twice_logs_once(tmp_path: Path) -> None:
    path = tmp_path / "log"
    for _ in range(2):
        setup(config(logfile=str(path)))
    log.warning("once")
    assert len(path.read_text().splitlines()) == 1
