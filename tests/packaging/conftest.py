"""One wheel of each distribution for all tests of the packaging."""

from pathlib import Path

import pytest
from tests.packaging.environments import ROOT, build_wheel


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def soccer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(ROOT / "apps" / "soccer", tmp_path_factory.mktemp("soccer"))
