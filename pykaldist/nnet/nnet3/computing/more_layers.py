"""Layers in training beside those of TDNN-F: convolutions, attention, scales and offsets, functions, dropout, SpecAugment.

A convolution is trained as Kaldi trains it: its natural gradient is one of the minibatch's whole gradient, a matrix (filters out, columns
of patches and one of the bias), whose rows and then columns are preconditioned (`Nnet3Map.of_gradient`).

Scales s and offsets o, one for each dimension, have the contributions of the rows, x dy and dy, as the inputs of a map with one output
whose derivatives are ones: the gradient is their sum, and the natural gradient that of preconditioned rows.

A sigmoid or tanh unit whose mean derivative is below a threshold is *repaired*, in a random half of the minibatches, as rectified linear
units are: for the objective - 2 scale tanh(x), or - 2 scale (2 sigmoid(x) - 1), are added to its derivatives.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from pykaldist.errors import UserError
from pykaldist.nnet.components import GradientRule, ParameterSpec, add_up
from pykaldist.nnet.nnet3.components import Nnet3Component
from pykaldist.nnet.nnet3.computing.attention import Attention
from pykaldist.nnet.nnet3.computing.chunks import evenly
from pykaldist.nnet.nnet3.computing.convolution import Patches
from pykaldist.nnet.nnet3.computing.elementwise import FUNCTIONS
from pykaldist.nnet.nnet3.computing.masks import frequency_mask, time_mask
from pykaldist.nnet.nnet3.layers import PERIOD, REPAIR_PROBABILITY, Affine, Layer, Nnet3Map, Rectified, Run, widened

HISTORY_OF_SCALES = 2000.0  # samples; Kaldi's of components whose files do not say it


class Convolution(Affine):
    """TimeHeightConvolutionComponent: an affine map of patches."""

    def __init__(self, component: Nnet3Component) -> None:
        super().__init__(component)
        self.patches, self.output_dim = Patches(component), component.output_dim
        self.map.of_gradient = self.map.ranks is not None
        self.map.minibatches_history = component.number("NumMinibatchesHistory")

    def specs(self) -> list[ParameterSpec]:
        return [ParameterSpec("weight", (self.map.output_dim, self.map.input_dim)), ParameterSpec("bias", (self.map.output_dim,))]

    def forward(self, x: Tensor, run: Run) -> Tensor:
        assert self.bias is not None
        run.memory = self.patches.of(x[:, :self._inputs])
        return torch.addmm(self.bias, run.memory, self.weight.t()).view(len(x), -1)

    @property
    def _inputs(self) -> int:
        return self.patches.times * self.component.input_dim

    def derivative(self, x: Tensor, y: Tensor, dy: Tensor, run: Run) -> Tensor:
        return self.patches.back(dy.reshape(-1, self.map.output_dim) @ self.weight)

    def accumulate(self, x: Tensor, dy: Tensor, run: Run, grads: list[Tensor], beta: float, rule: GradientRule) -> None:
        rule(self.map, run.memory, dy.reshape(-1, self.map.output_dim), grads[0], grads[1], beta)


class Attended(Layer):
    """RestrictedAttentionComponent (`attention.py`). The statistics in its file, which nothing depends on, stay as they are."""

    def __init__(self, component: Nnet3Component) -> None:
        super().__init__(component)
        self.attention = Attention(component)
        self._rows: dict[tuple[bytes, bytes], list[Tensor | slice]] = {}  # on the device, to which they are copied once

    def forward(self, x: Tensor, run: Run) -> Tensor:
        y, run.memory = self.attention.forward(self._frames(x, run), self._looked_at(x, run))
        return y.view(-1, self.output_dim).to(x.dtype)

    def derivative(self, x: Tensor, y: Tensor, dy: Tensor, run: Run) -> Tensor:
        frames = widened(dy).view(-1, run.sequences, self.output_dim)
        return self.attention.backward(self._frames(x, run), self._looked_at(x, run), run.memory, frames).view(x.shape).to(x.dtype)

    def _frames(self, x: Tensor, run: Run) -> Tensor:
        return widened(x).view(-1, run.sequences, self.input_dim)

    def _looked_at(self, x: Tensor, run: Run) -> list[Tensor | slice]:
        """Of each offset the rows of the input at which the outputs look."""
        assert run.taken is not None
        key = run.taken.tobytes(), run.times.tobytes()
        if key not in self._rows:
            found = (evenly(np.searchsorted(run.taken, run.times + offset)) for offset in self.attention.offsets)
            self._rows[key] = [rows if isinstance(rows, slice) else torch.from_numpy(rows).to(x.device) for rows in found]
        return self._rows[key]


class ScalesAndOffsets(Layer):
    """ScaleAndOffsetComponent and the PerElement components: y = s x + o, either of them left out where the component has none."""

    def __init__(self, component: Nnet3Component) -> None:
        super().__init__(component)
        arrays = component.parameters
        self.tokens = {"scale": next((token for token in ("Scales", "Params") if token in arrays), ""),
                       "offset": "Offsets" if "Offsets" in arrays else ""}
        self.names = [name for name, token in self.tokens.items() if token]
        self.block = len(arrays[self.tokens[self.names[0]]])
        values = component.values
        coef = cast(float, values.get("LearningRateFactor", 1.0))
        natural = component.type == "NaturalGradientPerElementScaleComponent" or bool(values.get("UseNaturalGradient"))
        rank = cast(int, values.get("Rank", 20))
        self.own = {name: Nnet3Map(self.block, 1, (name,), coef, coef, ranks=(rank, 0) if natural else None,
                                   num_samples_history=cast(float, values.get("NumSamplesHistory", HISTORY_OF_SCALES)),
                                   update_period=PERIOD, l2_regularize=cast(float, values.get("L2Regularize", 0.0)),
                                   max_change=cast(float, values.get("MaxChange", 0.0))) for name in self.names}
        self.maps = [*self.own.values()]

    def specs(self) -> list[ParameterSpec]:
        return [ParameterSpec(name, (1, self.block)) for name in self.names]

    def bind(self, params: list[Tensor]) -> None:
        self.bound = dict(zip(self.names, params, strict=True))

    def initial(self) -> list[np.ndarray]:
        return [self.component.array(self.tokens[name]).reshape(1, -1) for name in self.names]

    def to_component(self, params: list[np.ndarray], learn_rate: float | None) -> dict[str, Any]:
        rate = {} if learn_rate is None else {"LearningRate": learn_rate * self.maps[0].learn_rate_coef}
        return {**rate, **{self.tokens[name]: value.reshape(-1) for name, value in zip(self.names, params, strict=True)}}

    def forward(self, x: Tensor, run: Run) -> Tensor:
        y = x[:, :self.input_dim].reshape(-1, self.block)
        if "scale" in self.bound:
            y = y * self.bound["scale"]
        if "offset" in self.bound:
            y = y + self.bound["offset"]
        return y.view(len(x), -1)

    def derivative(self, x: Tensor, y: Tensor, dy: Tensor, run: Run) -> Tensor:
        rows = dy.reshape(-1, self.block)
        return (rows * self.bound["scale"] if "scale" in self.bound else rows.clone()).view(dy.shape)

    def accumulate(self, x: Tensor, dy: Tensor, run: Run, grads: list[Tensor], beta: float, rule: GradientRule) -> None:
        rows, inputs = dy.reshape(-1, self.block), x[:, :self.input_dim].reshape(-1, self.block)
        contributions = {"scale": rows * inputs, "offset": rows} if "scale" in self.bound else {"offset": rows}
        for name, gradient in zip(self.names, grads, strict=True):
            rule(self.own[name], contributions[name], rows.new_ones(len(rows), 1), gradient, None, beta)


class FixedScale(Layer):
    """FixedScaleComponent: dimensions times numbers that are not trained."""

    def __init__(self, component: Nnet3Component) -> None:
        super().__init__(component)
        self.scales = torch.from_numpy(component.array("Scales").copy())

    def forward(self, x: Tensor, run: Run) -> Tensor:
        self.scales = self.scales.to(x.device, x.dtype)
        return x * self.scales

    def derivative(self, x: Tensor, y: Tensor, dy: Tensor, run: Run) -> Tensor:
        return dy * self.scales


class Elementwise(Layer):
    """A component without parameters, each frame for itself (`elementwise.py`)."""

    def __init__(self, component: Nnet3Component) -> None:
        super().__init__(component)
        self.function = FUNCTIONS[component.type](component)

    def forward(self, x: Tensor, run: Run) -> Tensor:
        return self.function.forward(x)

    def derivative(self, x: Tensor, y: Tensor, dy: Tensor, run: Run) -> Tensor:
        return self.function.backward(x, y, dy)


class Squashed(Rectified):
    """SigmoidComponent and TanhComponent, with self-repair and its statistics."""

    def __init__(self, component: Nnet3Component) -> None:
        super().__init__(component)
        self.function, self.sigmoid = FUNCTIONS[component.type](component), component.type == "SigmoidComponent"
        self.threshold = cast(float, component.values.get("SelfRepairLowerThreshold", 0.05 if self.sigmoid else 0.2))

    def forward(self, x: Tensor, run: Run) -> Tensor:
        return self.function.forward(x)

    def gather(self, y: Tensor, run: Run, grads: list[Tensor], beta: float) -> None:
        slopes = self.function.backward(y, y, torch.ones_like(y))  # which follow from the outputs alone
        for gradient, value in zip(grads, (torch.full_like(grads[0], len(y)), y.sum(0, dtype=grads[1].dtype),
                                           slopes.sum(0, dtype=grads[2].dtype)), strict=True):
            add_up(gradient, value, beta)

    def derivative(self, x: Tensor, y: Tensor, dy: Tensor, run: Run) -> Tensor:
        dx = self.function.backward(x, y, dy)
        if self.repair and run.generator is not None:
            flat = self.derivatives < self.threshold * self.count
            chosen = torch.rand(1, generator=run.generator, device=dy.device) < REPAIR_PROBABILITY
            push = (flat * (chosen & (self.count > 0))).to(dy.dtype) * (self.repair / REPAIR_PROBABILITY)
            dx += (2 * y - 1 if self.sigmoid else y) * push
        return dx


class Masked(Layer):
    """A layer that puts zeros, or numbers, in the place of the ones of a mask that multiplies its inputs, in training."""

    stochastic = True

    def __init__(self, component: Nnet3Component) -> None:
        super().__init__(component)
        if component.values.get("TestMode"):
            raise UserError(f"component {component.name} is in test mode, which is not for training; take the network as it was before "
                            "--prepare-for-test.")

    def mask(self, x: Tensor, run: Run, generator: torch.Generator) -> Tensor | None:
        """The mask, which goes with x (frames, sequences, dim); None: nothing is masked."""
        raise NotImplementedError

    def forward(self, x: Tensor, run: Run) -> Tensor:
        frames = x.reshape(-1, run.sequences, self.input_dim)
        run.memory = self.mask(frames, run, run.generator) if run.training and run.generator is not None else None
        return x if run.memory is None else (frames * run.memory.to(x.dtype)).view(x.shape)

    def derivative(self, x: Tensor, y: Tensor, dy: Tensor, run: Run) -> Tensor:
        if run.memory is None:
            return dy
        return (dy.reshape(-1, run.sequences, self.input_dim) * run.memory.to(dy.dtype)).view(dy.shape)


class PlainDropout(Masked):
    """DropoutComponent: zeros with a probability, of elements or of whole frames; what stays is not scaled up, but all down in the test."""

    def __init__(self, component: Nnet3Component) -> None:
        super().__init__(component)
        self.proportion, self.per_frame = component.number("DropoutProportion"), bool(component.values["DropoutPerFrame"])

    def to_component(self, params: list[np.ndarray], learn_rate: float | None) -> dict[str, Any]:
        return {"DropoutProportion": self.proportion}

    def forward(self, x: Tensor, run: Run) -> Tensor:
        return super().forward(x, run) if run.training else x * (1 - self.proportion)

    def mask(self, x: Tensor, run: Run, generator: torch.Generator) -> Tensor | None:
        shape = (*x.shape[:2], 1) if self.per_frame else tuple(x.shape)
        return torch.rand(shape, generator=generator, device=x.device) > self.proportion if self.proportion else None


class FrequencyMasked(Masked):
    """GeneralDropoutComponent with a specaugment-max-proportion: a band of dimensions of each sequence is zero."""

    def __init__(self, component: Nnet3Component) -> None:
        super().__init__(component)
        self.most, self.block = component.number("SpecAugmentMaxProportion"), component.integer("BlockDim")
        self.period = component.integer("TimePeriod")
        if component.values.get("SpecAugmentMaxRegions", 1) != 1:
            raise UserError(f"component {component.name} masks several regions of frequencies (specaugment-max-regions), which is not "
                            "trained here: leave that field out.")

    def mask(self, x: Tensor, run: Run, generator: torch.Generator) -> Tensor | None:
        period = run.times // self.period if self.period else np.zeros(len(run.times), int)
        number = np.unique(period, return_inverse=True)[1]
        masks = frequency_mask((int(number.max()) + 1) * run.sequences, self.block, self.most, generator, x.device)
        masks = masks.view(-1, run.sequences, self.block).repeat(1, 1, self.input_dim // self.block)
        return masks if len(masks) == 1 else masks[torch.from_numpy(number).to(x.device)]


class TimeMasked(Masked):
    """SpecAugmentTimeMaskComponent: stretches of frames of each sequence are zero."""

    def mask(self, x: Tensor, run: Run, generator: torch.Generator) -> Tensor | None:
        zeroed, frames = self.component.number("ZeroedProportion"), self.component.integer("TimeMaskMaxFrames")
        return time_mask(len(x), run.sequences, zeroed, frames, generator, x.device)[:, :, None] if zeroed else None
