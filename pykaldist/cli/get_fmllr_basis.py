"""Estimate the basis of fMLLR transforms of a GMM system; see steps/get_fmllr_basis.sh."""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # --nj says how many threads work; read when numpy is loaded

from pykaldist.cli._gmm import add_device
from pykaldist.hmm.training.adapted_experiment import get_fmllr_basis_dir
from pykaldist.hmm.training.jobs import JobsOptions
from pykaldist.options import add_options, boolean, from_args


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", help="the data directory that the system was trained on")
    parser.add_argument("lang", help="language directory")
    parser.add_argument("exp", help="directory of the system, with its alignments; fmllr.basis goes there")
    parser.add_argument("--per-utt", type=boolean, default=True, help="gradients of utterances, not of speakers (default: true)")
    parser.add_argument("--silence-weight", type=float, default=0.01, help="weight of frames of silence (default: 0.01)")
    parser.add_argument("--nj", type=int, default=1, help="threads, or jobs (default: 1)")
    add_device(parser)
    add_options(parser, JobsOptions)


def run(args: argparse.Namespace) -> None:
    made = get_fmllr_basis_dir(args.data, args.lang, args.exp, args.per_utt, args.silence_weight, args.nj, device=args.device,
                               jobs=from_args(JobsOptions, args))
    print(f"SUMMARY: {made}")
