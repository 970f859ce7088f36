"""What the page to watch costs the run, and a browser that shows it.

    slackline bench page --json
    slackline bench page --json --tab 600

A simulated match runs in this process, in pushes of 3,600 positions, the tenth of a second that they take. With the
page, the pitch is drawn after every push and the metrics are reported after every tenth, and a client in a process of
its own reads them all. Rounds with the page and without alternate. ``cpu_ms`` is the CPU of this process for a second
of the match, the median of the rounds. ``cost`` is the difference as a share of a core: a page is brought up to date by
wall time, so at 36,000 positions/s it takes that share of what the process could do, and of its largest rate.

``--tab`` opens the page in headless Chromium for so many seconds, with a report a second and the pitch ten times a
second, as `./run demo --live` has. ``renderer_mb`` is the memory of the tab's process at the end: resident, and its own
(without pages that are shared with other processes, such as the code of the browser), and ``renderer_mb_at`` the
resident one over time.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from importlib.resources import files
from pathlib import Path
from statistics import median
from typing import Any

from _figures import parser, print_figures
from slackline.report import LivePage, Panel, stages_of
from slackline.runtime import KeyedEngines
from slackline_soccer import Simulation, match_hierarchy, match_policy, simulate
from slackline_soccer.commands.live import PUSH, Scene

SEED, SECONDS, ROUNDS = 7, 12.0, 5
READER = "import sys, urllib.request\nfor line in urllib.request.urlopen(sys.argv[1]): pass"


def opened(simulation: Simulation) -> LivePage:
    """The page of a match."""
    script = files("slackline_soccer.report").joinpath("live_pitch.js").read_text(encoding="utf-8")
    return LivePage(0, "A match", stages_of(match_hierarchy(simulation.match)), Panel("The pitch", script))


def played(simulation: Simulation, tables: list[Any], page: LivePage | None) -> float:
    """CPU seconds for a second of the match."""
    match = simulation.match
    engines = KeyedEngines(match_hierarchy(match), {"policy": match_policy(match)}, keyed=False)
    scene = Scene(match)
    engines.push(tables[0])
    start = time.process_time()
    for number, table in enumerate(tables[1:]):
        found = engines.push(table)
        if page is not None:
            scene.add(table, found)
            page.show_panel(scene.drawn())
            if number % 10 == 0:
                page(engines.metrics())
    return (time.process_time() - start) / (sum(map(len, tables[1:])) / 36_000)


def cost(seconds: float, rounds: int) -> dict[str, Any]:
    simulation = simulate(seconds, SEED)
    tables = list(simulation.tables(rows=PUSH))
    played(simulation, tables, None)  # compiles
    took: dict[bool, list[float]] = {False: [], True: []}
    for number in range(2 * rounds):
        watched = number % 2 == 1
        page = opened(simulation) if watched else None
        reader = None if page is None else subprocess.Popen([sys.executable, "-c", READER, f"{page.url}events"])
        while page is not None and page.browsers == 0:
            time.sleep(0.01)
        try:
            took[watched].append(played(simulation, tables, page))
        finally:
            if page is not None:
                page.close()
            if reader is not None:
                reader.wait(30)
    without, with_page = median(took[False]), median(took[True])
    return {
        "cpu_ms": {"without": 1000 * without, "with": 1000 * with_page},
        "cost": with_page - without,
        "rounds": rounds,
    }


def memory_of(renderer: int) -> dict[str, float]:
    """Megabytes of a process: resident, and those that are its own alone."""
    fields = dict.fromkeys(("Rss", "Private_Clean", "Private_Dirty"), 0)
    for line in Path(f"/proc/{renderer}/smaps_rollup").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name in fields:
            fields[name] = int(rest.split()[0])
    return {"resident": fields["Rss"] / 1000, "own": (fields["Private_Clean"] + fields["Private_Dirty"]) / 1000}


def renderers(profile: str) -> list[int]:
    """The processes of the tabs of the browser with this profile, the largest first."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            line = (folder / "cmdline").read_bytes().decode().replace("\0", " ") if folder.name.isdigit() else ""
        except OSError:
            continue
        if "--type=renderer" in line and profile in line:
            found.append(int(folder.name))
    return sorted(found, key=lambda each: -memory_of(each)["resident"])


def tab(seconds: float) -> dict[str, Any]:
    """Memory of a tab that shows a match for so long, over and over the same seconds of it."""
    from playwright.sync_api import sync_playwright

    simulation = simulate(SECONDS, SEED)
    match = simulation.match
    engines, scene = KeyedEngines(match_hierarchy(match), {"policy": match_policy(match)}, keyed=False), Scene(match)
    scenes, reports = [], []
    for number, table in enumerate(simulation.tables(rows=PUSH)):
        scene.add(table, engines.push(table))
        scenes.append(scene.drawn())
        if number % 10 == 0:
            reports.append(engines.metrics())
    page, mark, over_time = opened(simulation), f"slackline-bench-{time.time_ns()}", {}
    with sync_playwright() as play:
        arguments = ["--no-sandbox", f"--user-agent={mark}"]
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=arguments)
        window = browser.new_page(viewport={"width": 1200, "height": 900})
        window.goto(page.url)
        before = {each for each in renderers(mark)}
        start = time.monotonic()
        for number in range(int(seconds * 10)):
            page.show_panel(scenes[number % len(scenes)])
            if number % 10 == 0:
                page(reports[number // 10 % len(reports)])
            if number % 600 == 0:
                over_time[number // 10] = round(memory_of(renderers(mark)[0])["resident"], 1)
            window.wait_for_timeout(max(0.0, 1000 * (start + (number + 1) / 10 - time.monotonic())))
        found = memory_of(renderers(mark)[0])
        assert before & set(renderers(mark)), "the tab was reloaded"
        browser.close()
    page.close()
    return {"tab_seconds": seconds, "renderer_mb": found, "renderer_mb_at": over_time}


def main(argv: list[str]) -> int:
    made = parser("page", __doc__)
    made.add_argument("--seconds", type=float, default=SECONDS, help="length of the match")
    made.add_argument("--rounds", type=int, default=ROUNDS, help="rounds with the page, and as many without")
    made.add_argument("--tab", type=float, help="measure the memory of a browser's tab after so many seconds instead")
    given = made.parse_args(argv)
    print_figures(tab(given.tab) if given.tab else cost(given.seconds, given.rounds), given.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
