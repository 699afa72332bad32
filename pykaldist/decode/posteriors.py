"""Posteriors of the transition-ids of a lattice in each frame: the share of the probability of its paths that goes through each.

All transition-ids of an arc share its posterior, each in its frame (Kaldi's lattice-to-post; `nnet/forward_backward.py` has the formulas).
"""

from __future__ import annotations

import numpy as np

from pykaldist.decode.lattice import Lattice
from pykaldist.decode.lattice_arrays import as_arrays
from pykaldist.decode.paths import check_not_empty
from pykaldist.nnet.forward_backward import forward_backward


def lattice_posteriors(lattice: Lattice, acoustic_scale: float, lm_scale: float = 1.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The posteriors of a lattice as (frame, transition_id, posterior), of arcs that share a frame and an id the sum.

    Raises ValueError where the lattice has no path, or paths of different lengths.
    """
    check_not_empty(lattice)
    arrays = as_arrays(lattice)
    cost = lm_scale * arrays.graph.astype(np.float64) + acoustic_scale * arrays.acoustic
    frame, transition_id = (cells.astype(np.int64) for cells in (arrays.frame, arrays.transition_id))
    return frame, transition_id, arrays.cell_sums(forward_backward(arrays, cost).posterior)
