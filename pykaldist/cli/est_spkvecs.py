"""Estimate what a subspace model knows of speakers from the lattices of one job's share of a data directory; see steps/decode_sgmm2.sh.

These are their vectors, and if asked for fMLLR transforms.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pykaldist.decode.pairs import check_decoding
from pykaldist.decode.sgmm import GSELECT, LatticeStatistics, SgmmModel, transforms_from_lattices, vectors_from_lattices
from pykaldist.errors import UserError
from pykaldist.feats.transforms import write_speaker_transforms
from pykaldist.hmm.sgmm.sgmm_fmllr import SgmmFmllrOptions
from pykaldist.hmm.sgmm.speaker_vectors import write_speaker_vectors
from pykaldist.io.datadir import DataDir
from pykaldist.io.lang import LangDir
from pykaldist.options import add_options, boolean, from_args


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("graph_dir", type=Path, help="graph directory, whose phones/silence.csl names the phones of silence")
    parser.add_argument("data", type=Path, help="data directory with features")
    parser.add_argument("model_dir", type=Path, help="directory of the system, whose final.mdl the vectors are for")
    parser.add_argument("lattice_dir", type=Path, help="directory with lat.JOB.gz, lattices of states, of the same number of jobs")
    parser.add_argument("vector_dir", type=Path, help="where vecs.JOB goes")
    parser.add_argument("--job", type=int, default=1, help="this job, from 1 (default: 1)")
    parser.add_argument("--nj", type=int, default=1, help="number of jobs (default: 1)")
    parser.add_argument("--aligner", type=Path, help="model without speakers, which the lattices are of (default: final.mdl)")
    parser.add_argument("--transform-dir", type=Path, help="directory with the speakers' fMLLR transforms, trans.* (default: none)")
    parser.add_argument("--acwt", type=float, default=0.1, help="scale of the log-likelihoods in posteriors (default: 0.1)")
    parser.add_argument("--beam", type=float, default=4.0, help="beam in which lattices are determinised first (default: 4)")
    parser.add_argument("--silence-weight", type=float, default=0.0, help="weight of frames of silence (default: 0)")
    parser.add_argument("--gselect", type=int, default=GSELECT, help="Gaussians in a frame (default: 15)")
    parser.add_argument("--use-fmllr", type=boolean, default=False, help="estimate fMLLR transforms, too, trans.JOB (default: false)")
    add_options(parser, SgmmFmllrOptions)


def run(args: argparse.Namespace) -> None:
    data = DataDir(args.data)
    if args.nj > len(data.spk2utt):
        raise UserError(f"--nj {args.nj}: {args.data} has {len(data.spk2utt)} speakers, who cannot be divided among more jobs.")
    check_decoding(args.lattice_dir, args.graph_dir, args.model_dir / "final.mdl")
    colons = LangDir(args.graph_dir).file("phones/silence.csl").read_text(encoding="utf-8").strip()
    source = LatticeStatistics(data, data.part(args.job, args.nj), args.lattice_dir / f"lat.{args.job}.gz",
                               [int(phone) for phone in colons.split(":")], args.silence_weight, args.acwt, args.beam)
    model = SgmmModel(args.model_dir, None, args.transform_dir, args.gselect)
    aligner = SgmmModel(args.model_dir, args.aligner, args.transform_dir, args.gselect) if args.aligner else model
    vectors, made = vectors_from_lattices(source, model, aligner)
    write_speaker_vectors(args.vector_dir / f"vecs.{args.job}", vectors.items())
    print(f"vectors: {made}")
    if args.use_fmllr:
        transforms, made = transforms_from_lattices(source, model, from_args(SgmmFmllrOptions, args))
        write_speaker_transforms(args.vector_dir / f"trans.{args.job}", transforms.items())
        print(f"fMLLR: {made}")
