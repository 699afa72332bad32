"""Give copies of utterances the alignments of their originals, or their lattices; see steps/copy_ali_dir.sh and steps/copy_lat_dir.sh."""

from __future__ import annotations

import argparse
from pathlib import Path

from pykaldist.decode.copied_alignments import copy_alignments, copy_lattices
from pykaldist.io.datadir import DataDir


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", type=Path, help="data directory of the copies")
    parser.add_argument("src", type=Path, help="directory of the originals' alignments or lattices")
    parser.add_argument("out", type=Path, help="directory to write")
    parser.add_argument("--prefixes", default="reverb1 babble music noise", help="what copies' names have before the originals' and - "
                        "(default: reverb1 babble music noise)")
    parser.add_argument("--include-original", choices=("true", "false"), default="true", help="whether the data has the originals, too "
                        "(default: true)")
    parser.add_argument("--nj", type=int, default=1, help="archives to write (default: 1)")
    parser.add_argument("--lattices", action="store_true", help="copy lat.*.gz in place of ali.*.gz")


def run(args: argparse.Namespace) -> None:
    copy = copy_lattices if args.lattices else copy_alignments
    made = copy(DataDir(args.data), args.src, args.out, args.prefixes.split(), args.include_original == "true", args.nj)
    print(f"SUMMARY: {made}")
