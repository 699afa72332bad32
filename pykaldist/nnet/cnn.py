"""The convolutional network of hybrid systems: convolution over time and frequency, pooling in frequency, affine layers.

Its inputs are spliced filterbank features. Sources: Abdel-Hamid et al. (2012), Sainath et al. (2013). `--conv 9x9x64/3,3x4x64` is two
convolutional layers: 64 filters of 9 frames x 9 bands whose outputs are pooled by 3 bands, then 64 of 3 frames x 4 bands, not pooled;
`0x8x64/3` has filters of all frames. Each is followed by the nonlinearity (behind the pooling, which is the same and cheaper), and where
asked for by batch normalisation before that; so are the affine layers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pykaldist.errors import UserError
from pykaldist.nnet.components import ACTIVATIONS, Affine, Component, Dropout
from pykaldist.nnet.convolution import BatchNorm, Convolution, MaxPooling
from pykaldist.nnet.dnn import check_rates, set_rates
from pykaldist.nnet.init import INITS, OF_ACTIVATION, draw_into
from pykaldist.nnet.model import Model
from pykaldist.options import option


@dataclass(frozen=True)
class ConvolutionalLayer:
    """The shape of a convolutional layer: `maps` filters of `time` frames x `bands` bands, then pools of `pool` bands.

    `time` 0 is all frames there are; `pool` 1 is no pooling.
    """

    time: int
    bands: int
    maps: int
    pool: int


@dataclass
class CnnOptions:
    """The shape of a CNN, and the rates of its layers."""

    conv: str = option("8x8x64/3,3x4x64", "convolutional layers: frames x bands x filters, and / bands pooled; frames 0: all there are")
    channels: int = option(1, "streams of bands in a feature vector, one behind the other: 3 for filterbanks with two deltas")
    batch_norm: bool = option(False, "batch normalisation before each nonlinearity")
    hid_layers: int = option(2, "affine hidden layers behind the convolutional ones")
    hid_dim: int = option(512, "units of each")
    activation: str = option("relu", "nonlinearity of the hidden layers", tuple(ACTIVATIONS))
    dropout: float = option(0.0, "probability with which a unit of an affine hidden layer is dropped from a frame in training")
    learn_rate_coefs: str = option("", "factors on the learning rate, as 1,1,1,1,0.1: one an affine map (or convolution), inputs first")
    bias_learn_rate_coef: float = option(1.0, "factor on the learning rate of biases, beside their map's")

    def __post_init__(self) -> None:
        self.layers()
        if self.channels < 1 or self.hid_layers < 0 or self.hid_dim < 1:
            raise UserError(f"--channels {self.channels} --hid-layers {self.hid_layers} --hid-dim {self.hid_dim}: expected no fewer than 1 "
                            "channel, and 0 layers of 1 unit.")
        if not 0.0 <= self.dropout < 1.0:
            raise UserError(f"--dropout {self.dropout:g} is outside [0, 1).")
        check_rates(self)

    def layers(self) -> list[ConvolutionalLayer]:
        """The convolutional layers."""
        layers = []
        for text in self.conv.split(","):
            match = re.fullmatch(r"(\d+)x(\d+)x(\d+)(?:/(\d+))?", text)
            layer = ConvolutionalLayer(*(int(match[k] or 1) for k in range(1, 5))) if match else ConvolutionalLayer(0, 0, 0, 0)
            if min(layer.bands, layer.maps, layer.pool) < 1:
                raise UserError(f"--conv {self.conv}: expected layers such as 9x9x64/3 (frames x bands x filters, bands pooled), commas "
                                "between them.")
            layers.append(layer)
        return layers

    @property
    def num_maps(self) -> int:
        return len(self.layers()) + self.hid_layers + 1

    def described(self) -> str:
        """The hidden part of the network in words."""
        return f"{self.conv} - {self.hid_layers} x {self.hid_dim} {self.activation}" + ", batch normalisation" * self.batch_norm \
            + f", dropout {self.dropout:g}" * bool(self.dropout)


def make_cnn(options: CnnOptions, input_dim: int, output_dim: int, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32,
             compute: torch.dtype | None = None, frames: int = 1) -> Model:
    """Make a CNN with all parameters zero, of inputs spliced from so many `frames`; `dtype` and `compute` as in Model."""
    if input_dim % (frames * options.channels):
        raise UserError(f"--channels {options.channels}: feature vectors of {input_dim // frames} values are not of so many streams.")
    components: list[Component] = []
    shape = (frames, input_dim // (frames * options.channels), options.channels)

    def hidden(features: int, places: int = 1) -> None:
        if options.batch_norm:
            components.append(BatchNorm(features, places))
        components.append(ACTIVATIONS[options.activation](features * places))

    for number, layer in enumerate(options.layers()):
        try:
            convolution = Convolution(shape, layer.time or shape[0], layer.bands, layer.maps, number == 0)
            components.append(convolution)
            shape = convolution.output_shape
            if layer.pool > 1:
                pooling = MaxPooling(shape, layer.pool)
                components.append(pooling)
                shape = pooling.output_shape
        except ValueError as error:
            raise UserError(f"--conv {options.conv}, layer {number + 1}: {error} frames x bands do not fit; use fewer, or more of "
                            "--splice.") from error
        hidden(shape[2], shape[0] * shape[1])
    dim = components[-1].output_dim
    for _ in range(options.hid_layers):
        components.append(Affine(dim, options.hid_dim))
        dim = options.hid_dim
        hidden(dim)
        if options.dropout:
            components.append(Dropout(dim, options.dropout))
    components.append(Affine(dim, output_dim))
    model = Model(components, device, dtype, compute)
    set_rates(model, options)
    return model


def init_cnn(model: Model, options: CnnOptions, generator: torch.Generator, init: Any = None) -> None:
    """Draw random parameters, of filters as of affine layers; `init` is an instance of one of `INITS` (that of the activation)."""
    init = INITS[OF_ACTIVATION[options.activation]]() if init is None else init

    def draw(component: Component, views: list[Tensor]) -> None:
        if isinstance(component, BatchNorm):
            component.start(views)
        elif views:
            init.draw(*views, component is not model.components[-1], generator)

    draw_into(model, draw)
