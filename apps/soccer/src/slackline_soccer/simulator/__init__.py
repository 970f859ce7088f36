"""A match that never was: positions as a locating system would give them, and the truth beside them."""

from slackline_soccer.simulator.saved import save
from slackline_soccer.simulator.simulation import Simulation, simulate

__all__ = ["Simulation", "save", "simulate"]
