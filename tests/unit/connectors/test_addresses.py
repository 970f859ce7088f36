"""Sources and sinks by their addresses."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from slackline.connectors import FileSink, FileSource, FolderSink, HttpSink, MqttSink, MqttSource, StdoutSink
from slackline.connectors.addresses import broker_of, open_sink, open_sources
from slackline.core.errors import ConfigError


def test_a_folder_is_one_source_for_each_of_its_files(tmp_path: Path) -> None:
    for name in ("b.jsonl", "a.csv", "c.tsv.gz", "notes.txt", "_half.jsonl", ".hidden.csv"):
        (tmp_path / name).write_text("")
    sources = open_sources([str(tmp_path)])
    assert [source.name for source in sources] == ["a", "b", "c"]
    assert all(isinstance(source, FileSource) and source.bounded for source in sources)


def test_a_followed_folder_is_one_source(tmp_path: Path) -> None:
    pq.write_table(pa.table({"ts": [1]}), tmp_path / "a.parquet")
    (source,) = open_sources([str(tmp_path)], follow=True)
    assert source.live and source.name == tmp_path.name


def test_files_with_the_same_stem_are_named_by_their_paths(tmp_path: Path) -> None:
    for name in ("a.csv", "a.jsonl", "b.csv"):
        (tmp_path / name).write_text("")
    names = [source.name for source in open_sources([str(tmp_path)])]
    assert names == [str(tmp_path / "a.csv"), str(tmp_path / "a.jsonl"), "b"]


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("nothing.csv", "no such file or folder"),
        ("notes.txt", "format of .* is unknown"),
        ("empty", r"no file in this folder ends with one of \.csv"),
        ("ftp://host/file", r"unknown scheme ftp://; known are http://, https://, mqtt://, kafka://, paths and -"),
        ("mqtt://127.0.0.1", "does not name a broker and a topic"),
        ("http://", "not an HTTP address"),
    ],
)
def test_an_address_that_cannot_be_read_is_refused(url: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match=message):
        open_sources([url if "://" in url else str(tmp_path / url)])


def test_a_folder_without_permission_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def iterdir(self: Path) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "iterdir", iterdir)  # root may read every folder
    with pytest.raises(ConfigError, match=r"cannot read .* Give this user the permission to read it"):
        open_sources([str(tmp_path)])


def test_nothing_and_the_same_twice_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no source is given"):
        open_sources([])
    path = tmp_path / "a.jsonl"
    path.write_text("")
    for twice in (str(path), "-", "http://host/x"):
        with pytest.raises(ConfigError, match="given several times"):
            open_sources([twice, twice])


def test_sources_elsewhere_are_opened_by_their_scheme() -> None:
    http, other, mqtt = open_sources(["http://host/x?a=1", "http://host/x?a=2", "mqtt://host/hall/+"])
    assert [http.name, other.name, mqtt.name] == ["http://host/x?a=1", "http://host/x?a=2", "hall/+"]
    assert isinstance(mqtt, MqttSource) and mqtt.describe() == "MQTT host:1883, topic hall/+"


def test_sinks_are_opened_by_their_address(tmp_path: Path) -> None:
    kinds = {"-": StdoutSink, "out.jsonl": FileSink, "out": FolderSink, "https://h/x": HttpSink, "mqtt://h/t": MqttSink}
    assert {url: type(open_sink(url)) for url in kinds} == kinds
    (tmp_path / "out.d").mkdir()
    assert isinstance(open_sink(str(tmp_path / "out.d")), FolderSink)
    assert "duplicates.jsonl" in open_sink("out", duplicates=True).describe()
    for url in ("out.csv", "ftp://host/x", "mqtt://h/hall/+"):
        with pytest.raises(ConfigError):
            open_sink(url)


@pytest.mark.parametrize("url", ["mqtt://host", "mqtt://host:99999/t", "mqtt:///t", "http://host/t", "mqtt://h/t?x=1"])
def test_an_address_without_broker_and_topic_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="does not name a broker and a topic"):
        broker_of(url)


def test_an_address_has_login_and_filter() -> None:
    found = broker_of("mqtt://ann:p%40w@host:1884/hall/#")
    assert found == {"host": "host", "topic": "hall/#", "port": 1884, "username": "ann", "password": "p@w"}
