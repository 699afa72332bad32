"""Restricted Boltzmann machines and contrastive divergence.

An RBM gives visible units v (V,) and hidden units h (H,) of {0, 1} the energy (Hinton, 2010; Mohamed et al., 2012)
    Bernoulli-Bernoulli:  E(v, h) = -b v - c h - h W v
    Gaussian-Bernoulli:   E(v, h) = |v - b|^2 / 2 - c h - h W v         (features of variance one)
so that
    p(h = 1 | v) = sigmoid(W v + c)
    E[v | h]     = sigmoid(W^T h + b), Gaussian units W^T h + b
    F(v)         = -log sum_h exp(-E(v, h)) = (-b v or |v - b|^2 / 2) - sum_j log(1 + exp(W v + c)_j)
With <.>0 under the data and <.>inf under the model, d log p(v) / dW = <h v>0 - <h v>inf. CD-k (Hinton, 2002) takes k steps of Gibbs
sampling from the data for the model's side. As in nnet1 the hidden states that reconstruct v are sampled, the reconstruction v' is the
mean, and both sides count hidden probabilities, which have less variance:
    gradient = sum over frames of  p(h | v') v' - p(h | v) v    for W,    p(h | v') - p(h | v) for c,    v' - v for b,
to be descended. It needs 3 + 2k matrix products.

A Gaussian-Bernoulli RBM can blow up: large weights reconstruct still larger data. nnet1's guard needs the standard deviation of data and of
reconstruction. Their moments are sums over frames like the gradient, and travel with it: the flat buffer ends in four places that hold
them in a gradient, and nothing in the parameters. So a minibatch's guard is the same whether one worker has all of it or many have parts.
"""

from __future__ import annotations

import copy

import numpy as np
import torch
from torch import Tensor

from pykaldist.frames.sampler import Minibatch, Sampler
from pykaldist.nnet import widening
from pykaldist.nnet.components import Affine, GradientRule, ParameterSpec, Pass, outer_product, sigmoid
from pykaldist.nnet.gemm import affine
from pykaldist.nnet.learner import Learner
from pykaldist.nnet.model import Model
from pykaldist.nnet.nnet1 import Nnet1, Nnet1Component
from pykaldist.pieces import pieces

UNITS = ("gauss", "bern")
BIAS_FLOOR = 1e-4  # mean activation of a Bernoulli unit, for its bias's start, from here to one minus this


class RbmUnits(Affine):
    """The parameters of an RBM as a component: forward from visible units to logits of hidden ones, W v + c."""

    def __init__(self, visible_units: str, visible_dim: int, hidden_dim: int) -> None:
        super().__init__(visible_dim, hidden_dim)
        self.num_moments = 4 if visible_units == "gauss" else 0

    def specs(self) -> list[ParameterSpec]:
        return [*super().specs(), ParameterSpec("visible_bias", (self.input_dim,)), ParameterSpec("moments", (self.num_moments,))]

    def bind(self, params: list[Tensor]) -> None:
        super().bind(params[:2])
        self.visible_bias = params[2]

    def backward(self, x: Tensor, y: Tensor, dy: Tensor, dx: Tensor | None, grads: list[Tensor], beta: float, rule: GradientRule,
                 run: Pass) -> None:
        # Model.backward asks every component; an RBM has no derivative to hand down, and its gradient comes from ContrastiveDivergence.
        raise NotImplementedError("an RBM learns by contrastive divergence")


class Rbm(Model):
    """An RBM over one flat parameter buffer: weight (H, V), hidden bias, visible bias, then places for moments (0 or 4)."""

    stochastic = True

    def __init__(self, visible_units: str, visible_dim: int, hidden_dim: int, device: torch.device | str = "cpu",
                 dtype: torch.dtype = torch.float32, compute: torch.dtype | None = None) -> None:
        if visible_units not in UNITS:
            raise ValueError(f"visible units are gauss or bern, found {visible_units!r}")
        self.visible_units = visible_units
        self.units = RbmUnits(visible_units, visible_dim, hidden_dim)
        super().__init__([self.units], device, dtype, compute)
        self.weight, self.bias, self.visible_bias, _ = self.views(self.params)[0]
        self.num_params = len(self.params) - self.units.num_moments

    def init(self, param_stddev: float, hid_bias_mean: float, hid_bias_range: float, generator: torch.Generator,
             visible_mean: Tensor | None = None) -> None:
        """Draw the parameters, on the CPU: Gaussian weights, hidden biases uniform over a range, visible ones zero or logit(visible_mean).
        """
        weight, bias = self.weight, self.bias
        self.params.zero_()
        weight.copy_(torch.empty(weight.shape).normal_(0.0, param_stddev, generator=generator))
        bias.copy_(torch.empty(bias.shape).uniform_(-0.5, 0.5, generator=generator).mul_(hid_bias_range).add_(hid_bias_mean))
        if visible_mean is not None:
            self.visible_bias.copy_(torch.logit(visible_mean, eps=BIAS_FLOOR))

    def reconstruct(self, hidden: Tensor, out: Tensor) -> None:
        """Reconstruct the visible units: out (n, V) <- E[v | h] for hidden states (n, H), with the parameters of the last forward."""
        if self.compute != hidden.dtype:
            hidden = self._activations.narrowed(hidden)
        affine(hidden, self.units.weight.t(), self.units.visible_bias, out)
        if self.visible_units == "bern":
            sigmoid(out, out)

    def free_energy(self, visible: Tensor, logits: Tensor) -> Tensor:
        """The free energy F (n,) of data (n, V) whose hidden units have these logits (n, H)."""
        bias = self.visible_bias
        own = -(visible @ bias) if self.visible_units == "bern" else 0.5 * (visible - bias).square_().sum(1)
        return own.sub_(torch.nn.functional.softplus(logits).sum(1))

    def to_nnet1(self) -> Nnet1:
        """Convert to the <Rbm> of nnet1."""
        arrays = {"vis_hid": self.weight, "vis_bias": self.visible_bias, "hid_bias": self.bias}
        return Nnet1([Nnet1Component("Rbm", self.output_dim, self.input_dim, {"vis_type": self.visible_units, "hid_type": "bern"},
                                     {name: array.cpu().numpy().astype(np.float32) for name, array in arrays.items()})])


class ContrastiveDivergence(Learner):
    """The learner that trains an RBM by CD-k.

    Its data are the activations that the frozen network `below` makes of a minibatch's inputs, or the inputs.

    Totals: squared error of the reconstruction, frames, free energy of held-out frames; free energy and frames of `sample`, which are
    training frames for comparison: where the free energy of held-out frames rises above theirs, the RBM overfits (Hinton, 2010, section 6).
    """

    model: Rbm
    num_totals = 5
    rate_option = "--rbm-lrate"

    def __init__(self, rbm: Rbm, below: Model | None = None, cd_steps: int = 1, sample: Sampler | None = None) -> None:
        self.model, self.below, self.cd_steps, self.sample = rbm, below, cd_steps, sample
        self.largest = 0 if sample is None else sample.minibatch_size
        if rbm.visible_units == "gauss":
            self.rate_option = "--rbm-lrate-low"
        self._capacity = 0
        self._data = torch.empty(0)
        self._mean: Tensor | None = None

    def reserve(self, rows: int) -> None:
        super().reserve(rows)
        if self.below is not None:
            self.below.reserve(rows)
        self._reserve(rows)

    @property
    def step_values(self) -> int:
        return max(super().step_values, 0 if self.below is None else self.below.step_values)

    def of(self, rbm: Rbm) -> ContrastiveDivergence:
        """The learner of another RBM of the same shape on the same data, which shares this one's buffers: one of them computes at a time.
        """
        rbm.share_activations(self.model)
        self._reserve(self.largest)
        other = copy.copy(self)
        other.model = rbm
        return other

    def visible(self, minibatch: Minibatch) -> Tensor:
        """The data (n, V) that the RBM sees of a minibatch."""
        if self.below is None:
            return minibatch.inputs
        data = self.below.forward(minibatch.inputs)
        if data.dtype == self.model.params.dtype:
            return data
        if len(self._data) < len(data):
            self._data = self.model.params.new_empty(data.shape)
        return self._data[: len(data)].copy_(data)

    def gradient(self, minibatch: Minibatch, grads: Tensor, beta: float, totals: Tensor, rule: GradientRule = outer_product) -> None:
        rbm, data = self.model, self.visible(minibatch)
        self._reserve(len(data))
        generator = self.training_generator(minibatch)
        hidden = sigmoid(rbm.forward(data), self._hidden[: len(data)])
        reconstruction = self._gibbs(hidden, generator)
        again = rbm.forward(reconstruction, changed=False)
        sigmoid(again, again)
        weight, bias, visible_bias, moments = rbm.views(grads)[0]
        if rbm.compute == rbm.params.dtype:
            rule(rbm.units.map, reconstruction, again, weight, bias, beta)
            rule(rbm.units.map, data, negative(hidden), weight, bias, 1.0)
        else:  # at once: the two products nearly cancel out, and each would be rounded
            n = len(data)
            visible, units = (buffer[: 2 * n] for buffer in self._pairs)
            for buffer, made, given in ((visible, reconstruction, data), (units, again, negative(hidden))):
                buffer[:n].copy_(made)
                buffer[n:].copy_(given)
            rule(rbm.units.map, visible, units, weight, bias, beta)
        if rbm.visible_units == "gauss":
            # of the data, then of the reconstruction: sum and sum of squares
            for place, values in ((0, data), (2, reconstruction)):
                flat = values.reshape(-1)
                _add(moments[place : place + 2], beta, torch.stack([flat.sum(), flat.dot(flat)]))
        for made, given in pieces(reconstruction, data):
            made.sub_(given)
        error = reconstruction
        _add(visible_bias, beta, error.sum(0))
        self._count(error, totals)

    def score(self, minibatch: Minibatch, totals: Tensor) -> None:
        rbm, data = self.model, self.visible(minibatch)
        self._reserve(len(data))
        logits = rbm.forward(data)
        totals[2] += rbm.free_energy(data, logits).sum(dtype=torch.float64)
        reconstruction = self._gibbs(logits.sigmoid_(), self.training_generator(minibatch))
        self._count(reconstruction.sub_(data), totals)
        if minibatch.last and self.sample is not None:
            for seen in self.sample.in_order():
                data = self.visible(seen)
                totals[3] += rbm.free_energy(data, rbm.forward(data)).sum(dtype=torch.float64)
                totals[4] += len(seen)

    def score_priors(self, minibatch: Minibatch, totals: Tensor) -> None:
        """Add the errors of a reconstruction that is the mean of `sample`, whatever the data are."""
        if self._mean is None:
            self._mean = self.visible_mean()
        self._count(self.visible(minibatch) - self._mean, totals)

    def metrics(self, totals: list[float]) -> dict[str, float]:
        """Means of the totals: `loss`, the squared error of the reconstruction a visible unit.

        Held-out data also have `free_energy`, and `free_energy_gap`, by how much it is above that of the training frames in
        `sample`.
        """
        error, frames, held_out, seen, seen_frames = totals
        found = {"loss": error / max(frames, 1.0) / self.model.input_dim}
        if seen_frames:
            found["free_energy"] = held_out / max(frames, 1.0)
            found["free_energy_gap"] = found["free_energy"] - seen / seen_frames
        return found

    def visible_mean(self) -> Tensor:
        """The mean (V,) of the data over `sample`."""
        assert self.sample is not None  # who asks for the mean has given a sample
        total = torch.zeros(self.model.input_dim, dtype=torch.float64, device=self.model.device)
        for minibatch in self.sample.in_order():
            total += self.visible(minibatch).sum(0)
        return (total / self.sample.frames).to(self.model.params.dtype)

    def _gibbs(self, hidden: Tensor, generator: torch.Generator) -> Tensor:
        """The reconstruction (n, V) after `cd_steps` from hidden probabilities (n, H)."""
        states, reconstruction = self._states[: len(hidden)], self._reconstruction[: len(hidden)]
        for step in range(self.cd_steps):
            probabilities = hidden if step == 0 else self.model.forward(reconstruction, changed=False)
            if step:
                sigmoid(probabilities, probabilities)
            if states.dtype == probabilities.dtype:
                states.uniform_(generator=generator)
                for state, probability in pieces(states, probabilities):
                    state.lt_(probability)
            else:
                widening.draw(states, probabilities, generator)
            self.model.reconstruct(states, reconstruction)
        return reconstruction

    @staticmethod
    def _count(error: Tensor, totals: Tensor) -> None:
        flat = error.reshape(-1)
        totals[0] += flat.dot(flat)
        totals[1] += len(error)

    def _reserve(self, rows: int) -> None:
        if rows > self._capacity:
            like = self.model.params
            narrow = self.model.compute != like.dtype
            self._hidden = like.new_empty(rows, self.model.output_dim)
            self._states = torch.empty_like(self._hidden, dtype=self.model.compute if like.is_cpu else like.dtype)
            self._reconstruction = like.new_empty(rows, self.model.input_dim)
            self._pairs = [like.new_empty(2 * rows * narrow, dim, dtype=self.model.compute)
                           for dim in (self.model.input_dim, self.model.output_dim)]
            self._capacity = rows


def negative(x: Tensor) -> Tensor:
    """Change the sign of x (n, units) in place; returns x."""
    for (part,) in pieces(x):
        part.neg_()
    return x


def _add(out: Tensor, beta: float, value: Tensor) -> None:
    """Add to a buffer: out <- beta out + value; what `out` held does not matter where beta is 0."""
    if beta == 0.0:
        out.copy_(value)
    else:
        out.mul_(beta).add_(value)
