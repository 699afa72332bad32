"""A network's forward pass with 8-bit integers: the affine maps of a DNN, quantised for decoding on a CPU.

A weight matrix is quantised once, symmetrically, with a scale s_j for each output j: W_jk ~ s_j Wq_jk, Wq from -127 to 127. The inputs of a
map are quantised as they come (dynamically), likewise with a scale r_i for each frame i. The product of the integers is exact in 32 bits:
    y_ij = r_i s_j sum_k Xq_ik Wq_jk + b_j.
So a frame's result does not depend on the frames beside it. Nonlinearities, biases and the softmax are float32.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pykaldist.errors import UserError
from pykaldist.nnet.arithmetic import cpu
from pykaldist.nnet.components import Affine, Component, Linear, Pass
from pykaldist.nnet.model import Model

LARGEST = 127
ROWS = 512  # frames at a time, whose activations stay in the cache
TINY = 1e-30
#: What multiplies 8-bit integers without overflow, by the names of /proc/cpuinfo and by their makers' names.
MULTIPLIES = {"amx_int8": "AMX", "avx512_vnni": "AVX512-VNNI", "avx_vnni": "AVX-VNNI"}


def check_int8(model: Model) -> None:
    """Check that a network can compute with 8-bit integers here; raises UserError where it cannot."""
    if model.device.type != "cpu":
        raise UserError(f"--dtype int8 is for CPUs, and the network is on {model.device}; add --device cpu, or use float32.")
    if model.recurrent or not all(isinstance(component, (Affine, Linear)) for component in model.components if component.maps):
        raise UserError("--dtype int8 is for networks whose maps are all affine layers (--nnet dnn), and this one has others; use float32.")
    name, _, flags = cpu()
    if not flags.intersection(MULTIPLIES):
        raise UserError(f"--dtype int8 needs a CPU with {', '.join(MULTIPLIES.values())}, and this one ({name}) has none of them; use "
                        "float32.")
    if not torch.backends.mkldnn.is_available():
        raise UserError(f"--dtype int8 needs a PyTorch with oneDNN, and this one ({torch.__version__}) has none; use float32.")


def quantised(x: Tensor) -> tuple[Tensor, Tensor]:
    """Quantise the rows of x (n, columns), symmetrically: (int8 values, scales (n, 1)) whose product is about x."""
    scales = x.abs().amax(1, keepdim=True).clamp_min_(TINY).div_(LARGEST)
    return torch.mul(x, scales.reciprocal()).round_().to(torch.int8), scales


class QuantisedMap:
    """An affine or linear map y = x W^T + b, with W (out, in) quantised."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        values, scales = quantised(weight)
        self._values, self._scales = values.t().contiguous(), scales.view(1, -1).contiguous()
        self._bias = weight.new_zeros(len(weight)) if bias is None else bias.clone()

    def __call__(self, x: Tensor) -> Tensor:
        """Compute y (n, out) of x (n, in)."""
        values, scales = quantised(x)
        y = torch._int_mm(values, self._values).to(x.dtype)
        return torch.addcmul(self._bias, y.mul_(scales), self._scales, out=y)


class QuantisedModel:
    """A DNN's forward pass with quantised maps, of the parameters that it has when this is made."""

    def __init__(self, model: Model) -> None:
        check_int8(model)
        self._steps: list[QuantisedMap | Component] = [
            QuantisedMap(component.weight, getattr(component, "bias", None)) if isinstance(component, (Affine, Linear)) else component
            for component in model.components]

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute logits (n, output_dim) of inputs (n, input_dim)."""
        return torch.cat([self._part(part) for part in inputs.split(ROWS)])

    def _part(self, x: Tensor) -> Tensor:
        for step in self._steps:
            if isinstance(step, QuantisedMap):
                x = step(x)
            else:  # a nonlinearity, or dropout, which in use changes nothing
                y = x if step.in_place else torch.empty_like(x)
                step.forward(x, y, Pass())
                x = y
        return x
