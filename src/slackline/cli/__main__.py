"""``python -m slackline.cli``: the same as the installed command."""

from slackline.cli import main

main()
