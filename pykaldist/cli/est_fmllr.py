"""Estimate speakers' fMLLR transforms from the lattices of one job's share of a data directory; see steps/decode_fmllr.sh."""

from __future__ import annotations

import argparse
from pathlib import Path

from pykaldist.cli._fmllr import add_basis, fmllr_options
from pykaldist.decode.adapt import transforms_from_lattices
from pykaldist.decode.pairs import check_decoding
from pykaldist.errors import UserError
from pykaldist.feats.transforms import write_speaker_transforms
from pykaldist.hmm.adaptation.fmllr import FmllrOptions
from pykaldist.io.datadir import DataDir
from pykaldist.io.lang import LangDir
from pykaldist.options import add_options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("graph_dir", type=Path, help="graph directory, whose phones/silence.csl names the phones of silence")
    parser.add_argument("data", type=Path, help="data directory with features")
    parser.add_argument("model_dir", type=Path, help="directory of the system, whose final.mdl the transforms are made for")
    parser.add_argument("lattice_dir", type=Path, help="directory with lat.JOB.gz of the same number of jobs")
    parser.add_argument("transform_dir", type=Path, help="where trans.JOB goes")
    parser.add_argument("--job", type=int, default=1, help="this job, from 1 (default: 1)")
    parser.add_argument("--nj", type=int, default=1, help="number of jobs (default: 1)")
    parser.add_argument("--acwt", type=float, default=0.083333, help="scale of the log-likelihoods in posteriors (default: 0.083333)")
    parser.add_argument("--model", type=Path, help="model that the transforms are made for (default: final.mdl)")
    parser.add_argument("--aligner", type=Path, help="model that divides frames among Gaussians (default: the same)")
    parser.add_argument("--determinize-beam", type=float, default=0.0, help="beam in which lattices of states are determinised first; 0: "
                        "they are not (default: 0)")
    parser.add_argument("--start", type=Path, help="directory with transforms that the lattices were made with (default: none)")
    add_options(parser, FmllrOptions)
    add_basis(parser)


def run(args: argparse.Namespace) -> None:
    data = DataDir(args.data)
    if args.nj > len(data.spk2utt):
        raise UserError(f"--nj {args.nj}: {args.data} has {len(data.spk2utt)} speakers, who cannot be divided among more jobs.")
    check_decoding(args.lattice_dir, args.graph_dir, args.model or args.model_dir / "final.mdl")
    colons = LangDir(args.graph_dir).file("phones/silence.csl").read_text(encoding="utf-8").strip()
    transforms, made = transforms_from_lattices(
        data, data.part(args.job, args.nj), args.model_dir, args.lattice_dir / f"lat.{args.job}.gz", [int(p) for p in colons.split(":")],
        args.acwt, fmllr_options(args, args.model_dir), args.aligner, args.start, args.model, args.determinize_beam)
    write_speaker_transforms(args.transform_dir / f"trans.{args.job}", transforms.items())
    print(f"fMLLR: {made}")
