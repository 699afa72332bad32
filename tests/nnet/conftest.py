"""A small network of each activation."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from pykaldist.nnet.dnn import DnnOptions, make_dnn
from pykaldist.nnet.init import init_dnn
from pykaldist.nnet.network import FeatureTransform, Network


@pytest.fixture
def make_network() -> Callable[..., Network]:
    """`make_network("tanh", dropout=0.5)`: inputs of 2 spliced by -1..3, three hidden layers of 7, four pdfs, one never seen."""

    def make(activation: str, **shape: float | str) -> Network:
        options = DnnOptions(3, 7, activation, **shape)
        model = make_dnn(options, 10, 4)
        init_dnn(model, options, torch.Generator().manual_seed(1))
        shift, scale = torch.linspace(-1, 1, 10), torch.linspace(0.5, 2, 10)
        return Network(options, model, FeatureTransform([-1, 0, 1, 2, 3], shift, scale), torch.tensor([10, 0, 30, 60]))

    return make
