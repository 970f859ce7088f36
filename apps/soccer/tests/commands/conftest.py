"""Soccer's commands as an installation registers them, whatever is installed where the tests run."""

import os
import tomllib
from pathlib import Path

import pytest

SOCCER = Path(__file__).parents[2]
ROOT = SOCCER.parents[1]
GROUP = "slackline.commands"


@pytest.fixture(autouse=True)
def registered(tmp_path_factory, monkeypatch):
    """A folder on the path with the metadata that the entry points of pyproject.toml become."""
    points = tomllib.loads((SOCCER / "pyproject.toml").read_text("utf-8"))["project"]["entry-points"][GROUP]
    folder = tmp_path_factory.mktemp("installed")
    metadata = folder / "slackline_here-0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: slackline-here\nVersion: 0\n")
    lines = [f"[{GROUP}]", *(f"{name} = {value}" for name, value in points.items())]
    (metadata / "entry_points.txt").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(str(folder))
    paths = (str(ROOT / "src"), str(SOCCER / "src"), str(folder), os.environ.get("PYTHONPATH", ""))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in paths if path))
