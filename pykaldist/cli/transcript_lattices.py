"""Make lattices of transcripts, or alignments alone, one job's share; see steps/align_fmllr_lats.sh and steps/nnet3/align{,_lats}.sh."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from pykaldist.cli._nnet3_chunks import add_nnet3_options, nnet3_options
from pykaldist.decode.transcript_lattices import (
    TranscriptLatticeOptions,
    TranscriptLattices,
    write_alignments,
    write_transcript_lattices,
)
from pykaldist.io.datadir import DataDir
from pykaldist.io.lang import LangDir
from pykaldist.options import add_options, from_args


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", help="data directory with features and transcripts")
    parser.add_argument("lang", help="language directory")
    parser.add_argument("src", type=Path, help="directory of the model")
    parser.add_argument("out", type=Path, help="directory of the lattices")
    parser.add_argument("--job", type=int, default=1, help="number of this job, from 1 (default: 1)")
    parser.add_argument("--nj", type=int, default=1, help="jobs that share the data (default: 1)")
    parser.add_argument("--transform-dir", type=Path, help="directory of fMLLR transforms of the speakers (default: none)")
    parser.add_argument("--model", type=Path, help="file of the model in place of final.mdl of its directory")
    parser.add_argument("--device", default="cpu", help="where a network computes: cpu, cuda, cuda:N or auto (default: cpu)")
    parser.add_argument("--alignments", choices=("none", "too", "alone"), default="none", help="write the best paths as ali.<job>.gz, "
                        "beside the lattices or without them (default: none)")
    add_nnet3_options(parser)
    add_options(parser, TranscriptLatticeOptions)


def run(args: argparse.Namespace) -> None:
    maker = TranscriptLattices(LangDir(args.lang), args.src, from_args(TranscriptLatticeOptions, args), args.model, args.transform_dir,
                               args.device, nnet3_options(args), args.job)
    args.out.mkdir(parents=True, exist_ok=True)
    data = DataDir(args.data)
    if args.alignments == "alone":
        made = write_alignments(data, maker, args.out, args.job, args.nj)
    else:
        made = write_transcript_lattices(data, maker, args.out, args.job, args.nj, args.alignments == "too")
    print(f"SUMMARY: {made}")
