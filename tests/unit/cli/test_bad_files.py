"""Files that are not what their name says: a message and an exit code, never a traceback."""

import gzip
import io
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from slackline.cli import app

# What Arrow cannot raise from a callback it prints.
pytestmark = pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")

CSV = b"ts,at,who\n" + b"".join(b"%d,%d,a%d\n" % (i, i, i % 3) for i in range(3_000))
GZIP = gzip.compress(CSV)
BINARY = random.Random(1).randbytes(5_000)


def parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


PARQUET = parquet(pa.table({"ts": range(3_000), "at": range(3_000), "who": ["a"] * 3_000}))
NO_ROWS = pa.table({name: pa.array([], pa.int64()) for name in ("ts", "at", "who")})

FILES = {
    **{f"empty{ending}": b"" for ending in (".csv", ".csv.gz", ".jsonl", ".jsonl.gz", ".parquet")},
    **{f"binary{ending}": BINARY for ending in (".csv", ".csv.gz", ".jsonl", ".jsonl.gz", ".parquet")},
    **{f"nul{ending}": b"\0" * 1_000 for ending in (".csv", ".jsonl", ".parquet")},
    "blank.csv": b"\n\n",
    "blank.jsonl": b"\n\n",
    "mark.csv": b"\xef\xbb\xbf",
    "nothing-packed.csv.gz": gzip.compress(b""),
    "binary-packed.csv.gz": gzip.compress(BINARY),
    "binary-packed.jsonl.gz": gzip.compress(BINARY),
    "cut.csv.gz": GZIP[:-500],
    "cut-at-start.csv.gz": GZIP[:5],
    "broken.csv.gz": GZIP[:-4] + b"abcd",
    "not-packed.csv.gz": CSV,
    "cut.parquet": PARQUET[:-200],
    "broken.parquet": PARQUET[:2_000] + bytes(2_000) + PARQUET[4_000:],
    "is-csv.parquet": CSV,
    "is-parquet.csv": PARQUET,
    "header.csv": b"ts,at,who\n",
    "header-without-newline.csv": b"ts,at,who",
    "no-rows.parquet": parquet(NO_ROWS),
    "no-columns.csv": b"a,b\n1,2\n",
    "no-columns.jsonl": b"{}\n{}\n",
    "utf-16.csv": CSV.decode().encode("utf-16"),
    "latin-1-header.csv": "ts,at,who,größe\n1,1,a,2\n".encode("latin-1"),
    "latin-1.jsonl": '{"ts": 1, "at": 1, "who": "Zoë"}\n'.encode("latin-1"),
    "cut.jsonl": b'{"ts": 1, "at": 1, "who": "a"}\n{"ts": 2, "at"',
    "no-objects.jsonl": b"1\n2\n",
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("command", ["study", "sync"])
def test_a_file_that_holds_no_stream_is_told_with_its_name(tmp_path, command, name):
    path = tmp_path / name
    path.write_bytes(FILES[name])
    options = ["--ts", "ts", "--arrival", "at", "--source", "who"]
    result = CliRunner().invoke(app, [command, str(path), *options])
    assert isinstance(result.exception, SystemExit) and result.exit_code in (1, 2)
    assert result.stderr.startswith("slackline: ") and "Traceback" not in result.stderr
    assert name.split(".")[0] in result.stderr or "the files have no rows" in result.stderr


@pytest.mark.parametrize("command", ["study", "sync"])
def test_a_folder_is_wrong_use(tmp_path, command):
    (tmp_path / "a.csv").mkdir()
    options = ["--ts", "ts", "--arrival", "at", "--source", "who"]
    assert CliRunner().invoke(app, [command, str(tmp_path / "a.csv"), *options]).exit_code == 2


def test_text_in_latin_1_where_nobody_looks_does_no_harm(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes("ts,at,who,name\n1,1,a,Zoë\n2,2,b,Jörg\n".encode("latin-1"))
    options = ["--ts", "ts", "--arrival", "at", "--source", "who"]
    assert CliRunner().invoke(app, ["study", str(path), *options]).exit_code == 0
    assert CliRunner().invoke(app, ["sync", str(path), *options]).exit_code == 0


def test_a_short_line_in_a_file_that_is_no_utf_8_is_an_error(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes("ts,at,name\n1,1,Zoë\n2,Jörg\n".encode("latin-1"))
    result = CliRunner().invoke(app, ["sync", str(path), "--ts", "ts", "--arrival", "at"])
    assert result.exit_code == 1 and "Expected 3 columns, got 2" in result.stderr
