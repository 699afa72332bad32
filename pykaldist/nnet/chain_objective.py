"""The chain (LF-MMI) objective of a minibatch: log-probability of the numerators less that of the denominator, and its derivatives.

With the outputs y(t, k) of B sequences of T frames each, l2 the coefficient of `--l2-regularize` and r that of `--out-of-range-regularize`,

    objf = sum over sequences of (log N - log D),             d objf / d y(t, k) = gamma_N(t, k) - gamma_D(t, k),
    l2 term = -l2 / 2 sum of y(t, k)^2,                       its derivative -l2 y(t, k),
    out of range: no value, but a derivative of               -2 r (y(t, k) - 30) above 30, -2 r (y(t, k) + 30) below -30.

log D and its posteriors gamma_D are those of `chain_denominator.py`, where outputs are held within -30 and 30; hence the last term, which
brings them back. Kaldi adds it to a random half of the minibatches, with twice the coefficient; who calls says in which.

log N is the log-sum over the paths of the sequence's numerator (`hmm/chain/supervision.py`), each with the sum of its outputs less its
costs; gamma_N are the posteriors of the pdfs. A numerator is a lattice in which each arc takes one frame, so that forward-backward is that
of lattices (`forward_backward.py`), in double precision. The posteriors are the targets of the cross-entropy branch (output-xent), too: its
objective is the sum of gamma_N(t, k) log-softmax(z)(t, k), and the derivative given to it gamma_N.

Where the objective is not finite it counts as -10 a frame, and derivatives are 0.
D. Povey et al., "Purely sequence-trained neural networks for ASR based on lattice-free MMI", Interspeech 2016.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pykaldist.errors import UserError
from pykaldist.frames.device_frames import to_device
from pykaldist.frames.lattices import Lattices
from pykaldist.hmm.chain.supervision import over_frames, state_times
from pykaldist.io.fst import Fst
from pykaldist.nnet.chain_denominator import LIMIT, Denominator
from pykaldist.nnet.forward_backward import forward_backward
from pykaldist.options import option

_OBJF_WHERE_NONE = -10.0  # a frame


@dataclass
class ChainOptions:
    """The options of the chain objective."""

    leaky_hmm_coefficient: float = option(1e-5, "probability of jumps between states of the denominator, after each frame")
    l2_regularize: float = option(0.0, "coefficient of the squares of the outputs")
    out_of_range_regularize: float = option(0.01, "coefficient of what the outputs are beyond -30 and 30")

    def __post_init__(self) -> None:
        for name in ("l2_regularize", "out_of_range_regularize"):
            if getattr(self, name) < 0:
                raise UserError(f"--{name.replace('_', '-')} {getattr(self, name):g} is negative.")


def numerator(fst: Fst, num_pdfs: int) -> Lattices:
    """A numerator whose states are sorted by time as a lattice of one sequence; its transition-ids are the pdfs (from 0).

    Raises UserError where it has paths of different lengths, or other pdfs.
    """
    times = state_times(fst)
    if fst.num_arcs and not 1 <= fst.ilabel.min() <= fst.ilabel.max() <= num_pdfs:
        raise UserError(f"a numerator has labels from {fst.ilabel.min()} to {fst.ilabel.max()}, expected pdfs + 1 up to {num_pdfs}; make "
                        "it with the tree of this model (steps/nnet3/chain/train.py).")
    ends = np.flatnonzero(fst.final < np.inf)
    if not len(ends) or (times[ends] != times[-1]).any():
        raise UserError("a numerator has paths of different lengths, or states that are not sorted by time; make it again "
                        "(steps/nnet3/chain/train.py).")
    arcs, states = fst.num_arcs, fst.num_states
    cell, entry = np.unique(times[fst.source] * num_pdfs + fst.ilabel - 1, return_inverse=True)
    frame, pdf = np.divmod(cell, num_pdfs)
    source = np.concatenate([fst.source, ends]).astype(np.int32)  # the ends have no arcs, and stand last
    return Lattices(
        states=np.array([0, states + 1]), arcs=np.array([0, len(source)]), cells=np.array([0, len(cell)]), frames=np.array([0, times[-1]]),
        source=source, target=np.concatenate([fst.nextstate, np.full(len(ends), states)]).astype(np.int32),
        graph=np.concatenate([fst.weight, fst.final[ends]]), acoustic=np.zeros(len(source), np.float32),
        string=np.minimum(np.arange(len(source) + 1), arcs), entry=entry.astype(np.int32), frame=frame.astype(np.int32),
        transition_id=pdf.astype(np.int32))


def flat_start_numerator(fst: Fst, frames: int, num_pdfs: int) -> Lattices | None:
    """A numerator with loops, over so many output frames, as a lattice of one sequence; None where it is too long for them."""
    paths = over_frames(fst, frames)
    return None if paths is None else numerator(paths, num_pdfs)


@dataclass
class ChainObjective:
    """What a minibatch gives: sums over its sequences, float64 scalars, and derivatives of (objf + l2_term), (T B, K)."""

    num: Tensor
    den: Tensor
    objf: Tensor
    l2_term: Tensor
    weight: int
    derivative: Tensor
    posterior: Tensor

    def xent_objf(self, outputs: Tensor) -> Tensor:
        """The objective of the cross-entropy branch, whose outputs these are."""
        return (self.posterior * outputs.log_softmax(1)).sum(dtype=torch.float64)


def begin_numerators(lattices: Lattices, outputs: Tensor) -> Callable[[], tuple[Tensor, Tensor]]:
    """Begin the forward-backward pass over the numerators of a minibatch; returns the function that ends it.

    That gives the log-probability of each sequence's numerator, float64 (B,), and the posteriors of pdfs, like `outputs` (T B, K).

    Outputs are frame by frame: all B sequences of frame 0, all of frame 1, ... Raises UserError where the sequences are of other lengths.
    They are computed on the host, also for a GPU, to which the outputs of their arcs, a few thousand numbers, travel meanwhile: numerators
    have few arcs and many frames, for each of which a GPU would have twenty kernels.
    """
    sequences, num_pdfs = len(lattices), outputs.shape[1]
    frames = np.diff(lattices.frames)
    if len(outputs) != sequences * frames[0] or (frames != frames[0]).any():
        raise UserError(f"a minibatch of {len(outputs)} output frames has numerators of {' '.join(map(str, frames))} frames; expected "
                        "as many, and sequences of one length.")

    sequence, frame = np.divmod(lattices.frame.astype(np.int64), frames[0])
    cells = to_device(torch.from_numpy((frame * sequences + sequence) * num_pdfs + lattices.transition_id), outputs.device)
    values = outputs.reshape(-1)[cells].float()
    if values.is_meta:  # which has shapes and no values: a forecast of memory
        values = torch.zeros(values.shape)
    arrived = torch.cuda.Event() if values.is_cuda else None
    if arrived is not None:
        values = torch.empty(values.shape, pin_memory=True).copy_(values, non_blocking=True)
        arrived.record()

    def finish() -> tuple[Tensor, Tensor]:
        if arrived is not None:
            arrived.synchronize()
        of = forward_backward(lattices, lattices.graph.astype(np.float64) - lattices.entry_sums(values.double().numpy()))
        posterior, loglike = (to_device(torch.from_numpy(one), outputs.device)
                              for one in (lattices.cell_sums(of.posterior).astype(np.float32), of.loglike))
        found = torch.zeros(outputs.shape, device=outputs.device)
        found.view(-1).index_add_(0, cells, posterior)
        return loglike, found

    return finish


def chain_objective(outputs: Tensor, numerators: Sequence[Lattices], denominator: Denominator, options: ChainOptions,
                    penalize_out_of_range: bool = True) -> ChainObjective:
    """The objective of a minibatch of sequences of one length, given the outputs (T B, K), frame by frame, and a numerator a sequence."""
    sequences = len(numerators)
    finish = begin_numerators(Lattices.joined(numerators), outputs)
    den, occupied = denominator.forward_backward(outputs, sequences)
    num, posterior = finish()  # while a GPU is at the denominator
    objf = num.sum() - den.sum()
    derivative = posterior - occupied
    if penalize_out_of_range and options.out_of_range_regularize:
        derivative.sub_(outputs - outputs.clamp(-LIMIT, LIMIT), alpha=2 * options.out_of_range_regularize)
    finite = objf.isfinite()
    derivative, posterior = (torch.where(finite, values, 0.0) for values in (derivative, posterior))
    objf = torch.where(finite, objf, _OBJF_WHERE_NONE * len(outputs))
    l2_term = torch.zeros_like(objf)
    if options.l2_regularize:
        l2_term = -0.5 * options.l2_regularize * outputs.square().sum(dtype=torch.float64)
        derivative.sub_(outputs, alpha=options.l2_regularize)
    return ChainObjective(num.sum(), den.sum(), objf, l2_term, len(outputs), derivative, posterior)
