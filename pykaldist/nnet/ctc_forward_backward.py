"""Forward-backward over the paths of CTC: on the CPU by PyTorch's loss, on a GPU in tensors, without waiting for it.

The labels l_1 .. l_L of an utterance make the states s = 0 .. 2 L of its paths: blank, l_1, blank, l_2, ..., l_L, blank. A path begins in
state 0 or 1, ends in state 2 L or 2 L - 1, and from frame to frame stays in its state, goes on by one, or skips the blank between two
labels that differ. With log p_t(s) the logarithm of the probability that the network gives the label of state s at frame t,

    alpha_t(s) = log p_t(s) + log(exp alpha_{t-1}(s) + exp alpha_{t-1}(s - 1) + [a skip is allowed] exp alpha_{t-1}(s - 2)).

Paths begin from a state -1 that lies before the others, so that the first frame is as all others. The sums beta from the end are alpha of
the utterance and its labels read backwards. So both are one pass over twice as many rows, which all begin at frame 0. With T frames,

    log P = log(exp alpha_{T-1}(2 L) + exp alpha_{T-1}(2 L - 1)),
    gamma_t(s) = exp(alpha_t(s) + beta_t(s) - log p_t(s) - log P),

the share of the paths' probability that goes through state s at frame t (Graves et al., 2006, section 4.1).

PyTorch's loss copies lengths to a GPU in each call, and waits for that. In tensors, whatever depends on labels and lengths is made on the
host and sent without waiting. All states of all utterances go through a frame at once, in four small kernels, in float64. A GPU records
those of some frames as a CUDA graph for each number of utterances and states, and replays it until the longest utterance is over.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import torch
from torch import Tensor

from pykaldist.frames.device_frames import to_device
from pykaldist.frames.packed import Sequences

BLANK = 0
PART = 32  # frames of a recorded graph
STATES = 32  # to a multiple of which states are padded, so that minibatches have few shapes
LEAST = -1e30  # logarithm of a probability, in place of -inf in a difference
BEFORE = 2  # columns before state 0, so that every state has two before it


def _advance(alpha: Tensor, emissions: Tensor, skips: Tensor) -> None:
    """Compute alpha[1:] (frames, rows, BEFORE + states) from alpha[0].

    `skips` (rows, states) is 0 where a path may come from two states before, and -inf elsewhere.
    """
    for t, log_probs in enumerate(emissions):
        before = alpha[t]
        paths = torch.logaddexp(before[:, 2:], before[:, 1:-1])
        torch.logaddexp(paths, before[:, :-2] + skips, out=paths)
        torch.add(paths, log_probs, out=alpha[t + 1, :, BEFORE:])


class Recursion:
    """The forward recursion of alpha over any number of frames.

    On a GPU a number of rows and states that comes the third time is recorded, and replayed from then on.
    """

    WARM_UP = 2
    SHAPES = 32  # recorded; others run as they are

    def __init__(self) -> None:
        self._seen: Counter[torch.Size] = Counter()
        self._recorded: dict[torch.Size, tuple[torch.cuda.CUDAGraph, Tensor, Tensor, Tensor]] = {}

    def __call__(self, alpha: Tensor, emissions: Tensor, skips: Tensor) -> None:
        """Compute alpha as `_advance` does, of a multiple of PART frames."""
        recorded = self._recorded_for(alpha, skips) if alpha.is_cuda else None
        if recorded is not None:
            recorded[3].copy_(skips)
        for first in range(0, len(emissions), PART):
            own, log_probs = alpha[first:first + PART + 1], emissions[first:first + PART]
            if recorded is None:
                _advance(own, log_probs, skips)
                continue
            graph, part, given, _ = recorded
            part[0].copy_(own[0])
            given.copy_(log_probs)
            graph.replay()
            own[1:].copy_(part[1:])

    def _recorded_for(self, alpha: Tensor, skips: Tensor) -> tuple[torch.cuda.CUDAGraph, Tensor, Tensor, Tensor] | None:
        if skips.shape not in self._recorded:
            self._seen[skips.shape] += 1
            if self._seen[skips.shape] <= self.WARM_UP or len(self._recorded) >= self.SHAPES:
                return None
            part = alpha.new_full((PART + 1, *alpha.shape[1:]), -torch.inf)
            graph, given, allowed = torch.cuda.CUDAGraph(), skips.new_empty(PART, *skips.shape), torch.empty_like(skips)
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                _advance(part, given, allowed)
            self._recorded[skips.shape] = graph, part, given, allowed
        return self._recorded[skips.shape]


class Layout:
    """Where the frames of a minibatch's utterances lie, on the host: of each frame `step`, `utt` and its `row` of the minibatch.

    Frames are packed, step by step. `offsets`: the first row of each step. `lengths`: the frames of each utterance, the longest first.
    """

    def __init__(self, sequences: Sequences) -> None:
        self.offsets, self.lengths = np.array(sequences.offsets()), sequences.real_lengths()
        self.steps, self.utts = int(self.lengths[0]), len(self.lengths)
        self.step, self.utt = (np.arange(self.steps)[:, None] < self.lengths).nonzero()
        self.row = self.offsets[self.step] + self.utt


class LabelStates:
    """The states of the utterances of a minibatch, and where its rows lie among them, on a device.

    `labels`: of all utterances, one behind the other; `label_lengths`: how many each has.
    """

    def __init__(self, layout: Layout, labels: np.ndarray, label_lengths: np.ndarray, device: torch.device) -> None:
        utts, own, step, lengths = layout.utts, layout.utt, layout.step, layout.lengths
        self.steps, self.utts = -(-layout.steps // PART) * PART, utts
        self.states = -(-(2 * int(label_lengths.max()) + 1) // STATES) * STATES
        whose = np.repeat(np.arange(utts), label_lengths)
        at = np.arange(len(labels)) - np.repeat(np.cumsum(label_lengths) - label_lengths, label_lengths)
        outputs = np.full((2, utts, self.states), BLANK, np.int64)  # forwards, and backwards
        outputs[0, whose, 2 * at + 1] = labels
        outputs[1, whose, 2 * (label_lengths[whose] - 1 - at) + 1] = labels
        skips = outputs != BLANK
        skips[..., 2:] &= outputs[..., 2:] != outputs[..., :-2]
        state, last = np.arange(self.states), 2 * label_lengths[:, None]
        mirrored = np.where(state <= last, BEFORE + last - state, 0)  # in column 0 nothing is
        places = np.stack([step * 2 * utts + own, (lengths[own] - 1 - step) * 2 * utts + utts + own])
        ends = (lengths * 2 * utts + np.arange(utts))[:, None] * (BEFORE + self.states) + BEFORE + last - np.arange(2)
        arrays = (own, outputs, np.where(skips, 0.0, -np.inf).reshape(2 * utts, -1).astype(np.float32), mirrored, places, ends)
        self.own, by_utt, self.skips, self.mirrored, self.places, self.ends = (
            to_device(torch.from_numpy(np.ascontiguousarray(array)), device) for array in arrays)
        self.outputs = by_utt[:, self.own]  # of the states of each row

    def emissions(self, forwards: Tensor, backwards: Tensor) -> Tensor:
        """The log probabilities (rows, states) of the states in both directions, as (steps, 2 utterances, states).

        They are 0 where an utterance is over, which no path that counts goes through.
        """
        found = forwards.new_zeros(self.steps * 2 * self.utts, self.states)
        for log_probs, places in zip((forwards, backwards), self.places, strict=True):
            found.index_copy_(0, places, log_probs)
        return found.view(self.steps, 2 * self.utts, self.states)


class Paths:
    """The sums over the paths of a minibatch, by PyTorch's own loss, for the CPU: `loss`, -log P summed over utterances.

    Utterances that have fewer frames than their labels need have no paths, and count nothing.
    """

    def __init__(self, outputs: Tensor, layout: Layout, labels: Tensor, label_lengths: Tensor) -> None:
        """`outputs` (rows, K): what the softmax is taken of. `labels` and `label_lengths` lie on the host, as those of `LabelStates`."""
        places = torch.from_numpy(layout.step * layout.utts + layout.utt)
        with torch.enable_grad():
            self._outputs = outputs.detach().requires_grad_(True)
            log_probs = self._outputs.log_softmax(1)
            padded = outputs.new_zeros(layout.steps * layout.utts, outputs.shape[1]).index_copy(0, places, log_probs)
            self._loss = torch.nn.functional.ctc_loss(padded.view(layout.steps, layout.utts, -1), labels, torch.from_numpy(layout.lengths),
                                                      label_lengths, BLANK, "sum", zero_infinity=True)
        self.loss = self._loss.detach()

    def derivative(self) -> Tensor:
        """The derivative of the loss by the outputs (rows, K): p - gamma, and 0 where there are no paths."""
        return torch.autograd.grad(self._loss, self._outputs)[0]


class TensorPaths:
    """The sums over the paths of a minibatch in tensors, for a GPU; the interface is that of `Paths`."""

    def __init__(self, outputs: Tensor, layout: Layout, labels: Tensor, label_lengths: Tensor, recursion: Recursion) -> None:
        self._states = states = LabelStates(layout, labels.numpy(), label_lengths.numpy(), outputs.device)
        self._log_probs = outputs.log_softmax(1)
        self._alpha = torch.full((states.steps + 1, 2 * states.utts, BEFORE + states.states), -torch.inf, dtype=torch.float64,
                                 device=outputs.device)
        self._alpha[0, :, BEFORE - 1] = 0.0
        self._of_states = self._log_probs.gather(1, states.outputs[0])
        recursion(self._alpha, states.emissions(self._of_states, self._log_probs.gather(1, states.outputs[1])), states.skips)
        loglike = self._alpha.view(-1)[states.ends].logsumexp(1)
        self._possible = loglike != -torch.inf  # what is no number stays none
        self._loglike = torch.where(self._possible, loglike, 0.0)
        self.loss = -self._loglike.sum()

    def derivative(self) -> Tensor:
        """The derivative of the loss by the outputs (rows, K), as `Paths.derivative`."""
        s, sums = self._states, self._alpha[1:].view(-1, BEFORE + self._states.states)
        gamma = sums[s.places[0]][:, BEFORE:].add_(sums[s.places[1]].gather(1, s.mirrored[s.own]))
        gamma.sub_(self._of_states.clamp_min(LEAST)).sub_(self._loglike[s.own].unsqueeze(1)).exp_()
        found = self._log_probs.exp().mul_(self._possible[s.own].unsqueeze(1))
        return found.scatter_add_(1, s.outputs[0], gamma.to(found.dtype).neg_())
