"""What the tests of pages share."""

import pytest
from apps.soccer.tests.report.made_match import make_report


@pytest.fixture(scope="module")
def report():
    return make_report()
