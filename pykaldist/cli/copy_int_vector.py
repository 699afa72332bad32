"""Copy archives of integer vectors, such as alignments, between text, binary and gzip.

  pykaldist copy-int-vector ark:exp/mono/ali.1.gz ark,t:-
"""

from __future__ import annotations

import argparse
import sys

from pykaldist.io.specifiers import read_paths, write_path
from pykaldist.io.tables import read_int_vectors, write_int_vectors


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", help="archive: ark:FILE (wildcards and .gz are fine)")
    parser.add_argument("target", help="archive to write: ark:FILE, ark,t:FILE")


def run(args: argparse.Namespace) -> None:
    path, binary = write_path(args.target)
    count = write_int_vectors(path, (item for source in read_paths(args.source) for item in read_int_vectors(source)), binary)
    print(f"{count} vectors copied", file=sys.stderr)
