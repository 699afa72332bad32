"""What verbs that print a table share: `--json`, which prints what the table is made of."""

from __future__ import annotations

import argparse
from typing import Any

from pykaldist.options import add_flag
from pykaldist.report.text import as_json


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add the option."""
    add_flag(parser, "json", "print JSON, for programs, in place of text")


def print_json(content: Any) -> None:
    """Print what a table is made of: dataclasses, dictionaries and lists of them."""
    print(as_json(content))
