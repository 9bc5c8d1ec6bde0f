#!/usr/bin/env python
"""Django's command line for the demonstration site."""

import argparse
import os
import sys

from django.core.management import execute_from_command_line


def main(argv: list[str]) -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")
    if argv[1:2] == ["quickstart"]:
        prepare_quickstart(argv[2:])
    execute_from_command_line(argv)


def prepare_quickstart(arguments: list[str]) -> None:
    """One process on SQLite, whatever services this shell knows. Said here, because settings load before a command."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--data-dir")
    data_dir = parser.parse_known_args(arguments)[0].data_dir
    if data_dir:
        os.environ["AGENTCORE_DEMO_DIR"] = os.path.abspath(data_dir)
    for name in ("DATABASE", "REDIS_URL"):
        os.environ.pop(name, None)
    os.environ["DEBUG"] = "1"


if __name__ == "__main__":
    main(sys.argv)
