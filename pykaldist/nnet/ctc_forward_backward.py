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

PyTorch's loss copies lengths to a GPU in each call, and waits for that. In tensors, a minibatch's labels and lengths are one small table,
which is sent without waiting, and all else depends on shapes alone, so that a CUDA graph can have it. All states of all utterances go
through a frame at once, in four small kernels, in float64. Steps behind an utterance's last frame, and states behind its last one, are
computed with what lies there, and never looked at: no path comes back from them.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

BLANK = 0
STATES = 64  # to a multiple of which states are padded, so that minibatches have few shapes
LEAST = -1e30  # logarithm of a probability, in place of -inf in a difference
BEFORE = 2  # columns before state 0, so that every state has two before it


class Paths:
    """The sums over the paths of a minibatch, by PyTorch's own loss, for the CPU: `loss`, -log P summed over utterances.

    Utterances that have fewer frames than their labels need have no paths, and count nothing.
    """

    def __init__(self, outputs: Tensor, lengths: np.ndarray, labels: Tensor, label_lengths: Tensor) -> None:
        """`outputs` (steps, utterances, K): what the softmax is taken of. `lengths`: the frames of each utterance.

        `labels`: of all utterances, one behind the other; `label_lengths`: how many each has.
        """
        with torch.enable_grad():
            self._outputs = outputs.detach().requires_grad_(True)
            self._loss = torch.nn.functional.ctc_loss(self._outputs.log_softmax(2), labels, torch.from_numpy(lengths), label_lengths, BLANK,
                                                      "sum", zero_infinity=True)
        self.loss = self._loss.detach()

    def derivative(self) -> Tensor:
        """The derivative of the loss by the outputs: p - gamma, and 0 where there are no paths and behind an utterance's frames."""
        return torch.autograd.grad(self._loss, self._outputs)[0]


def state_table(lengths: np.ndarray, labels: np.ndarray, label_lengths: np.ndarray, utts: int) -> np.ndarray:
    """What `TensorPaths` has to know of utterances, int64 (utts, 2 + states): frames, last state 2 L, and the output of each state.

    Arguments as of `Paths`; rows beyond the utterances that there are have no frames.
    """
    states = -(-(2 * int(label_lengths.max()) + 1) // STATES) * STATES
    table = np.zeros((utts, 2 + states), np.int64)
    table[:, 2:] = BLANK
    table[: len(lengths), 0], table[: len(lengths), 1] = lengths, 2 * label_lengths
    whose = np.repeat(np.arange(len(lengths)), label_lengths)
    at = np.arange(len(labels)) - np.repeat(np.cumsum(label_lengths) - label_lengths, label_lengths)
    table[whose, 2 + 2 * at + 1] = labels
    return table


class TensorPaths:
    """The sums over the paths of a minibatch in tensors, for a GPU, with a `state_table` on it; the interface is that of `Paths`."""

    def __init__(self, outputs: Tensor, table: Tensor) -> None:
        steps, utts, states = *outputs.shape[:2], table.shape[1] - 2
        lengths, last, own = table[:, 0], table[:, 1:2], table[:, 2:]
        step, state = (torch.arange(size, device=table.device) for size in (steps, states))
        self._utt = torch.arange(utts, device=table.device)
        self._real = step[:, None] < lengths
        self._back = (lengths - 1 - step[:, None]).clamp_min_(0)  # the step that backwards is this one
        mirrored = last - state  # the state that backwards is this one; behind the last there is none
        self._column = (BEFORE + mirrored).clamp_min_(0)  # in the columns before state 0 nothing is, behind the first frame
        mirrored.clamp_min_(0)
        self._log_probs, self._outputs = outputs.log_softmax(2), own.expand(steps, -1, -1)
        self._emissions = self._log_probs.gather(2, self._outputs)
        backwards = self._emissions[self._back, self._utt].gather(2, mirrored.expand(steps, -1, -1))
        skips = torch.cat([own, own.gather(1, mirrored)])
        allowed = skips != BLANK
        allowed[:, 2:] &= skips[:, 2:] != skips[:, :-2]
        self._alpha = self._sums(torch.cat([self._emissions, backwards], 1), allowed)
        ends = self._alpha[lengths, self._utt].gather(1, BEFORE + last - state[:2])
        loglike = ends.logsumexp(1)
        self._possible = loglike != -torch.inf  # what is no number stays none
        self._loglike = loglike.masked_fill(~self._possible, 0.0)
        self.loss = -self._loglike.sum()

    @staticmethod
    def _sums(emissions: Tensor, allowed: Tensor) -> Tensor:
        """Alpha (1 + steps, rows, BEFORE + states), float64, of emissions (steps, rows, states).

        `allowed` (rows, states): whether a path may come from two states before.
        """
        steps, rows, states = emissions.shape
        skips = emissions.new_zeros(rows, states).masked_fill_(~allowed, -torch.inf)
        alpha = emissions.new_full((1 + steps, rows, BEFORE + states), -torch.inf, dtype=torch.float64)
        alpha[0, :, BEFORE - 1] = 0.0
        for t, log_probs in enumerate(emissions):
            before = alpha[t]
            paths = torch.logaddexp(before[:, 2:], before[:, 1:-1])
            torch.logaddexp(paths, before[:, :-2] + skips, out=paths)
            torch.add(paths, log_probs, out=alpha[t + 1, :, BEFORE:])
        return alpha

    def derivative(self) -> Tensor:
        """The derivative of the loss by the outputs, as `Paths.derivative`."""
        alpha, beta = self._alpha[1:].split(len(self._utt), 1)
        gamma = beta[self._back, self._utt].gather(2, self._column.expand(len(beta), -1, -1)).add_(alpha[:, :, BEFORE:])
        gamma.sub_(self._emissions.clamp_min(LEAST)).sub_(self._loglike[:, None]).exp_()
        found = self._log_probs.exp().mul_(self._possible[:, None])
        return found.scatter_add_(2, self._outputs, gamma.to(found.dtype).neg_()).masked_fill_(~self._real[:, :, None], 0.0)
