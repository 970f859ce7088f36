"""A study names the sources of which far more events are late than the target allows."""

import json
from dataclasses import replace

import numpy as np
import pytest
from tests.unit.engine.test_late_sources import Echo, readings
from typer.testing import CliRunner

from slackline import Engine, Hierarchy
from slackline.cli import app
from slackline.report import late_sources_text, share_text, study_page
from slackline.runtime.schema import RecordSchema
from slackline.runtime.source import SourceError
from slackline.study import RecordedStream, load_stream, study


@pytest.fixture(scope="module")
def events():
    return readings(30_000)


@pytest.fixture(scope="module")
def file(events, tmp_path_factory):
    path = tmp_path_factory.mktemp("study") / "slow.csv"
    rows = [f"{n},{event.ts},{event.source},reading" for n, event in enumerate(events)]
    path.write_text("\n".join(["position,ts,source,type", *rows]))
    return path


@pytest.fixture(scope="module")
def result(file):
    return study(load_stream(file, RecordSchema(ts="ts", source="source", unit="ms")))


def test_the_figures_are_those_of_the_engine(events, result):
    engine = Engine(Hierarchy([Echo()]))
    engine.push(events)
    assert [each["source"] for each in result.late_sources] == ["slow"]
    assert list(result.late_sources) == engine.stats()["types"]["reading"]["late_sources"]
    assert result.to_dict()["late_sources"] == list(result.late_sources)


def test_text_json_and_page_say_so_and_what_to_do(file, result):
    [slow] = result.late_sources
    command = ["study", str(file), "--ts", "ts", "--source", "source", "--unit", "ms"]
    shown = CliRunner().invoke(app, command, env={"COLUMNS": "1000", "TERM": "dumb"}).stdout
    said = f"slow ({slow['late']} of {slow['events']} events, {share_text(slow['share'])}; "
    for text in (shown, study_page(result)):
        assert said in text
        assert "To wait for such a source, make it an event type of its own, or an engine of its own" in text
    done = CliRunner().invoke(app, [*command, "--type", "type", "--json"])
    assert [each["source"] for each in json.loads(done.stdout)["late_sources"]] == ["reading/slow"]


def test_a_stream_of_which_every_source_is_late_gets_no_such_advice(result):
    assert "To wait for such a source" in late_sources_text(result)
    assert late_sources_text(replace(result, sources=len(result.late_sources))) == ""


def test_a_file_without_a_single_event_type_is_refused(tmp_path):
    path = tmp_path / "untyped.csv"
    path.write_text("ts,source,type\n1,a,\n2,b,\n")
    with pytest.raises(SourceError, match="holds no event type"):
        load_stream(path, RecordSchema(ts="ts", source="source", type="type", unit="ms"))


def test_nothing_is_said_where_all_sources_are_alike_nor_where_each_has_an_engine(events):
    alike = [event for event in events if event.source != "slow"]
    for chosen, keyed in ((alike, False), (events, True)):
        source = np.unique([event.source for event in chosen], return_inverse=True)[1].astype(np.int64)
        ts = np.array([event.ts for event in chosen])
        found = study(RecordedStream(np.maximum.accumulate(ts), ts, source, "ms", key=source if keyed else None))
        assert list(found.late_sources) == [] and found.to_dict()["late_sources"] == []
        assert "To wait for such a source" not in study_page(found)
