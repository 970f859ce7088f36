"""What the tests of pages, and those of the simulator, share."""

import numpy as np
import pytest
from apps.soccer.tests.report.made_match import make_report

from slackline_soccer.simulator import simulate


@pytest.fixture(scope="module")
def report():
    return make_report()


class Played:
    """A simulated match taken apart: columns, rows per transmitter, truth as dictionaries."""

    def __init__(self, simulation):
        self.simulation = simulation
        self.match = simulation.match
        table = simulation.table()
        self.columns = {name: table[name].to_numpy() for name in table.column_names}
        sids = self.columns["sid"]
        order = np.argsort(sids, kind="stable")
        starts = np.searchsorted(sids[order], np.arange(sids.max() + 2))
        self._rows = {sid: order[starts[sid] : starts[sid + 1]] for sid in self.match.sids}
        self.truth = simulation.truth.to_pylist()

    def of(self, sid, name):
        return self.columns[name][self._rows[sid]]

    def place(self, sid, ts):
        """Where a transmitter was measured at about ``ts``, in mm."""
        at = min(np.searchsorted(self.of(sid, "ts"), ts), len(self._rows[sid]) - 1)
        return np.array([self.of(sid, axis)[at] for axis in "xyz"], float)

    def events(self, *types):
        return [row for row in self.truth if row["type"] in types]


@pytest.fixture(scope="session")
def played():
    """Forty seconds without delays."""
    return Played(simulate(40, seed=3, delays="none"))
