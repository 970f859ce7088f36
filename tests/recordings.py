"""Where the recorded streams are that tests read. They are in the repository, not in the package."""

from pathlib import Path

FOLDER = Path(__file__).parents[1] / "examples" / "data"
#: Phones over UMTS; see the README beside them.
PHONES = ("d-1", "d-2", "d-3")


def recorded(name: str) -> Path:
    """One of the streams of phones."""
    return FOLDER / f"{name}.csv.gz"
