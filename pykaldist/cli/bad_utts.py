"""List the utterances that do not say what is written, the worst first (for steps/cleanup/find_bad_utts.sh)."""

from __future__ import annotations

import argparse
from pathlib import Path

from pykaldist.io.datadir import DataDir
from pykaldist.score.cleanup import edits_of_jobs, write_bad_utts


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", type=Path, help="data directory that was decoded (pykaldist decode-biased)")
    parser.add_argument("folder", type=Path, metavar="dir", help="directory with ctm_edits.*; gets all_info.sorted.txt and others")


def run(args: argparse.Namespace) -> None:
    edits = edits_of_jobs(args.folder, 0.01)
    errors, words = write_bad_utts(args.folder, edits, DataDir(args.data))
    worst = sum(any(edit.wrong for edit in row) for row in edits.values())
    print(f"SUMMARY: {errors} errors in {words} words; {worst} of {len(edits)} utterances have one")
