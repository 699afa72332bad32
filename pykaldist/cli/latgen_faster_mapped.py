"""Decode an archive of log-likelihoods into lattices, as Kaldi's program of this name."""

from __future__ import annotations

import argparse
from pathlib import Path

from pykaldist.decode.decoder import DecoderOptions, LatticeDecoder
from pykaldist.decode.run import decode_all
from pykaldist.hmm.gmm.model_files import read_transition_model
from pykaldist.io.fst import Fst
from pykaldist.io.lang import SymbolTable
from pykaldist.io.tables import read_archive
from pykaldist.options import add_options, from_args


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, help="file that begins with the transition model (final.mdl)")
    parser.add_argument("fst", type=Path, help="decoding graph (HCLG.fst)")
    parser.add_argument("loglikes", type=Path, help="archive of matrices [frames, pdfs], gzipped if it ends in .gz")
    parser.add_argument("lattices", type=Path, help="archive to write (lat.1.gz)")
    parser.add_argument("--word-symbol-table", type=Path, help="words.txt, to print hypotheses in words")
    add_options(parser, DecoderOptions)


def run(args: argparse.Namespace) -> None:
    decoder = LatticeDecoder(Fst.read(args.fst), read_transition_model(args.model).tid2pdf, from_args(DecoderOptions, args))
    words = SymbolTable.read(args.word_symbol_table) if args.word_symbol_table else None
    print(decode_all(decoder, read_archive(args.loglikes), args.lattices, words))
