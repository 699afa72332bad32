"""The forward pass of an nnet1 network over an utterance, component by component, as Kaldi's nnet-forward makes it.

LSTM cells (Sak et al., 2014; Kaldi's LstmProjected), with r the projected output of the frame before and gates in the order g, i, f, o:
    [g i f o] = W_x x + W_r r + b;   i = sigmoid(i + p_i c');   f = sigmoid(f + p_f c');   c = clip(tanh(g) i + c' f)
    o = sigmoid(o + p_o c);          m = o tanh(c);             r = W_rm m
where c' is the cell of the frame before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pykaldist.devices import computing_on
from pykaldist.kernels import kernel
from pykaldist.nnet.nnet1 import Nnet1


@dataclass(frozen=True)
class Layer:
    """A component of a network on a device: its options, and its arrays there."""

    options: dict[str, float | int | str]
    arrays: dict[str, Tensor]


class Nnet1Forward:
    """The forward pass of a network on `device`, to which the network's arrays are copied once. LSTM cells compute on the CPU."""

    def __init__(self, nnet: Nnet1, device: str = "cpu") -> None:
        self._nnet, self._device = nnet, device
        self._layers = [(FORWARD[c.marker], Layer(c.options, {name: torch.from_numpy(a).to(device) for name, a in c.arrays.items()}))
                        for c in nnet.components]

    def __call__(self, feats: np.ndarray) -> np.ndarray:
        """Compute the outputs (T, output_dim) float32 for one utterance (T, input_dim); Splice and LSTM see the utterance as a whole."""
        if feats.ndim != 2 or feats.shape[1] != self._nnet.input_dim:
            raise ValueError(f"expected frames of dimension {self._nnet.input_dim}, found {feats.shape}")
        with torch.no_grad(), computing_on(self._device):
            x = torch.from_numpy(np.require(feats, np.float32, ["C", "W"])).to(self._device)
            for forward, layer in self._layers:
                x = forward(layer, x)
            return x.cpu().numpy()


def _affine(c: Layer, x: Tensor) -> Tensor:
    return torch.addmm(c.arrays["bias"], x, c.arrays["linearity"].t())


def _parametric_relu(c: Layer, x: Tensor) -> Tensor:
    return torch.where(x >= 0, x * c.arrays["alpha"], x * c.arrays["beta"])


def _splice(c: Layer, x: Tensor) -> Tensor:
    rows = torch.arange(len(x), device=x.device)[:, None] + c.arrays["frame_offsets"]
    return x[rows.clamp_(0, len(x) - 1)].flatten(1)


def _convolution(c: Layer, x: Tensor) -> Tensor:
    """Convolution over frequency, each patch spanning every spliced frame; outputs patch by patch."""
    dim, step, stride = (int(c.options[k]) for k in ("PatchDim", "PatchStep", "PatchStride"))
    spliced = x.view(len(x), -1, stride).unfold(2, dim, step)  # frames, splice, patches, dim
    patches = spliced.permute(0, 2, 1, 3).flatten(2)
    return (patches @ c.arrays["Filters"].t() + c.arrays["Bias"]).flatten(1)


def _pooling(reduce: Callable[[Tensor], Tensor]) -> Callable[[Layer, Tensor], Tensor]:
    def pool(c: Layer, x: Tensor) -> Tensor:
        size, step, stride = (int(c.options[k]) for k in ("PoolSize", "PoolStep", "PoolStride"))
        return reduce(x.view(len(x), -1, stride).unfold(1, size, step)).flatten(1)  # frames, pools, stride

    return pool


def _rbm(c: Layer, x: Tensor) -> Tensor:
    hidden = torch.addmm(c.arrays["hid_bias"], x, c.arrays["vis_hid"].t())
    return hidden.sigmoid() if c.options["hid_type"] == "bern" else hidden


def _lstm_direction(c: Layer, x: Tensor, prefix: str = "") -> Tensor:
    a = {name: c.arrays[prefix + name].cpu().numpy() for name in ("w_gifo_r", "peephole_i_c", "peephole_f_c", "peephole_o_c", "w_r_m")}
    gates = torch.addmm(c.arrays[prefix + "bias"], x, c.arrays[prefix + "w_gifo_x"].t()).cpu().numpy()
    return torch.from_numpy(_lstm_frames(gates, a["w_gifo_r"], a["peephole_i_c"], a["peephole_f_c"], a["peephole_o_c"], a["w_r_m"],
                                         np.float32(c.options["CellClip"]))).to(x.device)


@kernel
def _lstm_frames(gates: np.ndarray, w_r: np.ndarray, peep_i: np.ndarray, peep_f: np.ndarray, peep_o: np.ndarray, w_rm: np.ndarray,
                 clip: np.float32) -> np.ndarray:  # pragma: no cover - compiled
    frames, cells = gates.shape[0], peep_i.shape[0]
    out = np.zeros((frames, w_rm.shape[0]), np.float32)
    r, c = np.zeros(w_rm.shape[0], np.float32), np.zeros(cells, np.float32)
    for t in range(frames):
        z = gates[t] + np.dot(w_r, r)
        g, i, f, o = z[:cells], z[cells : 2 * cells], z[2 * cells : 3 * cells], z[3 * cells :]
        i = 1 / (1 + np.exp(-(i + peep_i * c)))
        f = 1 / (1 + np.exp(-(f + peep_f * c)))
        c = (np.tanh(g) * i + c * f).astype(np.float32)
        if clip > 0:
            c = np.minimum(np.maximum(c, -clip), clip)
        o = 1 / (1 + np.exp(-(o + peep_o * c)))
        r = np.dot(w_rm, (o * np.tanh(c)).astype(np.float32))
        out[t] = r
    return out


def _blstm(c: Layer, x: Tensor) -> Tensor:
    return torch.cat([_lstm_direction(c, x, "f_"), _lstm_direction(c, x.flip(0), "b_").flip(0)], 1)


FORWARD: dict[str, Callable[[Layer, Tensor], Tensor]] = {
    "AffineTransform": _affine,
    "LinearTransform": lambda c, x: x @ c.arrays["linearity"].t(),
    "Sigmoid": lambda c, x: x.sigmoid(),
    "Tanh": lambda c, x: x.tanh(),
    "Softmax": lambda c, x: x.softmax(1),
    "HiddenSoftmax": lambda c, x: x.softmax(1),
    "ParametricRelu": _parametric_relu,
    "Dropout": lambda c, x: x,  # outputs are scaled in training
    "Splice": _splice,
    "Copy": lambda c, x: x[:, c.arrays["copy_from_indices"].long()],
    "AddShift": lambda c, x: x + c.arrays["shift"],
    "Rescale": lambda c, x: x * c.arrays["scale"],
    "ConvolutionalComponent": _convolution,
    "MaxPoolingComponent": _pooling(lambda pools: pools.amax(-1)),
    "AveragePoolingComponent": _pooling(lambda pools: pools.mean(-1)),
    "LstmProjected": _lstm_direction,
    "BlstmProjected": _blstm,
    "Rbm": _rbm,
}
