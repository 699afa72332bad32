"""Command-line options that the verbs for discriminative training of GMMs share."""

from __future__ import annotations

import argparse

from pykaldist.cli._gmm import add_device, add_stage
from pykaldist.hmm.gmm.ebw import EbwOptions
from pykaldist.hmm.training.jobs import JobsOptions
from pykaldist.options import add_options


def add_sequence_arguments(parser: argparse.ArgumentParser, *options: type, ubm: bool = False, skip: tuple[str, ...] = ()) -> None:
    """Add the directories, `ubm` among them, and the options of extended Baum-Welch, of jobs and of the dataclasses `options`.

    `skip` names those that are left out.
    """
    parser.add_argument("data", help="data directory with features, CMVN statistics and transcripts")
    parser.add_argument("lang", help="language directory")
    parser.add_argument("ali", help="directory of the reference's alignments; its model, features, and transforms if any, are used")
    if ubm:
        parser.add_argument("ubm", help="directory with final.dubm")
    parser.add_argument("denlats", help="lattice store (pykaldist pack-lattices)")
    parser.add_argument("exp", help="the system's directory")
    parser.add_argument("--nj", type=int, default=1, help="threads (default: 1)")
    add_device(parser)
    add_stage(parser)
    for cls in (*options, EbwOptions, JobsOptions):
        add_options(parser, cls, skip)
