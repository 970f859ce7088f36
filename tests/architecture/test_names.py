"""Nobody is sent to the foreign package ``slackline`` of the package index: ours is called slackline-streams."""

import re
from pathlib import Path

import pytest
from tests.architecture.test_tree import ROOT, tree

#: What follows a command that installs, up to the end of the line.
INSTALL = re.compile(r"(?:pip|pipx|uv|poetry|conda)\S* +(?:install|add)\b(?P<what>.*)")
#: The bare name as something to install: not in a path, an import, or slackline-streams, slackline_soccer.
FOREIGN = re.compile(r"(?<![\w./-])slackline(?![\w./-])(?:\[[^\]]*\])?")
#: The extra of the foreign package, wherever it stands.
FOREIGN_EXTRA = re.compile(r"(?<![\w-])slackline\[")


def foreign(text: str) -> list[str]:
    """What in a text sends its reader to the foreign package."""
    found = [match[0] for match in FOREIGN_EXTRA.finditer(text)]
    return found + [match[0] for match in INSTALL.finditer(text) if FOREIGN.search(match["what"])]


def test_no_text_says_to_install_the_foreign_package() -> None:
    here = Path(__file__).resolve()
    texts = {path: path.read_bytes() for path in tree() if path.resolve() != here}
    found = {
        str(path.relative_to(ROOT)): bad
        for path, content in texts.items()
        if b"\0" not in content[:8192] and (bad := foreign(content.decode("utf-8", "replace")))
    }
    assert found == {}


@pytest.mark.parametrize(
    "text",
    ["pip install slackline", "run `pip install 'slackline[spark]'`", "python -m pip install -U slackline numpy",
     "needs the extra slackline[streams]", "uv add slackline"],
)  # fmt: skip
def test_a_text_that_does_is_found(text: str) -> None:
    assert foreign(text)


@pytest.mark.parametrize(
    "text",
    ["pip install 'slackline-streams[spark]'", "pip install '.[spark]'", "pip install -e .", "import slackline",
     'pip install "slackline-streams[all] @ git+https://host/x/slackline"', "slackline soccer FILE"],
)  # fmt: skip
def test_other_texts_pass(text: str) -> None:
    assert not foreign(text)
