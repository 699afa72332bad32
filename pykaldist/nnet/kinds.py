"""The kinds of networks by their names (`--nnet`), and published networks as presets.

A preset is a kind, and its options where they differ from the kind's defaults.

    su2015-dnn       Su, Chen & Xu (2015): 6 x 2048 sigmoid
    chen2016-dnn     Chen & Huo (2016), SWB + Fisher: 7 x 2048 ReLU
    chen2016-dblstm  the same, SWB: 5 x 512 (256 + 256), on chunks 21-64+21
    chan2015-cnn     Chan (2015), GTC slides, which do not say sizes: those of Sainath et al. (2013), 256 filters 9 x 9, pools of 3 bands,
                     256 filters of 3 frames x 4 bands, 4 x 1024, on filterbanks with two deltas
    chan2015-rnn     the same slides: LSTM whose cell activations are clipped; size as Sak et al. (2014), 2 x 800 with projection to 512
    ibm2019-lstm     Zhang et al. (2019): 6 bidirectional layers of 1024 (512 + 512), linear bottleneck of 256, unrolled over 21 frames

Each has a `-small` version, of the same kind, for two cores.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from pykaldist.frames.sequences import SequenceOptions
from pykaldist.nnet.cnn import CnnOptions, init_cnn, make_cnn
from pykaldist.nnet.dnn import DnnOptions, make_dnn
from pykaldist.nnet.init import OF_ACTIVATION, init_dnn
from pykaldist.nnet.lstm import BlstmOptions, LstmOptions, init_recurrent, make_recurrent
from pykaldist.nnet.model import Model


@dataclass(frozen=True)
class Kind:
    """A kind of network: its options, how a model is made of them, and how it gets its initial weights."""

    options: type
    make: Callable[..., Model]
    init: Callable[..., None]


KINDS: dict[str, Kind] = {
    "dnn": Kind(DnnOptions, make_dnn, init_dnn),
    "cnn": Kind(CnnOptions, make_cnn, init_cnn),
    "lstm": Kind(LstmOptions, make_recurrent, init_recurrent),
    "blstm": Kind(BlstmOptions, make_recurrent, init_recurrent),
}

PRESETS: dict[str, tuple[str, dict[str, Any]]] = {
    "su2015-dnn": ("dnn", {"hid_layers": 6, "hid_dim": 2048, "activation": "sigmoid"}),
    "su2015-dnn-small": ("dnn", {"hid_layers": 4, "hid_dim": 512, "activation": "sigmoid"}),
    "chen2016-dnn": ("dnn", {"hid_layers": 7, "hid_dim": 2048, "activation": "relu"}),
    "chen2016-dnn-small": ("dnn", {"hid_layers": 5, "hid_dim": 512, "activation": "relu"}),
    "chen2016-dblstm": ("blstm", {"hid_layers": 5, "hid_dim": 512}),
    "chen2016-dblstm-small": ("blstm", {"hid_layers": 2, "hid_dim": 256}),
    "chan2015-cnn": ("cnn", {"conv": "9x9x256/3,3x4x256", "channels": 3, "hid_layers": 4, "hid_dim": 1024}),
    "chan2015-cnn-small": ("cnn", {"conv": "8x8x32/3,3x4x64", "channels": 3, "hid_layers": 2, "hid_dim": 512}),
    "chan2015-rnn": ("lstm", {"hid_layers": 2, "hid_dim": 800, "projection_dim": 512, "cell_clip": 50.0}),
    "chan2015-rnn-small": ("lstm", {"hid_layers": 2, "hid_dim": 256, "cell_clip": 50.0}),
    "ibm2019-lstm": ("blstm", {"hid_layers": 6, "hid_dim": 1024, "bottleneck_dim": 256, "chunk": "21", "num_streams": 128}),
    "ibm2019-lstm-small": ("blstm", {"hid_layers": 2, "hid_dim": 256, "bottleneck_dim": 64, "chunk": "21", "num_streams": 32}),
}


def default_splice(options: Any, context: int | None = None) -> list[int]:
    """The frames that make an input, relative to its own: `context` on each side (5; none for recurrent networks), later by the delay."""
    around = (0 if isinstance(options, SequenceOptions) else 5) if context is None else context
    delay = getattr(options, "target_delay", 0)
    return list(range(delay - around, delay + around + 1))


def kind_of(options: Any) -> str:
    """The name of the kind of network that has these options."""
    return next(name for name, kind in KINDS.items() if kind.options is type(options))


def make_nnet(options: Any, input_dim: int, output_dim: int, splice: int, device: torch.device | str = "cpu",
              dtype: torch.dtype = torch.float32, compute: torch.dtype | None = None) -> Model:
    """Make a network of any kind, with all parameters zero; inputs are `splice` frames each, `dtype` and `compute` as in Model."""
    images = {"frames": splice} if isinstance(options, CnnOptions) else {}
    return KINDS[kind_of(options)].make(options, input_dim, output_dim, device=device, dtype=dtype, compute=compute, **images)


def init_nnet(model: Model, options: Any, generator: torch.Generator, init: Any = None) -> None:
    """Draw a network's initial weights; `init` is an instance of one of `INITS`, or None for `default_init`'s at its defaults."""
    KINDS[kind_of(options)].init(model, options, generator, init)


def default_init(options: Any) -> str:
    """The name of the initialisation of a network's affine layers where none is asked for."""
    return OF_ACTIVATION.get(getattr(options, "activation", ""), "glorot")


