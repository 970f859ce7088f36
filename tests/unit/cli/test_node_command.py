from pathlib import Path

import pytest
from typer.testing import CliRunner

from slackline.cli import app

SMALL = "match_app:small"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([SMALL, "--listen", "10.1.2.3:7000"], "--tls-cert"),
        ([SMALL, "--join", "10.1.2.3:7000"], "--tls-cert"),
        ([SMALL, "--run", "Hihg"], "--run Hihg: not in the application, which has Low, High"),
        ([SMALL, "--ingress", "b"], "--ingress b: not in the application, which has a"),
        ([SMALL, "--ingress", "a"], "these sensor types need an INPUT; give one"),
        ([SMALL, "--parts", "a"], "--parts a is not valid; give TYPE=N"),
        ([SMALL, "--parts", "b=2"], "'b' cannot enter in parts: it is not a sensor type"),
        ([SMALL, "--parts", "a=1"], "'a' cannot enter in 1 parts; give a number from 2"),
        ([SMALL, "--ingress", "a/0"], "which has a. For parts of a, give their number: --parts a=2."),
        ([SMALL, "--parts", "a=2", "--ingress", "a"], "--ingress a: not in the application, which has a/0, a/1"),
        ([SMALL, "-", "--parts", "a=2", "--ingress", "a/0"], "standard input is not one input that nodes share"),
        ([SMALL, "http://127.0.0.1:9/a", "--parts", "a=2"], "several parts of a sensor type cannot enter at one node"),
        ([SMALL, "nowhere.csv"], "no such file or folder"),
        ([SMALL, "http://127.0.0.1:9/a", "--speed", "1"], "applies to recordings"),
        ([SMALL, "ftp://127.0.0.1/a"], "unknown scheme ftp://"),
        ([SMALL, "http://127.0.0.1:9/a", "--unit", "ps"], "--unit ps is for applications"),
        ([SMALL, "--engine", "policy"], "write KEY=VALUE, KEY one of policy"),
        ([SMALL, "--engine", "policy=guess"], "policy='guess'"),
        (
            [SMALL, "--engine", "policy=ordered", "--engine", "warmup=5"],
            "warmup=5 is not an option of policy='ordered'",
        ),
        ([SMALL, "--engine", "polcy=auto"], "--engine polcy=auto is not valid"),
        ([SMALL, "--speed", "fast"], "--speed fast is not valid"),
        (["match_app:nothing"], "has no 'nothing'"),
        ([SMALL, "--tls-cert", "x.pem"], "TLS needs three files"),
    ],
)
def test_wrong_use_is_refused(arguments, message, monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "processes")
    result = CliRunner().invoke(app, ["node", *arguments, "--name", "n1"])
    assert (result.exit_code, result.stdout) == (2, "") and message in result.stderr


@pytest.mark.parametrize("command", ["nodes", "migrate"])
def test_an_address_beyond_this_machine_needs_tls(command):
    what = ["High", "n1"] if command == "migrate" else []
    result = CliRunner().invoke(app, [command, *what, "--at", "10.1.2.3:7000"])
    assert (result.exit_code, result.stdout) == (2, "") and "--tls-cert" in result.stderr
