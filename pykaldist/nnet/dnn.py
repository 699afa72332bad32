"""The fully connected network of hybrid systems: spliced frames in, pdf posteriors out.

Initialisation follows nnet1's prototypes: sigmoid layers with biases spread over [-4, 0], so that units start sparse and different,
weights normal(0, 3.5 sqrt(2 / (in + out))); tanh with Glorot & Bengio (2010), ReLU with He et al. (2015); a softmax layer with zero
biases and weights as a hidden sigmoid layer's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from pykaldist.errors import UserError
from pykaldist.nnet.components import ACTIVATIONS, Affine, Component, glorot
from pykaldist.nnet.model import Model
from pykaldist.options import option

NNET1_STDDEV = 0.1 * 35.0  # nnet1's param-stddev-factor times its Glorot constant


@dataclass
class DnnOptions:
    """Shape of a DNN."""

    hid_layers: int = option(4, "hidden layers")
    hid_dim: int = option(512, "units in a hidden layer")
    activation: str = option("sigmoid", "nonlinearity of the hidden layers", tuple(ACTIVATIONS))

    def __post_init__(self) -> None:
        if self.hid_layers < 0 or self.hid_dim < 1:
            raise UserError(f"--hid-layers {self.hid_layers} --hid-dim {self.hid_dim}: expected no fewer than 0 layers of 1 unit.")


def make_dnn(options: DnnOptions, input_dim: int, output_dim: int, device: torch.device | str = "cpu",
             dtype: torch.dtype = torch.float32, compute: torch.dtype | None = None) -> Model:
    """A DNN with all parameters zero; `dtype` and `compute` as in Model."""
    components: list[Component] = []
    dim = input_dim
    for _ in range(options.hid_layers):
        components += [Affine(dim, options.hid_dim), ACTIVATIONS[options.activation](options.hid_dim)]
        dim = options.hid_dim
    return Model([*components, Affine(dim, output_dim)], device, dtype, compute)


def init_dnn(model: Model, options: DnnOptions, generator: torch.Generator) -> None:
    """Random initialisation, drawn on the CPU, so that it is the same on every device."""
    target = torch.empty(len(model.params))
    for component, views in zip(model.components, model.views(target), strict=True):
        if not isinstance(component, Affine):
            continue
        fresh = Affine(component.input_dim, component.output_dim)
        fresh.bind(views)
        scale = glorot(component.input_dim, component.output_dim)
        if component is model.components[-1]:
            fresh.init(NNET1_STDDEV * scale if options.activation == "sigmoid" else scale, 0.0, 0.0, generator)
        elif options.activation == "sigmoid":
            fresh.init(NNET1_STDDEV * scale, -2.0, 4.0, generator)
        else:
            he = math.sqrt(2.0 / component.input_dim)
            fresh.init(he if options.activation == "relu" else scale, 0.0, 0.0, generator)
    model.params.copy_(target)
