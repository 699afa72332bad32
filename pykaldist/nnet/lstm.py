"""Recurrent networks of hybrid systems: LSTM layers, forward in time or bidirectional, and an affine map to the outputs.

Sak, Senior & Beaufays (2014): unidirectional, with projection and delayed targets. Chen & Huo (2016): deep bidirectional LSTM (DBLSTM),
trained on context-sensitive chunks. Cui et al. / Zhang et al. (IBM, 2019): bidirectional, with a linear bottleneck before the outputs.

Delayed targets: the output at step t + d is that of frame t. It is the inputs that are moved here: step t reads frame t + d (frames beyond
the end repeat the last one), so that outputs and targets stay in their places.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pykaldist.errors import UserError
from pykaldist.frames.sequences import SequenceOptions
from pykaldist.nnet.cells import CellShape
from pykaldist.nnet.components import Affine, Component, Dropout, Linear
from pykaldist.nnet.dnn import check_rates, set_rates
from pykaldist.nnet.init import GlorotInit, draw_into, glorot
from pykaldist.nnet.model import Model
from pykaldist.nnet.recurrent import Blstm, Lstm
from pykaldist.options import option


@dataclass
class RecurrentOptions(SequenceOptions):
    """The options that LSTM and BLSTM networks share."""

    hid_layers: int = option(2, "LSTM layers")
    hid_dim: int = option(256, "cells of a layer, half of them in each direction of a bidirectional one")
    projection_dim: int = option(0, "outputs to which a layer's cells are projected, half of them in each direction; 0: no projection")
    peepholes: bool = option(False, "gates see the cells, through diagonal weights")
    cell_clip: float = option(50.0, "bound on cells; 0: none")
    diff_clip: float = option(1.0, "bound on the derivatives of gates that go back in time; 0: none")
    forget_bias: float = option(1.0, "initial bias of forget gates")
    dropout: float = option(0.0, "probability with which an output of a layer is dropped from a frame in training")
    bottleneck_dim: int = option(0, "units of a linear bottleneck before the output layer; 0: none")
    learn_rate_coefs: str = option("", "factors on the learning rate, as 1,1,1,1,0.1: one an affine map (or bottleneck), inputs first")
    bias_learn_rate_coef: float = option(1.0, "factor on the learning rate of biases, beside their map's")

    directions = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hid_layers < 1 or min(self.hid_dim, self.projection_dim + 1, self.bottleneck_dim + 1) < 1:
            raise UserError(f"--hid-layers {self.hid_layers} --hid-dim {self.hid_dim} --projection-dim {self.projection_dim} "
                            f"--bottleneck-dim {self.bottleneck_dim}: expected a layer or more, of a cell or more, and no negative widths.")
        for name in ("hid_dim", "projection_dim"):
            if getattr(self, name) % self.directions:
                raise UserError(f"--{name.replace('_', '-')} {getattr(self, name)} is of two directions, and odd.")
        for name in ("cell_clip", "diff_clip"):
            if getattr(self, name) < 0.0:
                raise UserError(f"--{name.replace('_', '-')} {getattr(self, name):g} is negative.")
        if not 0.0 <= self.dropout < 1.0:
            raise UserError(f"--dropout {self.dropout:g} is outside [0, 1).")
        check_rates(self)

    @property
    def num_maps(self) -> int:
        return self.hid_layers * self.directions * (1 + bool(self.projection_dim)) + bool(self.bottleneck_dim) + 1

    def cells(self) -> CellShape:
        """The number of cells of one direction of a layer."""
        return CellShape(self.hid_dim // self.directions, self.projection_dim // self.directions, self.peepholes, self.cell_clip,
                         self.diff_clip)

    def described(self) -> str:
        """The hidden part of the network in words."""
        parts = [f"{self.hid_layers} x {self.hid_dim}", f"projection {self.projection_dim}" * bool(self.projection_dim),
                 "peepholes" * self.peepholes, f"bottleneck {self.bottleneck_dim}" * bool(self.bottleneck_dim),
                 f"dropout {self.dropout:g}" * bool(self.dropout)]
        return ", ".join(part for part in parts if part)


@dataclass
class LstmOptions(RecurrentOptions):
    """The options of an LSTM network, forward in time."""

    target_delay: int = option(5, "frames by which targets are delayed: what the network sees of the future")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.target_delay < 0:
            raise UserError(f"--target-delay {self.target_delay} is negative.")


@dataclass
class BlstmOptions(RecurrentOptions):
    """The options of a bidirectional LSTM network."""

    sequences: str = option("chunks", "whole utterances, or chunks with context", ("whole", "chunks"))
    hid_dim: int = option(512, "cells of a layer, half of them in each direction of a bidirectional one")

    directions = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sequences == "streams":
            raise UserError("--sequences streams: a bidirectional network sees the future, of which streams carry none; use chunks, or "
                            "whole utterances.")


def make_recurrent(options: RecurrentOptions, input_dim: int, output_dim: int, device: torch.device | str = "cpu",
                   dtype: torch.dtype = torch.float32, compute: torch.dtype | None = None) -> Model:
    """Make an LSTM or BLSTM with all parameters zero; `dtype` and `compute` as in Model."""
    layer = Blstm if options.directions == 2 else Lstm
    components: list[Component] = []
    dim = input_dim
    for _ in range(options.hid_layers):
        components.append(layer(dim, options.cells()))
        dim = components[-1].output_dim
        if options.dropout:
            components.append(Dropout(dim, options.dropout))
    if options.bottleneck_dim:
        components.append(Linear(dim, options.bottleneck_dim))
        dim = options.bottleneck_dim
    components.append(Affine(dim, output_dim))
    model = Model(components, device, dtype, compute)
    set_rates(model, options)
    return model


def init_recurrent(model: Model, options: RecurrentOptions, generator: torch.Generator, init: Any = None) -> None:
    """Draw random parameters: of LSTM layers glorot's normal matrices, of the output layer by `init`.

    `init` is an instance of one of `INITS` (glorot).
    """
    init = GlorotInit() if init is None else init
    c = options.cells().cell_dim

    def draw(component: Component, views: list[Tensor]) -> None:
        if component is model.components[-1]:
            init.draw(*views, False, generator)
            return
        for spec, view in zip(component.specs(), views, strict=True):
            if view.dim() == 2:
                view.normal_(0.0, glorot(view), generator=generator)
            elif "peephole" in spec.name:
                view.normal_(0.0, 1.0 / math.sqrt(c), generator=generator)
            else:
                view.zero_()[2 * c : 3 * c] = options.forget_bias

    draw_into(model, draw)
