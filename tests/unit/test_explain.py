"""Explanations: a trace is replayed, and what was decided is explained."""

import json

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.engine.test_late_sources import readings
from typer.testing import CliRunner

import slackline as sl
from slackline.cli import app as cli
from slackline.core.errors import ConfigError, SlacklineError
from slackline.engine import Engine
from slackline.engine.observed import smallest
from slackline.explain import explain
from slackline.report import answer_text, explain_page, share_text, summary_text
from slackline.runtime import KeyedEngines, Trace
from slackline.runtime.trace import TraceError, read_trace
from slackline.testing import stream


class Hits(sl.Detector):
    listens, publishes = ("near", "kick"), ("hit",)

    def __init__(self):
        self.close = set()

    def on_event(self, event):
        if event.type == "near":
            self.close.add(event["player"])
        else:
            yield from (event.derive("hit", player=player) for player in sorted(self.close))


class Second(sl.Detector):
    """Reports the second hit, and later that there was none since."""

    listens, publishes = ("hit",), ("second", "quiet")

    def __init__(self):
        self.hits = 0

    def on_event(self, event):
        self.hits += 1
        if self.hits == 2:
            yield event.derive("second")
        yield sl.Timer(event.ts + 5)

    def on_timer(self, timer):
        yield timer.derive("quiet")


def hierarchy():
    return sl.Hierarchy([Hits(), Second()])


def traced(path, pushes, hierarchy=hierarchy, close=True, **options):
    """The outputs and late events of a traced engine."""
    engine = Engine(hierarchy(), **options)
    with Trace(path) as engine.trace:
        outputs = [output for each in pushes for output in engine.push(each)]
        outputs += engine.close() if close else []
    return outputs, engine.late


IN_ORDER = sl.Ordered()
SLACK = sl.Slack(margin=0)


def test_an_event_that_waited_names_the_slowest_source_and_the_arrival_that_released_it(tmp_path):
    regular = "near/p1@{0}(player=1) near/p2@{0}(player=2) kick/ball@{0}"
    text = " ".join(regular.format(10 * n) for n in range(60))
    text += " near/p1@600(player=1) kick/ball@600 near/p2@600(player=2) kick/ball@610 near/p1@610(player=1)"
    traced(tmp_path / "t", [stream(text)], policy=sl.Ready(warmup=8), close=False)
    [answer] = explain(tmp_path / "t", hierarchy()).event("kick@600")
    [fate] = answer["detectors"]
    [waited] = fate["waited_for"]
    assert (fate["outcome"], fate["at"]["event"]) == ("delivered", "near/p2@600")
    assert (waited["input"], waited["source"], waited["last"]) == ("near", "p2", 590)
    assert (waited["since"]["event"], waited["then"]["by"]) == ("near/p2@590", ["readiness"])
    assert "slowest source p2: delivered up to 590" in answer_text(answer)


def test_a_late_event_names_the_arrival_that_advanced_the_watermark_past_it(tmp_path):
    text = "kick@0 kick@10 kick@20 near@5(player=2)"
    _, late = traced(tmp_path / "t", [stream(text)], policy=SLACK)
    assert [item.event.ts for item in late] == [5]
    [answer] = explain(tmp_path / "t", hierarchy()).event("near@5")
    [fate] = answer["detectors"]
    assert (fate["outcome"], fate["lateness"]) == ("late", late[0].lateness)
    assert fate["at"]["event"] == "kick@10"
    assert {each["then"]["by"][0] for each in fate["waited_for"]} == {"slack"}


class Seen(sl.Detector):
    listens, publishes = ("reading",), ("seen",)

    def on_event(self, event):
        yield event.derive("seen")


def test_an_answer_about_a_late_event_says_if_its_source_is_late_far_more_often_than_the_target(tmp_path):
    events = [*readings(), sl.Event("reading", ts=5, source="s1")]
    _, late = traced(tmp_path / "t", [events], lambda: sl.Hierarchy([Seen()]), close=False, late_target=0.01)
    explained = explain(tmp_path / "t", sl.Hierarchy([Seen()]))
    [answer] = explained.event(f"reading/slow@{late[0].event.ts}")
    found = answer["late_source"]
    assert found["source"] == "slow" and found["late"] == sum(item.event.source == "slow" for item in late)
    text = answer_text(answer)
    assert f"({found['late']} of {found['events']} events, {share_text(found['share'])}; " in text
    [answer] = explained.event("reading/s1@5")
    assert answer["detectors"][0]["outcome"] == "late" and "late_source" not in answer
    on_time = next(e for e in events if e.source == "slow" and e.ts not in {item.event.ts for item in late})
    [answer] = explained.event(f"reading/slow@{on_time.ts}")
    assert "late_source" not in answer


def test_a_result_comes_from_the_smallest_set_of_inputs_down_to_the_sensors(tmp_path):
    text = "near@1(player=7) near@2(player=8) kick@3 kick@4 kick@5"
    traced(tmp_path / "t", [stream(text)], policy=IN_ORDER)
    [answer] = explain(tmp_path / "t", hierarchy()).event("second:Second:0")
    hits = answer["from"]["inputs"]
    assert [(each["event"], [one["event"] for one in each["inputs"]]) for each in hits] == [
        ("hit/Hits#0@3", ["near@1", "kick@3"]),
        ("hit/Hits#1@3", ["near@2", "kick@3"]),
    ]


def test_a_timer_comes_from_the_event_that_set_it(tmp_path):
    traced(tmp_path / "t", [stream("near@1(player=7) kick@3 kick@4")], policy=IN_ORDER)
    [answer] = explain(tmp_path / "t", hierarchy()).event("quiet@9")
    assert answer["from"]["on"] == {"timer": 9}
    assert [each["event"] for each in answer["from"]["inputs"]] == ["hit/Hits#1@4"]


def test_duplicates_quarantine_and_what_still_waits_are_explained(tmp_path):
    text = "kick/b#1@1 kick/b#1@1 kick/b#2@9 near/p@8(player=1)"
    refused = sl.Event("kick", ts=-1, source="b")
    traced(tmp_path / "t", [stream(text), refused], close=False)
    explained = explain(tmp_path / "t", hierarchy())
    assert [each.get("refused", {}).get("reason") for each in explained.event("kick@1")] == [None, "duplicate"]
    assert explained.event("near@8")[0]["detectors"][0]["outcome"] == "waiting"
    assert explained.summary()["counts"] == {
        "arrivals": 5, "duplicates": 1, "quarantined": 1, "results": 0, "late": 0,
    }  # fmt: skip


def test_an_unknown_key_is_an_error_that_names_known_ones(tmp_path):
    traced(tmp_path / "t", [stream("near@1(player=7) kick@3")], policy=IN_ORDER)
    explained = explain(tmp_path / "t", hierarchy())
    for asked in (lambda: explained.summary("van9"), lambda: explained.event("kick@3", "van9")):
        with pytest.raises(sl.SlacklineError, match="the trace has no key 'van9'; its events have no keys"):
            asked()


def test_what_waits_for_an_input_without_sources_names_the_input(tmp_path):
    traced(tmp_path / "t", [stream("kick@5 kick@1 near@9(player=1) near@2(player=1) kick@20 near@30(player=1)")])
    waited = explain(tmp_path / "t", hierarchy()).summary()["waited_for"]
    assert waited and not any("None" in name for names in waited.values() for name in names)


def test_dates_are_shown_as_they_went_in(tmp_path):
    rows = [{"type": "kick", "ts": f"2026-01-01T00:00:0{n}+00:00"} for n in range(3)]
    traced(tmp_path / "t", [rows], policy=IN_ORDER)
    [answer] = explain(tmp_path / "t", hierarchy()).event("kick@2026-01-01T01:00:01+01:00")
    assert answer["event"] == "kick@2026-01-01T00:00:01+00:00"


@settings(max_examples=20)
@given(
    st.lists(st.tuples(st.integers(0, 40), st.sampled_from("abk"), st.integers(0, 12)), min_size=1, max_size=60),
    st.sampled_from([sl.Auto(), sl.Auto(warmup=0), sl.Slack(), sl.Ready(warmup=4)]),
    st.integers(1, 60),
    st.booleans(),
)
def test_the_replay_of_a_trace_decides_as_the_engine_did(tmp_path_factory, rows, policy, cut, timed):
    path = tmp_path_factory.mktemp("trace") / "t"
    events = [
        sl.Event("kick", ts=3 * n + ts, source="ball")
        if s == "k"
        else sl.Event("near", ts=3 * n + ts, source=s, player=s)
        for n, (ts, s, _) in enumerate(rows)
    ]
    times = [sum(row[2] for row in rows[: n + 1]) for n in range(len(rows))]
    engine = Engine(hierarchy(), policy=policy)
    with Trace(path) as engine.trace:
        engine.push(events[:cut], now=times[:cut] if timed else None)
        engine.drain()
    engine = Engine.load(engine.save(), hierarchy())
    with Trace(path) as engine.trace:
        outputs = engine.push(events[cut:], now=times[cut:] if timed and events[cut:] else None)
        outputs += engine.flush("test") + engine.close()
    explained = explain(path, hierarchy())
    [observed] = [each.engine for each in explained._answers]
    assert [output for _, output in observed.outputs] == outputs
    late = sum(fate.outcome == "late" for _, event in observed.found(lambda _: True) for fate in observed.fates(event))
    assert late == len(engine.late)
    for at, event in observed.found(lambda _: True):
        for fate in observed.fates(event):
            assert fate.arrived == at
            assert fate.outcome != "waiting"
    assert summary_text(explained.summary())


def test_engines_by_key_share_delays_as_they_did(tmp_path):
    events = [
        sl.Event("kick", ts=10 * n + 7 * (n * k % 5), source="ball", seq=n) for n in range(200) for k in range(12)
    ]
    keys = [f"k{n % 12}" for n in range(len(events))]
    with Trace(tmp_path / "t") as trace:
        engines = KeyedEngines(hierarchy(), trace=trace, cache=4)
        for at in range(0, len(events), 100):
            engines.push(events[at : at + 100], keys[at : at + 100])
    explained = explain(tmp_path / "t", hierarchy())
    observed = {each.key: each.engine for each in explained._answers}
    for name in engines.names:
        ours, theirs = observed[name].stats(), engines.stats(name)
        assert (ours["detectors"], ours["types"]) == (theirs["detectors"], theirs["types"])
    assert len(explained.event("kick/ball#5@50", key="k0")) == 1


def test_a_key_that_returns_after_its_state_has_expired_has_a_new_engine(tmp_path):
    with Trace(tmp_path / "t") as trace:
        engines = KeyedEngines(hierarchy(), trace=trace, state_ttl=1)
        found = engines.push(stream("near@90(player=7) kick@100"), ["a", "a"], at=0) + engines.expire(2_000)
        found += engines.push(stream("near@4(player=8) kick@5 kick@6"), ["a"] * 3, at=3_000) + engines.close()
    explained = explain(tmp_path / "t", hierarchy())
    counts = explained.summary()["counts"]
    assert (counts["arrivals"], counts["late"]) == (5, 0)
    assert counts["results"] == sum(record.kind == "event" for record in found)
    assert [len(explained.event(f"kick@{ts}", "a")) for ts in (100, 5, 6)] == [1, 1, 1]
    [last] = (record for record in found if record.type == "hit" and record.ts == 6)
    assert last.id == "hit:Hits:1/3000"  # with the time at which the engine was made
    assert [answer["event"] for answer in explained.event(last.id)] == ["hit/Hits#1@6"]


def test_a_trace_is_bounded_and_each_file_stands_for_itself(tmp_path):
    engine = Engine(hierarchy(), policy=IN_ORDER)
    with Trace(tmp_path / "t", limit=10) as engine.trace:
        for n in range(35):
            engine.push(sl.Event("near" if n < 5 else "kick", ts=n, player=n))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t", "t.1"]
    explained = explain(tmp_path / "t", hierarchy())
    assert explained.summary()["counts"]["arrivals"] == 5
    answer = explained.event("hit@31")[0]
    assert [each["event"] for each in answer["from"]["inputs"]] == ["kick@31"]
    assert answer["from"]["note"] == "it depends on events from before the trace"


def test_smallest_leaves_nothing_out_that_matters_and_nothing_in_that_does_not():
    assert smallest(list(range(100)), lambda some: {3, 50, 51} <= set(some)) == [3, 50, 51]
    assert smallest([], lambda some: True) == []


def test_a_trace_of_another_application_or_version_and_a_damaged_one_are_refused(tmp_path):
    path = tmp_path / "t"
    traced(path, [stream("kick@1")])
    with pytest.raises(ConfigError, match="another version of the application"):
        explain(path, sl.Hierarchy([Hits()]))
    with pytest.raises(SlacklineError, match="no event of the trace matches"):
        explain(path, hierarchy()).event("kick@2")
    with pytest.raises(ConfigError, match="give TYPE@TS"):
        explain(path, hierarchy()).event("kick")
    with pytest.raises(ConfigError, match="not an event time of this stream"):
        explain(path, hierarchy()).event("kick@²")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b'{"slackline": "trace", "version": 99}\n')
    with pytest.raises(TraceError, match="version 99"):
        read_trace(path)
    path.write_bytes(lines[0] + lines[1][:40] + b"\n" + lines[2])
    with pytest.raises(TraceError, match="line 2"):
        explain(path, hierarchy())
    path.write_bytes(b"".join(lines)[:-20])  # the process was killed as it wrote: the rest is read
    assert explain(path, hierarchy()).event("kick@1")
    with pytest.raises(TraceError, match="cannot read"):
        read_trace(tmp_path / "none")


def test_engines_that_exchange_progress_are_not_traced_nor_are_shards(tmp_path):
    engine = Engine(hierarchy(), sensors=["kick", "near"])
    with Trace(tmp_path / "t") as trace:
        engine.trace = trace
        with pytest.raises(ConfigError, match="cannot be traced"):
            engine.push(stream("kick@1"))
        with pytest.raises(ConfigError, match="trace without shards"):
            KeyedEngines(hierarchy(), shards=2, trace=trace)


def test_the_page_is_one_file_without_scripts_and_escapes_what_it_shows(tmp_path):
    traced(tmp_path / "t", [stream('kick/<b>@1 near@0(player="<i>")')], policy=IN_ORDER)
    explained = explain(tmp_path / "t", hierarchy())
    page = explain_page("trace <t>", explained.summary(), explained.event("near@0"))
    assert "<script" not in page and "http" not in page and "<b>" not in page and "<i>" not in page
    assert json.dumps(explained.summary())


def test_the_command_prints_text_or_json_and_writes_a_page(tmp_path):
    app = tmp_path / "hits_app.py"
    app.write_text(
        "import slackline as sl\n\n\nclass Hits(sl.Detector):\n    listens, publishes = ('kick',), ('hit',)\n\n"
        "    def on_event(self, event):\n        yield event.derive('hit')\n\n\nhierarchy = sl.Hierarchy([Hits()])\n"
    )
    rows = tmp_path / "rows.csv"
    rows.write_text("ts\n2\n1\n")
    command, trace = CliRunner(), str(tmp_path / "t")
    line = [str(app), "--from", str(rows), "--to", str(tmp_path / "found.jsonl")]
    assert command.invoke(cli, ["run", *line, "--trace", trace]).exit_code == 0
    page = tmp_path / "page.html"
    done = command.invoke(cli, ["explain", trace, "hit@1", "--json", "--html", str(page)])
    assert [each["from"]["inputs"][0]["event"] for each in json.loads(done.stdout)] == ["kick@1"]
    assert "comes from" in page.read_text()
    assert "2 arrivals, 0 late" in command.invoke(cli, ["explain", trace, "--app", str(app)]).stdout
    refused = command.invoke(cli, ["run", *line, "--trace", trace, "--on", "spark"])
    assert (refused.exit_code, "--trace is for runs in this process" in refused.stderr) == (2, True)


def test_a_trace_has_the_type_of_tables_that_name_none(tmp_path):
    class Echo(sl.Detector):
        listens, publishes = ("ping",), ("pong",)

        def on_event(self, event):
            yield event.derive("pong")

    engine = sl.Engine(sl.Hierarchy([Echo()]))
    with Trace(tmp_path / "t") as engine.trace:
        engine.push(pa.table({"ts": [5, 2, 7]}))
        engine.close()
    [answer] = explain(tmp_path / "t", sl.Hierarchy([Echo()])).event("pong@2")
    assert [each["event"] for each in answer["from"]["inputs"]] == ["ping@2"]
