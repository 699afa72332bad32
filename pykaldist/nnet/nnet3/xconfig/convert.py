"""An xconfig file made into config files, as Kaldi's xconfig_to_configs.py does.

`final.config` is the network. `ref.config` is the same with random stand-ins for matrices that are not there yet: the context of the
network is worked out from it, and goes into `vars`. `init.config` is what stands before an LDA-like transform, with its input as output,
of which the transform's statistics are taken; it is written where there is such a layer.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from pykaldist.errors import UserError, named
from pykaldist.io.atomic import atomic_open
from pykaldist.nnet.nnet3.initialise import nearest
from pykaldist.nnet.nnet3.model import Nnet3
from pykaldist.nnet.nnet3.xconfig.fixed import IdctLayer
from pykaldist.nnet.nnet3.xconfig.layer import FILES, ExistingLayer, Layer
from pykaldist.nnet.nnet3.xconfig.layers import LAYERS
from pykaldist.nnet.nnet3.xconfig.line import parse_line


def read_layers(lines: Iterable[str], source: str = "the xconfig", existing: Nnet3 | None = None) -> list[Layer]:
    """Read the layers of an xconfig file; those of an `existing` network can be named as inputs, and are not in the result.

    Raises UserError with the number of the line.
    """
    before: list[Layer] = [ExistingLayer(name, existing.dim(name)) for name in existing.nodes] if existing else []
    layers: list[Layer] = []
    for number, text in enumerate(lines, 1):
        try:
            parsed = parse_line(text)
            if parsed is None:
                continue
            kind, fields = parsed
            if kind not in LAYERS:
                raise ValueError(f"{kind} is no layer that is known here; {nearest(kind, LAYERS)}")
            layer = LAYERS[kind](kind, fields, [*before, *layers])
        except ValueError as error:
            raise UserError(f"{source}, line {number} ({' '.join(text.split())[:80]}): {error}.") from error
        layers.append(layer)
    if not layers:
        raise UserError(f"{source} has no layers; is it the right file?")
    return layers


def config_lines(layers: Iterable[Layer]) -> dict[str, list[str]]:
    """The lines of init.config (empty where no layer asks for it), ref.config and final.config."""
    lines: dict[str, list[str]] = {file: [] for file in FILES}
    for layer in layers:
        for file, own in layer.configs().items():
            lines[file] += own
    if not any(line.startswith("output-node") for line in lines["init"]):
        lines["init"] = []
    return lines


def write_matrices(layers: Iterable[Layer]) -> None:
    """Write the matrices that layers know themselves: those of idct-layer."""
    for layer in layers:
        if isinstance(layer, IdctLayer):
            with atomic_open(layer.values["affine-transform-file"], "w") as stream:
                stream.write("[ " + "\n".join(" ".join(map(str, row)) for row in layer.matrix()) + " ]")


def read_xconfig(path: str | os.PathLike[str], existing: Nnet3 | None = None) -> list[Layer]:
    """Read the layers of an xconfig file."""
    with named(path):
        text = Path(path).read_text(encoding="utf-8")
    return read_layers(text.splitlines(), str(path), existing)
