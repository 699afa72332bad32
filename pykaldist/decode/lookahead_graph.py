"""A decoding graph in two halves, HCLr.fst and Gr.fst, which the decoder composes with each other as far as it searches.

HCLr is the lexicon with context and HMMs; it has the words but not the language model, so its size does not grow with that one. It is made
by Kaldi's steps of utils/mkgraph_lookahead.sh:

    HCLr = self-loops(min(local epsilon removal(det(H o (C o det(L))) without disambiguation)))

with the words renumbered so that those below a state are few intervals (io/lookahead_fst.py). Gr is the language model with the new numbers
as input, and the old ones as output; its back-off arcs read #0, as one of HCLr's words. (Kaldi's HCLr keeps the input labels of
disambiguation symbols, which are listed in disambig_tid.int; here they have done what they are for when H o CL is determinised, and their
arcs go. Kaldi's own HCLr is read too.) Determinisation is in the tropical semiring: the lexicon is no distribution, and sums over the words
below an arc would make arcs with many words cheap.

H o CL is determinised, and minimised, as an acceptor of pairs (input, output). As a transducer it cannot be where the model knows the phone
to come (triphones): #0 may be read any number of times after the words A and B are written and before their phones are heard, and what is
still to be written, A #0 #0 ... or B #0 #0 ..., grows without end. Pairs have nothing that is still to be written. Where a model knows no
phone to come (the usual chain models), both are the same, for every arc of det(L) has its own phone.
`lookahead.py` decodes with both.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import kaldifst
import numpy as np

from pykaldist.decode import search_graph
from pykaldist.decode.arpa import grammar as grammar_of_arpa
from pykaldist.decode.hclg import COPIED, GraphOptions, begin_graph_dir, determinized, graph_parts, with_hmms, without_word
from pykaldist.decode.pairs import LANG_FILES, transition_facts, tree_facts
from pykaldist.decode.search_graph import SearchGraph
from pykaldist.errors import UserError
from pykaldist.hmm.tree.h_transducer import add_self_loops, h_transducer
from pykaldist.hmm.tree.transition_model import TransitionModel
from pykaldist.hmm.tree.tree import ContextDependency
from pykaldist.host_memory import give_back
from pykaldist.io import provenance
from pykaldist.io.atomic import write_text
from pykaldist.io.fst import Fst
from pykaldist.io.fst_compose import sort_arcs, trimmed
from pykaldist.io.fst_minimize import minimize
from pykaldist.io.fstops import from_kaldifst, remove_eps_local, to_kaldifst
from pykaldist.io.lang import LangDir
from pykaldist.io.lookahead_fst import NextLabels, next_labels, read_lookahead, write_lookahead
from pykaldist.io.tables import read_lines
from pykaldist.progress import Progress

LEXICON, GRAMMAR, DISAMBIG, RELABEL = "HCLr.fst", "Gr.fst", "disambig_tid.int", "relabel"
FILES = (LEXICON, GRAMMAR, DISAMBIG)


@dataclass
class LookaheadGraph:
    """The two halves, as the decoder takes them: words have HCLr's numbers where it writes and the grammar reads them."""

    lexicon: SearchGraph  # its `olabel` are HCLr's numbers
    next_words: NextLabels
    grammar: Fst  # arcs sorted by input

    @classmethod
    def of(cls, hcl: Fst, next_words: NextLabels, grammar: Fst, disambig_tid: np.ndarray, tid2pdf: np.ndarray) -> LookaheadGraph:
        """Make it of HCLr, Gr and the input labels of HCLr that stand for disambiguation symbols. Changes `hcl`, and sorts `grammar`.

        Raises UserError where they do not fit each other or the model, and for a grammar with arcs that read nothing.
        """
        hcl.ilabel[np.isin(hcl.ilabel, disambig_tid)] = 0
        if (grammar.ilabel == 0).any():
            raise UserError("the language model has arcs that read no word; make Gr.fst with utils/mkgraph_lookahead.sh.")
        sort_arcs(grammar.offset, grammar.ilabel, grammar.olabel, grammar.weight, grammar.nextstate)
        return cls(SearchGraph.of(hcl, tid2pdf), next_words, grammar)

    @classmethod
    def read(cls, graph_dir: str | os.PathLike[str], tid2pdf: np.ndarray) -> LookaheadGraph:
        """Read the files of a graph directory; `tid2pdf` maps the model's transition-ids to pdfs."""
        folder = Path(graph_dir)
        hcl, next_words = read_lookahead(folder / LEXICON)
        disambig = np.array([int(line) for line in read_lines(folder / DISAMBIG)], np.int64)
        return cls.of(hcl, next_words, Fst.read(folder / GRAMMAR), disambig, tid2pdf)


def graph_files(graph_dir: str | os.PathLike[str]) -> list[Path]:
    """The files that a graph directory's graph is in."""
    folder = Path(graph_dir)
    return [folder / name for name in (FILES if is_lookahead(folder) else ("HCLG.fst",))]


def is_lookahead(graph_dir: str | os.PathLike[str]) -> bool:
    """Whether a graph directory has the two halves, and no whole graph."""
    folder = Path(graph_dir)
    return not (folder / "HCLG.fst").exists() and all((folder / name).is_file() for name in FILES)


def lexicon_half(lexicon: Fst, disambig: Sequence[int], tree: ContextDependency, model: TransitionModel,
                 options: GraphOptions) -> tuple[Fst, np.ndarray]:
    """Make HCL of L_disambig: the words of the lexicon with context and HMMs; and the input labels that stand for `disambig`."""
    with Progress("making HCL", 4, "step") as bar:
        bar.update(0, "determinising L")
        words = to_kaldifst(determinized(lexicon, "the lexicon", tropical=True))
        kaldifst.arcsort(words, "ilabel")
        bar.update(1, "C o L")
        context, windows = kaldifst.compose_context(list(disambig), tree.width, tree.central, words)
        del words
        flat = from_kaldifst(context)
        del context
        bar.update(1, "H o CL")
        h, disambig_tid = h_transducer(windows, tree, model, options.transition_scale)
        graph = with_hmms(h, flat)
        del h, flat
        give_back()
        bar.update(1, "determinising")
        pairs, code = np.unique((graph.ilabel.astype(np.int64) << 32) | graph.olabel, return_inverse=True)
        first = int(pairs[0] > 0)  # code 0 is for arcs that neither read nor write
        graph.ilabel, graph.olabel = (code + first).astype(np.int32), np.zeros(graph.num_arcs, np.int32)
        graph = determinized(graph, "the lexicon with its HMMs", tropical=True)
        ilabel, olabel = (np.concatenate([np.zeros(first, np.int64), half]) for half in np.divmod(pairs, 1 << 32))
        graph.ilabel, graph.olabel = ilabel[graph.ilabel].astype(np.int32), olabel[graph.ilabel].astype(np.int32)
        graph.ilabel[np.isin(graph.ilabel, disambig_tid)] = 0
        graph = minimize(trimmed(remove_eps_local(graph)))
        bar.update()
    return add_self_loops(graph, model, options.self_loop_scale), disambig_tid


def grammar_half(grammar: Fst, number: np.ndarray, backoff_label: int) -> Fst:
    """Make Gr of G: its words as `number` says, arcs that read nothing as back-off arcs; without words that the lexicon has not.

    Raises UserError where the lexicon has none of its words.
    """
    source, read = grammar.source, np.where(grammar.ilabel == 0, backoff_label, grammar.ilabel)
    known = read < len(number)
    label = np.where(known, number[np.where(known, read, 0)], 0)
    keep = label > 0
    if not (keep & (read != backoff_label)).any():
        raise UserError("the lexicon and the language model have no word in common; make G.fst with this lang directory's words.txt "
                        "(utils/format_lm.sh).")
    word = np.where(grammar.olabel == backoff_label, 0, grammar.olabel)
    made = Fst.from_arcs(grammar.start, grammar.final, source[keep], label[keep], word[keep], grammar.weight[keep], grammar.nextstate[keep])
    sort_arcs(made.offset, made.ilabel, made.olabel, made.weight, made.nextstate)
    return made


def make_lookahead_graph(lang: str | os.PathLike[str], model_dir: str | os.PathLike[str], graph_dir: str | os.PathLike[str],
                         options: GraphOptions, arpa: str | os.PathLike[str] | None = None) -> tuple[Fst, Fst]:
    """Write `graph_dir` as Kaldi's mkgraph_lookahead.sh; returns HCLr and Gr.

    It has HCLr.fst, Gr.fst, disambig_tid.int, relabel (old and new numbers of words), words.txt, phones.txt, phones/ and num_pdfs. The
    language model is `arpa`, or G.fst of `lang` where there is none.
    """
    lang, model_dir, graph_dir = Path(lang), Path(model_dir), Path(graph_dir)
    disambig, tree, model = graph_parts(lang, model_dir, lang / "G.fst" if arpa is None else Path(arpa))
    words = LangDir(lang).words
    if "#0" not in words:
        raise UserError(f"{lang}/words.txt has no #0, which back-off arcs of language models take; make it with utils/prepare_lang.sh.")
    hcl, disambig_tid = lexicon_half(Fst.read(lang / "L_disambig.fst"), disambig, tree, model, options)
    next_words, number = next_labels(hcl)
    g = Fst.read(lang / "G.fst") if arpa is None else grammar_of_arpa(arpa, lang / "words.txt")[0]
    if options.remove_oov:
        g = without_word(g, words[LangDir(lang).oov])
    g = grammar_half(g, number, words["#0"])

    begin_graph_dir(graph_dir, lang, model, disambig_tid, (*FILES, "HCLG.fst", search_graph.FILE))
    write_text(graph_dir / RELABEL, "".join(f"{old}\t{new}\n" for old, new in enumerate(number.tolist()) if new))
    write_lookahead(graph_dir / LEXICON, hcl, next_words)
    g.write(graph_dir / GRAMMAR, "const")
    made_of = [*(lang / name for name in LANG_FILES if arpa is None or name != "G.fst"), *([] if arpa is None else [Path(arpa)]),
               model_dir / "tree", model_dir / "final.mdl"]
    provenance.record(graph_dir, "utils/mkgraph_lookahead.sh", made_of, (*FILES, *COPIED), {**transition_facts(model), **tree_facts(tree)},
                      [lang])
    return hcl, g
