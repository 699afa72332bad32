"""Export a trained network, with its splice, normalisation and priors, as an ONNX file; of a chain model its nnet3 network."""

from __future__ import annotations

import argparse
from pathlib import Path

from pykaldist.errors import UserError
from pykaldist.io.magic import is_container
from pykaldist.options import boolean


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, help="final.pt, or an nnet3 final.mdl, beside which frame_subsampling_factor is")
    parser.add_argument("target", type=Path, help="ONNX file to write: feats (frames, dim), and ivector (1, dim) of an nnet3 network that "
                                                  "takes one -> loglikes (frames, pdfs)")
    parser.add_argument("--int8", type=boolean, default=False,
                        help="affine maps of an nnet3 network in 8-bit integers, by ONNX Runtime's dynamic quantisation (default: false)")


def run(args: argparse.Namespace) -> None:
    from pykaldist.nnet.network import Network
    from pykaldist.nnet.onnx_export import export_onnx

    if not is_container(args.model):
        _export_nnet3(args)
        return
    if args.int8:
        raise UserError(f"--int8 true is for nnet3 networks, and {args.model} is none; decode it with --dtype int8.")
    export_onnx(Network.load(args.model), args.target)
    print(f"{args.target}: feats (frames, dim) -> loglikes (frames, pdfs), CMVN to be applied before")


def _export_nnet3(args: argparse.Namespace) -> None:
    from pykaldist.decode.acoustic import read_subsampling
    from pykaldist.nnet.nnet3.model import Nnet3Model, is_nnet3_model
    from pykaldist.nnet.nnet3.onnx_export import export_nnet3_onnx, quantised

    if not is_nnet3_model(args.model):
        raise UserError(f"{args.model} is neither a final.pt nor a model with an nnet3 network; give one of these.")
    model, subsampling = Nnet3Model.read(args.model), read_subsampling(args.model.parent)
    export_nnet3_onnx(model.nnet, args.target, subsampling, model.priors, quantised if args.int8 else None)
    ivector = ", ivector (1, dim)" * ("ivector" in model.nnet.nodes)
    print(f"{args.target}: feats (frames, dim){ivector} -> loglikes (frames / {subsampling}, pdfs), CMVN to be applied before")
