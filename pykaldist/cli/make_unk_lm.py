"""Make a phone language model of the unknown word, as a transducer that prepare-lang puts in place of the word's pronunciation."""

from __future__ import annotations

import argparse
from pathlib import Path

import kaldifst

from pykaldist.io.atomic import write_text
from pykaldist.io.dictdir import POSITION_SUFFIXES, DictDir
from pykaldist.io.fst import Fst
from pykaldist.io.fstops import to_kaldifst
from pykaldist.lm.unknown_word import UnknownWordOptions, spoken_pronunciations, unknown_word_model
from pykaldist.options import add_options, from_args


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dict_dir", type=Path, metavar="dict-dir", help="dictionary directory, whose pronunciations the model learns from")
    parser.add_argument("work_dir", type=Path, metavar="work-dir", help="gets unk_fst.txt, unk.fst and phones.txt")
    add_options(parser, UnknownWordOptions)


def run(args: argparse.Namespace) -> None:
    options = from_args(UnknownWordOptions, args)
    dictionary = DictDir.read(args.dict_dir)
    pronunciations = spoken_pronunciations(dictionary)
    names = [phone + mark for group in dictionary.silence + dictionary.nonsilence for phone in group for mark in ("", *POSITION_SUFFIXES)]
    symbols = {name: number for number, name in enumerate(["<eps>", *names, options.phone_disambig_symbol])}
    fst = unknown_word_model(pronunciations, symbols, options)
    args.work_dir.mkdir(parents=True, exist_ok=True)
    write_text(args.work_dir / "phones.txt", "".join(f"{name} {number}\n" for name, number in symbols.items()))
    fst.write(args.work_dir / "unk.fst")
    write_text(args.work_dir / "unk_fst.txt", _text(fst, args.work_dir / "phones.txt"))
    left_out = len(dictionary.lexicon) - len(pronunciations)
    print(f"{len(pronunciations)} pronunciations ({left_out} with silence left out), {fst.num_states} states, {fst.num_arcs} arcs in "
          f"{args.work_dir}/unk_fst.txt")


def _text(fst: Fst, phones: Path) -> str:
    """The transducer as text, the start's lines first."""
    table = kaldifst.SymbolTable.read_text(str(phones))
    made = to_kaldifst(fst)
    made.input_symbols = made.output_symbols = table
    return str(made.to_str(show_weight_one=True, fst_field_separator="\t"))
