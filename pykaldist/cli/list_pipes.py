r"""List the pipes in the scp files of a data directory, without running any of them.

  Usage: pykaldist list-pipes <data>
   e.g.: pykaldist list-pipes data/train

Each line has a file's name, a key and a shell command. Those in wav.scp are run by the stages that read audio; pipes in other scp files
are refused. Look at them before you use a data directory of somebody else. Characters that a terminal would obey are shown as `\x1b` and
the like.
"""

from __future__ import annotations

import argparse
import sys

from pykaldist.io.datadir import DataDir


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", help="data directory")


def run(args: argparse.Namespace) -> None:
    pipes = DataDir(args.data).pipes()
    for name, key, command in pipes:
        print(shown(f"{name} {key} {command}"))
    run_by_stages = sum(name == "wav.scp" for name, _, _ in pipes)
    print(f"{args.data}: {run_by_stages} pipes in wav.scp, which the stages that read audio run; {len(pipes) - run_by_stages} in other scp "
          "files, which are refused", file=sys.stderr)


def shown(text: str) -> str:
    """Text as it may be printed, on one line: whatever is not printable is written as Python would write it."""
    return "".join(character if character.isprintable() else character.encode("unicode_escape").decode() for character in text)
