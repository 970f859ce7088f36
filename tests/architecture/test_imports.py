"""Imports go one way, and the machines stay pure (CONTRIBUTING.md, the map of rooms).

The tables say what is allowed; the functions read a module's syntax tree and name what is not. An import
counts wherever it stands: at the top, in a function, under ``TYPE_CHECKING``, or as ``import_module("…")``.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"

ROOT = "slackline"  # the package's own __init__: the public names

# A package may import itself and everything in the rows above its own; never its neighbours in the row.
RANKS: tuple[tuple[str, ...], ...] = (
    ("core",),
    ("ordering", "sync", "cluster.placement"),
    ("running", "patterns"),
    ("speculation",),
    ("engine",),
    (ROOT,),
    ("cluster.interface",),
    ("cluster.controller",),
    ("cluster.protocol",),
    ("cluster.simulation", "occurrence", "compile"),
    ("runtime",),
    ("testing",),
    ("connectors", "calibration"),
    ("cluster", "study", "explain"),
    ("spark",),
    ("report",),
    ("cli",),
    ("__main__",),
)

# Helpers for users' tests. They may use the rows above them; in the package only the command line uses them.
FOR_USERS = {"testing"}
MAY_USE_HELPERS = {"cli"}

# Only the key's packages may import the module.
ONLY_IN = {
    "pyspark": {"spark"},
    "pandas": {"spark"},
    "plotly": {"report"},
    "typer": {"cli"},
    "rich": {"cli"},
    "confluent_kafka": {"connectors"},
    "fastavro": {"connectors"},
    "httpx": {"connectors"},
    "paho": {"connectors"},
    "numba": {"ordering", "patterns", "cluster.placement", "study"},
    "ortools": {"cluster.placement"},
    "prometheus_client": {"runtime"},
}

# Machines without I/O: time, randomness and hosts come in as arguments.
PURE = {
    "core",
    "ordering",
    "sync",
    "patterns",
    "running",
    "speculation",
    "engine",
    "occurrence",
    "cluster.controller",
    "cluster.protocol",
}
IMPURE_MODULES = {"asyncio", "multiprocessing", "random", "socket", "threading", "time"}
CLOCK_READINGS = {"now", "today", "utcnow"}

# A message is data: nothing turns bytes or text into code.
NEVER_IMPORTED = {"cloudpickle", "marshal", "pickle", "shelve"}
NEVER_CALLED = {"eval", "exec"}

RANK_OF = {package: rank for rank, row in enumerate(RANKS) for package in row}


def module_name(path: Path) -> str:
    """The dotted name of a source file; a package's ``__init__`` has the package's name."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def package_of(module: str) -> str:
    """The entry in RANKS a module belongs to: ``slackline.core.event`` is in ``core``."""
    parts = module.split(".")
    inner = ".".join(parts[1:3])
    return inner if inner in RANK_OF else parts[1] if len(parts) > 1 else ROOT


def called_name(call: ast.Call) -> str:
    """The name a call is made by, ``builtins.`` and ``importlib.`` left off; empty for other methods."""
    match call.func:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=ast.Name(id="builtins" | "importlib"), attr=name):
            return name
    return ""


def imported_modules(tree: ast.AST, module: str, is_package: bool) -> Iterator[tuple[int, str]]:
    """Every module that is imported, as (line, absolute dotted name)."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, alias.name) for alias in names)
            case ast.ImportFrom(module=base, names=names, level=level):
                if level:
                    parts = module.split(".")
                    parts = parts[: len(parts) - level + is_package]
                    base = ".".join([*parts, base] if base else parts)
                if base == ROOT:  # from slackline import core, Event: the one is a package, the other a name
                    yield from (
                        (node.lineno, f"{ROOT}.{alias.name}" if alias.name in RANK_OF else ROOT) for alias in names
                    )
                else:
                    yield node.lineno, base or ""
            case ast.Call(args=[ast.Constant(value=str(name)), *_]):
                if called_name(node) in {"import_module", "__import__"}:
                    yield node.lineno, name


def direction_fault(package: str, target: str) -> str | None:
    """Why ``package`` may not import ``target``, both packages of slackline; None if it may."""
    for name in (package, target):
        if name not in RANK_OF:
            return f"{name} has no place in RANKS: give it a row in {Path(__file__).name}"
    if package == target:
        return None
    if target in FOR_USERS and package not in MAY_USE_HELPERS:
        return f"{target} is for users' tests; {package} may not import it"
    if RANK_OF[target] >= RANK_OF[package]:
        return f"{package} may not import {target}: imports go {' <- '.join(', '.join(row) for row in RANKS)}"
    return None


def import_fault(package: str, name: str) -> str | None:
    """Why a module of ``package`` may not import the module ``name``; None if it may."""
    top = name.split(".")[0]
    if top == ROOT:
        return direction_fault(package, package_of(name))
    if top in NEVER_IMPORTED:
        return f"{top} turns bytes into code; use msgspec or Arrow"
    if package in PURE and top in IMPURE_MODULES:
        return f"{package} is a machine without I/O and may not import {top}; pass it in"
    if top in ONLY_IN and package not in ONLY_IN[top]:
        return f"only {', '.join(sorted(ONLY_IN[top]))} may import {top}"
    return None


def faults(source: str, module: str, is_package: bool = False) -> list[str]:
    """All that is wrong with a module's imports and calls, as ``line: reason``."""
    tree = ast.parse(source)
    package = package_of(module)
    found = [
        (line, reason)
        for line, name in imported_modules(tree, module, is_package)
        if (reason := import_fault(package, name))
    ]
    found += [
        (node.lineno, f"{called_name(node)} is never called")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and called_name(node) in NEVER_CALLED
    ]
    if package in PURE:
        found += [
            (node.lineno, f"{package} is a machine without I/O and may not read a clock by {node.func.attr}()")
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CLOCK_READINGS
        ]
    return [f"{line}: {reason}" for line, reason in sorted(found)]


@pytest.mark.parametrize("path", sorted(SOURCE.glob(f"{ROOT}/**/*.py")), ids=module_name)
def test_module_imports_only_what_its_place_allows(path: Path) -> None:
    assert faults(path.read_text("utf-8"), module_name(path), path.name == "__init__.py") == []


@pytest.mark.parametrize(
    ("module", "source", "reason"),
    [
        ("slackline.core.event", "from slackline.engine import Engine", "core may not import engine"),
        ("slackline.core.event", "from slackline import engine", "core may not import engine"),
        ("slackline.core.event", "from slackline import Event", "core may not import slackline"),
        ("slackline.ordering.reorder_buffer", "from ..engine import run", "ordering may not import engine"),
        ("slackline.ordering.reorder_buffer", "from .. import engine", "ordering may not import engine"),
        ("slackline.study.recording", "import slackline.spark.codec", "study may not import spark"),
        ("slackline.cluster.simulation.world", "from slackline.spark import detect", "simulation may not import spark"),
        ("slackline.report.page", "from slackline.cli import main", "report may not import cli"),
        ("slackline.testing", "from slackline.connectors import FileSource", "testing may not import connectors"),
        ("slackline.cluster.simulation.world", "from slackline.testing import stream", "testing is for users' tests"),
        ("slackline.core.event", "from slackline.misc import thing", "misc has no place in RANKS"),
        ("slackline.study.recording", "import pyspark.sql", "only spark may import pyspark"),
        ("slackline.cli.app", "def f():\n    from pyspark import sql", "only spark may import pyspark"),
        ("slackline.core.event", "import time", "core is a machine without I/O"),
        ("slackline.engine", "from datetime import datetime\ndatetime.now()", "engine is a machine without I/O"),
        ("slackline.engine.run", "import_module('random')", "engine is a machine without I/O"),
        ("slackline.spark.codec", "import pickle", "pickle turns bytes into code"),
        ("slackline.spark.codec", "from cloudpickle import loads", "cloudpickle turns bytes into code"),
        ("slackline.cli.app", "eval('1')", "eval is never called"),
        ("slackline.cli.app", "import builtins\nbuiltins.exec('1')", "exec is never called"),
    ],
)
def test_checker_catches_a_violation(module: str, source: str, reason: str) -> None:
    (fault,) = faults(source, module)
    assert reason in fault


@pytest.mark.parametrize(
    ("module", "is_package", "source"),
    [
        ("slackline", True, "from .core import Event\nfrom .engine import Engine"),
        ("slackline.core", True, "from .time import clock\nfrom . import event"),
        ("slackline.core.event", False, "from .time import clock\nimport numpy as np"),
        ("slackline.ordering.reorder_buffer", False, "from ..core import Event\nimport slackline.core.event"),
        ("slackline.occurrence.options", False, "import slackline as sl\nfrom slackline import Detector"),
        ("slackline.spark.pipeline", False, "import time\nfrom pyspark.sql import DataFrame"),
        ("slackline.report.page", False, "from slackline import spark, study"),
        ("slackline.testing", True, "from slackline.cluster.simulation import Link"),
        ("slackline.cli.app", False, "from slackline.testing import stream\nframe.eval('a + b')"),
    ],
)
def test_checker_lets_the_rest_pass(module: str, is_package: bool, source: str) -> None:
    assert faults(source, module, is_package) == []
