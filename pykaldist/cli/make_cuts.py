"""Write lhotse's cuts of a Kaldi data directory, one for each utterance: its recording, times, words and speaker.

One cut after the other is made and written, so that no number of them is too large. In Python,
`pykaldist.io.cuts.data_dir_cuts(<data>)` is the same as a lazy CutSet.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import json
from pathlib import Path

from pykaldist.errors import UserError
from pykaldist.io.atomic import atomic_open
from pykaldist.io.cuts import DataDirCuts
from pykaldist.io.datadir import DataDir
from pykaldist.progress import progress


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", type=Path, help="data directory with wav.scp, utt2spk and, optionally, segments and text")
    parser.add_argument("cuts", type=Path, help="manifest to write, *.jsonl.gz or *.jsonl")


def run(args: argparse.Namespace) -> None:
    if not args.cuts.name.endswith((".jsonl", ".jsonl.gz")):
        raise UserError(f"{args.cuts}: expected a name that ends in .jsonl.gz or .jsonl, as lhotse reads them one cut after the other.")
    cuts, count = DataDirCuts(DataDir(args.data)), 0
    with atomic_open(args.cuts, "wb") as stream, contextlib.ExitStack() as stack:
        packed = stack.enter_context(gzip.GzipFile("", "wb", fileobj=stream, mtime=0)) if args.cuts.suffix == ".gz" else stream
        for cut in progress(cuts, "writing cuts", len(cuts), unit="cut"):
            packed.write((json.dumps(cut.to_dict(), ensure_ascii=False) + "\n").encode())
            count += 1
    print(f"{args.cuts}: {count} cuts")
