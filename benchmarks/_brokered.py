"""What the benchmarks on Kafka share: a broker for as long as they run."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from tests.kafka.broker import LocalBroker, why_not

from _figures import print_figures

console = Console(stderr=True)


def brokered(options: argparse.Namespace, run: Callable[[str, argparse.Namespace, Path], dict[str, Any]]) -> int:
    """Print the figures that ``run(address, options, folder)`` gives, with a broker at that address."""
    if (why := why_not()) is not None:
        console.print(why)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        broker = LocalBroker(Path(folder) / "kafka")
        broker.start()
        try:
            figures = run(broker.address, options, Path(folder))
        finally:
            broker.stop()
    print_figures(figures, options.json)
    return 0
