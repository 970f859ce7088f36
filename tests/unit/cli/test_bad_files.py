"""Files that are not what their name says: a message and an exit code, never a traceback."""

import gzip
import io
import json
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
    "cut.jsonl": b'{"ts": 2, "at"',
    "no-objects.jsonl": b"1\n2\n",
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("command", ["study", "sync"])
def test_a_file_without_a_stream_is_refused_with_its_name(tmp_path, command, name):
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


def test_lines_that_are_not_utf_8_are_bad_records_as_in_a_run(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes("ts,at,who,name\n1,1,a,Zoë\n2,2,b,Jo\n".encode("latin-1"))
    options = ["--ts", "ts", "--arrival", "at", "--source", "who"]
    studied = CliRunner().invoke(app, ["study", str(path), *options])
    assert studied.exit_code == 1 and "a.csv, line 2: 'utf-8' codec can't decode" in studied.stderr
    merged = CliRunner().invoke(app, ["sync", str(path), *options, "--json"])
    assert merged.exit_code == 0 and "a.csv, line 2: 'utf-8' codec can't decode" in merged.stderr
    assert json.loads(merged.stdout)["quarantined"] == {"a": 1}
