"""Posteriors of the transition-ids of a lattice in each frame: the share of the probability of its paths that goes through each.

With the cost c(a) of arc a under the scales, alpha(s) the log-sum over paths to state s and beta(s) over those from s to an end, arc a has
the posterior exp(alpha(source) - c(a) + beta(target) - beta(start)), which all its transition-ids share, each in its frame (Kaldi's
lattice-to-post).
"""

from __future__ import annotations

import numpy as np

from pykaldist.decode.lattice import Lattice
from pykaldist.decode.paths import check_not_empty, scaled_costs
from pykaldist.kernels import kernel


@kernel
def _arc_posteriors(offset: np.ndarray, target: np.ndarray, cost: np.ndarray, final: np.ndarray) -> np.ndarray:
    """The posteriors of the arcs, then of the ends of paths in final states; states are in topological order."""
    states, arcs = len(final), len(target)
    alpha, beta = np.full(states, -np.inf), -final
    alpha[0] = 0.0
    for s in range(states):
        for a in range(offset[s], offset[s + 1]):
            alpha[target[a]] = np.logaddexp(alpha[target[a]], alpha[s] - cost[a])
    for s in range(states - 1, -1, -1):
        for a in range(offset[s], offset[s + 1]):
            beta[s] = np.logaddexp(beta[s], beta[target[a]] - cost[a])
    result = np.zeros(arcs + states)
    for s in range(states):
        result[arcs + s] = np.exp(alpha[s] - final[s] - beta[0])
        for a in range(offset[s], offset[s + 1]):
            result[a] = np.exp(alpha[s] - cost[a] + beta[target[a]] - beta[0])
    return result


def lattice_posteriors(lattice: Lattice, acoustic_scale: float, lm_scale: float = 1.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The posteriors of a lattice as (frame, transition_id, posterior), of arcs that share a frame and an id the sum.

    Raises ValueError where the lattice has no path.
    """
    check_not_empty(lattice)
    cost, final = scaled_costs(lattice, acoustic_scale, lm_scale)
    if not (final < np.inf).any():
        raise ValueError("the lattice has no path to a final state")
    posterior = _arc_posteriors(lattice.offset, lattice.target, cost.astype(np.float64), final.astype(np.float64))
    first = lattice.frame[np.concatenate([lattice.source, np.arange(lattice.num_states)])]  # frame in which a string begins
    length = np.diff(lattice.string)
    frame = np.arange(len(lattice.transition_ids)) + np.repeat(first - lattice.string[:-1], length)
    ids = int(lattice.transition_ids.max(initial=0)) + 1
    pairs, index = np.unique(frame * ids + lattice.transition_ids, return_inverse=True)
    frame, tid = np.divmod(pairs, ids)
    return frame, tid, np.bincount(index, np.repeat(posterior, length), minlength=len(pairs))
