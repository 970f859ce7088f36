"""Soccer: from the positions of players and ball up to passes, shots and possession.

>>> from slackline_soccer import run, simulate
>>> simulation = simulate(seconds=3, seed=7)
>>> result = run(simulation.tables(), simulation.match, queries=False)
>>> [event["player"] for event in result.events("hit")][:1] == [simulation.truth["player"].to_pylist()[1]]
True
"""

from slackline_soccer.accuracy import Comparison, compare, load_truth
from slackline_soccer.detectors import detectors
from slackline_soccer.model.match import DEBS_2013, FULL_SIZE, Field, Match
from slackline_soccer.queries import queries
from slackline_soccer.recordings import MatchRecording, open_recording
from slackline_soccer.run import MatchResult, match_hierarchy, match_policy, query_hierarchy, recorded, run
from slackline_soccer.simulator import Simulation, simulate
from slackline_soccer.summary import Summary
from slackline_soccer.tracking.game import Limb, Period, Role, Sensor

__all__ = [
    "DEBS_2013",
    "FULL_SIZE",
    "Comparison",
    "Field",
    "Limb",
    "Match",
    "MatchRecording",
    "MatchResult",
    "Period",
    "Role",
    "Sensor",
    "Simulation",
    "Summary",
    "compare",
    "detectors",
    "load_truth",
    "match_hierarchy",
    "match_policy",
    "open_recording",
    "queries",
    "query_hierarchy",
    "recorded",
    "run",
    "simulate",
]
