"""Labels of the best path of a network trained with --objective ctc, without a graph: a text file, an utterance a line.

Phones stand apart; characters are joined to words.

e.g.: pykaldist decode-greedy exp/ctc data/test exp/ctc/greedy.txt
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pykaldist.errors import UserError
from pykaldist.io.atomic import write_text
from pykaldist.io.datadir import DataDir
from pykaldist.io.lang import SymbolTable
from pykaldist.nnet.forwarding import ForwardOptions
from pykaldist.options import add_options, from_args
from pykaldist.progress import progress


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model_dir", type=Path, help="directory with final.pt and tokens.txt")
    parser.add_argument("data", type=Path, help="data directory with features")
    parser.add_argument("output", type=Path, help="text file to write")
    add_options(parser, ForwardOptions)


def run(args: argparse.Namespace) -> None:
    from pykaldist.decode.acoustic import load_acoustic_model
    from pykaldist.nnet.ctc import collapsed

    if not (args.model_dir / "tokens.txt").is_file():
        raise UserError(f"{args.model_dir} has no tokens.txt; greedy decoding is for networks of --objective ctc.")
    tokens = SymbolTable.read(args.model_dir / "tokens.txt")
    model, data = load_acoustic_model(args.model_dir, forwarding=from_args(ForwardOptions, args)), DataDir(args.data)
    characters = "<space>" in tokens
    lines = []
    for utt in progress(data.utterances(), "decoding", unit="utt"):
        labels = [tokens.symbol(int(label)) for label in collapsed(model.loglikes(model.features(data, utt)).argmax(1))]
        text = "".join(" " if label == "<space>" else label for label in labels) if characters else " ".join(labels)
        lines.append(f"{utt} {' '.join(text.split())}\n")
    write_text(args.output, "".join(lines))
