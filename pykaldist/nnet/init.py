"""Random initialisation of a DNN's affine maps, by name.

nnet1 (Kaldi's prototypes): weights normal(0, param_stddev_factor 35 sqrt(2 / (in + out))); the biases of hidden layers uniform over a range
of -4 to 0, so that sigmoid units start sparse and different; the output layer's zero. make_nnet_proto.py has weights of the first hidden
layer smaller by a factor of sqrt(1/12), the standard deviation of what a sigmoid gives to the layers behind it.

glorot: Glorot & Bengio (2010), equation 12: variance 2 / (in + out), normal or uniform; biases zero.

he: He et al. (2015): normal, variance 2 / in for hidden layers; the output layer as glorot; biases zero.

A bottleneck, which is linear, has glorot's normal weights under each.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pykaldist.errors import UserError
from pykaldist.nnet.components import Component
from pykaldist.nnet.convolution import BatchNorm
from pykaldist.nnet.dnn import DnnOptions
from pykaldist.nnet.model import Model
from pykaldist.options import option


def glorot(weight: Tensor) -> float:
    """The standard deviation of Glorot & Bengio, sqrt(2 / (in + out)), for W (out, in)."""
    return math.sqrt(2.0 / sum(weight.shape))


@dataclass
class Nnet1Init:
    """The options of nnet1's initialisation."""

    hid_bias_mean: float = option(-2.0, "mean of the hidden layers' biases")
    hid_bias_range: float = option(4.0, "range of the hidden layers' biases")
    param_stddev_factor: float = option(0.1, "factor on the standard deviation of weights")
    input_stddev_factor: float = option(1.0, "further factor on that of a first hidden layer (make_nnet_proto.py's smaller input weights: "
                                        "0.288675)")
    glorot_scaled: bool = option(True, "let it depend on a layer's width; false: --param-stddev-factor is the standard deviation itself")

    def __post_init__(self) -> None:
        for name in ("hid_bias_range", "param_stddev_factor", "input_stddev_factor"):
            if getattr(self, name) < 0.0:
                raise UserError(f"--{name.replace('_', '-')} {getattr(self, name):g} is negative.")

    def draw(self, weight: Tensor, bias: Tensor, hidden: bool, generator: torch.Generator) -> None:
        width = 35.0 * glorot(weight) if self.glorot_scaled else 1.0
        weight.normal_(0.0, self.param_stddev_factor * width, generator=generator)
        if hidden:
            bias.uniform_(-0.5, 0.5, generator=generator).mul_(self.hid_bias_range).add_(self.hid_bias_mean)
        else:
            bias.zero_()


@dataclass
class GlorotInit:
    """The options of Glorot & Bengio's initialisation."""

    glorot_distribution: str = option("normal", "of the weights", ("normal", "uniform"))

    def draw(self, weight: Tensor, bias: Tensor, hidden: bool, generator: torch.Generator) -> None:
        if self.glorot_distribution == "normal":
            weight.normal_(0.0, glorot(weight), generator=generator)
        else:
            bound = math.sqrt(3.0) * glorot(weight)
            weight.uniform_(-bound, bound, generator=generator)
        bias.zero_()


@dataclass
class HeInit:
    """The options of He et al.'s initialisation."""

    def draw(self, weight: Tensor, bias: Tensor, hidden: bool, generator: torch.Generator) -> None:
        weight.normal_(0.0, math.sqrt(2.0 / weight.shape[1]) if hidden else glorot(weight), generator=generator)
        bias.zero_()


INITS: dict[str, type] = {"nnet1": Nnet1Init, "glorot": GlorotInit, "he": HeInit}
OF_ACTIVATION = {"sigmoid": "nnet1", "tanh": "glorot", "relu": "he"}


def draw_into(model: Model, draw: Callable[[Component, list[Tensor]], None]) -> None:
    """Draw each component's parameters on the CPU, so that they are the same on every device."""
    target = torch.empty(len(model.params))
    for component, views in zip(model.components, model.views(target), strict=True):
        draw(component, views)
    model.params.copy_(target)


def init_dnn(model: Model, options: DnnOptions, generator: torch.Generator, init: Any = None) -> None:
    """Draw random parameters. `init` is an instance of one of `INITS`; where it is not given, the activation's, at its defaults."""
    init = INITS[OF_ACTIVATION[options.activation]]() if init is None else init

    def draw(component: Component, views: list[Tensor]) -> None:
        if len(views) == 2:
            init.draw(*views, component is not model.components[-1], generator)
            if component is model.components[0] and isinstance(init, Nnet1Init) and len(model.components) > 1:
                views[0].mul_(init.input_stddev_factor)
        elif isinstance(component, BatchNorm):
            component.start(views)
        elif views:
            views[0].normal_(0.0, glorot(views[0]), generator=generator)

    draw_into(model, draw)
