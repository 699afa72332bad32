"""Turn alignments (transition-ids or pdfs) into posteriors with one label of weight 1 a frame.

  pykaldist ali-to-post 'ark:exp/mono/ali.*.gz' ark:post.ark
"""

from __future__ import annotations

import argparse
import sys

from pykaldist.io.posteriors import Posterior, write_posteriors
from pykaldist.io.specifiers import read_paths, write_path
from pykaldist.io.tables import read_int_vectors


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("alignments", help="archive: ark:FILE (wildcards and .gz are fine)")
    parser.add_argument("posteriors", help="archive to write: ark:FILE, ark,t:FILE")


def run(args: argparse.Namespace) -> None:
    path, binary = write_path(args.posteriors)
    alignments = (item for source in read_paths(args.alignments) for item in read_int_vectors(source))
    count = write_posteriors(path, ((utt, Posterior.from_alignment(labels)) for utt, labels in alignments), binary)
    print(f"{count} alignments turned into posteriors", file=sys.stderr)
