"""A match that never was: positions as a locating system would give them, and the truth beside them."""

from slackline.soccer.simulator.saved import save
from slackline.soccer.simulator.simulation import Simulation, simulate

__all__ = ["Simulation", "save", "simulate"]
