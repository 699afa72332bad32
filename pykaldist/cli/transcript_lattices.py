"""Make lattices of transcripts, one job's share; see steps/align_fmllr_lats.sh and steps/nnet3/align_lats.sh."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from pykaldist.decode.transcript_lattices import TranscriptLatticeOptions, TranscriptLattices, write_transcript_lattices
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
    parser.add_argument("--generate-ali-from-lats", choices=("true", "false"), default="false", help="write the best paths as "
                        "ali.<job>.gz, too (default: false)")
    add_options(parser, TranscriptLatticeOptions)


def run(args: argparse.Namespace) -> None:
    maker = TranscriptLattices(LangDir(args.lang), args.src, from_args(TranscriptLatticeOptions, args), args.model, args.transform_dir,
                               args.device)
    args.out.mkdir(parents=True, exist_ok=True)
    made = write_transcript_lattices(DataDir(args.data), maker, args.out, args.job, args.nj, args.generate_ali_from_lats == "true")
    print(f"SUMMARY: {made}")
