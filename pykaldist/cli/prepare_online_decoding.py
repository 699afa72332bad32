"""Make a directory for online decoding (what steps/online/nnet3/prepare_online_decoding.sh runs)."""

from __future__ import annotations

import argparse
from pathlib import Path

from pykaldist.decode.online_dir import PrepareOptions, prepare_online_dir
from pykaldist.feats.extract import KINDS
from pykaldist.hmm.ivector.online import OnlineOptions
from pykaldist.hmm.ivector.posteriors import PosteriorOptions
from pykaldist.options import add_options, from_args


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("lang", type=Path, help="language directory")
    parser.add_argument("model_dir", type=Path, help="directory of the nnet3 network, such as exp/chain/tdnn")
    parser.add_argument("target", type=Path, help="directory to make")
    parser.add_argument("--extractor", type=Path, help="directory of the i-vector extractor (default: none)")
    parser.add_argument("--feature-type", default="mfcc", choices=[*KINDS], help="features (default: mfcc)")
    parser.add_argument("--feats-config", type=Path, default=Path("conf/mfcc.conf"), help="their options (default: conf/mfcc.conf)")
    parser.add_argument("--iter", default="final", help="the model is ITER.mdl (default: final)")
    parser.add_argument("--online-cmvn-config", type=Path, default=Path("conf/online_cmvn.conf"),
                        help="options of online CMVN, for a network that takes it (default: conf/online_cmvn.conf)")
    add_options(parser, OnlineOptions, skip=("num_cg_iters",))
    add_options(parser, PosteriorOptions)


def run(args: argparse.Namespace) -> None:
    options = PrepareOptions(args.feature_type, args.feats_config, args.iter, args.online_cmvn_config,
                             from_args(OnlineOptions, args), from_args(PosteriorOptions, args))
    prepare_online_dir(args.lang, args.extractor, args.model_dir, args.target, options)
    print(f"{args.target}/conf/online.conf: {args.model_dir}, {args.extractor or 'no'} i-vectors")
