"""Rescore one job's lattices with a GMM or a subspace model, and what it knows of speakers, and determinise them.

It is the last pass of steps/decode_fmllr.sh and decode_sgmm2.sh, and what decode_sgmm2_rescore.sh does.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pykaldist.decode.acoustic import GmmModel
from pykaldist.decode.lattice import write_lattices
from pykaldist.decode.pairs import check_decoding, record_rescoring
from pykaldist.decode.rescore import rescore_all
from pykaldist.decode.sgmm import GSELECT, SgmmModel
from pykaldist.errors import UserError
from pykaldist.hmm.sgmm.model import is_sgmm
from pykaldist.hmm.sgmm.speaker_vectors import read_speaker_vectors
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
    parser.add_argument("--spk-vecs", type=Path, help="directory with the speakers' vectors, vecs.*, for a subspace model (default: none)")
    parser.add_argument("--gselect", type=int, default=GSELECT, help="Gaussians of a subspace model in a frame (default: 15)")
    parser.add_argument("--acwt", type=float, default=0.083333, help="scale of the log-likelihoods in determinisation (default: 0.083333)")
    parser.add_argument("--lattice-beam", type=float, default=8.0, help="paths worse than the best by more are dropped; 0: lattices "
                        "that are determinised already keep their paths (default: 8)")


def run(args: argparse.Namespace) -> None:
    data, name = DataDir(args.data), f"lat.{args.job}.gz"
    utts = data.part(args.job, args.nj)
    mdl = args.model or args.model_dir / "final.mdl"
    check_decoding(args.lattice_dir, model=mdl)
    if args.job == 1:
        record_rescoring(args.decode_dir, args.lattice_dir, mdl)
    model: GmmModel | SgmmModel
    if is_sgmm(mdl):
        vectors = read_speaker_vectors(args.spk_vecs) if args.spk_vecs else None
        model = SgmmModel(args.model_dir, args.model, args.transform_dir, args.gselect, vectors)
    elif args.spk_vecs:
        raise UserError(f"--spk-vecs {args.spk_vecs}: {mdl} is no subspace model; leave it out.")
    else:
        model = GmmModel(args.model_dir, args.model, args.transform_dir)
    made = rescore_all(data, utts, model, args.lattice_dir / name, args.acwt, args.lattice_beam)
    print(f"rescored {write_lattices(args.decode_dir / name, progress(made, 'rescoring', len(utts), 'utt'))} lattices")
