"""Command-line options that the verbs for GMM training and alignment share."""

from __future__ import annotations

import argparse

from pykaldist.hmm.alignments.align import AlignOptions
from pykaldist.hmm.gmm.ubm import UbmOptions
from pykaldist.hmm.training.jobs import JobsOptions
from pykaldist.options import add_options


def add_device(parser: argparse.ArgumentParser) -> None:
    """Add the option --device, which says where likelihoods and statistics are computed."""
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:N, or auto: cuda where there is one (default: cpu)")


def add_stage(parser: argparse.ArgumentParser) -> None:
    """Add the option --stage, which says at which iteration a training begins."""
    parser.add_argument("--stage", type=int, default=0, help="iteration to go on with an interrupted training; up to 0: from its beginning "
                        "(default: 0)")


def add_ubm_arguments(parser: argparse.ArgumentParser, file: str) -> None:
    """Add the arguments of UBMs: sizes, directories and the options of their training; `file` is what is made."""
    parser.add_argument("num_gauss", type=int, help="Gaussians of the UBM")
    parser.add_argument("data", help="data directory with features, CMVN statistics and transcripts")
    parser.add_argument("lang", help="language directory")
    parser.add_argument("ali", help="directory of alignments; its model, features, and transforms if any, are used")
    parser.add_argument("exp", help=f"directory of the UBM, {file}")
    parser.add_argument("--nj", type=int, default=1, help="threads, or jobs (default: 1)")
    add_options(parser, UbmOptions)
    add_options(parser, JobsOptions)


def add_training_arguments(parser: argparse.ArgumentParser, options: type, of_ali: str = "") -> None:
    """Add the arguments of context-dependent systems: sizes, directories and the options of training and of its alignments.

    `of_ali`: what else is read there.
    """
    parser.add_argument("num_leaves", type=int, help="leaves of the decision tree, at most")
    parser.add_argument("tot_gauss", type=int, help="Gaussians in all at the end")
    parser.add_argument("data", help="data directory with features, CMVN statistics and transcripts")
    parser.add_argument("lang", help="language directory")
    parser.add_argument("ali", help=f"directory of the alignments to start from{of_ali}")
    parser.add_argument("exp", help="the system's directory")
    parser.add_argument("--nj", type=int, default=1, help="threads, and files of alignments (default: 1)")
    add_device(parser)
    add_stage(parser)
    add_options(parser, options)
    add_options(parser, AlignOptions)
    add_options(parser, JobsOptions)
