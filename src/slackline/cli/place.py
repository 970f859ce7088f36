"""``slackline place``: detectors go where they cost least, once or again and again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from slackline.cli.failure import FAILED, reports_errors
from slackline.cli.reaching import At, TlsCa, TlsCert, TlsKey
from slackline.cluster.connection import Credentials
from slackline.cluster.controller.master import Decision, Master
from slackline.cluster.placement import Problem
from slackline.cluster.placement.changes import PlacementChange, changes
from slackline.cluster.placement.report import MoveMade, PlacementReport
from slackline.cluster.placement.solvers import DEFAULT, SOLVERS, solver_of
from slackline.cluster.placing import Placing
from slackline.core.errors import ConfigError, SlacklineError
from slackline.runtime.address import Address

#: Characters of a line where no terminal says how wide it is.
WIDE = 110


@reports_errors
def place(
    at: At,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would move and why; move nothing.")] = False,
    watch: Annotated[
        bool,
        typer.Option(
            "--watch", help="Keep doing it, until Ctrl-C; while a node does it (--optimise master), stand by."
        ),
    ] = False,
    every: Annotated[float, typer.Option(help="Seconds between two searches, with --watch.", min=1.0)] = 10.0,
    solver: Annotated[str, typer.Option(help=f"How to search: {', '.join(SOLVERS)}.")] = DEFAULT,
    seconds: Annotated[float, typer.Option(help="How long to search.", min=0.01)] = 3.0,
    seed: Annotated[int, typer.Option(help="What the search draws its random numbers from.")] = 0,
    pin: Annotated[
        list[str] | None,
        typer.Option(metavar="DETECTOR=NODE", help="A detector that has to run on a node. Several times."),
    ] = None,
    together: Annotated[
        bool,
        typer.Option(
            "--together",
            help="Move all detectors at once, and look then; unless given, step by step, and look after "
            "each step whether it has become better.",
        ),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print figures as JSON; with --watch a line for each search.")
    ] = False,
    html: Annotated[
        Path | None,
        typer.Option(
            help="Write a page: nodes, links and detectors before and after, what each solver finds over time, and "
            "the load of the nodes.",
            dir_okay=False,
        ),
    ] = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_ca: TlsCa = None,
) -> None:
    """Look for a better placement of the detectors, and move them there.

    Looks at the network for two seconds, searches, moves what is worth it, and looks after each step whether it has
    become better; what has not is taken back. Nothing that detectors find is lost, found twice, or found in another
    order by it.
    """  # fmt: skip
    if dry_run and watch:
        raise ConfigError("--dry-run and --watch exclude each other: one migrates nothing, the other keeps migrating.")
    solver_of(solver)  # a wrong one is told before anything else, as is an extra that is missing
    page: Callable[[PlacementReport], str] | None = None
    if html is not None:
        from slackline.report.placement import placement_page

        page = placement_page
    credentials = Credentials.of(tls_cert, tls_key, tls_ca)
    master = Master(every=every, seconds=seconds, seed=seed, solver=solver, together=together, pinned=_pins(pin or []))
    shown = _Printer(solver, dry_run, as_json, watch)
    placing = Placing(Address.of(at), credentials, master, say=_say, decided=shown.decided)
    try:
        asyncio.run(placing.watch() if watch else _once(placing, dry_run))
    except KeyboardInterrupt:
        _say("stopped")
    decision = shown.last
    if decision is None:
        return
    if as_json and not watch:
        typer.echo(json.dumps(_figures(decision, solver, placing.moves), indent=2))
    elif not watch:
        shown.end(placing.moves)
    if html is not None and page is not None:
        html.write_text(page(_story(decision, solver, seconds, seed, placing)), "utf-8")
        _say(f"the page is in {html}")
    if not watch and any(move.error for move in placing.moves):
        raise typer.Exit(FAILED)


async def _once(placing: Placing, dry_run: bool) -> None:
    await placing.once(dry_run)


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


def _say(text: str) -> None:
    typer.echo(f"slackline: {text}", err=True)


class _Printer:
    """Prints decisions."""

    def __init__(self, solver: str, dry_run: bool, as_json: bool, watch: bool) -> None:
        self.last: Decision | None = None
        self._solver, self._dry_run, self._as_json, self._watch = solver, dry_run, as_json, watch
        self._console = Console(highlight=False)
        if not self._console.is_terminal:
            self._console.width = WIDE

    def decided(self, decision: Decision) -> None:
        """Show what came of a search."""
        self.last = decision
        if self._as_json:
            if self._watch:
                typer.echo(json.dumps(_figures(decision, self._solver, [])))
            return
        if self._watch and not decision.steps:
            return
        print_ = self._console.print
        if decision.steps:
            print_(_table(_changes(decision)))
        print_(_summary(decision, self._solver))
        if decision.steps and not self._dry_run:
            count = sum(map(len, decision.steps))
            print_(f"Moves {_count(count, 'detector')} in {_count(len(decision.steps), 'step')}.")

    def end(self, moves: list[MoveMade]) -> None:
        """Show what became of it."""
        assert self.last is not None
        if self._dry_run and self.last.steps:
            self._console.print("Nothing was moved (--dry-run).")
        elif moves:
            made = [move for move in moves if not move.error]
            seconds = sum(move.seconds for move in made)
            self._console.print(f"{_count(len(made), 'move')} made, {1000 * seconds:.0f} ms together.")


def _count(number: int, thing: str) -> str:
    """
    >>> _count(1, "step"), _count(3, "move")
    ('1 step', '3 moves')
    """
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def _changes(decision: Decision) -> list[PlacementChange]:
    """What moves, the greatest gain first."""
    return changes(decision.problem, _after(decision))


def _after(decision: Decision) -> dict[str, str]:
    moved = {move.detector: move.to for step in decision.steps for move in step}
    return {**decision.problem.now, **moved}


def _table(found: list[PlacementChange]) -> Table:
    table = Table(title="What moves", title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in ("detector", "from", "to"):
        table.add_column(heading, overflow="fold")
    table.add_column("gain", justify="right", no_wrap=True)
    table.add_column("why", overflow="fold")
    for change in found:
        gain = f"{1000 * change.gain:.1f} ms"
        table.add_row(escape(change.detector), escape(change.source), escape(change.to), gain, escape(change.why))
    return table


def _summary(decision: Decision, solver: str) -> str:
    problem, solution = decision.problem, decision.solution
    beyond = [f"{escape(text)}." for text in problem.objections(problem.now)]
    if not problem.subscriptions:
        return "No events are under way between detectors: nothing to gain."
    lines = [f"[yellow]Now:[/] {text}" for text in beyond]
    before, after = problem.cost(problem.now), problem.cost(_after(decision))
    searched = f"{escape(solver)}, {solution.seconds:.1f} s"
    if not decision.steps:
        found = problem.cost(solution.placement)
        lines.append(f"Stays as it is: φ is {before:.4f}, and nothing that is worth it was found ({searched}: "
                     f"{found:.4f}).")  # fmt: skip
    else:
        lines.append(f"φ goes from {before:.4f} to {after:.4f} ({_percent(before, after)}; {searched}).")
    was, becomes = (1000 * problem.mean_latency(each) for each in (problem.now, _after(decision)))
    lines.append(
        f"Mean latency of {len(problem.subscriptions)} subscriptions with events: {was:.2f} ms"
        + (f" → {becomes:.2f} ms." if decision.steps else ".")
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


def _figures(decision: Decision, solver: str, moves: list[MoveMade]) -> dict[str, Any]:
    problem, after = decision.problem, _after(decision)
    return {
        "before": _costs(problem, dict(problem.now)),
        "after": _costs(problem, after),
        "solver": solver,
        "search_seconds": decision.solution.seconds,
        "bound": decision.solution.bound,
        "changes": [change._asdict() for change in _changes(decision)],
        "steps": [[move.detector for move in step] for step in decision.steps],
        "moves": [move._asdict() for move in moves],
    }


def _costs(problem: Problem, placement: dict[str, str]) -> dict[str, Any]:
    return {
        "placement": placement,
        "cost": problem.cost(placement),
        "mean_latency": problem.mean_latency(placement),
        "loads": problem.loads(placement),
        "objections": problem.objections(placement),
    }


def _story(decision: Decision, solver: str, seconds: float, seed: int, placing: Placing) -> PlacementReport:
    """All that the page shows; the other solvers have a try at the same problem."""
    problem = decision.problem
    courses = {solver: decision.solution.course}
    bound = decision.solution.bound
    for other in SOLVERS:
        if other != solver:
            try:
                solution = solver_of(other).solve(problem, seconds=seconds, seed=seed, start=problem.now)
            except SlacklineError as error:  # not installed
                _say(str(error))
                continue
            courses[other] = solution.course
            bound = solution.bound if bound is None else bound
    return PlacementReport(
        problem=problem,
        before=problem.now,
        after=_after(decision),
        changes=tuple(_changes(decision)),
        courses=courses,
        solver=solver,
        bound=bound,
        loads={name: tuple(samples) for name, samples in placing.loads.items()},
        moves=tuple(placing.moves),
    )
