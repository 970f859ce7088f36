"""Every Python block in the README and the docs runs, and every link between the pages leads somewhere.

The blocks of one page share a namespace, from top to bottom. A block fenced as ``python no-run`` is only parsed (Spark
snippets). A ``text`` block that follows a Python block directly is what that block prints.
"""

from __future__ import annotations

import ast
import contextlib
import io
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md")), *sorted(ROOT.glob("apps/*/*.md"))]

BLOCK = re.compile(
    r"^```python(?P<info>[^\n]*)\n(?P<code>.*?)^```[ ]*\n(?:\n*^```text\n(?P<printed>.*?)^```[ ]*$)?",
    re.MULTILINE | re.DOTALL,
)
LINK = re.compile(r"\]\((?!https?:|#)(?P<target>[^)#\s]+)")


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@dataclass(frozen=True)
class Block:
    """One fenced block of Python: where it starts, and what it should print, if the page says so."""

    line: int
    code: str
    runs: bool
    printed: str | None


def blocks(page: str) -> list[Block]:
    """The Python blocks of a page, in order."""
    return [
        Block(
            page.count("\n", 0, match.start()) + 2,
            match["code"],
            "no-run" not in match["info"].split(),
            match["printed"],
        )
        for match in BLOCK.finditer(page)
    ]


def run_page(path: Path, module: ModuleType) -> None:
    """Run a page's blocks in the namespace of ``module``; tracebacks show the lines of the page."""
    for block in blocks(path.read_text("utf-8")):
        code = "\n" * (block.line - 1) + block.code
        if not block.runs:
            ast.parse(code, name_of(path))
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, name_of(path), "exec"), vars(module))
        if block.printed is not None:
            assert printed.getvalue().rstrip() == block.printed.rstrip(), f"{name_of(path)}, line {block.line}"


#: Pages whose programs play whole matches.
LONG = {"docs/guides/soccer.md"}


@pytest.mark.parametrize(
    "path", [pytest.param(page, marks=[pytest.mark.slow] * (name_of(page) in LONG)) for page in PAGES], ids=name_of
)
def test_python_blocks_of_a_page_run_and_print_what_it_says(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A module of its own, as in a script: classes of the page are found by the name of their module.
    module = ModuleType("page_" + re.sub(r"\W", "_", name_of(path)))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    run_page(path, module)


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_links_of_a_page_lead_somewhere(path: Path) -> None:
    targets = [(path.parent / match["target"]).resolve() for match in LINK.finditer(path.read_text("utf-8"))]
    assert [name_of(target) for target in targets if not target.exists()] == []


SOCCER = ROOT / "apps" / "soccer"
PLACES = [ROOT, ROOT / "src", ROOT / "src" / "slackline", ROOT / "tests"]
#: A file or a folder, perhaps with the name of a test behind it.
NAMED_PATH = re.compile(r"`(?P<path>[\w.-]+(?:/[\w.-]+)*(?:/|\.py|\.md))(?:::\w+)?`")


def named_paths(page: str) -> set[str]:
    """The files and folders of this tree that a page names."""
    return {match["path"] for match in NAMED_PATH.finditer(page) if "/" in match["path"]}


@pytest.mark.parametrize("name", ["docs/seed-map.md", "CONTRIBUTING.md"])
def test_a_map_of_the_code_names_files_that_exist(name: str) -> None:
    def there(path: str) -> bool:
        """On that page ``soccer/`` is short for the application's package, and for the folder of its tests."""
        inside = path.removeprefix("soccer/")
        places = PLACES if inside == path else [SOCCER / "src" / "slackline_soccer", SOCCER / "tests"]
        return any((place / inside).exists() for place in places)

    page = (ROOT / name).read_text("utf-8")
    assert {path for path in named_paths(page) if not there(path)} == set()


def test_blocks_are_found_with_their_lines_and_their_output() -> None:
    page = "a\n```python\nx = 1\n```\n\n```text\n1\n```\n```python no-run\ny\n```\n```text\nnot its output\n"
    assert blocks(page) == [Block(3, "x = 1\n", True, "1\n"), Block(10, "y\n", False, None)]
