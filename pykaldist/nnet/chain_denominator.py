"""The denominator of the chain (LF-MMI) objective: forward-backward over the denominator graph, for a minibatch of sequences at once.

The graph (`hmm/chain/den_graph.py`) has states i with initial probabilities pi(i), and arcs from i to j with pdf k and probability w. Frame
t of a sequence has the outputs y(t, k), held within -30 and 30, and x(t, k) = exp y(t, k). The *leaky HMM* lets a path jump from any state
to any other, with the probability eps pi(j), between frames: what has come so far is never lost, whatever the outputs are. With a(t) the
sums over paths to the states before frame t, scaled,

    a(0, i) = pi(i),       s(t) = sum_i a(t, i),       a'(t, i) = a(t, i) + eps pi(i) s(t),
    a(t + 1, j) = sum over arcs into j of  a'(t, i) w x(t, k) / s(t),

so that each a(t + 1) is near the likelihood of one frame, and single precision is enough. With T frames, a path may end in any state:

    P = sum_i a'(T, i),    log-probability = log P + sum_{t < T} log s(t).

Backwards, with the factor 1 / P from the beginning on, b'(T, i) = 1 / P and

    b(t, i) = b'(t, i) + eps sum_j pi(j) b'(t, j),         b'(t, i) = sum over arcs out of i of  w x(t, k) b(t + 1, j) / s(t),
    posterior(t, k) = sum over arcs with pdf k of  a'(t, i) w x(t, k) b(t + 1, j) / s(t),

which is the derivative of the log-probability by y(t, k), and sums to 1 over k.
D. Povey et al., "Purely sequence-trained neural networks for ASR based on lattice-free MMI", Interspeech 2016, sections 2.2 to 2.4.

On the CPU a kernel goes over arcs, and within over sequences, which lie side by side in memory; on other devices tensors take all arcs of a
frame at once. These are some ten small kernels a frame in either direction, whose launching by the host would take ten times as long as
they compute, so that a GPU records them as a CUDA graph for each number of frames and sequences.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from pykaldist.errors import UserError
from pykaldist.frames.device_frames import to_device
from pykaldist.hmm.chain.den_graph import initial_probs
from pykaldist.io.fst import Fst
from pykaldist.kernels import kernel
from pykaldist.nnet.cuda_graphs import ObjectiveGraphs

LIMIT = 30.0  # outputs are held within it on both sides


@kernel(nogil=True)
def _forward_backward(offset_in: np.ndarray, source: np.ndarray, pdf_in: np.ndarray, prob_in: np.ndarray, offset_out: np.ndarray,
                      target: np.ndarray, pdf_out: np.ndarray, prob_out: np.ndarray, initial: np.ndarray, leak: np.ndarray,
                      x: np.ndarray, posterior: np.ndarray) -> np.ndarray:
    frames, _, sequences = x.shape
    states = len(initial)
    alpha = np.empty((frames + 1, states, sequences), np.float32)
    total = np.zeros((frames + 1, sequences))  # float64
    inverse = np.empty(sequences, np.float32)
    loglike = np.zeros(sequences)
    for i in range(states):
        for b in range(sequences):
            alpha[0, i, b] = initial[i]
    for t in range(frames + 1):
        if t > 0:
            for b in range(sequences):
                inverse[b] = 1.0 / total[t - 1, b]
            for j in range(states):
                row = alpha[t, j]
                row[:] = 0.0
                for a in range(offset_in[j], offset_in[j + 1]):
                    before, likely, w = alpha[t - 1, source[a]], x[t - 1, pdf_in[a]], prob_in[a]
                    for b in range(sequences):
                        row[b] += before[b] * w * likely[b]
                for b in range(sequences):
                    row[b] *= inverse[b]
        for i in range(states):
            for b in range(sequences):
                total[t, b] += alpha[t, i, b]
        for b in range(sequences):
            inverse[b] = total[t, b]
        for i in range(states):
            for b in range(sequences):
                alpha[t, i, b] += leak[i] * inverse[b]
    beta, later, shared = np.empty((states, sequences), np.float32), np.empty((states, sequences), np.float32), np.empty(sequences)
    last = np.zeros(sequences)
    for i in range(states):
        for b in range(sequences):
            last[b] += alpha[frames, i, b]
    for b in range(sequences):
        loglike[b] = np.log(last[b])
        for t in range(frames):
            loglike[b] += np.log(total[t, b])
    for i in range(states):
        for b in range(sequences):
            beta[i, b] = 1.0 / last[b]
    occupied, sums = np.empty(sequences, np.float32), np.empty(sequences, np.float32)
    for t in range(frames, -1, -1):
        if t < frames:
            for b in range(sequences):
                inverse[b] = 1.0 / total[t, b]
            for i in range(states):
                for b in range(sequences):
                    occupied[b] = alpha[t, i, b] * inverse[b]
                    sums[b] = 0.0
                for a in range(offset_out[i], offset_out[i + 1]):
                    after, likely, found, w = later[target[a]], x[t, pdf_out[a]], posterior[t, pdf_out[a]], prob_out[a]
                    for b in range(sequences):
                        value = w * after[b] * likely[b]
                        sums[b] += value
                        found[b] += value * occupied[b]
                for b in range(sequences):
                    beta[i, b] = sums[b] * inverse[b]
        shared[:] = 0.0
        for i in range(states):
            for b in range(sequences):
                shared[b] += leak[i] * beta[i, b]
        for i in range(states):
            for b in range(sequences):
                later[i, b] = beta[i, b] + shared[b]
    return loglike


class Denominator:
    """The denominator graph on the CPU, in the orders that the compiled kernel goes through its arcs."""

    def __init__(self, den: Fst, num_pdfs: int, leaky_hmm_coefficient: float) -> None:
        """`den` is den.fst, whose labels are pdf + 1; raises UserError where it has others than those of `num_pdfs` pdfs."""
        if den.num_arcs == 0:
            raise UserError("the denominator graph is empty; make den.fst again (steps/nnet3/chain/train.py).")
        if den.ilabel.min() < 1 or den.ilabel.max() > num_pdfs:
            raise UserError(f"the denominator graph has labels from {den.ilabel.min()} to {den.ilabel.max()}, expected pdfs + 1 up to "
                            f"{num_pdfs}; make den.fst with the tree of this model (steps/nnet3/chain/train.py).")
        if not 0 <= leaky_hmm_coefficient < 1:
            raise UserError(f"--leaky-hmm-coefficient {leaky_hmm_coefficient:g}: expected a share, from 0 to below 1.")
        self.num_pdfs, self.initial = num_pdfs, initial_probs(den)
        self.leak = self.initial * np.float32(leaky_hmm_coefficient)
        self.offset, self.source, self.target = den.offset, den.source, den.nextstate
        self.pdf, self.prob = den.ilabel - 1, np.exp(-den.weight)

    def forward_backward(self, outputs: Tensor, num_sequences: int) -> tuple[Tensor, Tensor]:
        """The log-probability of each sequence, float64 (B,), and the posteriors of pdfs, float32 (T B, K).

        `outputs` (T B, K) are frame by frame: all B sequences of frame 0, all of frame 1, ...
        """
        x = outputs.float().clamp(-LIMIT, LIMIT).exp_().view(-1, num_sequences, self.num_pdfs).transpose(1, 2).contiguous()
        loglike, posterior = self._run(x)
        return loglike, posterior.transpose(1, 2).clone(memory_format=torch.contiguous_format).view(outputs.shape)

    def _run(self, x: Tensor) -> tuple[Tensor, Tensor]:
        order = np.argsort(self.target, kind="stable")
        offset_in = np.searchsorted(self.target[order], np.arange(len(self.initial) + 1)).astype(np.int64)
        likely = x.numpy()
        posterior = np.zeros_like(likely)
        loglike = _forward_backward(offset_in, self.source[order], self.pdf[order], self.prob[order], self.offset, self.target, self.pdf,
                                    self.prob, self.initial, self.leak, likely, posterior)
        return torch.from_numpy(loglike), torch.from_numpy(posterior)


class TensorDenominator(Denominator):
    """The denominator graph in tensors, for a GPU: all arcs of a frame at once, frame after frame, because each needs the one before.

    On a GPU the sums of a minibatch are recorded, by its shape (`ObjectiveGraphs`).
    """

    def __init__(self, den: Fst, num_pdfs: int, leaky_hmm_coefficient: float, device: torch.device) -> None:
        super().__init__(den, num_pdfs, leaky_hmm_coefficient)
        self._from, self._to, self._label = (
            to_device(torch.from_numpy(states.astype(np.int64)), device) for states in (self.source, self.target, self.pdf))
        self._w, self._begin, self._jump = (
            to_device(torch.from_numpy(values), device).unsqueeze(1) for values in (self.prob, self.initial, self.leak))
        self._graphs = ObjectiveGraphs()

    def _run(self, x: Tensor) -> tuple[Tensor, Tensor]:
        memory = self._graphs.memory(x.shape, lambda: self.memory(*x.shape))
        given, loglike, posterior = memory
        given.copy_(x)
        self._graphs.run(memory, lambda: self.sums(given, loglike, posterior), len(x))
        return loglike.clone(), posterior

    def memory(self, frames: int, pdfs: int, sequences: int) -> tuple[Tensor, Tensor, Tensor]:
        """What `sums` takes and what it fills, for a minibatch of this shape."""
        given = self._w.new_empty(frames, pdfs, sequences)
        return given, given.new_empty(sequences, dtype=torch.float64), torch.empty_like(given)

    def sums(self, x: Tensor, loglike: Tensor, posterior: Tensor) -> None:
        """Fill (the log-probability of each sequence, the posteriors) from the exponentials of outputs."""
        frames, _, sequences = x.shape
        alpha = x.new_zeros(frames + 1, len(self.initial), sequences)
        total = x.new_empty(frames + 1, sequences)
        alpha[0] = self._begin
        for t in range(frames + 1):
            if t:
                ways = alpha[t - 1][self._from].mul_(self._w).mul_(x[t - 1][self._label])
                alpha[t].index_add_(0, self._to, ways).div_(total[t - 1])
            total[t] = alpha[t].sum(0)
            alpha[t].addcmul_(self._jump, total[t])
        last = alpha[frames].sum(0)
        torch.add(last.double().log(), total[:frames].double().log().sum(0), out=loglike)
        posterior.zero_()
        beta = last.reciprocal().expand(len(self.initial), -1)
        for t in range(frames - 1, -1, -1):
            beta = beta + (self._jump * beta).sum(0)
            ways = beta[self._to].mul_(self._w).mul_(x[t][self._label]).div_(total[t])
            beta = torch.zeros_like(alpha[t]).index_add_(0, self._from, ways)
            posterior[t].index_add_(0, self._label, ways.mul_(alpha[t][self._from]))


def denominator_on(den: Fst, num_pdfs: int, leaky_hmm_coefficient: float, device: torch.device) -> Denominator:
    """The denominator graph in the form that suits a device."""
    if device.type == "cpu":
        return Denominator(den, num_pdfs, leaky_hmm_coefficient)
    return TensorDenominator(den, num_pdfs, leaky_hmm_coefficient, device)
