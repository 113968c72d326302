"""Options of the Spark source and sink: what they mean, what is refused and by which name, and that secrets stay hidden."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from streamd.client.client_errors import OptionError
from streamd.client.points import pack_id
from streamd.client.url_options import Address, ConnectionOptions, option_rows
from streamd.transfer.read_options import QUERY_OPTIONS, Bound, SourceOptions
from streamd.transfer.write_options import SinkOptions

NOW_MS = 1_700_000_000_000


def refusal(
    options: dict[str, str], kind: type[SourceOptions | SinkOptions | ConnectionOptions] = SourceOptions
) -> str:
    with pytest.raises(OptionError) as caught:  # noqa: PT011  callers look at its text
        kind.parse(options)
    return str(caught.value)


def test_names_have_no_case() -> None:
    assert SourceOptions.parse({"STREAM": "s", "minpartitions": "4"}).min_partitions == 4


@pytest.mark.parametrize("kind", [ConnectionOptions, SourceOptions, SinkOptions])
def test_every_option_has_a_meaning_and_a_name_of_its_own(kind: type) -> None:
    rows = list(option_rows(kind))
    assert all(row.metadata["doc"] for row in rows)
    assert len({row.metadata["name"].lower() for row in rows}) == len(rows)


def test_a_url_gives_its_parts_and_single_options_win() -> None:
    made = ConnectionOptions.parse({"url": "rediss://us%40er:pa%2Fss@example.org:7000/3", "port": "7001"})
    assert (made.host, made.port, made.db, made.tls, made.username) == ("example.org", 7001, 3, True, "us@er")
    assert made.find_password() == "pa/ss"
    assert ConnectionOptions.parse({"url": "unix:///run/s.sock?db=2"}).unix_socket_path == "/run/s.sock"
    assert ConnectionOptions.parse({"url": "redis://[::1]:7000"}).place == "[::1]:7000"


def test_a_url_of_sentinels() -> None:
    made = ConnectionOptions.parse(
        {"url": "rediss+sentinel://us%40er:pa%2Fss@a,b:5,[::1]:6/main/3", "sentinelPassword": "x"}
    )
    assert (made.sentinels, made.sentinel_master) == ((Address("a", 26379), Address("b", 5), Address("::1", 6)), "main")
    assert (made.username, made.password, made.tls, made.db) == ("us@er", "pa/ss", True, 3)
    assert ConnectionOptions.parse({"url": "redis+sentinel://a/main"}).db == 0
    made = ConnectionOptions.parse({"url": "redis+sentinel://[::1]:6,a:1/main?db=2"})
    assert (made.sentinels, made.sentinel_master, made.db) == ((Address("::1", 6), Address("a", 1)), "main", 2)
    assert ConnectionOptions.parse({"url": "redis+sentinel://[::1]:6/main"}).sentinels == (Address("::1", 6),)
    assert ConnectionOptions.parse({"sentinels": '["a:1", "[::1]:6"]', "sentinelMaster": "m"}).sentinels == (
        Address("a", 1),
        Address("::1", 6),
    )
    assert "are given together" in refusal({"url": "redis+sentinel://a"}, ConnectionOptions)
    assert "is not an address" in refusal({"url": "redis+sentinel://u:hidden@a:b/main"}, ConnectionOptions)
    assert "hidden" not in refusal({"url": "redis+sentinel://u:hidden@a:b/main"}, ConnectionOptions)


def test_passwords_come_from_the_environment_and_from_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "word"
    file.write_text("from-file\r\nignored\n")
    monkeypatch.setenv("STREAMD_TEST_WORD", "from-env")
    assert ConnectionOptions.parse({"passwordFile": str(file)}).find_password() == "from-file"
    assert ConnectionOptions.parse({"passwordEnv": "STREAMD_TEST_WORD"}).find_password() == "from-env"
    monkeypatch.delenv("STREAMD_TEST_WORD")
    with pytest.raises(OptionError, match="option passwordEnv: there is no environment variable"):
        ConnectionOptions.parse({"passwordEnv": "STREAMD_TEST_WORD"}).find_password()
    with pytest.raises(OptionError, match="option passwordFile"):
        ConnectionOptions.parse({"passwordFile": str(tmp_path / "none")}).find_password()


def test_secrets_are_in_no_repr_and_no_complaint() -> None:
    given = {
        "stream": "s", "url": "redis://u:hidden@h/0", "sentinelPassword": "hidden", "tls": "true", "tlsKeyPassword": "hidden",
        "sentinels": "a", "sentinelMaster": "m",
    }  # fmt: skip
    made = SourceOptions.parse(given)
    assert "hidden" not in repr(made)
    assert pickle.loads(pickle.dumps(made)) == made
    for wrong in ("redis://u:hidden@h:port/0", "redis://u:hidden@h/x", "http://u:hidden@h", "redis://u:hidden@h/0?x=1"):
        assert "hidden" not in refusal({"url": wrong}, ConnectionOptions)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "option stream: name what to read"),
        ({"stream": "s", "streams": "a,b"}, "option streams: cannot be combined with stream"),
        ({"stream": "s", "startingId": "1", "startingTimestamp": "1"}, "option startingTimestamp: cannot be combined"),
        ({"stream": "s", "fetchSize": "0"}, "option fetchSize: '0' is not a whole number from 1"),
        ({"stream": "s", "maxBytesPerTrigger": "1x"}, "option maxBytesPerTrigger: '1x' is not a size"),
        ({"stream": "s", "mode": "lenient"}, "option mode: 'lenient' is none of PERMISSIVE"),
        ({"stream": "s", "startingId": '{"s": '}, "option startingId: invalid JSON"),
        ({"stream": "s", "startingId": '{"s": []}'}, "option startingId: []"),
        ({"stream": "s", "endingTimestamp": "soon"}, "option endingTimestamp: 'soon' is not a time"),
        ({"stream": "s", "sentinels": "a:1"}, "option sentinelMaster: sentinels and sentinelMaster are given together"),
        ({"stream": "s", "tlsCaFile": "x"}, "option tlsCaFile: needs tls=true"),
        ({"stream": "s", "password": "x", "passwordEnv": "y"}, "option passwordEnv: cannot be combined with password"),
        ({"stream": "s", "maxLen": "5"}, "option maxlen: unknown option"),
        ({"stream": "s", "failOnDataLos": "true"}, "did you mean failOnDataLoss?"),
        ({"stream": "s", "minEntriesPerTrigger": "5", "maxEntriesPerTrigger": "4"}, "option minEntriesPerTrigger"),
        ({"streams": "[1]"}, "option streams: the JSON array must hold strings"),
        ({"streams": " , "}, "option streams: names nothing"),
    ],
)
def test_complaints_name_the_option(options: dict[str, str], text: str) -> None:
    assert text in refusal(options)


def test_what_spark_adds_is_let_through() -> None:
    SourceOptions.parse({"stream": "s", "checkpointLocation": "/y"})


def test_a_path_is_the_name_of_a_stream() -> None:
    assert SourceOptions.parse({"path": "s"}).stream == "s"
    assert SourceOptions.parse({"paths": '["a","b"]'}).streams == ("a", "b")
    assert SinkOptions.parse({"path": "s"}).stream == "s"
    for options in ({"path": "s", "stream": "s"}, {"path": "s", "streamPattern": "*"}, {"path": "s", "paths": "[]"}):
        assert "cannot be combined with path" in refusal(options)


def test_several_streams() -> None:
    assert SourceOptions.parse({"streams": "a, b,a"}).named_streams == ("a", "b")
    assert SourceOptions.parse({"streams": '["a,b", " c"]'}).named_streams == ("a,b", " c")
    assert ConnectionOptions.parse({"sentinels": "a, b:5,[::1]:6", "sentinelMaster": "m"}).sentinels == (
        Address("a", 26379),
        Address("b", 5),
        Address("::1", 6),
    )


def test_bounds_by_stream() -> None:
    made = SourceOptions.parse(
        {"streams": "a,b,c", "startingId": '{"a": "5-1", "b": "latest", "*": 7}', "endingTimestamp": "9"}
    )
    assert made.start_of("a").resolve(NOW_MS) == pack_id(5, 1)
    assert made.start_of("b").is_latest
    assert made.start_of("c").resolve(NOW_MS) == pack_id(7, 0)
    assert made.end_of("a").resolve(NOW_MS, is_end=True) == pack_id(9, 0) - 1
    assert SourceOptions.parse({"stream": "a"}).start_of("a").is_earliest


def test_relative_times_are_resolved_when_they_are_used() -> None:
    made = SourceOptions.parse({"stream": "a", "startingTimestamp": "-1s", "endingTimestamp": "now"})
    assert made.start_of("a").resolve(NOW_MS) == pack_id(NOW_MS - 1000, 0)
    assert made.end_of("a").resolve(NOW_MS + 5, is_end=True) == pack_id(NOW_MS + 5, 0) - 1


def test_the_end_before_everything_makes_an_empty_range() -> None:
    assert Bound("time", "0").resolve(NOW_MS, is_end=True) < 0


# --- Options that would do nothing -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"idempotencyKey": "k", "delivery": "exactly-once"},
            "option idempotencyKey: cannot be combined with delivery=exactly-once",
        ),
        ({"idempotencyDuration": "1h"}, "option idempotencyDuration: needs idempotencyKey"),
        ({"idempotencyProducers": "2"}, "option idempotencyProducers: needs idempotencyKey"),
        ({"verifyReplay": "false"}, "option verifyReplay: needs delivery=exactly-once"),
        ({"verifyReplay": "false", "idempotencyKey": "k"}, "option verifyReplay: needs delivery=exactly-once"),
        ({"runId": "today"}, "option runId: needs delivery=exactly-once"),
        (
            {"markerTtl": "1h", "idColumn": "id", "delivery": "exactly-once"},
            "option markerTtl: needs delivery=exactly-once without",
        ),
        ({"trimPolicy": "ACKED"}, "option trimPolicy: needs maxLen or minId"),
        ({"failoverTimeout": "1m"}, "option failoverTimeout: needs sentinels"),
        ({"url": "redis+sentinel://a/m", "host": "b"}, "option host: cannot be combined with Sentinels"),
        ({"unixSocketPath": "/x", "port": "1"}, "option port: cannot be combined with unixSocketPath"),
    ],
    ids=str,
)
def test_options_of_a_sink_that_would_do_nothing_are_refused(options: dict[str, str], said: str) -> None:
    assert refusal({"stream": "s", **options}, SinkOptions).startswith(said)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"startingId": "6-0", "endingId": "5-0"}, "option startingId: 6-0 is after endingId 5-0"),
        ({"startingId": "6-0", "endingId": "earliest"}, "option startingId: 6-0 is after endingId earliest"),
        (
            {"startingTimestamp": "-1h", "endingTimestamp": "-2h"},
            "option startingTimestamp: -1h is after endingTimestamp -2h",
        ),
        ({"startingId": "5-0", "endingTimestamp": "4"}, "option startingId: 5-0 is after endingTimestamp 4"),
        (
            {"startingId": '{"s": "7-0", "*": "1-0"}', "endingId": "6-0"},
            "option startingId: 7-0 of stream s is after endingId 6-0",
        ),
        ({"maxTriggerDelay": "1s"}, "option maxTriggerDelay: needs minEntriesPerTrigger"),
        ({"archiveLease": "1m"}, "option archiveLease: needs archive"),
        ({"patternInterval": "1m"}, "option patternInterval: needs streamPattern"),
    ],
    ids=str,
)
def test_options_of_a_source_that_contradict_each_other_are_refused(options: dict[str, str], said: str) -> None:
    assert refusal({"stream": "s", **options}, SourceOptions).startswith(said)


@pytest.mark.parametrize(
    "options",
    [
        {"startingId": "5-0", "endingId": "5-0"},
        {"startingId": "(5-0", "endingId": "5-0"},
        {"startingTimestamp": "5", "endingTimestamp": "5"},
        {"startingId": "latest", "endingId": "5-0"},
        {"startingId": "5-0", "endingId": "latest"},
        {"startingId": '{"a": "7-0"}', "endingId": '{"b": "6-0"}'},
    ],
    ids=str,
)
def test_ranges_that_may_be_empty_are_not_refused(options: dict[str, str]) -> None:
    SourceOptions.parse({"stream": "s", **options})


@pytest.mark.parametrize("name", QUERY_OPTIONS)
def test_options_of_queries_are_refused_in_a_batch(name: str) -> None:
    values = {"group": "g", "maxTriggerDelay": "1s", "patternInterval": "1s"}
    with pytest.raises(OptionError, match=f"option {name}: is for streaming queries"):
        SourceOptions.parse_batch({"stream": "s", name: values.get(name, "10")})
