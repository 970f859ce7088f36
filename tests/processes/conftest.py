"""A small application on nodes in processes of their own."""

import pytest
from tests.processes.processes import SMALL, Network


@pytest.fixture
def recording(tmp_path, request):
    """Events of one type, 100 per second, as many as the tests' module says."""
    path = tmp_path / "a.csv"
    path.write_text("ts,source\n" + "".join(f"{10 * i},s{i % 2}\n" for i in range(request.module.ROWS)))
    return path


@pytest.fixture
def network(tmp_path):
    with Network(tmp_path, SMALL) as network:
        yield network
