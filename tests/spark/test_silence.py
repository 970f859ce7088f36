"""Keys that fall silent: what they hold is let go after ``idle``, and they are forgotten after ``forget``."""

import json
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.tws_tester import TwsTester
from pyspark.sql.types import LongType
from tests.spark.test_processor import packet_rows, records, sites
from tests.spark.world import COLUMNS, embedded, hierarchy, stream

from slackline.core.errors import ConfigError
from slackline.spark import detect
from slackline.spark.codec import KEY, SITE
from slackline.spark.processor import SiteProcessor
from slackline.spark.sharded import keyed
from slackline.spark.silence import Ledger, Silence
from slackline.spark.site import Recipe

IDLE, FORGET = 30_000, 86_400_000


class Query:
    """A group of a streaming query in this process: micro-batches at given times, with Spark's own timers."""

    def __init__(self, idle: str | None = "30 seconds", forget: str | None = None, shards: int | None = None) -> None:
        made = hierarchy() if shards is None else keyed(hierarchy(), ())
        recipe = Recipe(made, sharded=shards is not None)
        processor = SiteProcessor(recipe, LongType(), Silence.of(idle, forget), shards)
        self.tester = TwsTester(processor, timeMode="ProcessingTime")

    def at(self, now: int, table: pa.Table | None = None) -> list[dict[str, Any]]:
        """What a micro-batch gives out; as in Spark, timers come after rows."""
        self.tester._currentProcessingTimeMs = now  # its public way would fire the timers first
        found = records(self.tester.test(0, packet_rows(table))) if table is not None else []
        return found + records(self.tester._handleExpiredTimers())

    def state(self, name: str) -> Any:
        return self.tester.peekMapState("sites", 0).get((name,))


def only(table: pa.Table, *names: str) -> pa.Table:
    return table.filter(pa.compute.is_in(table["__slackline_site"], pa.array([f"v{name}" for name in names])))


@pytest.fixture
def table() -> pa.Table:
    return sites(stream(steps=60).drop_columns(["arrival"]))


def events(rows: list[dict[str, Any]], flushed: str | None) -> set[tuple[Any, ...]]:
    return {(r["key"], r["id"], r["ts"]) for r in rows if r["kind"] == "event" and r["flushed"] == flushed}


def test_what_an_idle_key_holds_is_released_as_at_the_end_and_marked(table: pa.Table) -> None:
    query = Query()
    before = query.at(1_000, table)
    assert query.at(1_000 + IDLE - 1) == []
    after = query.at(1_000 + IDLE)
    assert len(events(after, "idle")) > 0 and not events(after, None) and not events(before, "idle")
    wanted = {(f"v{row[0]}", row[2], row[4]) for row in embedded(stream(steps=60), close=True) if row[-1] == "event"}
    assert events(before, None) | events(after, "idle") == wanted
    for row in after:
        if row["kind"] == "stats":
            stats = json.loads(row["payload"])
            assert stats["buffered"] == 0 and stats["flushed"]["idle"] > 0
            assert row["id"] == f"stats/{stats['site']['rows']}/idle"
    assert query.at(1_000 + 2 * IDLE) == [], "nobody is idle twice"


def test_a_key_with_rows_is_not_idle_while_its_neighbour_is(table: pa.Table) -> None:
    query = Query()
    query.at(1_000, table.slice(0, 700))
    query.at(20_000, only(table.slice(700), "north"))
    assert {key for key, *_ in events(query.at(1_000 + IDLE), "idle")} == {"vsouth", "vwest"}
    assert {key for key, *_ in events(query.at(20_000 + IDLE), "idle")} == {"vnorth"}


def test_an_idle_key_goes_on_with_what_comes_later(table: pa.Table) -> None:
    query = Query()
    first = query.at(1_000, table.slice(0, 700))
    first += query.at(1_000 + IDLE)
    second = query.at(100_000, table.slice(700))
    second += query.at(100_000 + IDLE)
    ids = [(row["key"], row["id"], row["change"]) for row in (*first, *second)]
    assert len(ids) == len(set(ids)), "a row came twice"
    assert max(r["change"] for r in first if r["kind"] == "event" and r["key"] == "vwest") < min(
        r["change"] for r in second if r["kind"] == "event" and r["key"] == "vwest"
    )


def test_a_micro_batch_that_is_done_again_gives_the_same_rows(table: pa.Table) -> None:
    """Spark hands the same time to a micro-batch that is repeated, on the state of the last one."""

    def run() -> list[dict[str, Any]]:
        query = Query(forget="1 day")
        query.at(1_000, table.slice(0, 700))
        return [*query.at(1_000 + IDLE, only(table.slice(700), "north")), *query.at(1_000 + FORGET)]

    rows = [{**row, "payload": _lasting(row["payload"])} for row in run()]
    assert rows == [{**row, "payload": _lasting(row["payload"])} for row in run()]


def _lasting(payload: str) -> Any:
    """Less how busy we were."""
    fields = json.loads(payload)
    fields.get("site", {}).pop("busy", None)
    return fields


def test_a_forgotten_key_is_dropped_counted_and_returns_as_another(table: pa.Table) -> None:
    query = Query(idle=None, forget="1 day")
    before = query.at(1_000, table)
    assert query.state("vnorth") is not None
    after = query.at(1_000 + FORGET)
    wanted = {(f"v{row[0]}", row[4]) for row in embedded(stream(steps=60), close=True) if row[-1] == "event"}
    found = events(before, None) | events(after, "forget")
    assert {(key, ts) for key, _, ts in found} == wanted, "what waited is let go, not lost"
    assert query.state("vnorth") is None
    dropped = [row for row in after if row["kind"] == "stats"]
    assert {row["key"] for row in dropped} == {"vnorth", "vsouth", "vwest"}
    assert all(row["id"].split("/")[2] == "forget" for row in dropped)
    again = query.at(5_000 + FORGET, table)
    assert len(again) == len(before)
    ids = [(row["key"], row["id"]) for row in (*before, *after, *again)]
    assert len(ids) == len(set(ids)), "the new life of a key repeats ids of the old one"


def test_in_a_shard_a_silent_key_is_forgotten_while_the_others_go_on(table: pa.Table) -> None:
    keys = table[SITE]
    table = table.drop_columns([SITE]).append_column(SITE, pa.array(["1/0"] * len(table))).append_column(KEY, keys)
    query = Query(forget="1 hour", shards=1)
    rows = query.at(1_000, table.slice(0, 700))
    assert {key for key, *_ in events(query.at(1_000 + IDLE), "idle")} == {"vnorth", "vsouth", "vwest"}
    north = table.filter(pa.compute.equal(table[KEY], "vnorth"))
    rows += query.at(2_000_000, north.slice(300, 20))
    hour = 3_600_000
    gone = query.at(1_000 + hour)
    dropped = {row["key"]: json.loads(row["payload"])["site"] for row in gone if row["id"].endswith("/forget")}
    assert sorted(dropped) == ["vsouth", "vwest"] and all(one["state_bytes"] > 0 for one in dropped.values())
    rows += query.at(2_000 + hour, table.slice(700)) + query.at(2_000 + hour + IDLE)
    stats = json.loads(next(row["payload"] for row in reversed(rows) if row["kind"] == "stats"))
    assert stats["site"]["keys"] == 3, "those that were forgotten are back"
    kicks = {row["key"]: json.loads(row["payload"])["kicks"] for row in rows if row["type"] == "hit" and row["flushed"]}
    assert kicks["vwest"] < 10, "it counts anew"
    ids = [(row["key"], row["id"], row["change"]) for row in (*rows, *gone)]
    assert len(ids) == len(set(ids)), "a row came twice"


def test_timers_are_one_per_group_and_move_forward_only_when_somebody_is_due_earlier() -> None:
    ledger = Ledger(Silence(idle=10, forget=100))
    ledger.rows(["a", "b"], 1_000)
    assert ledger.next_timer() == 1_010
    assert ledger.idle(1_009) == [] and ledger.idle(1_010) == ["a", "b"] and ledger.idle(1_010) == []
    assert ledger.next_timer() == 1_100
    ledger.rows(["b"], 1_050)
    assert ledger.next_timer() == 1_060
    ledger = Ledger(ledger.silence, ledger.save())
    ledger.rows(["b"], 1_000)  # the wall clock was set back
    assert ledger.next_timer() == 1_060
    assert (ledger.forgotten(1_100), ledger.forgotten(1_150), ledger.next_timer()) == (["a"], ["b"], None)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("idle", "-3 seconds"),
        ("idle", "0 s"),
        ("idle", "0.0001 ms"),
        ("idle", "3 fortnights"),
        ("idle", "soon"),
        ("idle", "30"),
        ("idle", ""),
        ("idle", 30),
        ("forget", "1 day and a half"),
        ("forget", "1 day -2 hours"),
    ],
)
def test_nonsense_is_refused_with_an_example(option: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"{option}=.*such as"):
        Silence.of(**{"idle": None, "forget": None, option: value})


def test_to_forget_before_idle_is_refused() -> None:
    with pytest.raises(ConfigError, match="forget='1 s' is shorter than idle='2 s'"):
        Silence.of("2 s", "1 s")


@pytest.mark.spark
def test_on_batches_idle_and_forget_change_nothing(spark: SparkSession) -> None:
    df = spark.createDataFrame(stream(steps=20).to_pandas())
    rows = detect(df, hierarchy(), arrival="arrival", idle="1 s", forget="1 day", **COLUMNS).where("kind = 'event'")
    wanted = {(row[0], row[2]) for row in embedded(stream(steps=20), close=True) if row[-1] == "event"}
    found = rows.collect()
    assert {(row.key, row.id) for row in found} == wanted and {row.flushed for row in found} == {None}
