"""Operations on transducers that kaldifst lacks, local epsilon removal and weight pushing; and conversion to and from kaldifst.

`remove_eps_local` never makes the transducer grow, unlike full epsilon removal: it only joins pairs of arcs (a, b), a into and b out of
state t, that can be one arc (at most one of them has an input label, and at most one an output label), where t has

1. one way in and several out: each b that can be joined is moved to a's source; a then keeps only the share of its probability that
   goes on to what stays at t, and t's ways out are divided by that share;
2. one way out: a is replaced by the joined arc.

Being the start state counts as a way in, being final as a way out. The best path of every input and output keeps its cost. The share is
a ratio of sums of probabilities, so that a state whose ways out sum to 1 still does ("stochastic"; the default of Kaldi's fstrmepslocal).
The result depends on the order in which arcs are looked at, state after state, in which it follows Kaldi's
fstext/remove-eps-local-inl.h.

`push_special` finds potentials v, the dominant eigenvector of the matrix P of arc probabilities (P[i, start] holding the final
probability of i), and makes p'_ij = p_ij v_j / v_i, after which the arcs out of every state sum to the same constant. It succeeds where
ordinary pushing fails, on back-off language models, whose total weight may be infinite. M. Hannemann, D. Povey, G. Zweig, "Combining
forward and backward search in decoding", ICASSP 2013, section 4. The power method ends at a tolerance, not at v, and minimisation, which
rounds weights, shows by how much it missed; so the start (a constant vector) and the steps at which it may end (every fifth) are those of
Kaldi's fstext/push-special.cc.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kaldifst
import numpy as np

from pykaldist.io.fst import Fst
from pykaldist.io.fst_compose import longer
from pykaldist.kernels import kernel

_DELETED = -1
_ON_DISK = 100_000  # states from which on a graph that is converted goes over the disk, and not through memory
_CHECK_EVERY = 5  # steps of the power method between two looks at its error


@contextlib.contextmanager
def _scratch_file(states: int) -> Iterator[Path]:
    """A file of this process alone, for a graph of so many states: in memory for a small one, which is done with before a disk is asked."""
    if states >= _ON_DISK:
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder) / "fst"
        return
    descriptor = os.memfd_create("fst")
    try:
        yield Path(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def to_kaldifst(fst: Fst) -> Any:
    """Convert a transducer to a kaldifst.StdVectorFst."""
    with _scratch_file(fst.num_states) as path:
        with path.open("wb") as stream:
            stream.writelines(fst.vector_parts())
        return kaldifst.StdVectorFst.read(str(path))


def from_kaldifst(fst: Any) -> Fst:
    """Convert a kaldifst.StdVectorFst to flat arrays; an FST without states has start -1."""
    with _scratch_file(fst.num_states) as path:
        fst.write(str(path))
        return Fst.read(path)


@kernel
def log_plus(a: np.float32, b: np.float32) -> np.float32:
    """The cost of two paths together: -log(exp(-a) + exp(-b))."""
    low, high = min(a, b), max(a, b)
    return low if high == np.inf else np.float32(low - np.log1p(np.exp(np.float64(low - high))))


@kernel
def _remove_eps_local(start: int, final: np.ndarray, head: np.ndarray, tail: np.ndarray, chain: np.ndarray, source: np.ndarray,
                      ilabel: np.ndarray, olabel: np.ndarray, weight: np.ndarray, target: np.ndarray) -> tuple[
                          np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Remove epsilons; returns (source, ilabel, olabel, weight, target) of old and new arcs.

    `head`, `tail` and `chain` link each state's arcs.
    """
    inf = np.float32(np.inf)
    arcs = len(target)
    ways_in = np.zeros(len(final), np.int64)
    ways_out = np.zeros(len(final), np.int64)
    ways_in[start] += 1
    for s in range(len(final)):
        ways_out[s] += final[s] < inf
    for a in range(arcs):
        ways_in[target[a]] += 1
        ways_out[source[a]] += 1
    for s in range(len(final)):
        a = head[s]
        while a >= 0:
            t = target[a]
            if t in (_DELETED, s) or (ways_out[t] != 1 and not (ways_in[t] == 1 and ways_out[t] > 1)):
                a = chain[a]
                continue
            several_out = ways_out[t] > 1
            move = several_out or ways_in[t] == 1  # what is joined can be taken away from t
            removed, kept, joined = inf, inf, 0
            b = head[t]
            while b >= 0:
                if target[b] != _DELETED:
                    if (ilabel[a] == 0 or ilabel[b] == 0) and (olabel[a] == 0 or olabel[b] == 0):
                        removed = log_plus(removed, weight[b])
                        joined += 1
                        if arcs == len(target):
                            size = arcs + arcs // 4 + 16
                            chain, source = longer(chain, size), longer(source, size)
                            ilabel, olabel, target = longer(ilabel, size), longer(olabel, size), longer(target, size)
                            weight = longer(weight, size)
                        source[arcs] = s
                        ilabel[arcs] = ilabel[a] if ilabel[a] != 0 else ilabel[b]
                        olabel[arcs] = olabel[a] if olabel[a] != 0 else olabel[b]
                        weight[arcs] = weight[a] + weight[b]
                        target[arcs] = target[b]
                        chain[arcs] = -1
                        chain[tail[s]] = arcs
                        tail[s] = arcs
                        ways_out[s] += 1
                        ways_in[target[b]] += 1
                        if move:
                            ways_out[t] -= 1
                            ways_in[target[b]] -= 1
                            target[b] = _DELETED
                        arcs += 1
                    else:
                        kept = log_plus(kept, weight[b])
                b = chain[b]
            if final[t] < inf:
                if ilabel[a] == 0 and olabel[a] == 0:
                    removed = log_plus(removed, final[t])
                    joined += 1
                    ways_out[s] += final[s] == inf
                    final[s] = min(final[s], weight[a] + final[t])
                    if move:
                        ways_out[t] -= 1
                        final[t] = inf
                else:
                    kept = log_plus(kept, final[t])
            if joined > 0:
                if kept == inf:
                    ways_out[s] -= 1
                    ways_in[t] -= 1
                    target[a] = _DELETED
                else:
                    shift = kept - log_plus(removed, kept)
                    weight[a] += shift
                    final[t] -= shift
                    b = head[t]
                    while b >= 0:
                        weight[b] -= shift
                        b = chain[b]
            a = chain[a]
    return source[:arcs], ilabel[:arcs], olabel[:arcs], weight[:arcs], target[:arcs]


def remove_eps_local(fst: Fst) -> Fst:
    """Make an equivalent transducer with fewer epsilons; states that fall out of use stay, without arcs."""
    count = np.diff(fst.offset)
    head = np.where(count > 0, fst.offset[:-1], -1)
    tail = np.where(count > 0, fst.offset[1:] - 1, -1)
    chain = np.arange(1, fst.num_arcs + 1, dtype=np.int64)
    chain[tail[count > 0]] = -1
    final = fst.final.copy()
    columns = _remove_eps_local(fst.start, final, head, tail, chain, fst.source, fst.ilabel.copy(), fst.olabel.copy(), fst.weight.copy(),
                                fst.nextstate.copy())
    del head, tail, chain
    keep = columns[-1] != _DELETED
    return Fst.from_arcs(fst.start, final, *(column[keep] for column in columns))


@kernel
def _times(offset: np.ndarray, nextstate: np.ndarray, probability: np.ndarray, final: np.ndarray, start: int,
           v: np.ndarray) -> np.ndarray:
    product = final * v[start]
    for s in range(len(v)):
        for a in range(offset[s], offset[s + 1]):
            product[s] += probability[a] * v[nextstate[a]]
    return product


def push_special(fst: Fst, delta: float = 1 / 1024, max_iterations: int = 200) -> Fst:
    """Push the weights so that all states' arcs sum to one constant, to within `delta` in the log.

    After `max_iterations` the sums are left as near to each other as they are by then.
    """
    probability, final = np.exp(-fst.weight.astype(np.float64)), np.exp(-fst.final.astype(np.float64))
    v = np.full(fst.num_states, 1 / np.sqrt(fst.num_states))
    for step in range(max_iterations):
        # the shift by 0.1 parts eigenvalues of one magnitude, such as a linear transducer's
        v = _times(fst.offset, fst.nextstate, probability, final, fst.start, v) + 0.1 * v
        v /= np.linalg.norm(v)
        if step and step % _CHECK_EVERY == 0:
            ratio = _times(fst.offset, fst.nextstate, probability, final, fst.start, v) / v
            if np.log(ratio.max() / ratio.min()) <= delta:
                break
    potential = -np.log(v)
    weight = fst.weight + potential[fst.nextstate] - potential[fst.source]
    return Fst(fst.start, (fst.final + potential[fst.start] - potential).astype(np.float32), fst.offset, fst.ilabel, fst.olabel,
               weight.astype(np.float32), fst.nextstate)
