"""`slackline run`: options from the command line and a file, the plan, and what is refused."""

from __future__ import annotations

import io
import json
import linecache
import logging
import shutil
import sys
from pathlib import Path

import pytest
from rich.console import Console
from tests.unit.runtime.steps_app import lines_of, records, write_records
from typer.testing import CliRunner, Result

from slackline.cli import app
from slackline.cli.logs import JsonLine, Status, line_of, table_of
from slackline.runtime.metrics import DetectorMetrics, Metrics

APP = Path(__file__).parents[1] / "runtime" / "steps_app.py"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an application and a recording, in which we are."""
    shutil.copy(APP, tmp_path / "vans.py")
    write_records(tmp_path / "in.jsonl", records(60))
    monkeypatch.chdir(tmp_path)
    root = logging.getLogger("slackline")
    monkeypatch.setattr(root, "handlers", list(root.handlers))
    monkeypatch.setattr(root, "propagate", root.propagate)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "vans", raising=False)
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["run", *arguments])


PLAN = """\
application   vans.py
sensor types  at (clock)
level 1       Steps: at -> step
engines       one per van, in this process
options       late_target=0.01, policy=auto
from          file in.jsonl, read once
to            folder out (outputs.jsonl, late.jsonl, quarantined.jsonl, checkpoint)
guarantee     exactly once, a checkpoint every 2 s; after a crash the same command resumes
at a stop     buffered events are stored in the checkpoint
field ts      'ts', in us
field type    none: all events are 'at'
field source  none
field seq     'seq', by its name
field key     'van'
note          event times are taken as us, by default: 'ts' is 30,000, which is no date in any unit; --unit overrides
sample        'v0': Event('at', ts=0, seq=0, x=30)
sample        'v2': Event('at', ts=2000, seq=2, x=80)
sample        'v3': Event('at', ts=3000, seq=3, x=77)
sample of     60 events, 0 duplicates, 0 not an event, 0 without a key
idle timeout  30 s: buffered events of a key are flushed
metrics       http://127.0.0.1:9400/metrics
"""

PIPED = """\
application   vans:steps
sensor types  at (clock)
level 1       Steps: at -> step
engines       one for all events, in this process
options       policy=auto, late_target=0.001, and the other defaults
from          file in.jsonl, followed as it grows
from          standard input, JSON lines
to            standard output, JSON lines
guarantee     none beyond this run: there are no checkpoints, a new run begins at the start
at a stop     buffered events are flushed
"""


def test_the_plan_names_sources_types_levels_sinks_and_guarantees(here: Path) -> None:
    (here / "run.toml").write_text(
        'app = "vans.py"\nfrom = "in.jsonl"\nto = "nowhere"\nkey = "van"\ncheckpoint-every = 2\nmetrics = 9400\n'
        'idle-timeout = "30 s"\n[engine]\npolicy = "auto"\nlate_target = 0.5\n'
    )
    done = run("--config", "run.toml", "--to", "out", "--engine", "late_target=0.01", "--dry-run")
    assert (done.exit_code, done.stdout) == (0, PLAN), done.stderr
    assert not (here / "out").exists()


def test_a_plan_says_what_is_not_guaranteed(here: Path) -> None:
    done = run("vans:steps", "--from", "in.jsonl", "--from", "-", "--to", "-", "--follow", "--dry-run")
    assert done.exit_code == 0 and done.stdout.startswith(PIPED), done.stderr
    done = run("vans:steps", "--from", "-", "--to", "out", "--dry-run")
    assert "a crash loses what stdin delivered after the last one" in done.stdout


def test_a_dry_run_counts_duplicates_in_a_sample(here: Path) -> None:
    write_records(here / "in.jsonl", [{"ts": n, "x": 1, "nr": n // 2} for n in range(100)])
    done = run("vans.py", "--from", "in.jsonl", "--to", "out", "--seq", "nr", "--dry-run")
    assert "100 events, 50 duplicates" in done.stdout


ON_KAFKA = """\
application   vans.py
sensor types  at (clock)
level 1       Steps: at -> step
engines       one per van, in this process
options       policy=auto, late_target=0.001, and the other defaults
from          kafka://127.0.0.1:1/in (json), group vans
to            kafka://127.0.0.1:1/out; late events to out-late, quarantined ones to out-quarantine
state         topic vans-state, a checkpoint every 5 s
guarantee     exactly once for read_committed consumers, a transaction every 0.01 s
at a stop     buffered events are flushed
idle timeout  30: buffered events of a key are flushed
metrics       http://127.0.0.1:9400/metrics
page          http://127.0.0.1:9401/
"""


def test_a_plan_on_kafka_says_the_same_things(here: Path) -> None:
    line = "vans.py --from kafka://127.0.0.1:1/in --to kafka://127.0.0.1:1/out --key van --idle-timeout 30 --group vans"
    done = run(
        *line.split(),
        "--checkpoint-every",
        "5",
        "--at-stop",
        "flush",
        "--metrics",
        "9400",
        "--page",
        "9401",
        "--dry-run",
    )
    assert (done.exit_code, done.stdout) == (0, ON_KAFKA), done.stderr


LISTENERS = """
from slackline import Detector, Hierarchy

class First(Detector):
    listens, publishes = ("at",), ("half",)
    def on_event(self, event):
        back = 1000 * (event["n"] * 37 % 20)
        yield from (event.derive("half", ts=max(0, event.ts - back), n=event["n"], half=half) for half in "ab")

class Second(Detector):
    listens = ("at", "half")
    def on_event(self, event): ...

class Third(Second): ...

hierarchy = Hierarchy([First(), Second(), Third()], clock="at")
"""


@pytest.mark.parametrize("by", [(), ("--key", "van"), ("--key", "van", "--shards", "2")])
def test_late_jsonl_has_one_line_per_late_event(here: Path, by: tuple[str, ...]) -> None:
    (here / "listeners.py").write_text(LISTENERS)
    rows = [{"ts": 1000 * n, "n": n, "van": f"v{n % 2}"} for n in range(300)]
    arriving = sorted(rows, key=lambda row: row["n"] + (40 if row["n"] % 7 == 3 else 0))
    write_records(here / "in.jsonl", arriving)
    slack = ("--engine", "policy=slack", "--engine", "margin=0", "--engine", "warmup=0")
    done = run("listeners.py", "--from", "in.jsonl", "--to", "out", *by, *slack)
    assert done.exit_code == 0, done.stderr
    late = [
        (line["type"], line["payload"]["n"], line["payload"].get("half")) for line in lines_of(here / "out/late.jsonl")
    ]
    assert {kind for kind, *_ in late} == {"at", "half"}
    assert len(late) == len(set(late))


def test_files_go_to_a_folder(here: Path) -> None:
    done = run("vans.py", "--from", "in.jsonl", "--to", "out", "--key", "van")
    assert done.exit_code == 0, done.stderr
    assert "events 60 " in done.stderr
    outputs = lines_of(here / "out" / "outputs.jsonl")
    assert len(outputs) + len(lines_of(here / "out" / "late.jsonl")) == 60
    done = run("vans.py", "--from", "in.jsonl", "--to", "out", "--key", "van")
    assert done.exit_code == 0 and "nothing to do" in done.stderr
    assert lines_of(here / "out" / "outputs.jsonl") == outputs


@pytest.mark.parametrize("to", ["outputs.jsonl", "."])
def test_a_file_that_is_read_is_not_overwritten(here: Path, to: str) -> None:
    Path("outputs.jsonl").write_text('{"ts": 1}\n')
    done = run("vans.py", "--from", "outputs.jsonl", "--to", to)
    assert done.exit_code == 2 and "would overwrite the input" in done.stderr
    assert Path("outputs.jsonl").read_text() == '{"ts": 1}\n'


def test_an_edited_application_is_not_run_over_the_results_of_the_earlier_one(here: Path) -> None:
    line = ("vans.py", "--from", "in.jsonl", "--to", "out", "--key", "van")
    assert run(*line).exit_code == 0
    before = lines_of(here / "out" / "outputs.jsonl")
    (here / "vans.py").write_text((here / "vans.py").read_text().replace("by=step", "by=step + 1"))
    sys.modules.pop("vans")
    linecache.clearcache()
    done = run(*line)
    assert done.exit_code == 1 and "another version of the application" in done.stderr and "--fresh" in done.stderr
    assert lines_of(here / "out" / "outputs.jsonl") == before
    assert run(*line, "--fresh").exit_code == 0
    after = lines_of(here / "out" / "outputs.jsonl")
    assert [line["payload"]["by"] for line in after] == [line["payload"]["by"] + 1 for line in before]


def test_input_that_is_new_after_a_finished_run_is_an_error_not_ignored(here: Path) -> None:
    (here / "arrived").mkdir()
    (here / "arrived" / "a.jsonl").write_text('{"ts": 1, "type": "at", "x": 1}\n')
    command = ("vans.py", "--from", "arrived", "--to", "found", "--unit", "ms")
    assert (run(*command).exit_code, run(*command).exit_code) == (0, 0)
    (here / "arrived" / "b.jsonl").write_text('{"ts": 2, "type": "at", "x": 1}\n')
    done = run(*command)
    assert done.exit_code == 1 and "new or changed input, which was not read: b. --fresh" in done.stderr
    (here / "arrived" / "b.jsonl").unlink()
    with (here / "arrived" / "a.jsonl").open("a") as file:
        file.write('{"ts": 3, "type": "at", "x": 1}\n')
    done = run(*command)
    assert done.exit_code == 1 and "which was not read: a. --fresh" in done.stderr


@pytest.mark.parametrize("option", [("--key", "nokey"), ("--seq", "nr")])
def test_a_run_that_processes_next_to_nothing_fails(here: Path, option: tuple[str, str]) -> None:
    write_records(here / "in.jsonl", [record | {"nr": 1} for record in records(60)])
    done = run("vans.py", "--from", "in.jsonl", "--to", "out", *option)
    assert done.exit_code == 1 and "of 60 records were not processed" in done.stderr


def test_the_first_record_in_quarantine_is_logged_with_its_reason(here: Path) -> None:
    (here / "fractions.jsonl").write_text('{"ts": 1700000000.25, "x": 1}\n{"ts": 1700000001.5, "x": null}\n')
    done = run("vans.py", "--from", "fractions.jsonl", "--to", "out")
    reason = "the event time 1700000000.25 is not a whole number from 0 to 2**62; convert times with a fraction"
    assert done.exit_code == 1 and done.stderr.count("is quarantined") == 1
    assert f"source 'fractions', record 1 is quarantined: {reason}" in done.stderr
    found = lines_of(here / "out" / "quarantined.jsonl")
    assert [json.loads(each["payload"]["record"]) for each in found] == [
        {"ts": 1700000000.25, "x": 1},
        {"ts": 1700000001.5},
    ]


def test_duplicates_are_written_on_request(here: Path) -> None:
    write_records(here / "in.jsonl", [{"ts": n, "x": 1, "source": "s", "seq": n // 2} for n in range(100)])
    run("vans.py", "--from", "in.jsonl", "--to", "out", "--duplicates", "write")
    assert len(lines_of(here / "out" / "duplicates.jsonl")) == 50


def test_shards_order_many_small_keys_together(here: Path) -> None:
    write_records(here / "in.jsonl", records(600, keys=200))
    late = {}
    for name, more in (("alone", ()), ("sharded", ("--shards", "2"))):
        done = run("vans.py", "--from", "in.jsonl", "--to", name, "--key", "van", *more)
        assert done.exit_code == 0, done.stderr
        outputs, late[name] = (lines_of(here / name / f"{file}.jsonl") for file in ("outputs", "late"))
        assert len(outputs) + len(late[name]) == 600
        assert {line["key"] for line in outputs} == {f"v{n}" for n in range(200)}


KAFKA = "vans.py --group vans --from kafka://h:1/in"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "APP, module:hierarchy or a file is missing"),
        ("vans.py --from in.jsonl", "--to FOLDER, FILE, URL or - is missing"),
        ("vans.py --to -", "no input is given; give --from"),
        ("vans.py --from in.txt --to -", "in.txt: no such file or folder"),
        ("vans.py --from notes.txt --to -", "notes.txt"),
        (
            "vans.py --from in.jsonl --to kafka://127.0.0.1:1/t --delivery exactly-once",
            "for kafka:// addresses on both",
        ),
        (f"{KAFKA} --state ./x --to kafka://h:1/out --at-stop flush", "--at-stop flush flushes buffered events, which"),
        (f"{KAFKA}?idle=3 --to kafka://h:1/out", "Use --idle-timeout 3 instead"),
        (f"{KAFKA} --to kafka://h:1/out --follow", "--fresh and --follow are for files"),
        ("vans.py --from in.jsonl --to - --checkpoint-every 5", "--checkpoint-every is for a folder"),
        ("vans.py --from in.jsonl --to ftp://x/y", "unknown scheme ftp://"),
        ("vans.py --from in.jsonl --to out.csv", "give a .jsonl file, or a folder"),
        ("vans.py --from in.jsonl --to no/such/out.jsonl", "cannot write no/such/out.jsonl"),
        ("vans.py --from in.jsonl --to notes.txt/out", "cannot write to the folder notes.txt/out"),
        ("vans.py --from in.jsonl --to - --at-stop keep", "--at-stop keep needs a folder"),
        ("vans.py --from in.jsonl --to - --engine polcy=auto", "--engine polcy=auto is not valid"),
        ("vans.py --from in.jsonl --to - --engine polcy=auto", "Did you mean policy=auto?"),
        ("vans.py --from in.jsonl --to in.jsonl", "--to in.jsonl would overwrite the input in.jsonl"),
        ("vans.py --from in.jsonl --from . --to .", "--to . would overwrite the input ."),
        ("vans.py --from . --to found.jsonl", "--to found.jsonl is in the folder ., which is read"),
        ("vans.py --from found/late.jsonl --to found", "--to found would overwrite the input found/late.jsonl"),
        (
            "vans.py --from in.jsonl --to found --trace ./in.jsonl",
            "--trace ./in.jsonl would overwrite the input in.jsonl",
        ),
        ("vans.py --from in.jsonl --to found --trace vans.py", "--trace vans.py would overwrite the input vans.py"),
        ("vans.py --from kafka://h:1/t --to kafka://h:1/t --group g", "is an input, too"),
        ("vans.py --from in.jsonl --to - --engine policy=odd", "policy='odd' is unknown"),
        (
            "vans.py --from in.jsonl --to - --engine policy=slack --engine timeout=5",
            "is not an option of policy='slack'",
        ),
        ("vans.py --from in.jsonl --to - --key ts", "one field cannot have two roles"),
        ("vans.py:Steps --from in.jsonl --to -", "vans.py:Steps is of type type; it must be a slackline.Hierarchy"),
        (
            "vans.py:other --from in.jsonl --to -",
            "has no 'other'; write module:name of a slackline.Hierarchy. It has",
        ),
        ("vans --from in.jsonl --to -", "'vans' does not name an application"),
        ("gone.py --from in.jsonl --to -", "gone.py: there is no such file"),
        (
            "broken.py --from in.jsonl --to -",
            "broken.py cannot be loaded: it raised ZeroDivisionError: division by zero (broken.py, line 1)",
        ),
        ("vans.py --from in.jsonl --to - --on spark", "--on spark reads one file or folder and writes to a folder"),
        ("vans.py --from - --to out --on spark", "--on spark reads one file or folder"),
        ("vans.py --from in.jsonl --to kafka://127.0.0.1:1/t --on spark", "or reads and writes a topic of Kafka"),
        ("vans.py --from in.jsonl --to out.jsonl --on spark", "--on spark writes to a folder, and --to out.jsonl is"),
        ("vans.py --from in.jsonl --to . --on spark", ". exists; on Spark give a new folder"),
        (
            "vans.py --from in.jsonl --to out --on spark --metrics 0",
            "no --at-stop, --metrics, --page, --checkpoint-every, --idle-timeout or --state-ttl",
        ),
        ("vans.py --from gone --to out --on spark", "gone: there is no such file or folder"),
        (
            "vans.py --from in.jsonl --to out --on spark --follow",
            "follows a folder, whose files arrive complete",
        ),
        ("vans.py --from . --to . --on spark --follow", "--to . would overwrite the input ."),
        ("vans.py --from . --to out --on spark --follow --at-stop flush", "no --at-stop flush"),
        ("vans.py --from in.jsonl --to out --on spark --group g", "--group and --delivery are for kafka://"),
        ("vans.py --from broken.csv --to -", "slackline: file broken.csv has no field 'ts' for --ts; it has time, x"),
    ],
)
def test_wrong_use_is_refused(arguments: str, message: str, here: Path) -> None:
    (here / "notes.txt").write_text("x")
    (here / "broken.py").write_text("1 / 0\n")
    (here / "broken.csv").write_text("time,x\n1,2\n")
    done = run(*arguments.split())
    assert (done.exit_code, done.stdout) == (2, "") and message in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("frm = 'x'", "there is no option frm. Did you mean from?"),
        ("at_stop = 'keep'", "there is no option at_stop. Did you mean at-stop?"),
        ("[engine]\nlate_traget = 0.1", "there is no option engine.late_traget. Did you mean engine.late_target?"),
        ("metrics = 'many'", "metrics = 'many' is not valid; it must be a whole number from 0 to 65535"),
        ("from = 3", "from = 3 is not valid; it must be text, or a list of texts"),
        ("unit = 'h'", "unit = 'h' is not valid; it must be one of ms, ns, s, us"),
        ("on = 'flink'", "it must be one of process, spark"),
        ("engine = 'auto'", "it must be a table"),
        ("follow = 1", "it must be true or false"),
        ("checkpoint-every = 0", "it must be a number above 0"),
        ("to = ", "is not TOML"),
    ],
)
def test_a_file_of_options_without_meaning_is_refused(text: str, message: str, here: Path) -> None:
    (here / "run.toml").write_text(text)
    done = run("vans.py", "--from", "in.jsonl", "--to", "-", "--config", "run.toml")
    assert (done.exit_code, done.stdout) == (2, "") and message in done.stderr, done.stderr
    done = run("vans.py", "--from", "in.jsonl", "--to", "-", "--config", "gone.toml")
    assert done.exit_code == 2 and "cannot read gone.toml" in done.stderr


def test_a_detector_that_raises_is_reported_with_exit_code_1(here: Path) -> None:
    write_records(here / "in.jsonl", [{"ts": n, "x": None} for n in range(100)])
    done = run("vans.py", "--from", "in.jsonl", "--to", "out")
    assert done.exit_code == 1 and "detector 'Steps' raised KeyError" in done.stderr


METRICS = Metrics(
    keys=2, events=12_000, outputs=30, late=6, duplicates=4, late_share=0.0005, late_target=0.001, latency_p50=20_000,
    latency_p99=1_500_000, K=40_000, alpha=0.25, buffered=17, quarantined={"no key": 3},
    detectors={"Steps": DetectorMetrics(11_994, 6, 17, 40_000, 0.25)},
    event_rate=1000.0, output_rate=2.0, lag=5, checkpoint_bytes=4096, checkpoint_age=0.4,
)  # fmt: skip


def test_the_metrics_fit_in_a_line() -> None:
    assert line_of(METRICS) == (
        "events 12,000 (1,000/s); outputs 30 (2/s); late 6 (0.05 %, target 0.1 %); duplicates 4; latency p50 20 ms, "
        "p99 1.5 s; slack K 40 ms; buffered 17 of 2 keys; lag 5; α 0.25; quarantined 3 no key; "
        "checkpoint 4,096 bytes, 0 s ago"
    )


def test_in_a_terminal_the_metrics_are_a_table() -> None:
    console = Console(force_terminal=True, width=80, record=True, file=io.StringIO())
    with Status("vans", console) as status:
        status(METRICS)
    console.print(table_of("vans", METRICS))
    shown = console.export_text()
    for text in ("1,000/s", "target 0.1 %", "p99 1.5 s", "0.25", "17 of 2 keys", "4,096 bytes"):
        assert text in shown


def test_without_a_terminal_a_line_is_logged_every_ten_seconds(caplog: pytest.LogCaptureFixture) -> None:
    times = iter([0.0, 1.0, 10.5, 10.5, 12.0])
    with caplog.at_level(logging.INFO, "slackline.run"):
        status = Status("vans", Console(force_terminal=False), now=lambda: next(times))
        for _ in range(3):
            status(METRICS)
        assert len(caplog.records) == 1
        status.log()  # at the end, what was not logged
        status.log()
    assert len(caplog.records) == 2
    line = json.loads(JsonLine("vans").format(caplog.records[0]))
    assert (line["level"], line["name"], line["logger"]) == ("info", "vans", "slackline.run")
    assert line["metrics"]["event_rate"] == 1000.0 and line["metrics"]["K"] == 0.04


TOPICS = "vans.py --on spark --to kafka://h:1/out --from kafka://h:1/in"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (f"{TOPICS} --group g --follow", "a topic is followed anyway"),
        (f"{TOPICS} --group g --delivery exactly-once", "no --delivery exactly-once"),
        (f"{TOPICS} --group g --at-stop flush", "no --at-stop flush"),
        (TOPICS, "give --group"),
        (f"{TOPICS} --group g --state s", "Spark needs"),
        (f"{TOPICS} --fields in.jsonl --group g", "Spark needs a folder for the query's checkpoint"),
        (f"{TOPICS} --fields gone --state s --group g", "gone"),
        (f"{TOPICS}?commit=3 --group g", "Use --commit-interval 3 instead"),
        (TOPICS.replace("h:1/in", "h:2/in") + " --group g", "have other brokers; give the same for both"),
    ],
)
def test_impossible_topics_on_spark_are_refused(arguments: str, message: str, here: Path) -> None:
    done = run(*arguments.split())
    assert (done.exit_code, done.stdout) == (2, "") and message in done.stderr, done.stderr


def test_the_plan_on_spark_says_what_is_promised(here: Path) -> None:
    (here / "fields.ddl").write_text("ts long, van string, x long")
    done = run(*f"{TOPICS} --fields fields.ddl --state kept --group vans --key van --metrics 9400 --dry-run".split())
    assert done.exit_code == 0, done.stderr
    lines = {line[:13].strip(): line[14:] for line in done.stdout.splitlines()}
    assert lines["from"] == "kafka://h:1/in (json), group vans"
    assert lines["to"] == "kafka://h:1/out; late events to out-late, quarantined ones to out-quarantine"
    assert lines["engines"] == "one per van, on Spark"
    assert lines["guarantee"].startswith("at least once") and "kept" in lines["guarantee"]
    assert lines["at a stop"] == "buffered events are stored in the checkpoint" and "9400" in lines["metrics"]
    (here / "in").mkdir()
    done = run("vans.py", "--from", "in", "--to", "out", "--on", "spark", "--follow", "--dry-run")
    assert done.exit_code == 0 and "exactly once" in done.stdout, done.stderr
    assert not (here / "out").exists()
