"""Extract one i-vector a speaker, for one job's share of a data directory; see steps/online/nnet2/extract_ivectors.sh."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # jobs are processes; read when numpy is loaded

from pykaldist.decode.frame_weights import frame_weights
from pykaldist.hmm.ivector.offline import OfflineOptions, extract_offline_part
from pykaldist.hmm.ivector.online import OnlineOptions
from pykaldist.hmm.ivector.posteriors import PosteriorOptions
from pykaldist.hmm.ivector.stages import read_extractor
from pykaldist.io.datadir import DataDir
from pykaldist.io.lang import LangDir
from pykaldist.options import add_options, boolean, from_args


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", help="data directory with features")
    parser.add_argument("lang", help="language directory, which says what phones are silence")
    parser.add_argument("extractor", help="directory of the extractor")
    parser.add_argument("exp", type=Path, help="where ivector_online.JOB.ark and .scp go")
    parser.add_argument("--job", type=int, default=1, help="this job, from 1 (default: 1)")
    parser.add_argument("--nj", type=int, default=1, help="number of jobs (default: 1)")
    parser.add_argument("--compress", type=boolean, default=True, help="one byte a value (default: true)")
    parser.add_argument("--weights", type=Path, help="what says how much frames count: an alignment directory, a decode directory, or an "
                        "archive of weights (default: all count the same)")
    parser.add_argument("--silence-weight", type=float, default=0.0, help="weight of silence in alignments and lattices (default: 0)")
    parser.add_argument("--acwt", type=float, default=0.1, help="scale of acoustic costs, for the best paths of lattices (default: 0.1)")
    parser.add_argument("--mdl", default="final", help="name of the model that made the alignment or the lattices (default: final)")
    add_options(parser, OfflineOptions)
    add_options(parser, PosteriorOptions)


def run(args: argparse.Namespace) -> None:
    extract = read_extractor(args.extractor, OnlineOptions(), from_args(PosteriorOptions, args), offline=True)
    weights = None
    if args.weights is not None:
        weights = frame_weights(args.weights, LangDir(args.lang).silence_phones, args.silence_weight, args.acwt, args.mdl)
    print(extract_offline_part(DataDir(args.data), extract, args.exp, from_args(OfflineOptions, args), weights, args.job, args.nj,
                               args.compress))
