"""The H transducer, from transition-ids to phones in context, and the self-loops of HMM states; after Kaldi's hmm/hmm-utils.cc.

Transducers that mean the same may lead to different graphs: epsilon removal looks at how many arcs enter a state, and rounding at where
the weights are. So H is Kaldi's state by state: each HMM has an end state of its own, with an epsilon back to the state between phones,
and determinisation, which does not follow epsilons out of the states that it compares, keeps the ends of different HMMs apart.

The self-loop of an HMM state stands *after* the transition that leaves the state's predecessor in time ("reorder"): the arc into a graph
state carries a forward transition-id, and the graph state has the self-loop that belongs to it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from pykaldist.errors import UserError
from pykaldist.hmm.tree.transition_model import TransitionModel
from pykaldist.hmm.tree.tree import ContextDependency
from pykaldist.io.fst import Fst
from pykaldist.kernels import kernel


def _hmms(windows: np.ndarray, tree: ContextDependency, model: TransitionModel) -> tuple[np.ndarray, dict[int, tuple[int, ...]]]:
    """The HMMs of the phones in the middle of `windows` (rows x N).

    Returns for each row the first row with the same HMM; and for each of these its transition-states, one for each emitting HMM state.
    """
    phones = windows[:, tree.central]
    first = np.empty(len(windows), np.int64)
    hmms = {}
    by_phone = np.argsort(phones, kind="stable")
    for rows in np.split(by_phone, np.flatnonzero(np.diff(phones[by_phone])) + 1):
        phone = int(phones[rows[0]])
        states = model.topology.entry(phone)[:-1]
        classes = sorted({pdf_class for state in states for pdf_class in (state.forward_pdf_class, state.self_loop_pdf_class)})
        answers = {pdf_class: tree.pdfs(windows[rows], pdf_class) for pdf_class in classes}
        group = np.zeros(len(rows), np.int64)
        for answer in answers.values():
            group = np.unique(group * (answer.max() + 1) + answer, return_inverse=True)[1]
        head, group = np.unique(group, return_index=True, return_inverse=True)[1:]
        first[rows] = rows[head][group]
        for i in head:
            pdfs = [(int(answers[s.forward_pdf_class][i]), int(answers[s.self_loop_pdf_class][i])) for s in states]
            try:
                hmms[int(rows[i])] = tuple(model.tuple2state(phone, s, *pair) for s, pair in enumerate(pdfs))
            except KeyError as error:
                raise UserError(f"the model has no transitions for phone {phone} with pdfs {[forward for forward, _ in pdfs]}, which the "
                                "tree asks for; tree and final.mdl must come from one training.") from error
    return first, hmms


def h_transducer(windows: Sequence[Sequence[int]], tree: ContextDependency, model: TransitionModel,
                 transition_scale: float = 1.0) -> tuple[Fst, np.ndarray]:
    """Make H without self-loops, from transition-ids to context windows; and the input labels that stand for disambiguation symbols.

    `windows[i]` says what output label i means: a window of phones, or one number <= 0 for a disambiguation symbol. Label 0 is epsilon.
    """
    escape = model.non_self_loop_log_probs()[model.tid2state]
    cost = -transition_scale * (model.log_probs - escape)
    size = np.fromiter(map(len, windows), np.int64, len(windows))
    phones = np.fromiter(itertools.chain.from_iterable(windows), np.int64, size.sum())
    begin = np.cumsum(size) - size
    labels = np.arange(1, len(windows))
    of_phones = labels[(size[labels] > 1) | (phones[begin[labels]] > 0)]
    found, states_of = _hmms(phones[begin[of_phones, None] + np.arange(tree.width)], tree, model)
    hmms = {int(of_phones[row]): states for row, states in states_of.items()}
    first = labels.copy()  # of each label, the first one with the same HMM
    first[of_phones - 1] = of_phones[found]
    order, entrance = np.unique(first, return_inverse=True)

    arcs: list[tuple[int, int, int, float, int]] = []  # source, ilabel, olabel, weight, target: all but those out of state 0
    num_states = 1  # state 0 stands between phones
    ways_in: list[tuple[int, float, int]] = []  # ilabel, weight and target of the arcs out of state 0, for each of `order`
    disambig: list[int] = []
    for label in order.tolist():
        hmm = hmms.get(label)
        if hmm is None:
            disambig.append(model.num_transition_ids + 1 + len(disambig))
            ways_in.append((disambig[-1], 0.0, num_states))
            arcs.append((num_states, 0, 0, 0.0, 0))
            num_states += 1
            continue
        entry = model.topology.entry(int(phones[begin[label] + tree.central]))
        reentered = any(to == 0 for s, state in enumerate(entry) for to, _ in state.transitions if s > 0)
        one_way = sum(to != 0 for to, _ in entry[0].transitions) == 1
        shared = one_way and not reentered  # state 0 is then the HMM's first state too
        node = [0, *range(num_states, num_states + len(entry) - 1)] if shared else list(range(num_states, num_states + len(entry)))
        num_states = node[-1] + 1
        inner = [(node[s], int(model.state2first[hmm[s]]) + i, node[to])
                 for s, state in enumerate(entry[:-1]) for i, (to, _) in enumerate(state.transitions) if to != s]
        if shared:
            (_, tid, target), *inner = inner
            ways_in.append((tid, float(cost[tid]), target))
        else:
            ways_in.append((0, 0.0, node[0]))
        arcs += [(s, tid, 0, float(cost[tid]), to) for s, tid, to in inner]
        arcs.append((node[-1], 0, 0, 0.0, 0))

    ilabel, weight, target = (np.array(column)[entrance] for column in zip(*ways_in, strict=True))
    from_start = (np.zeros(len(labels), np.int64), ilabel, labels, weight, target)
    columns = [np.concatenate([start, np.array(inner)]) for start, inner in zip(from_start, zip(*arcs, strict=True), strict=True)]
    final = np.full(num_states, np.inf, np.float32)
    final[0] = 0
    return Fst.from_arcs(0, final, *columns), np.array(disambig, np.int32)


def add_self_loops(fst: Fst, model: TransitionModel, self_loop_scale: float = 0.1) -> Fst:
    """Add the HMM states' self-loops to a graph, each after the transition out of the same HMM state.

    The transition-state of a graph state is that of the arcs into it; where these differ, all but one way of entering goes by a state
    of its own, with an epsilon to the old one. Input labels above the model's are disambiguation symbols, which enter no HMM state.
    """
    num_states = fst.num_states
    kind = model.tid2state[np.where(fst.ilabel < len(model.tid2state), fst.ilabel, 0)].astype(np.int32)
    lowest, highest = np.full(num_states, np.iinfo(np.int32).max, np.int32), np.full(num_states, -1, np.int32)
    np.minimum.at(lowest, fst.nextstate, kind)
    np.maximum.at(highest, fst.nextstate, kind)
    lowest[fst.start] = 0
    highest[fst.start] = max(highest[fst.start], 0)
    mixed = (lowest < highest)[fst.nextstate] & (kind > 0)
    pairs = fst.nextstate[mixed].astype(np.int64) * (len(model.tuples) + 1) + kind[mixed]
    entrances, index = np.unique(pairs, return_inverse=True)
    old_state, entrance_kind = np.divmod(entrances, len(model.tuples) + 1)
    nextstate = fst.nextstate.copy()
    nextstate[mixed] = num_states + index
    del kind, mixed, pairs, index
    state_kind = np.concatenate([np.where(lowest == highest, highest, 0), entrance_kind])
    state_kind[state_kind < 0] = 0
    escape = (-self_loop_scale * model.non_self_loop_log_probs())[state_kind]
    loop_tid = model.state2self_loop[state_kind]
    final = np.concatenate([fst.final, np.full(len(entrances), np.inf, np.float32)]) + escape
    loop_cost = -self_loop_scale * model.log_probs[loop_tid]
    offset, *columns = _with_loops(fst.offset, fst.ilabel, fst.olabel, fst.weight, nextstate, escape, loop_tid.astype(np.int32), loop_cost,
                                   old_state)
    return Fst(fst.start, final.astype(np.float32), offset, *columns)


@kernel
def _with_loops(offset: np.ndarray, ilabel: np.ndarray, olabel: np.ndarray, weight: np.ndarray, nextstate: np.ndarray, escape: np.ndarray,
                loop_tid: np.ndarray, loop_cost: np.ndarray, old_state: np.ndarray) -> tuple[
                    np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The arcs (offset, ilabel, olabel, weight, nextstate) of all states, and behind them those of the entrances, one to each `old_state`.

    Behind a state's own arcs, which are given its `escape` cost, comes its self-loop, where `loop_tid` is not 0.
    """
    states, entrances = len(offset) - 1, len(old_state)
    arcs = len(ilabel) + entrances
    for s in range(states + entrances):
        arcs += loop_tid[s] != 0
    new_offset, to = np.zeros(states + entrances + 1, np.int64), 0
    new_in, new_out, new_weight, new_next = np.zeros(arcs, np.int32), np.zeros(arcs, np.int32), np.empty(arcs, np.float32), np.empty(
        arcs, np.int32)
    for s in range(states + entrances):
        if s < states:
            for a in range(offset[s], offset[s + 1]):
                new_in[to], new_out[to], new_weight[to], new_next[to] = ilabel[a], olabel[a], weight[a] + escape[s], nextstate[a]
                to += 1
        else:
            new_weight[to], new_next[to] = escape[s], old_state[s - states]
            to += 1
        if loop_tid[s] != 0:
            new_in[to], new_weight[to], new_next[to] = loop_tid[s], loop_cost[s], s
            to += 1
        new_offset[s + 1] = to
    return new_offset, new_in, new_out, new_weight, new_next
