"""The denominator graph of chain (LF-MMI) models, which stands for all phone sequences, and the normalisation FST made of it.

Its labels are pdf + 1, and an arc takes one (subsampled) frame. With P the phone language model (`phone_lm.py`), C the contexts of the tree
and H its HMMs with the transition probabilities of the model,

    den = push(min(rmeps(self-loops(H o C o P) with pdfs for transition-ids)))

Minimisation goes over weights as they stand, rounded to multiples of 10/1024; three times over the reversed graph and over the graph
itself, each time after pushing, so that the arcs of each state sum to the same. States with many arcs come first. Final costs remain, but
the objective does not look at them: a chunk of an utterance may end in any state.

A chunk may begin in any state, too. The *initial probability* of a state is the mean, over the first 100 frames, of the probability to be
in it for who begins in the start state and goes by the arcs alone (the probabilities out of each state scaled to the sum 1, and the sum
over states to 1 after each frame, because paths that end are lost). The *normalisation FST* is the graph that begins in any state with this
probability and ends in any for nothing; numerators are composed with it, so that a path costs the same there and in the denominator.

D. Povey et al., "Purely sequence-trained neural networks for ASR based on lattice-free MMI", Interspeech 2016. Operations and their order
are those of Kaldi's chain/chain-den-graph.cc, so that the graph is Kaldi's.
"""

from __future__ import annotations

from typing import Any

import kaldifst
import numpy as np

from pykaldist.errors import UserError
from pykaldist.hmm.tree.h_transducer import add_self_loops, h_transducer
from pykaldist.hmm.tree.transition_model import TransitionModel
from pykaldist.hmm.tree.tree import ContextDependency
from pykaldist.io.fst import Fst
from pykaldist.io.fst_compose import trimmed
from pykaldist.io.fstops import from_kaldifst, push_special, remove_eps_local, to_kaldifst

_ROUNDING = 10 / 1024  # of weights, where states are compared
_PUSHED = 0.01 / 1024  # how near to each other the sums of states are after pushing
_PASSES = 3
_FRAMES = 100  # over which initial probabilities are a mean


def graph_of_phones(phones: Fst, tree: ContextDependency, model: TransitionModel, transition_scale: float, self_loop_scale: float) -> Fst:
    """Expand an acceptor of phones down to transition-ids, self-loops after their states' first frames; with epsilons.

    Raises UserError where the phones are not those of the tree and the model.
    """
    unknown = sorted(set(phones.ilabel.tolist()) - set(model.topology.phones) - {0})
    if unknown:
        raise UserError(f"phone {unknown[0]} is not in the model's topology; the phones and the model are of different lang directories.")
    in_context, windows = kaldifst.compose_context([], tree.width, tree.central, to_kaldifst(phones))
    kaldifst.arcsort(in_context, "ilabel")
    h, _ = h_transducer(windows, tree, model, transition_scale)
    return add_self_loops(from_kaldifst(kaldifst.compose(to_kaldifst(h), in_context)), model, self_loop_scale)


def as_acceptor(fst: Fst, model: TransitionModel) -> Fst:
    """A transducer with transition-ids as the acceptor of their pdfs + 1; epsilons stay."""
    label = np.where(fst.ilabel > 0, model.tid2pdf[fst.ilabel] + 1, 0).astype(np.int32)
    return Fst(fst.start, fst.final, fst.offset, label, label, fst.weight, fst.nextstate)


def without_epsilons(fst: Fst) -> Any:
    """The acceptor without epsilons, as a kaldifst FST."""
    removed = to_kaldifst(remove_eps_local(fst))
    kaldifst.connect(removed)
    kaldifst.rmepsilon(removed)
    return removed


def _minimized(fst: Any) -> Any:
    pushed = to_kaldifst(push_special(from_kaldifst(fst), _PUSHED))
    kaldifst.minimize_encoded(pushed, delta=_ROUNDING)
    return pushed


def _by_arcs(fst: Fst) -> Fst:
    """The graph with its states numbered by their arcs in and out, those with most first."""
    arcs = np.bincount(fst.source, minlength=fst.num_states) + np.bincount(fst.nextstate, minlength=fst.num_states)
    order = np.argsort(-arcs, kind="stable")
    number = np.empty_like(order)
    number[order] = np.arange(len(order))
    return Fst.from_arcs(int(number[fst.start]), fst.final[order], number[fst.source], fst.ilabel, fst.olabel, fst.weight,
                         number[fst.nextstate])


def denominator_graph(tree: ContextDependency, model: TransitionModel, phone_lm: Fst) -> Fst:
    """Make the denominator graph (den.fst) of a phone language model.

    Raises UserError where the phone language model is not of the model's phones, or has no sequence of phones.
    """
    if trimmed(phone_lm).num_arcs == 0:
        raise UserError("the denominator graph is empty: no phone sequence of the phone language model ends; make phone_lm.fst again "
                        "(steps/nnet3/chain/make_phone_lm.sh).")
    graph: Any = without_epsilons(as_acceptor(graph_of_phones(phone_lm, tree, model, 1.0, 1.0), model))
    for _ in range(_PASSES):
        graph = kaldifst.reverse(_minimized(kaldifst.reverse(graph)))
        graph = _minimized(graph)
    kaldifst.rmepsilon(graph)  # of the reversals
    return _by_arcs(push_special(from_kaldifst(graph), _PUSHED))


def initial_probs(den: Fst) -> np.ndarray:
    """The initial probabilities of a denominator graph's states, float32 (S,); raises UserError where they are not all above 0."""
    weight = np.exp(-den.weight.astype(np.float64))
    total = np.exp(-den.final.astype(np.float64)) + np.bincount(den.source, weight, den.num_states)
    if den.num_states == 0 or not total.all():
        raise UserError("the denominator graph has no states, or one that leads nowhere; make den.fst again (steps/nnet3/chain/train.py).")
    share = weight / total[den.source]
    now: np.ndarray = np.zeros(den.num_states)
    mean = np.zeros(den.num_states)
    now[den.start] = 1.0
    for _ in range(_FRAMES):
        mean += now / _FRAMES
        now = np.bincount(den.nextstate, now[den.source] * share, den.num_states)
        now = now / now.sum()
    found = mean.astype(np.float32)
    if not found.all():
        raise UserError(f"state {int(found.argmin())} of the denominator graph cannot be reached in {_FRAMES} frames; make den.fst again "
                        "(steps/nnet3/chain/train.py).")
    return found


def normalization_fst(den: Fst) -> Fst:
    """Make the normalisation FST (normalization.fst) of a denominator graph: it begins and ends in any state.

    The last state is the start; its arcs are those of all states, each with the cost to begin there.
    """
    count = den.num_states
    label = np.concatenate([den.ilabel, np.zeros(count, np.int32)])
    begin = Fst.from_arcs(count, np.zeros(count + 1), np.concatenate([den.source, np.full(count, count)]), label, label,
                          np.concatenate([den.weight, -np.log(initial_probs(den))]), np.concatenate([den.nextstate, np.arange(count)]))
    begin.final[-1] = np.inf
    whole = to_kaldifst(begin)
    kaldifst.rmepsilon(whole)
    kaldifst.arcsort(whole, "ilabel")
    return from_kaldifst(whole)
