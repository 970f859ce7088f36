"""``slackline`` and ``python -m slackline``: the command line, or what it takes to have one."""

from __future__ import annotations

import sys

from slackline.core.extras import MissingExtraError, explain


def main() -> None:
    """Entry point of the installed command."""
    try:
        from slackline.cli import app
    except ImportError as error:
        reason = explain(error, "the command line")
        if not isinstance(reason, MissingExtraError):
            raise
        sys.exit(f"slackline: {reason}")
    app()


if __name__ == "__main__":
    main()
