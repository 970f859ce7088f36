"""``slackline bench NAME``: runs ``benchmarks/NAME.py`` of the repository."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Annotated

import typer

import slackline
from slackline.cli.console import reports_errors
from slackline.core.errors import ConfigError, SlacklineError


@reports_errors
def bench(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Name of a benchmark, e.g. `ordering`.")] = "--help",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object only.")] = False,
) -> None:
    """Run a benchmark. Whatever follows its name goes to the benchmark; try `slackline bench NAME --help`."""
    if name in ("-h", "--help"):  # behind a name it is the benchmark's
        typer.echo(context.get_help())
        return
    folder = benchmarks_folder()
    names = sorted(path.stem for path in folder.glob("*.py") if not path.stem.startswith("_"))
    if name not in names:
        raise ConfigError(f"there is no benchmark {name!r} in {folder}; choose one of {', '.join(names)}.")
    sys.path[:0] = [str(folder), str(folder.parent)]  # they share modules, and some use the broker of the tests
    path = folder / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"slackline_benchmark_{name}", path)
    if spec is None or spec.loader is None:
        raise SlacklineError(f"cannot load {path}.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    code = module.main([*(["--json"] if as_json else []), *context.args])
    raise typer.Exit(code or 0)


def benchmarks_folder() -> Path:
    """The benchmarks beside the package's sources: a clone has them, an installed wheel has not."""
    folder = Path(slackline.__file__).resolve().parents[2] / "benchmarks"
    if not folder.is_dir():
        raise SlacklineError(
            f"the benchmarks are not there: {folder} does not exist. They come with the repository, not "
            f"with the package; clone it and run `slackline bench` there."
        )
    return folder
