"""Rescore one job's lattices with a GMM and speakers' fMLLR transforms, and determinise them; the last pass of steps/decode_fmllr.sh."""

from __future__ import annotations

import argparse
from pathlib import Path

from pykaldist.decode.acoustic import GmmModel
from pykaldist.decode.lattice import write_lattices
from pykaldist.decode.pairs import check_decoding, record_rescoring
from pykaldist.decode.rescore import rescore_all
from pykaldist.io.datadir import DataDir
from pykaldist.progress import progress


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", type=Path, help="data directory with features")
    parser.add_argument("model_dir", type=Path, help="directory of the system")
    parser.add_argument("lattice_dir", type=Path, help="directory with lat.JOB.gz of the same number of jobs")
    parser.add_argument("decode_dir", type=Path, help="where lat.JOB.gz goes")
    parser.add_argument("--job", type=int, default=1, help="this job, from 1 (default: 1)")
    parser.add_argument("--nj", type=int, default=1, help="number of jobs (default: 1)")
    parser.add_argument("--model", type=Path, help="model to rescore with (default: final.mdl)")
    parser.add_argument("--transform-dir", type=Path, help="directory with the speakers' fMLLR transforms, trans.* (default: none)")
    parser.add_argument("--acwt", type=float, default=0.083333, help="scale of the log-likelihoods in determinisation (default: 0.083333)")
    parser.add_argument("--lattice-beam", type=float, default=8.0, help="paths worse than the best by more are dropped (default: 8)")


def run(args: argparse.Namespace) -> None:
    data, name = DataDir(args.data), f"lat.{args.job}.gz"
    utts = data.part(args.job, args.nj)
    mdl = args.model or args.model_dir / "final.mdl"
    check_decoding(args.lattice_dir, model=mdl)
    if args.job == 1:
        record_rescoring(args.decode_dir, args.lattice_dir, mdl)
    model = GmmModel(args.model_dir, args.model, args.transform_dir)
    made = rescore_all(data, utts, model, args.lattice_dir / name, args.acwt, args.lattice_beam)
    print(f"rescored {write_lattices(args.decode_dir / name, progress(made, 'rescoring', len(utts), 'utt'))} lattices")
