"""The commands that soccer adds to ``slackline``, one file each; ``pyproject.toml`` registers them by entry point."""
