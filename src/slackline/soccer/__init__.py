"""Soccer: from the positions of players and ball up to passes, shots and possession.

>>> from slackline.soccer import run, simulate
>>> simulation = simulate(seconds=3, seed=7)
>>> result = run(simulation.tables(), simulation.match, queries=False)
>>> [event["player"] for event in result.events("hit")][:1] == [simulation.truth["player"].to_pylist()[1]]
True
"""

from slackline.soccer.field import DEBS_2013, FULL_SIZE, Field
from slackline.soccer.hierarchy import detectors
from slackline.soccer.match import Limb, Match, Period, Role, Sensor
from slackline.soccer.queries import queries
from slackline.soccer.recordings import Recording, open_recording
from slackline.soccer.run import MatchResult, match_hierarchy, match_warmup, query_hierarchy, run
from slackline.soccer.simulator import Simulation, simulate
from slackline.soccer.summary import Summary
from slackline.soccer.truth import Comparison, compare, load_truth

__all__ = [
    "DEBS_2013",
    "FULL_SIZE",
    "Comparison",
    "Field",
    "Limb",
    "Match",
    "MatchResult",
    "Period",
    "Recording",
    "Role",
    "Sensor",
    "Simulation",
    "Summary",
    "compare",
    "detectors",
    "load_truth",
    "match_hierarchy",
    "match_warmup",
    "open_recording",
    "queries",
    "query_hierarchy",
    "run",
    "simulate",
]
