"""The decoding graph TLG of a network trained with CTC: T o min(det(L o G)), as in EESEN (Miao, Gowayyed & Metze, 2015).

T takes the network's outputs, one a frame, blank among them, to the labels they stand for: repeated outputs are one label, and between two
equal labels there has to be a blank. Its states are "blank, or the beginning" and one for each label, that which was read last:
    0 -blank:eps-> 0     0 -p:p-> p     p -p:eps-> p     p -blank:eps-> 0     p -q:q-> q for q != p
all of them final, each with a loop eps:#k for every disambiguation symbol of L. (EESEN's T lets a label follow itself without a blank.)
Input label i of the graph is output i - 1 of the network.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import kaldifst
import numpy as np

from pykaldist.decode.hclg import OWN_FILES, lexicon_and_grammar
from pykaldist.decode.pairs import LANG_FILES, token_facts
from pykaldist.errors import UserError
from pykaldist.io import provenance
from pykaldist.io.atomic import copy_file
from pykaldist.io.fst import Fst
from pykaldist.io.fstops import from_kaldifst, remove_eps_local, to_kaldifst
from pykaldist.io.tables import read_lines


def token_transducer(labels: Sequence[int], disambig: Sequence[int]) -> Fst:
    """Make T over the labels' numbers (1 or more), which are the outputs of the network that they stand for."""
    own = np.asarray(labels, np.int32)
    state, n, k = np.arange(1, len(own) + 1), len(own), len(disambig)
    every = np.arange(n + 1)
    before, after = (grid[~np.eye(n, dtype=bool)] for grid in np.meshgrid(np.arange(n), np.arange(n), indexing="ij"))
    groups = [  # source, ilabel, olabel, target
        (np.zeros(1), np.ones(1), np.zeros(1), np.zeros(1)),
        (np.zeros(n), own + 1, own, state),
        (state, own + 1, np.zeros(n), state),
        (state, np.ones(n), np.zeros(n), np.zeros(n)),
        (before + 1, own[after] + 1, own[after], after + 1),
        (np.repeat(every, k), np.zeros(k * (n + 1)), np.tile(disambig, n + 1), np.repeat(every, k))]
    source, ilabel, olabel, target = (np.concatenate(column).astype(np.int32) for column in zip(*groups, strict=True))
    return Fst.from_arcs(0, np.zeros(n + 1, np.float32), source, ilabel, olabel, np.zeros(len(source), np.float32), target)


def token_graph(lexicon: Fst, grammar: Fst, labels: Sequence[int], disambig: Sequence[int]) -> Fst:
    """Make TLG of L_disambig and G; raises UserError where they do not fit."""
    t, lg = to_kaldifst(token_transducer(labels, disambig)), to_kaldifst(lexicon_and_grammar(lexicon, grammar))
    kaldifst.arcsort(t, "olabel")
    kaldifst.arcsort(lg, "ilabel")
    graph = kaldifst.compose(t, lg)
    if graph.num_states == 0:
        raise UserError("the network's labels and the language directory's phones have nothing in common; use the lang directory whose "
                        "phones it was trained on.")
    small = to_kaldifst(remove_eps_local(from_kaldifst(graph)))
    kaldifst.connect(small)
    return from_kaldifst(small)


def make_token_graph(lang: str | os.PathLike[str], model_dir: str | os.PathLike[str], graph_dir: str | os.PathLike[str]) -> Fst:
    """Write `graph_dir` (HCLG.fst, which is TLG, words.txt, phones.txt, phones/); returns TLG."""
    lang, model_dir, graph_dir = Path(lang), Path(model_dir), Path(graph_dir)
    for path in (lang / "L_disambig.fst", lang / "G.fst", lang / "words.txt", lang / "phones.txt", lang / "phones/disambig.int",
                 model_dir / "tokens.txt"):
        if not path.is_file():
            raise UserError(f"{path} does not exist; a graph needs a language directory with G.fst (utils/format_lm.sh) and the directory "
                            "of a network trained with --objective ctc.")
    provenance.check(lang)
    provenance.check(model_dir, inputs=False)
    tokens, phones = (dict(line.split() for line in read_lines(path)) for path in (model_dir / "tokens.txt", lang / "phones.txt"))
    wrong = [name for name, number in tokens.items() if number != "0" and phones.get(name) != number]
    if wrong:
        raise UserError(f"{model_dir}/tokens.txt has the label {wrong[0]}, which {lang}/phones.txt has not, or under another number; use "
                        "the lang directory whose phones the network was trained on.")
    disambig = [int(line) for line in read_lines(lang / "phones/disambig.int")]
    labels = sorted(int(number) for number in tokens.values() if number != "0")
    graph = token_graph(Fst.read(lang / "L_disambig.fst"), Fst.read(lang / "G.fst"), labels, disambig)
    (graph_dir / "phones").mkdir(parents=True, exist_ok=True)
    provenance.forget(graph_dir)
    for name in ("words.txt", "phones.txt", "phones/disambig.int", "phones/silence.csl", "phones/word_boundary.int",
                 "phones/align_lexicon.int"):
        if (lang / name).is_file():
            copy_file(lang / name, graph_dir / name)
    graph.write(graph_dir / "HCLG.fst", "const")
    provenance.record(graph_dir, "utils/mkgraph_ctc.sh", [*(lang / name for name in LANG_FILES), model_dir / "tokens.txt"], OWN_FILES,
                      token_facts(model_dir), [lang])
    return graph
