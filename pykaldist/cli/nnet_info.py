"""Print a network's components: dimensions, parameters, and the moments of what they hold."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, help="nnet1 network or feature transform, or final.pt")


def run(args: argparse.Namespace) -> None:
    from pykaldist.nnet.load import load_nnet1

    nnet, transform = load_nnet1(args.model)
    print(f"num-components {len(nnet.components)}")
    print(f"input-dim {nnet.input_dim}")
    print(f"output-dim {nnet.output_dim}")
    print(f"number-of-parameters {sum(c.num_params for c in nnet.components)}")
    for part, components in (("feature-transform", transform.components if transform else []), ("component", nnet.components)):
        for i, component in enumerate(components, 1):
            print(f"{part} {i} : <{component.marker}>, input-dim {component.input_dim}, output-dim {component.output_dim}")
            for name, array in component.arrays.items():
                values = array.astype("float64")
                print(f"  {name} {' x '.join(map(str, array.shape))} (min {values.min():.6g}, max {values.max():.6g}, mean "
                      f"{values.mean():.6g}, stddev {values.std():.6g})")
