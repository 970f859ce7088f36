"""What is in the wheels: every package, the licences of all that is in it, nothing large."""

import zipfile
from pathlib import Path

import pytest
from tests.packaging.environments import ROOT, metadata

pytestmark = pytest.mark.slow

#: Recorded data that is in the application's wheel, by the file that states its terms.
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


def recorded(wheel: Path) -> list[str]:
    return [info.filename for info in files(wheel) if info.filename.endswith((".gz", ".csv", ".parquet"))]


def test_the_wheel_of_the_application_has_its_package_and_both_licences(soccer: Path) -> None:
    tops = {info.filename.split("/")[0] for info in files(soccer)}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"slackline_soccer"}
    assert soccer.name.startswith("slackline_soccer-")
    dist = metadata(soccer)
    assert len(dist.metadata.get_all("License-File") or ()) == 2
    assert "Apache License" in str(dist.read_text("licenses/LICENSE"))


def test_the_library_has_no_recorded_data_and_one_licence(wheel: Path) -> None:
    assert recorded(wheel) == []
    assert metadata(wheel).metadata["License-Expression"] == "Apache-2.0"


def test_recorded_data_of_others_is_named_in_the_licence_files_or_stays_out(soccer: Path) -> None:
    assert {Path(name).parent.name for name in recorded(soccer)} <= NAMED
    dist = metadata(soccer)
    texts = [str(dist.read_text(f"licenses/{name}")) for name in dist.metadata.get_all("License-File") or ()]
    for name in recorded(soccer):
        assert any("/".join(Path(name).parts[-2:]) in text for text in texts), f"{name}: on which terms?"
    if any("metrica" in name for name in recorded(soccer)):
        assert "LicenseRef-Metrica-Sample-Data" in dist.metadata["License-Expression"]


def test_the_code_is_small(wheel: Path, soccer: Path) -> None:
    data = sum(info.compress_size for info in files(soccer) if "/data/" in info.filename)
    code = sum(info.compress_size for info in files(soccer)) - data
    assert sum(info.compress_size for info in files(wheel)) < 1_000_000
    assert code < 300_000
    assert data < 700_000
