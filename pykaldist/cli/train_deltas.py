"""Train a context-dependent GMM system on features with deltas; see steps/train_deltas.sh."""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # --nj says how many threads work; read when numpy is loaded

from pykaldist.cli._gmm import add_training_arguments
from pykaldist.hmm.alignments.align import AlignOptions
from pykaldist.hmm.training.experiment import train_deltas_dir
from pykaldist.hmm.training.jobs import JobsOptions
from pykaldist.hmm.training.triphones import TriphoneOptions
from pykaldist.options import from_args


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_training_arguments(parser, TriphoneOptions)
    parser.add_argument("--cmvn-opts", default="", help="options of CMVN, such as --norm-vars=true (default: means only)")
    parser.add_argument("--delta-opts", default="", help="options of the deltas, such as --delta-order=1 (default: order 2)")


def run(args: argparse.Namespace) -> None:
    made = train_deltas_dir(args.data, args.lang, args.ali, args.exp, args.num_leaves, args.tot_gauss, from_args(TriphoneOptions, args),
                            from_args(AlignOptions, args), args.cmvn_opts, args.delta_opts, args.nj,
                            device=args.device, stage=args.stage, jobs=from_args(JobsOptions, args))
    print(f"SUMMARY: {made}")
