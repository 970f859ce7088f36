"""A plain install needs four packages, each extra adds its part, and what is missing says which extra it needs."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from tests.packaging.environments import ROOT, closure, make_environment, metadata, run

from slackline.core.extras import DISTRIBUTION, EXTRA_OF

pytestmark = pytest.mark.slow

CORE = {"llvmlite", "msgspec", "numba", "numpy", "pyarrow"}

#: What is there without any extra.
PLAIN = """
import sys
import pyarrow as pa
import slackline as sl
from slackline import cluster, connectors, occurrence, runtime, study, sync
class Echo(sl.Detector):
    listens, publishes = ("ping",), ("pong",)
    def on_event(self, event):
        yield event.derive("pong")
engine = sl.Engine(sl.Hierarchy([Echo()], clock="ping"))
found = engine.push([sl.Event("ping", ts=2), sl.Event("ping", ts=1)])
found += engine.push(pa.table({"type": ["ping"] * 3, "ts": [3, 5, 4]})) + engine.close()
print(*[output.event.ts for output in found], "pandas" in sys.modules)
"""

#: What each extra is for, and what it prints.
USES = {
    "cli": ("from slackline.cli import app; print(len(app.registered_commands) >= 3)", "True"),
    "connectors": (
        "from slackline.connectors import HttpSource, MqttSource; HttpSource('http://127.0.0.1:9/');"
        "MqttSource('127.0.0.1', 'topic'); print('made')",
        "made",
    ),
    "cluster": ("from slackline.cluster.certificates import make_certificates; print('imported')", "imported"),
    "kafka": ("from slackline.connectors.kafka import KafkaHost; print(KafkaHost.__name__)", "KafkaHost"),
    "metrics": ("from slackline.runtime.prometheus import PrometheusServer as P; print(P(0).port > 0)", "True"),
    "report": ("from slackline.report import study_page, sync_page; print(study_page.__name__)", "study_page"),
    "spark": ("from slackline.spark import detect, synchronise; print(detect.__name__)", "detect"),
}

#: What one gets to read where an extra is missing.
MISSES = {
    "connectors": "from slackline.connectors import HttpSource",
    "cluster": "import slackline.cluster.certificates",
    "kafka": "from slackline.connectors.kafka import KafkaHost",
    "spark": "import slackline.spark",
    "report": "from slackline.report import study_page",
    "cli": "import slackline.cli",
    "metrics": "from slackline.runtime.prometheus import PrometheusServer; PrometheusServer(0)",
}


@pytest.fixture(scope="module")
def plain(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_environment(tmp_path_factory.mktemp("plain") / "env", [wheel])


#: Compiled functions run as plain Python: to compile them in every environment takes minutes; test_first_push does.
INTERPRETED = {"NUMBA_DISABLE_JIT": "1"}


def test_a_plain_install_brings_four_packages_and_the_compiler(wheel: Path) -> None:
    assert set(closure([wheel])) == CORE


def test_all_is_the_union_of_the_extras(wheel: Path) -> None:
    names = set(metadata(wheel).metadata.get_all("Provides-Extra") or ())
    ours = {"cli", "cluster", "connectors", "kafka", "metrics", "placement", "report", "spark"}
    assert names == ours | {"all", "dev"}
    parts = [closure([wheel], extra) for extra in names - {"all", "dev"}]
    assert set(closure([wheel], "all")) == set().union(*parts)


def test_the_table_of_extras_is_the_one_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["name"] == DISTRIBUTION
    # Modules whose package has another name, and packages that are there for others.
    package = {
        "confluent_kafka": "confluent-kafka",
        "google": "protobuf",
        "grpc": "grpcio",
        "grpc_status": "grpcio-status",
        "httpx_sse": "httpx-sse",
        "paho": "paho-mqtt",
        "prometheus_client": "prometheus-client",
    }
    ours = {extra: set() for extra in set(EXTRA_OF.values())}
    for module, extra in EXTRA_OF.items():
        ours[extra].add(package.get(module, module))
    for extra, packages in ours.items():
        theirs = {Requirement(text).name for text in project["optional-dependencies"][extra]}
        assert packages == theirs - {"googleapis-common-protos"}


def test_a_plain_install_orders_events_and_tables(plain: Path) -> None:
    done = run(plain, str(plain), "-c", PLAIN, **INTERPRETED)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["1", "2", "3", "4", "5", "False"]


@pytest.mark.parametrize("extra", sorted(MISSES))
def test_a_missing_extra_is_named_with_the_command_that_installs_it(plain: Path, extra: str) -> None:
    done = run(plain, str(plain), "-c", MISSES[extra])
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert f"needs the extra '{extra}': pip install 'slackline-streams[{extra}]'" in last, done.stderr


@pytest.mark.parametrize("command", [["slackline"], ["python", "-m", "slackline"]], ids=" ".join)
def test_the_command_of_a_plain_install_says_what_it_needs_in_one_line(plain: Path, command: list[str]) -> None:
    done = run(plain, str(plain.with_name(command[0])), *command[1:])
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == ("slackline: the command line needs the extra 'cli': pip install 'slackline-streams[cli]'\n")


@pytest.mark.parametrize("extra", sorted(USES))
def test_an_extra_brings_all_that_its_part_needs(wheel: Path, extra: str, tmp_path: Path) -> None:
    python = make_environment(tmp_path / "env", [wheel], extra)
    code, expected = USES[extra]
    done = run(python, str(python), "-c", code, **INTERPRETED)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == expected


def test_the_application_requires_all_that_its_commands_need(wheel: Path, soccer: Path, tmp_path: Path) -> None:
    python = make_environment(tmp_path / "env", [soccer, wheel])
    code = "from slackline_soccer.commands import demo, simulate, soccer; from slackline.spark import detect"
    done = run(python, str(python), "-c", f"{code}; print('imported')", **INTERPRETED)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "imported"
    for command in ("demo", "simulate", "soccer"):
        done = run(python, str(python.with_name("slackline")), command, "--help", **INTERPRETED)
        assert done.returncode == 0, done.stderr
        assert "Not available" not in done.stdout


def test_the_command_line_studies_without_plots_and_asks_for_them_at_once(
    wheel: Path, soccer: Path, tmp_path: Path
) -> None:
    python = make_environment(tmp_path / "env", [wheel, soccer], "cli")  # soccer without what it requires
    file = tmp_path / "stream.csv"
    file.write_text("arrival,ts,source\n" + "".join(f"{n},{n - n % 3},a\n" for n in range(60)))
    study = [str(python.with_name("slackline")), "study", str(file), "--arrival", "arrival", "--ts", "ts"]
    study += ["--source", "source", "--unit", "ms"]
    done = run(python, *study, **INTERPRETED)
    assert done.returncode == 0, done.stderr
    assert "clairvoyant" in done.stdout
    done = run(python, *study, "--html", str(tmp_path / "page.html"), **INTERPRETED)
    assert done.returncode == 1
    assert "pip install 'slackline-streams[report]'" in done.stderr
    assert "Traceback" not in done.stderr
    done = run(python, study[0], "demo", **INTERPRETED)  # an application's command that needs more
    assert done.returncode == 1
    assert "slackline demo needs the extra 'report': pip install 'slackline-streams[report]'" in done.stderr


def test_a_really_fresh_environment_gets_along_with_what_pip_brings(wheel: Path, tmp_path: Path) -> None:
    """Nothing is linked here: pip resolves and installs, as it does for a user."""
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "env")], check=True, capture_output=True)
    python = tmp_path / "env" / "bin" / "python"
    command = [str(python), "-m", "pip", "install", "--quiet", "--no-input", "-c", str(ROOT / "constraints.txt")]
    done = subprocess.run([*command, str(wheel)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    done = run(python, str(python), "-c", PLAIN, **INTERPRETED)
    assert done.returncode == 0, done.stderr
    listed = subprocess.run(
        [str(python), "-m", "pip", "list", "--format", "freeze"], capture_output=True, text=True, check=True
    )
    assert {line.split("==")[0] for line in listed.stdout.split()} - {"pip", "setuptools"} == CORE | {DISTRIBUTION}
