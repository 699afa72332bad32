"""Print a network's layers: dimensions, parameters, receptive field, flops a frame; of a file, the moments of what it holds too.

e.g.: pykaldist nnet-info exp/dnn/final.pt; pykaldist nnet-info --feat-dim 40 --num-pdfs 9304 chen2016-dblstm
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from pykaldist.errors import UserError

NUM_PDFS = 1000  # of a network that is not there yet, where nothing is said


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", help="nnet1 network or feature transform, or final.pt, or the name of a kind or of a published network")
    parser.add_argument("--feat-dim", type=int, help="of a network given by its name: features a frame (40; 120 for a CNN)")
    parser.add_argument("--num-pdfs", type=int, help=f"likewise: outputs ({NUM_PDFS})")


def run(args: argparse.Namespace) -> None:
    from pykaldist.nnet.describe import describe
    from pykaldist.nnet.kinds import KINDS, PRESETS
    from pykaldist.nnet.load import load_own
    from pykaldist.nnet.nnet1 import Nnet1

    if args.model in KINDS or args.model in PRESETS:
        print(_named(args))
        return
    if args.feat_dim is not None or args.num_pdfs is not None:
        raise UserError(f"--feat-dim and --num-pdfs are for the name of a network; {args.model} is none ({', '.join((*KINDS, *PRESETS))}).")
    network = load_own(args.model)
    if network is not None:
        print(describe(network.options, network.model, network.transform.splice))
        names, views = iter(network.model.names()), network.model.views(network.model.params)
        for view in (view for own in views for view in own):
            print(_moments(next(names), view.cpu().numpy()))
        return
    nnet = Nnet1.read(Path(args.model))
    print(f"num-components {len(nnet.components)}")
    print(f"input-dim {nnet.input_dim}")
    print(f"output-dim {nnet.output_dim}")
    print(f"number-of-parameters {sum(c.num_params for c in nnet.components)}")
    for i, component in enumerate(nnet.components, 1):
        print(f"component {i} : <{component.marker}>, input-dim {component.input_dim}, output-dim {component.output_dim}")
        for name, array in component.arrays.items():
            print(_moments(name, array))


def _moments(name: str, array: np.ndarray) -> str:
    values = array.astype("float64")
    return (f"  {name} {' x '.join(map(str, array.shape))} (min {values.min():.6g}, max {values.max():.6g}, mean {values.mean():.6g}, "
            f"stddev {values.std():.6g})")


def _named(args: argparse.Namespace) -> str:
    """Make a network as `pykaldist train --nnet NAME` makes it."""
    from pykaldist.nnet.cnn import CnnOptions
    from pykaldist.nnet.describe import describe
    from pykaldist.nnet.kinds import KINDS, PRESETS, default_splice, make_nnet

    kind, values = PRESETS.get(args.model, (args.model, {}))
    options = KINDS[kind].options(**values)
    splice = default_splice(options)
    dim = args.feat_dim or (40 * options.channels if isinstance(options, CnnOptions) else 40)
    model = make_nnet(options, dim * len(splice), args.num_pdfs or NUM_PDFS, len(splice), "meta")
    return describe(options, model, splice)
