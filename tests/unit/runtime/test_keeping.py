import io
import json

import numpy as np
import pytest

import slackline as sl
from slackline.core.errors import ConfigError, StateError
from slackline.core.outcome import Late, Output, Quarantined
from slackline.runtime.keeping import CHECKPOINT, LATE, OUTPUTS, QUARANTINED, Folder, Kept, Printed


def output(n):
    event = sl.Event("hit", ts=n, source="Hits", seq=n, place=np.float64(1.5), feet=("left", None))
    return Output("insert", f"hit:Hits:{n}", event, True, n + 1, "Hits")


LATE_ONE = Late(sl.Event("a", ts=1, source="s", x=float("nan")), 3, None, 7)
STRANGE = Quarantined(sl.Event("a", ts=1, source=None, what=object()), "no JSON", "it is an object")


def lines(folder, name):
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


def test_what_was_found_is_written_as_json_lines(tmp_path):
    folder = Folder(tmp_path)
    assert folder.open() is None
    folder.write([output(1), output(2)], [LATE_ONE], [STRANGE])
    folder.close()
    first, _ = lines(tmp_path, OUTPUTS)
    assert first == {
        "op": "insert", "id": "hit:Hits:1", "final": True, "detected_at": 2, "detector": "Hits",
        "event": {"type": "hit", "ts": 1, "source": "Hits", "seq": 1,
                  "payload": {"place": 1.5, "feet": ["left", None]}},
    }  # fmt: skip
    (late,) = lines(tmp_path, LATE)
    assert late["lateness"] == 3 and late["event"]["payload"] == {"x": "NaN"}
    (strange,) = lines(tmp_path, QUARANTINED)
    assert strange["reason"] == "no JSON" and "object object" in strange["event"]


def test_what_was_written_after_the_last_checkpoint_is_cut_off(tmp_path):
    folder = Folder(tmp_path)
    folder.open()
    folder.write([output(1)], [LATE_ONE], [])
    folder.keep(Kept(b"the node", 17, {"n2": "127.0.0.1:7"}))
    folder.write([output(2)], [LATE_ONE], [STRANGE])
    folder.close()
    folder = Folder(tmp_path)
    assert folder.open() == Kept(b"the node", 17, {"n2": "127.0.0.1:7"})
    assert [len(lines(tmp_path, name)) for name in (OUTPUTS, LATE, QUARANTINED)] == [1, 1, 0]
    folder.write([output(2)], [], [])
    folder.keep(Kept(b"the node, later", 18, {}))
    folder.close()
    folder = Folder(tmp_path)
    assert folder.open() == Kept(b"the node, later", 18, {})
    assert [line["id"] for line in lines(tmp_path, OUTPUTS)] == ["hit:Hits:1", "hit:Hits:2"]
    folder.close()


def test_without_a_checkpoint_nothing_has_been(tmp_path):
    folder = Folder(tmp_path)
    folder.open()
    folder.write([output(1)], [], [])
    folder.close()
    folder = Folder(tmp_path)
    assert folder.open() is None and lines(tmp_path, OUTPUTS) == []
    folder.close()


def test_a_checkpoint_that_was_half_written_does_not_count(tmp_path):
    folder = Folder(tmp_path)
    folder.open()
    folder.keep(Kept(b"good", 1, {}))
    (tmp_path / f"{CHECKPOINT}.new").write_bytes(b"half of it")
    folder.close()
    folder = Folder(tmp_path)
    assert folder.open() == Kept(b"good", 1, {})
    folder.close()


def test_two_processes_cannot_use_one_folder(tmp_path):
    folder = Folder(tmp_path)
    with pytest.raises(ConfigError, match="another process uses the folder"):
        Folder(tmp_path)
    folder.close()
    Folder(tmp_path).close()


def test_a_folder_that_is_a_file_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot keep anything in"):
        Folder(tmp_path / "file")


@pytest.mark.parametrize("damage", [lambda data: b"", lambda data: data[:9], lambda data: data[:4] + b"x" + data[5:]])
def test_a_damaged_checkpoint_is_told(tmp_path, damage):
    folder = Folder(tmp_path)
    folder.open()
    folder.keep(Kept(b"the node", 1, {}))
    folder.close()
    path = tmp_path / CHECKPOINT
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(StateError):
        Folder(tmp_path).open()


def test_an_output_file_that_was_shortened_is_told(tmp_path):
    folder = Folder(tmp_path)
    folder.open()
    folder.write([output(1)], [], [])
    folder.keep(Kept(b"the node", 1, {}))
    folder.close()
    (tmp_path / OUTPUTS).write_bytes(b"")
    with pytest.raises(StateError, match="something is lost"):
        Folder(tmp_path).open()


def test_a_node_without_a_folder_prints():
    stream = io.StringIO()
    Printed(stream).write([output(1)], [LATE_ONE], [STRANGE])
    assert [json.loads(line)["kind"] for line in stream.getvalue().splitlines()] == ["output", "late", "quarantined"]
