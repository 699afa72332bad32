"""Export a trained model as a folder for other programs, try what was written by running it, and write a model card.

  pykaldist export exp/dnn dnn-onnx --to onnx                      # model.onnx; also of chain models, with --int8 true
  pykaldist export exp/dnn dnn-nnet1 --to nnet1                    # final.nnet and what Kaldi's nnet1 decodes it with
  pykaldist export exp/chain/tdnn tdnn-nnet3 --to nnet3            # final.mdl and what Kaldi's nnet3 decodes it with
  pykaldist export exp/chain/tdnn tdnn-vosk --to vosk --mfcc-config conf/mfcc_hires.conf --licence "CC BY 4.0"
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pykaldist.options import add_variants, pick_variant
from pykaldist.serve.options import FORMAT_OPTIONS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("exp", type=Path, help="experiment's folder, with final.pt or an nnet3 final.mdl")
    parser.add_argument("target", type=Path, help="folder to write; an earlier export there is replaced")
    parser.add_argument("--to", required=True, choices=tuple(FORMAT_OPTIONS), help="the format")
    parser.add_argument("--licence", default="", help="licence of the training data, for the model card")
    add_variants(parser, FORMAT_OPTIONS)


def run(args: argparse.Namespace) -> None:
    from pykaldist.serve.export import Written, export  # not above: --help answers without PyTorch
    from pykaldist.serve.model_card import model_card

    options = pick_variant("to", args.to, FORMAT_OPTIONS, args)

    def card(written: Written) -> str:
        return model_card(args.exp, args.to, written.tried, written.usage, args.licence)

    written = export(args.exp, args.target, args.to, options, card)
    print(f"{written.tried}\n{args.target}: {args.exp} for {args.to}, with {args.target / 'README.md'}")
