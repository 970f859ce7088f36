"""What is in the wheel: every package, the licences of all that is in it, nothing large."""

import zipfile
from pathlib import Path

import pytest
from tests.packaging.environments import ROOT, metadata

pytestmark = pytest.mark.slow

#: Recorded data that is in the wheel, by the file that says on which terms.
NAMED = {"debs2013", "metrica"}


def files(wheel: Path) -> list[zipfile.ZipInfo]:
    with zipfile.ZipFile(wheel) as packed:
        return packed.infolist()


def test_the_wheel_has_every_package_of_the_tree_and_is_called_as_pip_knows_it(wheel: Path) -> None:
    packages = {path.name for path in (ROOT / "src").iterdir() if (path / "__init__.py").exists()}
    tops = {info.filename.split("/")[0] for info in files(wheel)}
    assert {top for top in tops if not top.endswith(".dist-info")} == packages
    assert wheel.name.startswith("slackline_streams-")
    assert metadata(wheel).metadata["Name"] == "slackline-streams"


def test_recorded_data_of_others_is_named_in_the_licence_files_or_stays_out(wheel: Path) -> None:
    recorded = [info.filename for info in files(wheel) if info.filename.endswith((".gz", ".csv", ".parquet"))]
    assert {Path(name).parent.name for name in recorded} <= NAMED
    dist = metadata(wheel)
    texts = [str(dist.read_text(f"licenses/{name}")) for name in dist.metadata.get_all("License-File") or ()]
    for name in recorded:
        assert any("/".join(Path(name).parts[-2:]) in text for text in texts), f"{name}: on which terms?"
    if any("metrica" in name for name in recorded):
        assert "LicenseRef-Metrica-Sample-Data" in dist.metadata["License-Expression"]


def test_the_code_of_the_core_is_small(wheel: Path) -> None:
    core = sum(info.compress_size for info in files(wheel) if info.filename.startswith("slackline/"))
    data = sum(info.compress_size for info in files(wheel) if "/data/" in info.filename)
    assert core - data < 600_000
    assert data < 700_000
