"""However Arrow lays a table out (dictionaries, chunks, nulls, widths), its rows mean what the same events mean."""

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

import slackline as sl

ROW = st.fixed_dictionaries(
    {
        "type": st.sampled_from(["a", "b", "nobody"]) | st.none(),
        "ts": st.integers(0, 100) | st.just(2**63 - 1),
        "source": st.sampled_from(["s", "t", "u"]) | st.none(),
        "seq": st.integers(0, 5) | st.none(),
        "x": st.integers(0, 9) | st.none(),
        "label": st.sampled_from(["p", "q"]) | st.none(),
    }
)
NARROW = (pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64())
WIDE = (pa.int64(), pa.uint64())
TEXT = (pa.string(), pa.large_string())
NUMBERS = {"ts": WIDE, "seq": NARROW, "x": NARROW}


class Copy(sl.Detector):
    listens, publishes = ("a", "b"), ("copy",)

    def on_event(self, event: sl.Event) -> Any:
        yield event.derive("copy", kind=event.type, who=event.source, nr=event.seq, **event.payload)


@st.composite
def columns(draw: st.DrawFn, name: str, values: list[Any]) -> pa.ChunkedArray:
    """One column in some layout: a type wide enough, maybe a dictionary, cut into chunks, maybe a slice of more."""
    kind = draw(st.sampled_from(NUMBERS.get(name, TEXT)))
    padded = [values[0], *values] if values and draw(st.booleans()) else values
    array = pa.array(padded, kind)
    if name not in ("ts", "seq") and draw(st.booleans()):
        array = array.dictionary_encode()
    array = array.slice(len(padded) - len(values))
    cut = draw(st.integers(0, len(values)))
    return pa.chunked_array([array.slice(0, cut), array.slice(cut)])


@st.composite
def layouts(draw: st.DrawFn) -> tuple[list[dict[str, Any]], pa.Table]:
    rows = draw(st.lists(ROW, max_size=25))
    names = draw(st.permutations(["type", "ts", "source", "seq", "x", "label"]))
    return rows, pa.table({name: draw(columns(name, [row[name] for row in rows])) for name in names})


def events(rows: list[dict[str, Any]]) -> list[sl.Event]:
    own = ("type", "ts", "source", "seq")
    return [
        sl.Event.of(
            row["type"],
            row["ts"],
            row["source"],
            row["seq"],
            {name: value for name, value in row.items() if name not in own and value is not None},
        )
        for row in rows
    ]


def everything(pushed: Any) -> dict[str, Any]:
    engine = sl.Engine(sl.Hierarchy([Copy()], clock=("a", "b")), max_jump=None)
    outputs = engine.push(pushed) + engine.close()
    return {
        "out": [(output.id, output.event, output.detected_at) for output in outputs],
        "late": [late.event for late in engine.late],
        "quarantined": sorted(item.position for item in engine.quarantined),
        "types": engine.stats()["types"],
    }


@given(layouts())
def test_a_table_means_what_its_rows_mean_as_events(world: tuple[list[dict[str, Any]], pa.Table]) -> None:
    rows, table = world
    assert everything(table) == everything(events(rows))
