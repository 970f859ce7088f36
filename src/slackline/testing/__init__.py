"""For your own tests: streams in a few words, detectors run on them, checks of what detectors must hold.

>>> import slackline as sl
>>> from slackline.testing import check, run, stream
>>> class Hits(sl.Detector):
...     listens, publishes = ("near", "kick"), ("hit",)
...     def __init__(self):
...         self.close = []
...     def on_event(self, event):
...         if event.type == "near":
...             self.close.append(event["player"])
...         else:
...             for player in self.close:
...                 yield event.derive("hit", player=player)
>>> print(run(Hits(), "kick@5 near@3(player=7) kick@9"))
hit@5(player=7) hit@9(player=7)
>>> check(Hits(), "near@3(player=7) kick@5 near@6(player=9) kick@9")
"""

from slackline.testing.checks import CheckError, check
from slackline.testing.cluster import simulate
from slackline.testing.runs import Run, run
from slackline.testing.streams import StreamError, show, stream

__all__ = ["CheckError", "Run", "StreamError", "check", "run", "show", "simulate", "stream"]
