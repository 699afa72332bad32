"""Decode one job's share of a data directory into lattices (what steps/decode.sh runs).

The model is the one in the parent directory of <decode-dir>, as in Kaldi, unless options name another.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pykaldist.decode.acoustic import NetworkFiles, load_acoustic_model, read_subsampling
from pykaldist.decode.decoder import DecoderOptions, LatticeDecoder
from pykaldist.decode.pairs import check_graph, record_decoding
from pykaldist.decode.run import decode_all
from pykaldist.errors import UserError
from pykaldist.io.datadir import DataDir
from pykaldist.io.fst import Fst
from pykaldist.io.lang import SymbolTable
from pykaldist.nnet.forwarding import ForwardOptions
from pykaldist.options import add_options, from_args


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("graph_dir", type=Path, help="directory with HCLG.fst and words.txt")
    parser.add_argument("data", type=Path, help="data directory with features")
    parser.add_argument("decode_dir", type=Path, help="where lat.JOB.gz goes")
    parser.add_argument("--job", type=int, default=1, help="this job, from 1 (default: 1)")
    parser.add_argument("--nj", type=int, default=1, help="number of jobs (default: 1)")
    parser.add_argument("--srcdir", type=Path, help="directory of the model (default: that above <decode-dir>)")
    parser.add_argument("--model", type=Path, help="GMM to decode with, or the transition model beside a network (default: the directory's "
                                                   "final.mdl)")
    parser.add_argument("--nnet", type=Path, help="network to decode with, final.pt or nnet1's (default: the directory's)")
    parser.add_argument("--feature-transform", type=Path, help="of an nnet1 network (default: the directory's final.feature_transform)")
    parser.add_argument("--class-frame-counts", type=Path, help="counts of pdfs, for its priors (default: the directory's)")
    parser.add_argument("--transform-dir", type=Path, help="directory with the speakers' fMLLR transforms, trans.* (default: none)")
    parser.add_argument("--post-decode-acwt", type=float, default=1.0,
                        help="factor of the lattices' acoustic costs; 10 for chain models, which are decoded with --acwt 1 (default: 1)")
    add_options(parser, DecoderOptions)
    add_options(parser, ForwardOptions)


def run(args: argparse.Namespace) -> None:
    if not args.post_decode_acwt > 0:
        raise UserError(f"--post-decode-acwt {args.post_decode_acwt}: expected a number above 0.")
    folder = args.srcdir or args.decode_dir.parent
    mdl = args.model or folder / "final.mdl"
    check_graph(args.graph_dir, mdl)
    files = NetworkFiles(args.nnet, args.feature_transform, args.class_frame_counts)
    model = load_acoustic_model(folder, args.model, args.transform_dir, from_args(ForwardOptions, args), args.job, files)
    decoder = LatticeDecoder(Fst.read(args.graph_dir / "HCLG.fst"), model.tid2pdf, from_args(DecoderOptions, args))
    data = DataDir(args.data)
    words = SymbolTable.read(args.graph_dir / "words.txt")
    utts = data.part(args.job, args.nj)
    if args.job == 1:
        record_decoding(args.decode_dir, args.graph_dir, mdl)
    print(decode_all(decoder, ((utt, model.loglikes(model.features(data, utt))) for utt in utts),
                     args.decode_dir / f"lat.{args.job}.gz", words, len(utts), args.post_decode_acwt, read_subsampling(folder)))
