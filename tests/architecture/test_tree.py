"""What the tree must not hold: traces of the machine it was built on."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# The brackets keep these patterns from matching this file.
TRACES = {
    "path of the build machine": re.compile(
        rb"(?<![\w.$}-])/(?:wor[k]/(?:main|shared)|roo[t]/|home?[/]\w|User[s]/\w|opt/wheel[s])"
    ),
    "address of a package registry": re.compile(
        rb"pypi[.]org|pythonhoste[d][.]org|repo1?[.]mave[n]|registry[.]npmj[s]"
        rb"|https?:/[/]\S*(?:artifactor[y]|nexu[s]|pyp[i])|(?:index-ur[l]|find-link[s])\s*[= ]\s*\S*/"
    ),
}


def tree() -> list[Path]:
    """The files git tracks or would track."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listing = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout, or no git")
    return [ROOT / name for name in listing.split("\0") if name and (ROOT / name).is_file()]


def traces(content: bytes) -> list[str]:
    """What in a file's content points to the build machine or to a registry. Binary files have no say."""
    if b"\0" in content[:8192]:
        return []
    return [
        f"{what}: {match[0].decode(errors='replace')}"
        for what, pattern in TRACES.items()
        for match in pattern.finditer(content)
    ]


def test_no_file_names_the_build_machine_or_a_registry() -> None:
    found = {str(path.relative_to(ROOT)): bad for path in tree() if (bad := traces(path.read_bytes()))}
    assert found == {}


@pytest.mark.parametrize(
    "parts",
    [
        ("see /wo", "rk/main/src"),
        ("'/ro", "ot/.cache'"),
        ("open('/ho", "me/someone/x')"),
        ("https://files.python", "hosted.org/x"),
        ("https://mirror.example/api/py", "pi/simple"),
        ("--index-", "url https://mirror.example/simple"),
    ],
    ids="".join,
)
def test_trace_is_found(parts: tuple[str, str]) -> None:
    assert len(traces("".join(parts).encode())) == 1


@pytest.mark.parametrize("text", ["docs/work/main", "a/root/b", "${HOME}/root/x", "numpy==2.4.6", "/tmp/x"])
def test_other_text_passes(text: str) -> None:
    assert traces(text.encode()) == []
