"""A match that never was: positions as a locating system would give them, and the truth beside them."""

from slackline_soccer.simulator.simulation import Simulation, check_free, save, simulate

__all__ = ["Simulation", "check_free", "save", "simulate"]
