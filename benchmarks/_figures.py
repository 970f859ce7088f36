"""What benchmarks share that print a few figures: the options that all have, and how figures are printed."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import Any


def parser(name: str, about: str | None) -> argparse.ArgumentParser:
    """The options that all have."""
    made = argparse.ArgumentParser(prog=f"slackline bench {name}", description=(about or "").split("\n")[0])
    made.add_argument("--json", action="store_true", help="print one JSON object only")
    return made


def print_figures(figures: Mapping[str, Any], as_json: bool) -> None:
    """Print them."""
    if as_json:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        print(f"{name:<26} {value:,.3f}" if isinstance(value, float) else f"{name:<26} {value}")
