"""Standard input and output."""

from __future__ import annotations

import asyncio
import io
import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.unit.connectors.helpers import delivered, run, times

from slackline.connectors import OutputRecord, SinkError, StdinSource, StdoutSink
from slackline.core.errors import ConfigError


@pytest.mark.parametrize("form", ["pipe", "file"])
def test_an_open_file_is_read_line_by_line_to_its_end(form: str, tmp_path: Path) -> None:
    text = b'{"ts": 1, "x": 2}\nno json\n{"ts": 5}'

    def opened() -> Any:
        if form == "file":
            (tmp_path / "in").write_bytes(text)
            return (tmp_path / "in").open("rb")
        out, into = os.pipe()

        def fill() -> None:
            with os.fdopen(into, "wb") as file:
                file.write(text)

        threading.Thread(target=fill).start()
        return os.fdopen(out, "rb")

    source = StdinSource(opened())
    assert (source.name, source.position(), source.live, source.bounded) == ("stdin", None, False, False)

    assert times(run(delivered(source))) == [1, "line 2", 5]


def test_a_silent_pipe_does_not_prevent_the_shutdown() -> None:
    out, into = os.pipe()

    async def scenario() -> None:
        reading = asyncio.create_task(delivered(StdinSource(os.fdopen(out, "rb"))))
        await asyncio.sleep(0.05)
        reading.cancel()
        await asyncio.wait([reading])

    run(scenario())
    os.close(into)


def test_without_standard_input_the_source_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(ConfigError, match="standard input is closed"):
        StdinSource()


def test_records_are_written_as_lines_with_their_kind(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    records = [OutputRecord(kind="event", id="a", payload={"x": "ä"}), OutputRecord(kind="late", id="b")]
    run(StdoutSink().write(records))
    assert capsys.readouterr().out == "".join(f"{record.json().decode()}\n" for record in records)
    out, into = os.pipe()
    os.close(out)
    with open(into, "w") as pipe:
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(pipe.buffer, write_through=True))
        with pytest.raises(SinkError, match="standard output: Broken pipe"):
            run(StdoutSink().write(records))
        monkeypatch.undo()
