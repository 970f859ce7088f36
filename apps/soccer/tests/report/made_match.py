"""A made-up match for the page: not played, but plausible."""

import re

import numpy as np

from slackline_soccer.accuracy import Accuracy
from slackline_soccer.model.match import FULL_SIZE, Match
from slackline_soccer.plausibility import Distribution, Figure, Plausibility
from slackline_soccer.queries.running import INTENSITIES
from slackline_soccer.report.model import (
    Delays,
    DetectorNode,
    DetectorWait,
    EventWait,
    Heat,
    Mark,
    MatchReport,
    PassLine,
    Point,
    PolicyWaits,
    PossessionShare,
    PossessionSpan,
    RunningFigures,
    Sameness,
    Series,
    Shot,
    Timeline,
    Verdict,
)
from slackline_soccer.tracking import MILLISECOND, SECOND
from slackline_soccer.tracking.game import Limb, Period, Role, Sensor

TEAMS = ("North", "South")
START = 1_000 * SECOND
LEVELS = {
    "ActiveBall": 1,
    "BallTurned": 1,
    "Proximity": 2,
    "BallAreas": 2,
    "PlayerHitsBall": 3,
    "Possession": 4,
    "ShotOnGoal": 5,
    "PassDetector": 5,
    "BlockedShot": 6,
    "Goal": 6,
    "Offside": 7,
}
PUBLISHED = {
    "ball_turned": (1, 0, 900),
    "near": (2, 0, 400),
    "hit": (3, 0, 130),
    "possession": (4, 0, 60),
    "shot": (5, 60, 4),
    "pass": (5, 0, 26),
    "blocked_shot": (6, 60, 1),
    "goal": (6, 60, 1),
    "offside": (7, 0, 1),
}


def make_match(field=FULL_SIZE, a_side=11):
    sensors = [Sensor(4, Role.BALL, "ball")]
    for number in range(2 * a_side):
        team, shirt = TEAMS[number // a_side], number % a_side + 1
        role = Role.GOALKEEPER if shirt == 1 else Role.PLAYER
        sensors += [
            Sensor(100 + 4 * number + limb, role, f"{team[0]}{shirt:02d}", team, kind)
            for limb, kind in enumerate((Limb.LEFT_LEG, Limb.RIGHT_LEG))
        ]
    return Match(field, tuple(sensors), (Period(START, START + 65 * SECOND, TEAMS[0]),))


class Maker:
    """Draws the parts of a report, all from one generator."""

    def __init__(self, seed=7, field=FULL_SIZE):
        self.random = np.random.default_rng(seed)
        self.match = make_match(field)

    def place(self):
        low, high = np.array(self.match.field.x), np.array(self.match.field.y)
        x, y = self.random.uniform((low[0], high[0]), (low[1], high[1]))
        return float(x), float(y)

    def players(self, team):
        return [player.name for player in self.match.players if player.team == team]

    def pick(self, team):
        return str(self.random.choice(self.players(team)))

    def spans(self):
        at, spans, turn = START, [], 0
        while at < START + 60 * SECOND:
            stop = at + int(self.random.uniform(1.0, 6.0) * SECOND)
            team = None if self.random.random() < 0.1 else TEAMS[turn]
            spans.append(PossessionSpan(at, stop, team, self.pick(team) if team else None))
            at, turn = stop, 1 - turn
        return spans

    def marks(self):
        counts = {"hit": 110, "pass": 26, "shot": 4, "blocked_shot": 1, "goal": 1, "offside": 1, "ball_left": 3}
        true = []
        for kind, count in counts.items():
            for ts in np.sort(self.random.uniform(0, 64, count)):
                team = TEAMS[int(self.random.integers(2))]
                who = (None, None) if kind == "ball_left" else (self.pick(team), team)
                true.append(Mark(START + int(ts * SECOND), kind, *who))
        return true

    def timeline(self):
        true = self.marks()
        found = [Mark(m.ts + 3 * MILLISECOND, m.type, m.player, m.team) for m in true[3:]]
        found.append(Mark(START + 30 * SECOND, "pass", "N05", "North"))
        spans = self.spans()
        return Timeline(found, true, spans, spans)

    def passes(self):
        made = []
        for number in range(26):
            team = TEAMS[number % 2]
            start = np.array(self.place())
            stop = start + self.random.normal(0, 11_000, 2)
            made.append(
                PassLine(
                    START + number * 2 * SECOND, self.pick(team), self.pick(team), team, tuple(start), tuple(stop),
                    bool(self.random.random() < 0.8), float(np.hypot(*(stop - start)) / 1000),
                    1.4 if number == 8 else None,
                )
            )  # fmt: skip
        return made

    def shots(self):
        field = self.match.field
        made = []
        for number, outcome in enumerate(("goal", "saved", "blocked", "on target")):
            goal = 1 - number % 2
            along = field.ends[goal] + (1 - 2 * goal) * self.random.uniform(8_000, 22_000)
            across = np.mean(field.sides) + self.random.normal(0, 9_000)
            target = field.goals[goal].line, self.random.uniform(field.goals[goal].left, field.goals[goal].right)
            place = (along, across) if field.lengthwise == "x" else (across, along)
            end = target if field.lengthwise == "x" else target[::-1]
            made.append(
                Shot(
                    START + (5 + 15 * number) * SECOND, self.pick(TEAMS[number % 2]), TEAMS[number % 2], place, goal,
                    outcome, 24.0, (end,) if number % 2 else (),
                )
            )  # fmt: skip
        return made

    def heat(self):
        maps = []
        rows, columns = np.mgrid[0:32, 0:50]
        for team in TEAMS:
            sums = np.zeros((32, 50))
            for player in self.players(team):
                i, j = self.random.uniform((4, 4), (28, 46))
                grid = np.exp(-((rows - i) ** 2) / 14 - (columns - j) ** 2 / 30)
                grid[grid < 0.02] = 0
                maps.append(Heat(player, team, grid / grid.sum()))
                sums += maps[-1].grid
            maps.append(Heat(team, team, sums / sums.sum()))
        return maps

    def runners(self):
        made = []
        for player in self.match.players:
            shares = self.random.dirichlet([4, 12, 4, 2, 1.2, 0.4])
            seconds = dict(zip(INTENSITIES, (65 * shares).tolist(), strict=True))
            made.append(
                RunningFigures(
                    player.name, player.team, self.random.uniform(4, 9), float(self.random.uniform(60, 210)), seconds
                )
            )
        return made

    def hierarchy(self):
        return [
            DetectorNode("BallTurned", 1, ("position",), {"ball_turned": 900}),
            DetectorNode("Proximity", 2, ("position", "ball_turned"), {"near": 400, "not_near": 399}),
            DetectorNode("PlayerHitsBall", 3, ("near", "not_near", "ball_turned"), {"hit": 110}),
            DetectorNode("ShotOnGoal", 4, ("hit", "position"), {"shot": 0}),
        ]

    def waits(self, policy):
        grow = 0.02 if policy == "auto" else 0.5
        units, series = [], []
        for name, level in LEVELS.items():
            mean = (45 if level != 2 else 40) * (1 + grow * (level - 1)) * MILLISECOND
            units.append(DetectorWait(name, level, 2.6 * mean, mean, 3.1 * mean, 10_000 // level**3 + 1))
            ks = 2.6 * mean * (1 - np.exp(-np.arange(1, 40) / 4))
            points = [
                Point(START + int(1.6 * n * SECOND), float(k), mean, 3) for n, k in enumerate(ks) if n != 7 or level < 3
            ]
            series.append(Series(name, points))
        events = [
            EventWait(
                kind, level, count, (48 * (1 + grow * (level - 1)) + 0.9 * back) * MILLISECOND, 200 * MILLISECOND,
                back * MILLISECOND,
            )
            for kind, (level, back, count) in PUBLISHED.items()
        ]  # fmt: skip
        return PolicyWaits(policy, units, events, series)

    def delays(self):
        ball = self.random.gamma(3, 0.8, 20_000) * MILLISECOND
        others = (5 + self.random.gamma(2, 12, 40_000) + 20 * self.random.pareto(4, 40_000)) * MILLISECOND
        return [Delays("ball", ball, 0.42), Delays("players and referees", others, 0.97)]

    def plausibility(self):
        draws = {"pass length": "m", "pass duration": "s", "foot speed": "m/s"}
        edges = np.arange(0.0, 44.0, 4.0)
        distributions = []
        for name, unit in draws.items():
            simulated, recorded = (
                np.histogram(np.clip(self.random.gamma(3, scale, n), 0, 40), edges)[0]
                for scale, n in ((5, 40), (4, 90))
            )
            distributions.append(
                Distribution(
                    name, unit, tuple(edges), tuple(simulated / 40), tuple(recorded / 90), 40, 90, "somebody's games",
                    "Mostly walking." if name == "foot speed" else "",
                )
            )  # fmt: skip
        figures = (
            Figure("successful passes", "per minute", 9.5, {"game 1": 9.1, "game 3": 8.6}),
            Figure("ball in play", "share of time", 0.71, {"game 1": 0.62}, "From out to in."),
        )
        return Plausibility(tuple(distributions), figures, "Games by somebody, use responsibly.")


def make_report(seed=7, field=FULL_SIZE):
    maker = Maker(seed, field)
    return MatchReport(
        title="A match, out of order",
        match=maker.match,
        text="65 s of a made-up match.",
        facts=[
            ("2,340,000", "positions of 144 transmitters"),
            ("94.1 %", "of them out of order"),
            ("0", "late"),
            ("1,532", "events detected"),
            ("9.8 s", "for 65 s of match, two cores"),
        ],
        notes=["Made up."],
        positions=2_340_000,
        late=0,
        sameness=[
            Sameness("near", 2, 712, 712, 712, 790, 0),
            Sameness("hit", 3, 110, 110, 110, 104, 61),
            Sameness("shot", 5, 4, 4, 4, 4, 1),
        ],
        verdicts=[
            Verdict(Accuracy("hit", 109, 110, 108), Accuracy("hit", 160, 110, 61)),
            Verdict(Accuracy("pass", 26, 26, 25), Accuracy("pass", 40, 26, 6)),
            Verdict(Accuracy("shot", 4, 4, 4), Accuracy("shot", 6, 4, 1)),
            Verdict(Accuracy("goal", 1, 1, 1), Accuracy("goal", 0, 1, 0)),
            Verdict(Accuracy("offside", 1, 0, 0), Accuracy("offside", 0, 0, 0)),
        ],
        possession=[PossessionShare("North", 0.561, 0.556, 0.43), PossessionShare("South", 0.439, 0.444, 0.57)],
        shots=maker.shots(),
        passes=maker.passes(),
        timeline=maker.timeline(),
        heat=maker.heat(),
        runners=maker.runners(),
        hierarchy=maker.hierarchy(),
        waits=[maker.waits("auto"), maker.waits("slack")],
        delays=maker.delays(),
        plausibility=maker.plausibility(),
        attributions=["Recordings by somebody, CC BY-SA 4.0."],
    )


def headings(page):
    return re.findall(r"<h[23]>(.*?)</h[23]>", page)


def named(figure, name):
    return [trace for trace in figure.data if trace.name == name]
