"""``slackline place``: searches for a better placement of the detectors of a cluster, and migrates them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from slackline.cli.console import FAILED, reports_errors, stdout, table, write_page
from slackline.cli.options import At, TlsCa, TlsCert, TlsKey
from slackline.cluster.client import CompletedMigration, PlacementReport, RemotePlacement
from slackline.cluster.controller.global_placement import GlobalPlacement, PlacementPlan
from slackline.cluster.links import Credentials
from slackline.cluster.placement import DEFAULT, SOLVERS, Problem, solver_of
from slackline.cluster.placement.problem import changes
from slackline.cluster.registry import node_at
from slackline.core.errors import ConfigError, SlacklineError


@reports_errors
def place(
    at: At,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print which detectors would migrate, and why; migrate nothing.")
    ] = False,
    watch: Annotated[
        bool,
        typer.Option(
            "--watch", help="Search again and again until Ctrl-C; stands by while a node does (--optimise master)."
        ),
    ] = False,
    every: Annotated[float, typer.Option(help="Seconds between two searches, with --watch.", min=1.0)] = 10.0,
    solver: Annotated[str, typer.Option(help=f"Solver: {', '.join(SOLVERS)}.")] = DEFAULT,
    seconds: Annotated[float, typer.Option(help="Seconds of a search.", min=0.01)] = 3.0,
    seed: Annotated[int, typer.Option(help="Seed of the random numbers of the search.")] = 0,
    pin: Annotated[
        list[str] | None,
        typer.Option(metavar="DETECTOR=NODE", help="Pin a detector to a node. Repeatable."),
    ] = None,
    together: Annotated[
        bool,
        typer.Option(
            "--together",
            help="Migrate all detectors at once; default: step by step, with an evaluation after each step.",
        ),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON; with --watch one line per search.")
    ] = False,
    html: Annotated[
        Path | None,
        typer.Option(
            help="Write an HTML page: placement before and after, progress of all solvers, load of the nodes.",
            dir_okay=False,
        ),
    ] = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_ca: TlsCa = None,
) -> None:
    """Search for a better placement of the detectors, and migrate them.

    Measures the cluster for two seconds, searches, and migrates detectors step by step if the gain is sufficient. A
    step that has increased the cost is rolled back. Migration does not change the outputs or their order.
    """
    if dry_run and watch:
        raise ConfigError("--dry-run and --watch exclude each other: one migrates nothing, the other keeps migrating.")
    solver_of(solver)  # an unknown solver or a missing extra fails at once
    page: Callable[[PlacementReport], str] | None = None
    if html is not None:
        from slackline.report.placement import placement_page

        page = placement_page
    credentials = Credentials.of(tls_cert, tls_key, tls_ca)
    policy = GlobalPlacement(
        every=every, seconds=seconds, seed=seed, solver=solver, together=together, pinned=_pins(pin or [])
    )
    shown = _Printer(solver, dry_run, as_json, watch)
    placing = RemotePlacement(node_at(at), credentials, policy, log=_log, on_plan=shown.show)
    try:
        if watch:
            asyncio.run(placing.watch())
        else:
            asyncio.run(placing.once(dry_run))
    except KeyboardInterrupt:
        _log("stopped")
    plan = shown.last
    if plan is None:
        return
    if as_json and not watch:
        typer.echo(json.dumps(_figures(plan, solver, placing.migrations), indent=2))
    elif not watch:
        shown.end(placing.migrations)
    if html is not None and page is not None:
        write_page(html, page(_report(plan, solver, seconds, seed, placing)))
    if not watch and any(migration.error for migration in placing.migrations):
        raise typer.Exit(FAILED)


def _pins(texts: list[str]) -> dict[str, str]:
    """
    >>> _pins(["High=n1"])
    {'High': 'n1'}
    """
    pins = {}
    for text in texts:
        detector, equals, node = text.partition("=")
        if not (detector and equals and node):
            raise ConfigError(f"--pin {text} is not valid; write DETECTOR=NODE.")
        pins[detector] = node
    return pins


def _log(text: str) -> None:
    typer.echo(f"slackline: {text}", err=True)


class _Printer:
    """Prints plans."""

    def __init__(self, solver: str, dry_run: bool, as_json: bool, watch: bool) -> None:
        self.last: PlacementPlan | None = None
        self._solver, self._dry_run, self._as_json, self._watch = solver, dry_run, as_json, watch
        self._console = stdout()

    def show(self, plan: PlacementPlan) -> None:
        """Print the result of a search."""
        self.last = plan
        if self._as_json:
            if self._watch:
                typer.echo(json.dumps(_figures(plan, self._solver, [])))
            return
        if self._watch and not plan.steps:
            return
        print_ = self._console.print
        if plan.steps:
            shown = table("Migrations", "detector", "from", "to", ">gain", "why")
            for change in changes(plan.problem, _after(plan)):
                gain = f"{1000 * change.gain:.1f} ms"
                shown.add_row(*map(escape, (change.detector, change.source, change.to, gain, change.why)))
            print_(shown)
        print_(_summary(plan, self._solver))
        if plan.steps and not self._dry_run:
            count = sum(map(len, plan.steps))
            print_(f"Migrating {_count(count, 'detector')} in {_count(len(plan.steps), 'step')}.")

    def end(self, migrations: list[CompletedMigration]) -> None:
        """Print the migrations."""
        assert self.last is not None
        if self._dry_run and self.last.steps:
            self._console.print("Nothing was migrated (--dry-run).")
        elif migrations:
            made = [migration for migration in migrations if not migration.error]
            seconds = sum(migration.seconds for migration in made)
            self._console.print(f"{_count(len(made), 'migration')} in {1000 * seconds:.0f} ms.")


def _count(number: int, thing: str) -> str:
    """
    >>> _count(1, "step"), _count(3, "node")
    ('1 step', '3 nodes')
    """
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def _after(plan: PlacementPlan) -> dict[str, str]:
    """The placement after all steps."""
    moved = {move.detector: move.to for step in plan.steps for move in step}
    return {**plan.problem.now, **moved}


def _summary(plan: PlacementPlan, solver: str) -> str:
    problem, solution = plan.problem, plan.solution
    beyond = [f"{escape(text)}." for text in problem.objections(problem.now)]
    if not problem.subscriptions:
        return "No events are sent between detectors: there is nothing to gain."
    lines = [f"[yellow]Now:[/] {text}" for text in beyond]
    before, after = problem.cost(problem.now), problem.cost(_after(plan))
    searched = f"{escape(solver)}, {solution.seconds:.1f} s"
    if not plan.steps:
        found = problem.cost(solution.placement)
        lines.append(f"No change: φ is {before:.4f}, and no sufficiently better placement was found ({searched}: "
                     f"{found:.4f}).")  # fmt: skip
    else:
        lines.append(f"φ changes from {before:.4f} to {after:.4f} ({_percent(before, after)}; {searched}).")
    was, becomes = (1000 * problem.mean_latency(each) for each in (problem.now, _after(plan)))
    lines.append(
        f"Mean latency of {len(problem.subscriptions)} subscriptions with events: {was:.2f} ms"
        + (f" → {becomes:.2f} ms." if plan.steps else ".")
    )
    return "\n".join(lines)


def _percent(before: float, after: float) -> str:
    """
    >>> _percent(4.0, 1.0), _percent(1.0, 1.5)
    ('75 % less', '50 % more, to keep the limits')
    """
    if after <= before:
        return f"{100 * (1 - after / before) if before else 0:.0f} % less"
    return f"{100 * (after / before - 1) if before else 100:.0f} % more, to keep the limits"


def _figures(plan: PlacementPlan, solver: str, migrations: list[CompletedMigration]) -> dict[str, Any]:
    problem, after = plan.problem, _after(plan)
    return {
        "before": _costs(problem, dict(problem.now)),
        "after": _costs(problem, after),
        "solver": solver,
        "search_seconds": plan.solution.seconds,
        "bound": plan.solution.bound,
        "changes": [change._asdict() for change in changes(problem, after)],
        "steps": [[move.detector for move in step] for step in plan.steps],
        "migrations": [migration._asdict() for migration in migrations],
    }


def _costs(problem: Problem, placement: dict[str, str]) -> dict[str, Any]:
    return {
        "placement": placement,
        "cost": problem.cost(placement),
        "mean_latency": problem.mean_latency(placement),
        "loads": problem.loads(placement),
        "objections": problem.objections(placement),
    }


def _report(plan: PlacementPlan, solver: str, seconds: float, seed: int, placing: RemotePlacement) -> PlacementReport:
    """The content of the page; the other solvers run on the same problem."""
    problem = plan.problem
    histories = {solver: plan.solution.history}
    bound = plan.solution.bound
    for other in SOLVERS:
        if other != solver:
            try:
                solution = solver_of(other).solve(problem, seconds=seconds, seed=seed, start=problem.now)
            except SlacklineError as error:  # not installed
                _log(str(error))
                continue
            histories[other] = solution.history
            bound = solution.bound if bound is None else bound
    return PlacementReport(
        problem=problem,
        before=problem.now,
        after=_after(plan),
        changes=tuple(changes(problem, _after(plan))),
        histories=histories,
        solver=solver,
        bound=bound,
        loads={name: tuple(samples) for name, samples in placing.loads.items()},
        migrations=tuple(placing.migrations),
    )
