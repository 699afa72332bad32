"""The decoding graph HCLG, made of a language directory, a tree and a model.

The operations and their order are those of Kaldi's mkgraph.sh:

    LG = push(min(det(L o G)));  CLG = C o LG;  HCLG = self-loops(min(local epsilon removal(det(H o CLG) without disambiguation)))

Composition is in `io/fst_compose.py`, determinisation (in the log semiring, removing epsilons) in `io/fst_determinize.py`, minimisation (of
weights rounded to 1/1024) in `io/fst_minimize.py`, pushing and epsilon removal in `io/fstops.py`, the H transducer and the self-loops in
`hmm/tree/h_transducer.py`; composition with the context is kaldifst's. The graph is Kaldi's arc by arc, up to the numbering of states.
Source: M. Mohri, F. Pereira, M. Riley, "Speech recognition with weighted finite-state transducers", 2008.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import kaldifst
import numpy as np

from pykaldist.decode import search_graph
from pykaldist.decode.pairs import LANG_FILES, transition_facts, tree_facts
from pykaldist.decode.search_graph import SearchGraph
from pykaldist.errors import UserError
from pykaldist.hmm.gmm.model_files import read_transition_model, read_tree
from pykaldist.hmm.tree.h_transducer import add_self_loops, h_transducer
from pykaldist.hmm.tree.transition_model import TransitionModel
from pykaldist.hmm.tree.tree import ContextDependency
from pykaldist.host_memory import give_back
from pykaldist.io import provenance
from pykaldist.io.atomic import copy_file, write_text
from pykaldist.io.fst import Fst
from pykaldist.io.fst_compose import compose, trimmed
from pykaldist.io.fst_determinize import determinize
from pykaldist.io.fst_minimize import minimize
from pykaldist.io.fstops import from_kaldifst, push_special, remove_eps_local, to_kaldifst
from pykaldist.io.lang import LangDir, check_phones
from pykaldist.io.tables import read_lines
from pykaldist.options import option
from pykaldist.progress import Progress

OWN_FILES = ("HCLG.fst", search_graph.FILE, "words.txt", "phones.txt", "phones/word_boundary.int",
             "phones/align_lexicon.int", "phones/silence.csl")
#: What a graph directory has of its language directory, so that decoding needs no other.
COPIED = ("words.txt", "phones.txt", "phones/silence.csl", "phones/disambig.int", "phones/disambig.txt", "phones/word_boundary.int",
          "phones/word_boundary.txt", "phones/align_lexicon.int", "phones/align_lexicon.txt")


@dataclass
class GraphOptions:
    """The options of Kaldi's mkgraph.sh: above all the scales of the HMM's transition probabilities against the other scores."""

    self_loop_scale: float = option(0.1, "scale of the self-loop probabilities")
    transition_scale: float = option(1.0, "scale of the other transition probabilities")
    remove_oov: bool = option(False, "leave out the paths with the word for unknown words (oov.int)")


def determinized(fst: Fst, what: str, tropical: bool = False) -> Fst:
    """The transducer determinised; raises UserError, which names it by `what`, where it cannot be."""
    limit = max(1_000_000, 20 * fst.num_states)
    try:
        return determinize(fst, limit, tropical)
    except ValueError as error:
        raise UserError(f"{what} cannot be determinised (it {error}; the limit is {limit}): words that sound alike, or language model "
                        "back-offs, lack disambiguation symbols; make the language directory again with utils/prepare_lang.sh and "
                        "format_lm.sh.") from error


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
    lg = compose(lexicon, grammar)
    if lg.num_states == 0:
        raise UserError("the lexicon and the language model have no word in common; make G.fst with this lang directory's words.txt "
                        "(utils/format_lm.sh).")
    return push_special(minimize(trimmed(determinized(lg, "the lexicon with the language model"))))


def with_hmms(h: Fst, context: Fst) -> Fst:
    """Compose H with a transducer that reads context windows; raises UserError where nothing is left."""
    graph = compose(h, context)
    if graph.num_states == 0:
        raise UserError("the model's phones and the language directory's have nothing in common; use the lang directory of training.")
    return graph


def decoding_graph(lexicon: Fst, grammar: Fst, disambig: Sequence[int], tree: ContextDependency, model: TransitionModel,
                   options: GraphOptions, on_the_way: Path | None = None) -> tuple[Fst, np.ndarray]:
    """Make HCLG, and the labels that stood for disambiguation symbols (`disambig`: the phone symbols #0, #1, ...).

    What has been used is let go of at once, as a graph is several times as large on the way. The folder `on_the_way` gets LG.fst and
    CLG_<width>_<central>.fst. Raises UserError where L and G do not fit, or cannot be determinised.
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
        del lg
        flat = from_kaldifst(clg)
        del clg
        h, disambig_tid = h_transducer(windows, tree, model, options.transition_scale)
        del windows
        give_back()
        graph = with_hmms(h, flat)
        del h, flat
        give_back()
        bar.update(1, "determinising")
        graph = determinized(graph, "the graph")
        give_back()
        bar.update(1, "minimising")
        graph.ilabel[np.isin(graph.ilabel, disambig_tid)] = 0
        graph = minimize(trimmed(remove_eps_local(graph)))
        give_back()
        looped = add_self_loops(graph, model, options.self_loop_scale)
        bar.update()
    return looped, disambig_tid


def graph_parts(lang: Path, model_dir: Path, language_model: Path) -> tuple[list[int], ContextDependency, TransitionModel]:
    """Check what a graph is made of, and read its disambiguation symbols, tree and transition model.

    Raises UserError where a file does not exist, or has changed since others were made of it, or the model is of other phones.
    """
    for path in (lang / "L_disambig.fst", language_model, lang / "words.txt", lang / "phones/disambig.int", model_dir / "tree",
                 model_dir / "final.mdl"):
        if not path.is_file():
            raise UserError(f"{path} does not exist; a graph needs a language directory with L_disambig.fst, a language model "
                            "(utils/format_lm.sh makes G.fst) and a model directory with tree and final.mdl.")
    provenance.check(lang)
    provenance.check(model_dir, inputs=False)
    check_phones(LangDir(lang), model_dir)
    disambig = [int(line) for line in read_lines(lang / "phones/disambig.int")]
    return disambig, read_tree(model_dir / "tree"), read_transition_model(model_dir / "final.mdl")


def begin_graph_dir(graph_dir: Path, lang: Path, model: TransitionModel, disambig_tid: np.ndarray, former: Iterable[str]) -> None:
    """Write all of a graph directory but the graph: what it has of `lang`, num_pdfs and disambig_tid.int; removes the `former` files."""
    (graph_dir / "phones").mkdir(parents=True, exist_ok=True)
    provenance.forget(graph_dir)
    for name in former:
        (graph_dir / name).unlink(missing_ok=True)
    for name in COPIED:
        if (lang / name).is_file():
            copy_file(lang / name, graph_dir / name)
    write_text(graph_dir / "num_pdfs", f"{model.num_pdfs}\n")
    write_text(graph_dir / "disambig_tid.int", "".join(f"{tid}\n" for tid in disambig_tid))


def make_graph(lang: str | os.PathLike[str], model_dir: str | os.PathLike[str], graph_dir: str | os.PathLike[str],
               options: GraphOptions, keep: bool = False) -> Fst:
    """Write `graph_dir` as Kaldi's mkgraph.sh; returns HCLG.

    It has HCLG.fst, HCLG.search (see `search_graph`), words.txt, phones.txt, phones/, num_pdfs and disambig_tid.int.

    `keep`: LG and CLG stay in `lang`/tmp, where recipes look for them; nothing here reads them. Not where that cannot be written.
    """
    lang, model_dir, graph_dir = Path(lang), Path(model_dir), Path(graph_dir)
    disambig, tree, model = graph_parts(lang, model_dir, lang / "G.fst")
    grammar = Fst.read(lang / "G.fst")
    if options.remove_oov:
        grammar = without_word(grammar, LangDir(lang).words[LangDir(lang).oov])
    on_the_way = None
    if keep and os.access(lang, os.W_OK):
        on_the_way = lang / "tmp"
        on_the_way.mkdir(exist_ok=True)
    graph, disambig_tid = decoding_graph(Fst.read(lang / "L_disambig.fst"), grammar, disambig, tree, model, options, on_the_way)
    begin_graph_dir(graph_dir, lang, model, disambig_tid, ("HCLG.fst", search_graph.FILE))
    graph.write(graph_dir / "HCLG.fst", "const")
    SearchGraph.of(graph, model.tid2pdf).write(graph_dir / search_graph.FILE, model.tid2pdf)
    provenance.record(graph_dir, "utils/mkgraph.sh", [*(lang / name for name in LANG_FILES), model_dir / "tree", model_dir / "final.mdl"],
                      OWN_FILES, {**transition_facts(model), **tree_facts(tree)}, [lang])
    return graph
