"""One word, one thing; one rule, one place; and every citation leads somewhere (CONTRIBUTING.md)."""

import ast
import doctest
import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = [*sorted(ROOT.glob("src/**/*.py")), *sorted(ROOT.glob("apps/*/src/**/*.py"))]
TEXTS = [*SOURCES, *sorted(ROOT.glob("tests/**/*.py")), *sorted(ROOT.glob("apps/*/tests/**/*.py"))]

#: Functions with fewer nodes than this are too small to be a rule.
RULE = 40

#: A source is cited by its key, with a section or without; after a word the bracket is a type's.
#: Several are divided by semicolons.
CITATION = re.compile(r"(?<![\w\])])\[(?P<sources>[A-Z]\w+(?:[,;] [^\[\]]+)?)\](?![\[(])")
DEFINITION = re.compile(r"^\*\*\[(?P<key>\w+)\]\*\*", re.MULTILINE)

# What cannot be looked up. The brackets keep these patterns from matching this file.
UNRESOLVED = re.compile(
    r"DESIG[N]\.md|STYL[E]\.md|\bseed[s]? ?0\d|\bdissertatio[n]\b|\bthe pape[r]s?\b|\bissu[e] \d", re.IGNORECASE
)


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def docstrings(tree: ast.AST) -> Iterator[str]:
    """The words of all docstrings, without their examples."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            parts = doctest.DocTestParser().parse(ast.get_docstring(node) or "")
            yield from (part for part in parts if isinstance(part, str))


def comments(source: str) -> Iterator[str]:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    yield from (token.string for token in tokens if token.type == tokenize.COMMENT)


def cited(source: str) -> set[str]:
    """The keys that a module cites, in docstrings and comments."""
    words = [*docstrings(ast.parse(source)), *comments(source)]
    found = [match["sources"] for text in words for match in CITATION.finditer(text)]
    return {source.partition(",")[0].strip() for sources in found for source in sources.split(";")}


def unresolved(source: str) -> list[str]:
    """Citations that lead nowhere."""
    return [match[0] for match in UNRESOLVED.finditer(source)]


def body_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> str | None:
    """What a function does, without its name and its docstring; None if it is too small to be a rule."""
    body = function.body[ast.get_docstring(function) is not None :]
    whole = ast.Module(body=[*body], type_ignores=[])
    return ast.dump(function.args) + ast.dump(whole) if sum(1 for _ in ast.walk(whole)) >= RULE else None


def test_no_function_is_written_twice() -> None:
    homes = defaultdict(list)
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (body := body_of(node)):
                homes[body].append(f"{name_of(path)}: {node.name}")
    assert [places for places in homes.values() if len(places) > 1] == []


@pytest.mark.parametrize("path", TEXTS, ids=name_of)
def test_what_a_module_cites_is_in_the_references(path: Path) -> None:
    known = {match["key"] for match in DEFINITION.finditer((ROOT / "docs/references.md").read_text("utf-8"))}
    assert cited(path.read_text("utf-8")) <= known


@pytest.mark.parametrize("path", TEXTS, ids=name_of)
def test_a_module_cites_nothing_that_cannot_be_looked_up(path: Path) -> None:
    assert unresolved(path.read_text("utf-8")) == []


MADE_UP = """
def f():
    '''As in [Order, II-E.1; Migration, IV] and [Sync]; see list[Event], [Page](x.md).

    >>> [True, False]
    [True, False]
    '''
    x: list[Late] = []  # [Thesis, 3.3]
    return [Event]
"""


def test_citations_are_found_and_types_and_examples_are_not() -> None:
    assert cited(MADE_UP) == {"Migration", "Order", "Sync", "Thesis"}


@pytest.mark.parametrize(
    "parts", [("DESIGN", ".md 3"), ("as in see", "d 000"), ("see the pap", "er"), ("Dissert", "ation 4")]
)
def test_a_citation_that_leads_nowhere_is_found(parts: tuple[str, str]) -> None:
    assert unresolved("".join(parts))


@pytest.mark.parametrize("text", ["seed=0", "seed 7 of the match", "[Order, III]", "on paper"])
def test_other_words_pass(text: str) -> None:
    assert not unresolved(text)
