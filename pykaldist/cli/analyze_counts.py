"""Count how often each label of an archive of integer vectors occurs: ali_train_pdf.counts, from which priors are made.

As Kaldi's, it adds half a frame to every count, so that no pdf has the prior 0.

  pykaldist ali-to-pdf exp/tri3_ali/final.mdl 'ark:exp/tri3_ali/ali.*.gz' ark:pdf.ark
  pykaldist analyze-counts --counts-dim 712 ark:pdf.ark exp/dnn/ali_train_pdf.counts
"""

from __future__ import annotations

import argparse
import sys

import numpy as np

from pykaldist.errors import UserError
from pykaldist.io.specifiers import read_paths
from pykaldist.io.tables import read_int_vectors
from pykaldist.nnet.priors import write_counts

HALF_FRAME = 0.5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("labels", help="archive of pdfs, one a frame: ark:FILE (wildcards and .gz are fine)")
    parser.add_argument("counts", help="file to write, a text vector")
    parser.add_argument("--counts-dim", type=int, default=0, help="length of the vector (default: 0: up to the highest label)")


def run(args: argparse.Namespace) -> None:
    counts = np.zeros(args.counts_dim, dtype=np.int64)
    for path in read_paths(args.labels):
        for utt, labels in read_int_vectors(path):
            if len(labels) and (labels.min() < 0 or (args.counts_dim and labels.max() >= args.counts_dim)):
                raise UserError(f"{path}, {utt}: found the label {labels.min() if labels.min() < 0 else labels.max()}, expected 0 to "
                                f"{args.counts_dim - 1 if args.counts_dim else '...'}; give pdfs, and the model's number of them.")
            found = np.bincount(labels)
            if len(found) > len(counts):
                counts = np.pad(counts, (0, len(found) - len(counts)))
            counts[:len(found)] += found
    write_counts(args.counts, counts + HALF_FRAME)
    print(f"{counts.sum()} frames of {np.count_nonzero(counts)} labels counted; {len(counts)} counts in {args.counts}", file=sys.stderr)
