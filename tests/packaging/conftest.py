"""One wheel for all tests of the packaging."""

from pathlib import Path

import pytest
from tests.packaging.environments import build_wheel


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))
