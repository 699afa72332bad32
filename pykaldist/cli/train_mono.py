"""Train a monophone GMM system from a flat start; see steps/train_mono.sh."""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # --nj says how many threads work; read when numpy is loaded

from pykaldist.cli._gmm import add_device, add_stage
from pykaldist.hmm.alignments.align import AlignOptions
from pykaldist.hmm.training.experiment import train_mono_dir
from pykaldist.hmm.training.jobs import JobsOptions
from pykaldist.hmm.training.mono import MonoOptions
from pykaldist.options import add_options, from_args


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", help="data directory with features, CMVN statistics and transcripts")
    parser.add_argument("lang", help="language directory")
    parser.add_argument("exp", help="the system's directory")
    parser.add_argument("--nj", type=int, default=1, help="threads, and files of alignments (default: 1)")
    parser.add_argument("--cmvn-opts", default="", help="options of CMVN, such as --norm-vars=true (default: means only)")
    parser.add_argument("--delta-opts", default="", help="options of the deltas, such as --delta-order=1 (default: order 2)")
    add_device(parser)
    add_stage(parser)
    add_options(parser, MonoOptions)
    add_options(parser, AlignOptions)
    add_options(parser, JobsOptions)


def run(args: argparse.Namespace) -> None:
    made = train_mono_dir(args.data, args.lang, args.exp, from_args(MonoOptions, args), from_args(AlignOptions, args),
                          args.cmvn_opts, args.delta_opts, args.nj, device=args.device, stage=args.stage, jobs=from_args(JobsOptions, args))
    print(f"SUMMARY: {made}")
