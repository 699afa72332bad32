"""When each word of each lattice's best path was said, and how sure the lattice is of it: a CTM file.

Lines are `utterance 1 start seconds word confidence`. See get-ctm for times in the recordings, over a whole decode directory.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pykaldist.cli._lattices import add_lattices, lattices
from pykaldist.decode.ctm import WordTimer, ctm_lines
from pykaldist.hmm.gmm.model_files import read_transition_model
from pykaldist.io.atomic import write_text
from pykaldist.io.lang import LangDir


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("lang", type=Path, help="language or graph directory, with words.txt and phones/align_lexicon.int")
    parser.add_argument("model", type=Path, help="file that begins with the transition model (final.mdl)")
    add_lattices(parser)
    parser.add_argument("ctm", type=Path, help="file to write")
    parser.add_argument("--inv-acoustic-scale", type=float, default=12.0, help="language model weight (default: 12)")
    parser.add_argument("--frame-shift", type=float, default=0.01, help="seconds from frame to frame (default: 0.01)")


def run(args: argparse.Namespace) -> None:
    lang = LangDir(args.lang)
    timer = WordTimer(lang, read_transition_model(args.model))
    lines = [line for utt, lattice in lattices(args.lattices)
             for _, _, line in ctm_lines(timer, lang.words, utt, lattice, 1 / args.inv_acoustic_scale, args.frame_shift)]
    write_text(args.ctm, "".join(lines))
    print(f"{args.ctm}: {len(lines)} words")
