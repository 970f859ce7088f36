"""Applications stand on public names alone, and what any tracking application shares knows no application.

So soccer is the proof that an application needs nothing private (docs/decisions/0009), and a basketball application
could take ``tracking`` as it is.
"""

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
APPLICATIONS = ROOT / "apps" / "soccer" / "src"
LIBRARY = "slackline"
APPLICATION = "slackline_soccer"
SHARED = f"{APPLICATION}.tracking"

# The packages of the library whose `__all__` is public, beside the library's own names.
PUBLIC = {f"{LIBRARY}.{name}" for name in ("cli", "cluster", "report", "connectors", "runtime", "spark", "study")}


def imports(source: str) -> Iterator[tuple[int, str, tuple[str, ...]]]:
    """Every import as (line, module, names); of ``import x`` there are no names."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, alias.name, ()) for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                yield node.lineno, "." * level + (module or ""), tuple(alias.name for alias in names)


def import_fault(importer: str, module: str, names: tuple[str, ...]) -> str | None:
    """Why a module of an application may not import this; None if it may."""
    if module.startswith("."):
        return "write the whole name of the module"
    top = module.partition(".")[0]
    if importer.startswith(SHARED) and top == APPLICATION and not f"{module}.".startswith(f"{SHARED}."):
        return f"{SHARED} is for any application and may not import {module}"
    if top != LIBRARY:
        return None
    if module == LIBRARY:
        allowed = {*importlib.import_module(LIBRARY).__all__, *(name.partition(".")[2] for name in PUBLIC)}
    elif module in PUBLIC:
        allowed = set(importlib.import_module(module).__all__)
    else:
        return f"{module} is private; import from {LIBRARY}, or from the root of {', '.join(sorted(PUBLIC))}"
    private = [name for name in names if name not in allowed]
    return f"{', '.join(private)} is not among the public names of {module}" if private else None


def faults(importer: str, source: str) -> list[str]:
    found = ((line, import_fault(importer, module, names)) for line, module, names in imports(source))
    return [f"{line}: {fault}" for line, fault in found if fault]


@pytest.mark.parametrize(
    "path", sorted(APPLICATIONS.rglob("*.py")), ids=lambda path: str(path.relative_to(APPLICATIONS))
)
def test_an_application_imports_public_names_only(path: Path) -> None:
    importer = ".".join(path.relative_to(APPLICATIONS).with_suffix("").parts)
    assert faults(importer, path.read_text("utf-8")) == []


@pytest.mark.parametrize(
    "path", sorted((SOURCE / LIBRARY).rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE))
)
def test_the_library_knows_no_application(path: Path) -> None:
    known = [module for _, module, _ in imports(path.read_text("utf-8")) if module.partition(".")[0] == APPLICATION]
    assert known == []


@pytest.mark.parametrize(
    ("importer", "source", "reason"),
    [
        ("slackline_soccer.run", "from slackline.core.event import Event", "slackline.core.event is private"),
        ("slackline_soccer.run", "import slackline.engine", "slackline.engine is private"),
        ("slackline_soccer.run", "from slackline import core", "core is not among the public names"),
        ("slackline_soccer.run", "from slackline.report import FONT", "FONT is not among the public names"),
        ("slackline_soccer.run", "from .model import match", "write the whole name"),
        ("slackline_soccer.tracking.units", "from slackline_soccer.model import match", "may not import"),
        ("slackline_soccer.tracking.units", "import slackline_soccer", "may not import slackline_soccer"),
    ],
)
def test_checker_catches_a_violation(importer: str, source: str, reason: str) -> None:
    (fault,) = faults(importer, source)
    assert reason in fault


@pytest.mark.parametrize(
    ("importer", "source"),
    [
        ("slackline_soccer.run", "import slackline as sl\nfrom slackline import Detector, spark"),
        ("slackline_soccer.run", "from slackline.report import table_card\nimport numpy as np"),
        ("slackline_soccer.tracking.units", "from slackline_soccer.tracking import SECOND"),
        ("slackline_soccer.model.match", "from slackline_soccer.tracking import SECOND"),
    ],
)
def test_checker_lets_the_rest_pass(importer: str, source: str) -> None:
    assert faults(importer, source) == []
