"""A table that describes a network: its layers, their parameters, their receptive fields, and the flops of a frame."""

from __future__ import annotations

from typing import Any

from pykaldist.nnet.cnn import CnnOptions
from pykaldist.nnet.components import Component
from pykaldist.nnet.convolution import Convolution, MaxPooling
from pykaldist.nnet.kinds import KINDS, PRESETS, default_splice, kind_of, make_nnet
from pykaldist.nnet.lstm import BlstmOptions
from pykaldist.nnet.model import Model
from pykaldist.nnet.recurrent import Blstm, Lstm

NUM_PDFS = 1000  # of a network that is not there yet, where nothing is said


def describe_named(name: str, feat_dim: int = 0, num_pdfs: int = 0) -> str:
    """Describe a network as `pykaldist train --nnet NAME` makes it; 0 stands for 40 features (120 for a CNN) and for NUM_PDFS outputs."""
    kind, values = PRESETS.get(name, (name, {}))
    options = KINDS[kind].options(**values)
    splice = default_splice(options)
    dim = feat_dim or (40 * options.channels if isinstance(options, CnnOptions) else 40)
    return describe(options, make_nnet(options, dim * len(splice), num_pdfs or NUM_PDFS, len(splice), "meta"), splice)


class Sight:
    """The receptive field of a layer: how many frames back and ahead of its own, and how many bands; None: all."""

    def __init__(self, splice: list[int]) -> None:
        self.back: int | None = -min(splice)
        self.ahead: int | None = max(splice)
        self._frames = self._bands = self._stride = 0  # of an image, while convolution has not seen all of it
        self._whole = (self.back, self.ahead)

    def through(self, component: Component) -> str:
        """Go on to the receptive field of a component's outputs; returns it in words."""
        if isinstance(component, Convolution):
            self._stride = self._stride or 1
            self._frames = max(self._frames, 1) + component.time - 1
            self._bands = max(self._bands, 1) + (component.bands - 1) * self._stride
        elif isinstance(component, MaxPooling):
            self._bands += (component.size - 1) * self._stride
            self._stride *= component.size
        elif component.maps:
            self._stride = 0
        if isinstance(component, (Lstm, Blstm)):
            self.back = None
            self.ahead = None if isinstance(component, Blstm) else self.ahead
        return f"{self._frames} frames x {self._bands} bands" if self._stride else str(self)

    def __str__(self) -> str:
        back = "all before" if self.back is None else f"{self.back} frames before"
        ahead = "all after" if self.ahead is None else f"{self.ahead} after"
        return f"{back}, {ahead}"


def describe(options: Any, model: Model, splice: list[int]) -> str:
    """Make the table: a line a layer, then the sums. Flops are multiplications and additions of a forward pass's products."""
    sight = Sight(splice)
    rows = [("component", "inputs", "outputs", "parameters", "flops a frame", "sees")]
    for number, (component, shapes) in enumerate(zip(model.components, model.views(model.params), strict=True), 1):
        parameters = sum(view.numel() for view in shapes)
        rows.append((f"{number} {type(component).__name__}", f"{component.input_dim}", f"{component.output_dim}", f"{parameters:,}",
                     f"{component.flops:,}", sight.through(component)))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) if i in (0, 5) else cell.rjust(width)
                       for i, (cell, width) in enumerate(zip(row, widths, strict=True))).rstrip() for row in rows]
    flops = sum(component.flops for component in model.components)
    lines += [f"nnet {kind_of(options)}: {options.described()}", f"parameters {len(model.params):,}",
              f"receptive field {sight}" + (f" (in training {options.cut()})" if isinstance(options, BlstmOptions) else ""),
              f"flops a frame {flops:,} forward, about {3 * flops:,} in training"]
    return "\n".join(lines)
