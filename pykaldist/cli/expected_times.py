"""Say what the commands of a recipe are expected to take (what a recipe's --dry-run runs): read from standard input, written with remarks.

A line is a command whose words are ended by the character 31 each, or text that is written as it is.
"""

from __future__ import annotations

import argparse
import sys


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add none."""


def run(args: argparse.Namespace) -> None:
    from pykaldist.report.expected import annotated

    for line in annotated(sys.stdin):
        print(line, flush=True)
