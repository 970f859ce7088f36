"""An application over files on Spark emits the records of keyed engines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.unit.runtime.steps_app import hierarchy, lines_of, records

from slackline.core.errors import ConfigError
from slackline.core.event import Event
from slackline.runtime.keyed import KeyedEngines
from slackline.runtime.metrics import Metrics
from slackline.runtime.options import run_options
from slackline.spark.application import SparkApplication

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def application(source: Path, to: Path, /, **more: Any) -> SparkApplication:
    given = {"app": "steps_app.py", "from": str(source), "to": str(to), "on": "spark"}
    return SparkApplication(run_options(given | more, None), hierarchy)


def rows(folder: Path, kind: str) -> list[dict[str, Any]]:
    return [line for path in folder.glob(f"kind={kind}/*.json") for line in lines_of(path)]


def as_csv(path: Path, given: list[dict[str, Any]], *more: str) -> Path:
    lines = ["ts,van,x,seq,source", *(f"{each['ts']},{each['van']},{each['x']},{each['seq']},s" for each in given)]
    path.write_text("\n".join([*lines, *more]) + "\n")
    return path


@pytest.mark.parametrize("options", [{"key": "van"}, {}, {"key": "van", "shards": 2}], ids=["keyed", "all", "shards"])
def test_files_give_the_records_of_keyed_engines(spark: SparkSession, tmp_path: Path, options: dict[str, Any]) -> None:
    given = records(2_000)
    given[60:60] = given[:50]
    source = as_csv(tmp_path / "in.csv", given)
    reported: list[Metrics] = []
    run = application(source, tmp_path / "out", duplicates="write", **options)
    assert ("from", f"{source} (read once)") in run.plan()
    metrics = run.run(reported.append)
    keyed = "key" in options
    engines = KeyedEngines(hierarchy, {"duplicates": "keep"}, keyed=keyed, shards=options.get("shards"))
    payloads = [{"x": each["x"]} if keyed else {"x": each["x"], "van": each["van"]} for each in given]
    pairs = zip(given, payloads, strict=True)
    events = [Event.of("at", each["ts"], "s", each["seq"], payload) for each, payload in pairs]
    found = engines.push(events, [each["van"] for each in given] if keyed else None) + engines.close()
    for kind in ("event", "late", "duplicate"):
        expected = [(one.key, one.id, one.change, one.ts, one.payload_json()) for one in found if one.kind == kind]
        written = [
            (row.get("key"), row["id"], row.get("change"), row["ts"], row["payload"])
            for row in rows(tmp_path / "out", kind)
        ]
        assert sorted(written, key=str) == sorted(expected, key=str)
    assert metrics is not None and reported == [metrics]
    expected = engines.metrics()
    assert (metrics.events, metrics.late, metrics.duplicates) == (len(given), expected.late, expected.duplicates)
    assert metrics.duplicates, "else it is not tested"
    assert metrics.outputs == sum(one.kind == "event" for one in found)


def test_a_folder_of_an_earlier_run_is_refused_or_discarded(spark: SparkSession, tmp_path: Path) -> None:
    source = as_csv(tmp_path / "in.csv", records(100))
    application(source, tmp_path / "out").run(lambda metrics: None)
    before = rows(tmp_path / "out", "event")
    with pytest.raises(ConfigError, match="--fresh to discard"):
        application(source, tmp_path / "out").run(lambda metrics: None)
    application(source, tmp_path / "out", fresh=True).run(lambda metrics: None)
    assert rows(tmp_path / "out", "event") == before
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("mine")
    with pytest.raises(ConfigError):
        application(source, tmp_path / "other", fresh=True).run(lambda metrics: None)
    assert (tmp_path / "other" / "thesis.txt").exists()


def test_the_unit_is_recognised_from_the_files(spark: SparkSession, tmp_path: Path) -> None:
    given = [{**each, "ts": 1_700_000_000_000 + each["ts"]} for each in records(100)]
    metrics = application(as_csv(tmp_path / "in.csv", given), tmp_path / "out").run(lambda metrics: None)
    assert metrics is not None and metrics.ts_per_second == 1_000


def test_files_of_several_formats_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.csv").write_text("ts,x\n1,1\n")
    (folder / "b.jsonl").write_text('{"ts": 1, "x": 1}\n')
    with pytest.raises(ConfigError, match="files are of one format"):
        application(folder, tmp_path / "out").run(lambda metrics: None)


def test_a_sequence_number_without_a_source_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("ts,x,seq\n1,1,1\n2,1,1\n")
    with pytest.raises(ConfigError, match="is a sequence number per source, and no source is given"):
        application(tmp_path / "in.csv", tmp_path / "out").run(lambda metrics: None)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"to": "out.jsonl"}, "writes to a folder"),
        ({"to": "-"}, "reads one file or folder"),
        ({"from": ["a", "b"]}, "reads one file or folder"),
        ({"from": "kafka://h:1/t"}, "reads one file or folder"),
        ({"group": "g"}, "are for kafka:// addresses"),
        ({"metrics": 9400}, "runs once over files"),
        ({"idle-timeout": "1 s"}, "runs once over files"),
        ({"follow": True, "at-stop": "flush"}, "no --at-stop flush"),
        ({"follow": True}, "follows a folder"),
        ({"shards": 3}, "--shards needs a key"),
        ({"engine": {"policy": "guess"}}, "policy='guess'"),
        ({"from": "kafka://h:1/t", "to": "kafka://h:1/u"}, "give --group"),
        ({"from": "kafka://h:1/t", "to": "kafka://h:1/u", "group": "g"}, "give --state FOLDER"),
        ({"from": "kafka://h:1/t", "to": "kafka://h:1/u", "group": "g", "state": "s/"}, "give --fields FILE"),
        ({"from": "kafka://h:1/t", "to": "kafka://i:1/u", "group": "g"}, "the same for both"),
        ({"from": "kafka://h:1/t", "to": "kafka://h:1/u", "delivery": "exactly-once"}, "at least once"),
    ],
)
def test_options_that_spark_cannot_do_are_refused_at_once(tmp_path: Path, given: dict[str, Any], says: str) -> None:
    source = as_csv(tmp_path / "in.csv", [])
    with pytest.raises(ConfigError, match=says):
        application(source, tmp_path / "out", **given)
