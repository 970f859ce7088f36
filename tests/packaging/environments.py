"""Environments as an installation would make them, without downloading anything.

Each wheel is built once. An environment of an extra is a new virtual environment with our wheels in it, installed by
pip, and with links to exactly those packages that the first wheel's metadata requires with that extra, and to what
these require. Whatever else is installed here cannot be imported there.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from collections.abc import Iterator, Sequence
from importlib.metadata import Distribution, PathDistribution, distribution
from pathlib import Path
from zipfile import Path as ZipPath

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]


def build_wheel(project: Path, folder: Path) -> Path:
    """The wheel of a project of this tree, built by the backend that is installed here."""
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index", "--quiet"]
    subprocess.run([*command, "--wheel-dir", str(folder), str(project)], check=True, capture_output=True, text=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def metadata(wheel: Path) -> Distribution:
    """What the wheel says of itself."""
    (info,) = [path for path in ZipPath(wheel).iterdir() if path.name.endswith(".dist-info")]
    return PathDistribution(info)  # type: ignore[arg-type]


def wanted(dist: Distribution, extras: frozenset[str]) -> Iterator[Requirement]:
    """What a distribution asks for, on this machine, with these extras."""
    for text in dist.requires or ():
        requirement = Requirement(text)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in extras | {""}):
            yield requirement


def closure(wheels: Sequence[Path], *extras: str) -> dict[str, Distribution]:
    """All distributions of others that an installation of the first wheel with these extras brings along, by name."""
    ours = {canonicalize_name(dist.metadata["Name"]): dist for dist in map(metadata, wheels)}
    found: dict[str, Distribution] = {}
    seen: set[tuple[str, frozenset[str]]] = set()
    left = [(next(iter(ours)), frozenset(extras))]
    while left:
        one = left.pop()
        if one in seen:
            continue
        seen.add(one)
        dist = ours.get(one[0]) or distribution(one[0])
        if one[0] not in ours:
            found[one[0]] = dist
        left += [(canonicalize_name(r.name), frozenset(r.extras)) for r in wanted(dist, one[1])]
    return found


def link(dist: Distribution, site: Path) -> None:
    """Make a distribution of this environment importable from another one."""
    for path in dist.files or ():
        if path.parts[0] in ("..", "__pycache__"):
            continue
        top, target = site / path.parts[0], Path(str(dist.locate_file(path.parts[0]))).resolve()
        if not top.exists():
            top.symlink_to(target)
        elif top.resolve() != target:  # a namespace that several distributions share
            raise RuntimeError(f"{dist.name}: {top} leads elsewhere")


def make_environment(folder: Path, wheels: Sequence[Path], *extras: str) -> Path:
    """A new environment with these wheels and what the first of them requires with these extras; its Python."""
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    (site,) = folder.glob("lib/python*/site-packages")
    for dist in closure(wheels, *extras).values():
        link(dist, site)
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--no-index", "--quiet"]
    subprocess.run([*command, *map(str, wheels)], check=True, capture_output=True, text=True)
    return python


def run(python: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run something there, with nothing of this tree on its path."""
    settings = {"PATH": f"{python.parent}:/usr/bin:/bin", "HOME": str(python.parents[1]), **environment}
    return subprocess.run(arguments, cwd=python.parent, env=settings, capture_output=True, text=True, check=False)
