"""The decoding graph HCLG, made of a language directory, a tree and a model.

The operations and their order are those of Kaldi's mkgraph.sh:

    LG = push(min(det(L o G)));  CLG = C o LG;  HCLG = self-loops(min(local epsilon removal(det(H o CLG) without disambiguation)))

Composition, determinisation (in the log semiring, removing epsilons) and minimisation (of weights rounded to 1/1024) are kaldifst's;
pushing and epsilon removal are in fstops; the H transducer and the self-loops are here, after Kaldi's hmm/hmm-utils.cc.

Transducers that mean the same may lead to different graphs: epsilon removal looks at how many arcs enter a state, and rounding at where
the weights are. So H is Kaldi's state by state: each HMM has an end state of its own, with an epsilon back to the state between phones,
and determinisation, which does not follow epsilons out of the states that it compares, keeps the ends of different HMMs apart. The graph
is then Kaldi's arc by arc, up to the numbering of states.

In the result the self-loop of an HMM state stands *after* the transition that leaves the state's predecessor in time ("reorder"): the arc
into a graph state carries a forward transition-id, and the graph state has the self-loop that belongs to it.
Source: M. Mohri, F. Pereira, M. Riley, "Speech recognition with weighted finite-state transducers", 2008.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import kaldifst
import numpy as np

from pykaldist.decode.fstops import from_kaldifst, push_special, remove_eps_local, to_kaldifst
from pykaldist.decode.pairs import LANG_FILES, transition_facts, tree_facts
from pykaldist.errors import UserError
from pykaldist.hmm.gmm.model_files import read_transition_model, read_tree
from pykaldist.hmm.tree.transition_model import TransitionModel
from pykaldist.hmm.tree.tree import ContextDependency
from pykaldist.io import provenance
from pykaldist.io.atomic import copy_file, write_text
from pykaldist.io.fst import Fst
from pykaldist.io.lang import LangDir
from pykaldist.io.tables import read_lines
from pykaldist.options import option
from pykaldist.progress import Progress

OWN_FILES = ("HCLG.fst", "words.txt", "phones.txt", "phones/word_boundary.int", "phones/align_lexicon.int", "phones/silence.csl")


@dataclass
class GraphOptions:
    """The options of Kaldi's mkgraph.sh: above all the scales of the HMM's transition probabilities against the other scores."""

    self_loop_scale: float = option(0.1, "scale of the self-loop probabilities")
    transition_scale: float = option(1.0, "scale of the other transition probabilities")
    remove_oov: bool = option(False, "leave out the paths with the word for unknown words (oov.int)")


def _determinize(fst: kaldifst.StdVectorFst, what: str) -> None:
    limit = max(1_000_000, 20 * fst.num_states)
    if kaldifst.determinize_star(fst, max_states=limit, use_log=True):
        raise UserError(f"{what} cannot be determinised (more than {limit} states): words that sound alike, or language model back-offs, "
                        "lack disambiguation symbols; make the language directory again with utils/prepare_lang.sh and format_lm.sh.")


def without_word(grammar: Fst, word: int) -> Fst:
    """G without the arcs of a word, and without the states that lead nowhere then."""
    keep = (grammar.ilabel != word) & (grammar.olabel != word)
    left = Fst.from_arcs(grammar.start, grammar.final, grammar.source[keep], grammar.ilabel[keep], grammar.olabel[keep],
                         grammar.weight[keep], grammar.nextstate[keep])
    trimmed = to_kaldifst(left)
    kaldifst.connect(trimmed)
    kaldifst.arcsort(trimmed, "ilabel")
    return from_kaldifst(trimmed)


def lexicon_and_grammar(lexicon: Fst, grammar: Fst) -> Fst:
    """Make LG from L_disambig and G: composed, determinised, minimised, pushed."""
    left, right = to_kaldifst(lexicon), to_kaldifst(grammar)
    kaldifst.arcsort(left, "olabel")
    kaldifst.arcsort(right, "ilabel")
    lg = kaldifst.compose(left, right)
    if lg.num_states == 0:
        raise UserError("the lexicon and the language model have no word in common; make G.fst with this lang directory's words.txt.")
    _determinize(lg, "the lexicon with the language model")
    kaldifst.minimize_encoded(lg)
    return push_special(from_kaldifst(lg))


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
    of its own, with an epsilon to the old one.
    """
    num_states = fst.num_states
    kind = model.tid2state[fst.ilabel].astype(np.int64)
    lowest, highest = np.full(num_states, np.iinfo(np.int64).max), np.full(num_states, -1, np.int64)
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
    state_kind = np.concatenate([np.where(lowest == highest, highest, 0), entrance_kind])
    state_kind[state_kind < 0] = 0
    escape = (-self_loop_scale * model.non_self_loop_log_probs())[state_kind]
    loop_tid = model.state2self_loop[state_kind]
    looped = np.flatnonzero(loop_tid)
    final = np.concatenate([fst.final, np.full(len(entrances), np.inf, np.float32)]) + escape
    source = np.concatenate([fst.source, num_states + np.arange(len(entrances)), looped])
    zeros = np.zeros(len(entrances), np.int32)
    weight = np.concatenate([fst.weight, zeros]) + escape[source[: fst.num_arcs + len(entrances)]]
    return Fst.from_arcs(
        fst.start, final, source,
        np.concatenate([fst.ilabel, zeros, loop_tid[looped]]),
        np.concatenate([fst.olabel, zeros, np.zeros(len(looped), np.int32)]),
        np.concatenate([weight, -self_loop_scale * model.log_probs[loop_tid[looped]]]),
        np.concatenate([nextstate, old_state, looped]))


def decoding_graph(lexicon: Fst, grammar: Fst, disambig: Sequence[int], tree: ContextDependency, model: TransitionModel,
                   options: GraphOptions, on_the_way: Path | None = None) -> tuple[Fst, np.ndarray]:
    """Make HCLG, and the labels that stood for disambiguation symbols (`disambig`: the phone symbols #0, #1, ...).

    The folder `on_the_way` gets LG.fst and CLG_<width>_<central>.fst. Raises UserError where L and G do not fit, or cannot be determinised.
    """
    with Progress("making HCLG", 5, "step") as bar:
        bar.update(0, "L o G")
        lg = to_kaldifst(lexicon_and_grammar(lexicon, grammar))
        kaldifst.arcsort(lg, "ilabel")
        bar.update(1, "C o LG")
        clg, windows = kaldifst.compose_context(list(disambig), tree.width, tree.central, lg)
        kaldifst.arcsort(clg, "ilabel")
        if on_the_way:
            from_kaldifst(lg).write(on_the_way / "LG.fst")
            from_kaldifst(clg).write(on_the_way / f"CLG_{tree.width}_{tree.central}.fst")
        bar.update(1, "H o CLG")
        h, disambig_tid = h_transducer(windows, tree, model, options.transition_scale)
        hclg = kaldifst.compose(to_kaldifst(h), clg)
        if hclg.num_states == 0:
            raise UserError("the model's phones and the language directory's have nothing in common; use the lang directory of training.")
        bar.update(1, "determinising")
        _determinize(hclg, "the graph")
        bar.update(1, "minimising")
        graph = from_kaldifst(hclg)
        graph.ilabel[np.isin(graph.ilabel, disambig_tid)] = 0
        minimal = to_kaldifst(remove_eps_local(graph))
        kaldifst.connect(minimal)
        kaldifst.minimize_encoded(minimal)
        looped = add_self_loops(from_kaldifst(minimal), model, options.self_loop_scale)
        bar.update()
    return looped, disambig_tid


def make_graph(lang: str | os.PathLike[str], model_dir: str | os.PathLike[str], graph_dir: str | os.PathLike[str],
               options: GraphOptions, keep: bool = False) -> Fst:
    """Write `graph_dir` (HCLG.fst, words.txt, phones.txt, phones/, num_pdfs, disambig_tid.int) as Kaldi's mkgraph.sh; returns HCLG.

    `keep`: LG and CLG stay in `lang`/tmp, where recipes look for them; nothing here reads them. Not where that cannot be written.
    """
    lang, model_dir, graph_dir = Path(lang), Path(model_dir), Path(graph_dir)
    for path in (lang / "L_disambig.fst", lang / "G.fst", lang / "words.txt", lang / "phones/disambig.int", model_dir / "tree",
                 model_dir / "final.mdl"):
        if not path.is_file():
            raise UserError(f"{path} does not exist; a graph needs a language directory with G.fst (utils/format_lm.sh) and a model "
                            "directory with tree and final.mdl.")
    provenance.check(lang)
    provenance.check(model_dir, inputs=False)
    disambig = [int(line) for line in read_lines(lang / "phones/disambig.int")]
    tree = read_tree(model_dir / "tree")
    model = read_transition_model(model_dir / "final.mdl")
    grammar = Fst.read(lang / "G.fst")
    if options.remove_oov:
        grammar = without_word(grammar, LangDir(lang).words[LangDir(lang).oov])
    on_the_way = None
    if keep and os.access(lang, os.W_OK):
        on_the_way = lang / "tmp"
        on_the_way.mkdir(exist_ok=True)
    graph, disambig_tid = decoding_graph(Fst.read(lang / "L_disambig.fst"), grammar, disambig, tree, model, options, on_the_way)
    (graph_dir / "phones").mkdir(parents=True, exist_ok=True)
    provenance.forget(graph_dir)
    (graph_dir / "HCLG.fst").unlink(missing_ok=True)
    for name in ("words.txt", "phones.txt", "phones/silence.csl", "phones/disambig.int", "phones/disambig.txt",
                 "phones/word_boundary.int", "phones/word_boundary.txt", "phones/align_lexicon.int", "phones/align_lexicon.txt"):
        if (lang / name).is_file():
            copy_file(lang / name, graph_dir / name)
    write_text(graph_dir / "num_pdfs", f"{model.num_pdfs}\n")
    write_text(graph_dir / "disambig_tid.int", "".join(f"{tid}\n" for tid in disambig_tid))
    graph.write(graph_dir / "HCLG.fst", "const")
    provenance.record(graph_dir, "utils/mkgraph.sh", [*(lang / name for name in LANG_FILES), model_dir / "tree", model_dir / "final.mdl"],
                      OWN_FILES, {**transition_facts(model), **tree_facts(tree)}, [lang])
    return graph
