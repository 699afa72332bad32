"""What the verbs that train context-dependent GMM systems have in common."""

from __future__ import annotations

import argparse

from pykaldist.hmm.align import AlignOptions
from pykaldist.options import add_options


def add_training_arguments(parser: argparse.ArgumentParser, options: type, of_ali: str = "") -> None:
    """Sizes, directories and the options of training and of its alignments; `of_ali`: what else is read there."""
    parser.add_argument("num_leaves", type=int, help="leaves of the decision tree, at most")
    parser.add_argument("tot_gauss", type=int, help="Gaussians in all at the end")
    parser.add_argument("data", help="data directory with features, CMVN statistics and transcripts")
    parser.add_argument("lang", help="language directory")
    parser.add_argument("ali", help=f"directory of the alignments to start from{of_ali}")
    parser.add_argument("exp", help="the system's directory")
    parser.add_argument("--nj", type=int, default=1, help="threads, and files of alignments (default: 1)")
    add_options(parser, options)
    add_options(parser, AlignOptions)
