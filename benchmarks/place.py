"""Where detectors run: our solvers and those of the thesis, on rebuilt and on generated hierarchies.

    slackline bench place --json

prints ``default`` (the solver that is taken unless another is asked for), ``runs`` (a list of ``instance, detectors,
nodes, solver, seed, seconds, cost, best_known, lower_bound``) and ``order``: how the four solvers of the thesis come
out on the rebuilt phases, by time and by the generations that [Thesis, 5.2.6] gave them.

Instances: ``phase1`` and ``phase2`` are those of [Thesis, 5.2.6] as well as the text allows (``sim/hierarchies.py``
says what had to be invented); ``30x6`` to ``1000x100`` are generated, with seed 7. Parameters of ours were chosen
on others (100 to 105), but for its starting heat, which was raised after a look at 30x6. Each solver has 3 s, at 300x30
5 s, at 1000x100 10 s; each seed is a run. What is
compiled is compiled before. ``cost`` is φ (nothing runs yet, so nothing has to move). ``best_known`` is the best of all
these runs, of one of the default that takes six times as long, and of the exact solver's. ``lower_bound`` is the exact
solver's: the optimum of the phases, by dynamic programming, and of 30x6, by CP-SAT, if it has the time.

``order`` has, for each solver of the thesis, its mean cost over the optimum of both phases: after 3 s, and after as
many generations as in the thesis (35,000, 27,000 and 25,000; of the cuckoo search it says no number: 35,000), where the
thesis' own figures, in its network and measured as mean latency, are beside.

``phases`` has what running nodes make of a change of phase in a simulated network (``sim/phase_play.py``): a master,
with all moves at once or step by step, and neighbours without one; over the optimum, before, after the first search
that knows nothing of what was before, and at the end of the 60 s. Not with ``--quick``: it takes minutes.
"""

from __future__ import annotations

import json as jsonlib
from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from _figures import parser
from scenarios.hierarchies import generated_problem, thesis_phases
from scenarios.phase_play import phase_rows
from slackline.cluster.placement import DEFAULT, OF_THE_THESIS, Problem, Solver, solver_of
from slackline.cluster.placement.cuckoo import CuckooSearch
from slackline.cluster.placement.cuckoo_swarm import CuckooParticleSwarm
from slackline.cluster.placement.genetic import GeneticAlgorithm
from slackline.cluster.placement.swarm import ParticleSwarm

SEED = 7
#: How many seeds the default has, and how many each other solver has.
SEEDS, OTHERS = 10, 3
#: How many each solver of the thesis has per phase where generations are the limit.
ORDER_SEEDS = 4
#: How many times longer the default searches for the best known, and how long the exact solver may take.
LONGER, PROOF = 6, 90.0
#: Detectors, nodes, seconds, seeds of the default, seeds of the others.
SIZES = ((30, 6, 3.0, SEEDS, OTHERS), (100, 12, 3.0, 3, 2), (300, 30, 5.0, 3, 2), (1000, 100, 10.0, 3, 1))
#: Generations in the thesis, and what its solvers reached there over the optimum (in its first phase).
THESIS: dict[str, tuple[Callable[[int], Solver], int, float]] = {
    "cuckoo": (CuckooSearch, 35_000, 17.4 / 6.1),
    "genetic": (GeneticAlgorithm, 35_000, 13.6 / 6.1),
    "swarm": (ParticleSwarm, 27_000, 11.5 / 6.1),
    "cuckoo_swarm": (CuckooParticleSwarm, 25_000, 9.7 / 6.1),
}


@dataclass(frozen=True, slots=True)
class Case:
    """An instance, and how it is run."""

    name: str
    problem: Problem
    seconds: float
    seeds: int
    others: int
    proof: float


def cases(quick: bool) -> list[Case]:
    """All instances, or the small ones with little time."""
    phases = thesis_phases()
    small = {"phase1": phases.first, "phase2": phases.second}
    if quick:
        small["30x6"] = generated_problem(30, 6, SEED)
        return [Case(name, problem, 0.3, 2, 1, 2.0) for name, problem in small.items()]
    sized = [
        Case(f"{detectors}x{nodes}", generated_problem(detectors, nodes, SEED), seconds, seeds, others, PROOF)
        for detectors, nodes, seconds, seeds, others in SIZES
    ]
    return [Case(name, problem, 3.0, SEEDS, OTHERS, PROOF) for name, problem in small.items()] + sized


def run(quick: bool = False, quiet: bool = True) -> dict[str, Any]:
    """Measure. Returns the figures."""
    todo = cases(quick)
    runs: list[dict[str, Any]] = []
    with Progress(console=Console(stderr=True), transient=True, disable=quiet) as bar:
        task = bar.add_task("", total=sum(2 + case.seeds + len(OF_THE_THESIS) * case.others for case in todo) + 2)

        def step(what: str) -> None:
            bar.update(task, advance=1, description=what)

        for case in todo:
            runs += measured(case, step)
        step("the thesis' generations")
        order = in_order(runs, {case.name: case.problem for case in todo}, 500 if quick else None)
        step("nodes that decide by themselves")
        changes = [] if quick else phases()
    return {"default": DEFAULT, "runs": runs, "order": order, "phases": changes}


def measured(case: Case, step: Callable[[str], None]) -> list[dict[str, Any]]:
    """All runs on one instance."""
    runs = []
    for solver, seeds in ((DEFAULT, case.seeds), *((name, case.others) for name in OF_THE_THESIS)):
        for seed in range(seeds):
            step(f"{case.name}, {solver}")
            solution = solver_of(solver).solve(case.problem, seconds=case.seconds, seed=seed)
            runs.append(
                {
                    "instance": case.name,
                    "detectors": len(case.problem.detectors),
                    "nodes": len(case.problem.nodes),
                    "solver": solver,
                    "seed": seed,
                    "seconds": round(solution.seconds, 3),
                    "cost": solution.objective,
                }
            )
    step(f"{case.name}, {DEFAULT} for longer")
    longer = solver_of().solve(case.problem, seconds=LONGER * case.seconds, seed=case.seeds)
    step(f"{case.name}, bound")
    exact = solver_of("exact").solve(case.problem, seconds=case.proof, seed=0, start=longer.placement)
    best = min([longer.objective, exact.objective, *(float(str(each["cost"])) for each in runs)])
    return [{**each, "best_known": best, "lower_bound": exact.bound} for each in runs]


def in_order(
    runs: list[dict[str, Any]], problems: dict[str, Problem], generations: int | None
) -> dict[str, dict[str, float]]:
    """How the solvers of the thesis come out on both phases."""
    phases = {each["instance"]: each["best_known"] for each in runs if each["instance"].startswith("phase")}
    found = {}
    for name, (kind, as_there, thesis) in THESIS.items():
        solver = kind(generations or as_there)
        found[name] = {
            "by_time": fmean(
                each["cost"] / each["best_known"]
                for each in runs
                if each["solver"] == name and each["instance"] in phases
            ),
            "by_generations": fmean(
                solver.solve(problems[phase], seconds=600.0, seed=seed).objective / best
                for phase, best in phases.items()
                for seed in range(ORDER_SEEDS)
            ),
            "thesis": thesis,
        }
    return found


def phases() -> list[dict[str, Any]]:
    """What nodes make of a change of phase, by themselves (``sim/phase_play.py``)."""
    both = thesis_phases()
    first, second = (
        each.mean_latency(solver_of("exact").solve(each, seconds=PROOF, seed=0).placement)
        for each in (both.first, both.second)
    )
    return phase_rows((first, second))


def show(figures: dict[str, Any]) -> None:
    """Tables for people."""
    console = Console()
    runs = figures["runs"]
    table = Table(title="mean cost (worst) over the best known, by instance", title_justify="left")
    for title in ("instance", "best known", "bound", *(DEFAULT, *OF_THE_THESIS)):
        table.add_column(title, justify="right")
    for instance in dict.fromkeys(each["instance"] for each in runs):
        row = [each for each in runs if each["instance"] == instance]
        cells = [instance, f"{row[0]['best_known']:.4f}", f"{row[0]['lower_bound']:.4f}"]
        for solver in (DEFAULT, *OF_THE_THESIS):
            ratios = [each["cost"] / each["best_known"] for each in row if each["solver"] == solver]
            cells.append(f"{fmean(ratios):.3f} ({max(ratios):.3f})")
        table.add_row(*cells)
    console.print(table)
    table = Table(title="the thesis' solvers on its phases, over the optimum", title_justify="left")
    for title in ("solver", "after 3 s", "after its generations", "in the thesis"):
        table.add_column(title, justify="right")
    for name, order in figures["order"].items():
        table.add_row(name, *(f"{order[key]:.2f}" for key in ("by_time", "by_generations", "thesis")))
    console.print(table)
    if not figures["phases"]:
        return
    table = Table(title="running nodes after a change of phase, over the optimum", title_justify="left")
    for title in (
        "way",
        "phase",
        "before",
        "after the first search",
        "at the end",
        "within 1.05 after",
        "moves of all",
    ):
        table.add_column(title, justify="right")
    for row in figures["phases"]:
        searched, good = row["after_first_search"], row["good_after_s"]
        table.add_row(
            row["way"], str(row["phase"]), f"{row['first_ms'] / row['optimum_ms']:.2f}",
            "" if searched is None else f"{searched:.3f}", f"{row['at_the_end']:.3f}",
            "" if good is None else f"{good:.0f} s", str(row["moves"]),
        )  # fmt: skip
    console.print(table)


def main(argv: list[str]) -> int:
    asked = parser("place", __doc__)
    asked.add_argument("--quick", action="store_true", help="the small instances, with little time")
    given = asked.parse_args(argv)
    figures = run(given.quick, quiet=given.json)
    if given.json:
        print(jsonlib.dumps(figures))
    else:
        show(figures)
    return 0


if __name__ == "__main__":
    import sys

    raise SystemExit(main(sys.argv[1:]))
