"""Forward-backward over lattices: posteriors of arcs, and the derivative of an expected accuracy (MMI, MPE, sMBR).

Arc a from state s to state t has the cost c(a) and the accuracy A(a) (sums over its frames). A path's probability is exp(-sum of c), over
that of all paths. With alpha(s) the log-sum over paths from the start to s, beta(s) over those from s to the end, and Z = beta(start),

    posterior(a) = exp(alpha(s) - c(a) + beta(t) - Z).

The expected accuracy of the paths to s, and of those from s on (Povey, "Discriminative training for large vocabulary speech recognition",
2003, section 6.3; Kaldi's LatticeForwardBackwardMpeVariants), are means over the arcs into and out of s,

    alpha'(t) = sum over a into t  of exp(alpha(s) - c(a) - alpha(t)) (alpha'(s) + A(a)),
    beta'(s)  = sum over a out of s of exp(beta(t) - c(a) - beta(s)) (beta'(t) + A(a)),

that of all paths is F = alpha'(end) = beta'(start), and that of the paths through a is alpha'(s) + A(a) + beta'(t). Hence

    d Z / d (-c(a)) = posterior(a),      d F / d (-c(a)) = posterior(a) (alpha'(s) + A(a) + beta'(t) - F) = gain(a).

All sums are in float64. `forward_backward` is compiled for the CPU; `forward_backward_torch.py` has the same in tensors.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pykaldist.frames.lattices import Lattices
from pykaldist.kernels import kernel


@dataclass
class ArcStatistics:
    """What forward-backward finds: of each arc `posterior` and `gain` (A,), of each lattice `loglike` Z and `accuracy` F (L,)."""

    posterior: np.ndarray
    gain: np.ndarray
    loglike: np.ndarray
    accuracy: np.ndarray


@kernel(nogil=True)
def _forward_backward(states: np.ndarray, source: np.ndarray, target: np.ndarray, cost: np.ndarray, accuracy: np.ndarray) -> tuple[
        np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    lattices, arcs, count = len(states) - 1, len(source), states[-1]
    alpha, beta = np.full(count, -np.inf), np.full(count, -np.inf)
    expected, to_come = np.zeros(count), np.zeros(count)
    for i in range(lattices):
        alpha[states[i]] = beta[states[i + 1] - 1] = 0.0
    # A state's alpha' is kept as a mean while arcs come in: an arc with the share p of the sum so far moves it that part of the way.
    for a in range(arcs):
        s, t = source[a], target[a]
        before, new = alpha[t], alpha[s] - cost[a]
        alpha[t] = np.logaddexp(before, new)
        expected[t] += np.exp(new - alpha[t]) * (expected[s] + accuracy[a] - expected[t])
    for a in range(arcs - 1, -1, -1):
        s, t = source[a], target[a]
        new = beta[t] - cost[a]
        beta[s] = np.logaddexp(beta[s], new)
        to_come[s] += np.exp(new - beta[s]) * (to_come[t] + accuracy[a] - to_come[s])
    posterior, gain = np.empty(arcs), np.empty(arcs)
    a = 0
    for i in range(lattices):
        start = states[i]
        while a < arcs and source[a] < states[i + 1]:
            s, t = source[a], target[a]
            posterior[a] = np.exp(alpha[s] - cost[a] + beta[t] - beta[start])
            gain[a] = posterior[a] * (expected[s] + accuracy[a] + to_come[t] - to_come[start])
            a += 1
    return posterior, gain, beta[states[:-1]], to_come[states[:-1]]


def forward_backward(lattices: Lattices, cost: np.ndarray, accuracy: np.ndarray | None = None) -> ArcStatistics:
    """The statistics of lattices whose arcs have these costs and accuracies, each (A,); accuracies are 0 where none are given."""
    accuracy = np.zeros(len(cost)) if accuracy is None else np.ascontiguousarray(accuracy, np.float64)
    return ArcStatistics(*_forward_backward(lattices.states, lattices.source, lattices.target, np.ascontiguousarray(cost, np.float64),
                                            accuracy))


@kernel(nogil=True)
def _best_paths(states: np.ndarray, source: np.ndarray, target: np.ndarray, cost: np.ndarray) -> np.ndarray:
    best, last = np.full(states[-1], np.inf), np.full(states[-1], -1)
    best[states[:-1]] = 0.0
    for a in range(len(source)):
        new = best[source[a]] + cost[a]
        if new < best[target[a]]:
            best[target[a]], last[target[a]] = new, a
    on = np.zeros(len(source), np.bool_)
    for i in range(len(states) - 1):
        s = states[i + 1] - 1
        while s != states[i]:
            on[last[s]] = True
            s = source[last[s]]
    return on


def best_paths(lattices: Lattices, cost: np.ndarray) -> np.ndarray:
    """Whether each arc (A,) is on its lattice's path of least cost."""
    return _best_paths(lattices.states, lattices.source, lattices.target, np.ascontiguousarray(cost, np.float64))


def nearest_paths(lattices: Lattices, agreeing: np.ndarray) -> np.ndarray:
    """Whether each arc (A,) is on its lattice's path that agrees with a reference in most frames, of several the one of least graph cost.

    `agreeing` (A,) are the frames of each arc that agree.
    """
    graph = lattices.graph.astype(np.float64)
    return best_paths(lattices, graph - (1.0 + np.abs(graph).sum()) * agreeing)
