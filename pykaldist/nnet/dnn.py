"""The fully connected network of hybrid systems, from spliced frames to pdf posteriors.

Affine maps and nonlinearities by turns, and an affine map to the outputs; batch normalisation before each nonlinearity, and dropout on the
hidden layers' outputs, where they are asked for. A bottleneck is a narrow linear map before the last hidden layer, whose outputs serve as
features (Grezl et al., 2007; as in Kaldi's nnet1).
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Protocol

import torch

from pykaldist.errors import UserError
from pykaldist.nnet.components import ACTIVATIONS, Affine, Component, Dropout, Linear
from pykaldist.nnet.convolution import BatchNorm
from pykaldist.nnet.model import Model
from pykaldist.options import numbers, option


class Rates(Protocol):
    """The options of a network that set the learning rates of its layers."""

    learn_rate_coefs: str
    bias_learn_rate_coef: float

    @property
    def num_maps(self) -> int: ...


def rate_coefs(options: Rates) -> list[float]:
    """The learning-rate coefficient of each affine map."""
    if not options.learn_rate_coefs:
        return [1.0] * options.num_maps
    coefs = numbers("learn-rate-coefs", options.learn_rate_coefs)
    if len(coefs) != options.num_maps:
        raise UserError(f"--learn-rate-coefs has {len(coefs)} factors, the network {options.num_maps} affine maps; give one for each.")
    return coefs


def check_rates(options: Rates) -> None:
    """Check the coefficients; raises UserError where one is negative or no number."""
    if not all(0.0 <= c < math.inf for c in [*rate_coefs(options), options.bias_learn_rate_coef]):
        raise UserError(f"--learn-rate-coefs {options.learn_rate_coefs} --bias-learn-rate-coef {options.bias_learn_rate_coef:g}: a factor "
                        "is negative.")


def set_rates(model: Model, options: Rates) -> None:
    """Give each map of the model its coefficients."""
    for m, coef in zip(model.maps, rate_coefs(options), strict=True):
        m.learn_rate_coef, m.bias_learn_rate_coef = coef, coef * options.bias_learn_rate_coef


@dataclass
class DnnOptions:
    """The shape of a DNN, and the rates of its layers."""

    hid_layers: int = option(4, "hidden layers")
    hid_dim: int = option(512, "units in a hidden layer")
    activation: str = option("sigmoid", "nonlinearity of the hidden layers", tuple(ACTIVATIONS))
    dropout: float = option(0.0, "probability with which a hidden unit is dropped from a frame in training")
    bottleneck_dim: int = option(0, "units of a linear bottleneck before the last hidden layer; 0: none")
    learn_rate_coefs: str = option("", "factors on the learning rate, as 1,1,1,1,0.1: one an affine map (or bottleneck), inputs first")
    bias_learn_rate_coef: float = option(1.0, "factor on the learning rate of biases, beside their map's")
    batch_norm: bool = option(False, "batch normalisation before each nonlinearity")

    def __post_init__(self) -> None:
        if self.hid_layers < 0 or self.hid_dim < 1:
            raise UserError(f"--hid-layers {self.hid_layers} --hid-dim {self.hid_dim}: expected no fewer than 0 layers of 1 unit.")
        if not 0.0 <= self.dropout < 1.0:
            raise UserError(f"--dropout {self.dropout:g} is outside [0, 1).")
        if self.bottleneck_dim < 0 or (self.bottleneck_dim and not self.hid_layers):
            raise UserError(f"--bottleneck-dim {self.bottleneck_dim}: expected a width, and a hidden layer to stand before.")
        check_rates(self)

    @property
    def num_maps(self) -> int:
        return self.hid_layers + 1 + bool(self.bottleneck_dim)

    def described(self) -> str:
        """The hidden part of the network in words."""
        return f"{self.hid_layers} x {self.hid_dim} {self.activation}" + f", bottleneck {self.bottleneck_dim}" * bool(self.bottleneck_dim) \
            + ", batch normalisation" * self.batch_norm + f", dropout {self.dropout:g}" * bool(self.dropout)

    def shallow(self, hid_layers: int) -> DnnOptions:
        """The options of the network that has only the first hidden layers, fewer than there are, and the output layer."""
        own = rate_coefs(self)
        coefs = [*own[:hid_layers], own[-1]]
        return dataclasses.replace(self, hid_layers=hid_layers, bottleneck_dim=0, learn_rate_coefs=",".join(map(repr, coefs)))


def make_dnn(options: DnnOptions, input_dim: int, output_dim: int, device: torch.device | str = "cpu",
             dtype: torch.dtype = torch.float32, compute: torch.dtype | None = None) -> Model:
    """Make a DNN with all parameters zero; `dtype` and `compute` as in Model."""
    components: list[Component] = []
    dim = input_dim
    for layer in range(options.hid_layers):
        if options.bottleneck_dim and layer == options.hid_layers - 1:
            components.append(Linear(dim, options.bottleneck_dim))
            dim = options.bottleneck_dim
        components.append(Affine(dim, options.hid_dim))
        if options.batch_norm:
            components.append(BatchNorm(options.hid_dim))
        components.append(ACTIVATIONS[options.activation](options.hid_dim))
        if options.dropout:
            components.append(Dropout(options.hid_dim, options.dropout))
        dim = options.hid_dim
    components.append(Affine(dim, output_dim))
    model = Model(components, device, dtype, compute)
    set_rates(model, options)
    return model
