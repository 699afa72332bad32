"""Export a trained network, with its splice, normalisation and priors, as an ONNX file."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, help="final.pt")
    parser.add_argument("target", type=Path, help="ONNX file to write: feats (frames, dim) -> loglikes (frames, pdfs)")


def run(args: argparse.Namespace) -> None:
    from pykaldist.nnet.network import Network
    from pykaldist.nnet.onnx_export import export_onnx

    export_onnx(Network.load(args.model), args.target)
    print(f"{args.target}: feats (frames, dim) -> loglikes (frames, pdfs), CMVN to be applied before")
