"""Align recordings with what is said in them, by a finished model: when each word and phone was said, as TextGrid, CTM and JSON.

  pykaldist align exp/tri3 corpus/ out/       # corpus/<speaker>/<name>.wav with <name>.lab or <name>.txt beside it

The corpus has the layout of the Montreal Forced Aligner. The language directory and the options of the features are found in the model's
recipe, or named with --lang and --feats-config. out/<speaker>/<name>.TextGrid is for Praat; words.ctm and phones.ctm are in Kaldi's form;
scores.csv lists the recordings, those that fit their transcripts worst first.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # read when numpy is loaded

from pykaldist.hmm.alignments.align import AlignOptions
from pykaldist.options import add_options, from_args
from pykaldist.serve.forced import ForcedOptions, force_align


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, help="directory of the model, such as exp/tri3 or exp/dnn")
    parser.add_argument("corpus", type=Path, help="folder with recordings and, beside each, its transcript")
    parser.add_argument("out", type=Path, help="folder to write")
    add_options(parser, ForcedOptions)
    add_options(parser, AlignOptions)


def run(args: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(prefix="pykaldist-align-") as work:
        made = force_align(args.model, args.corpus, args.out, Path(work), from_args(ForcedOptions, args), from_args(AlignOptions, args))
    print(f"align: {made}")
