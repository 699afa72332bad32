"""Training that begins with an earlier system's mixtures: which pdf takes which, and what comes out, on toy speech."""

from __future__ import annotations

import numpy as np
import pytest

from pykaldist.errors import UserError
from pykaldist.hmm.alignments.align import AlignOptions
from pykaldist.hmm.alignments.corpus import Corpus
from pykaldist.hmm.training.iterations import State
from pykaldist.hmm.training.mono import MonoOptions, train_mono
from pykaldist.hmm.training.quick import QuickOptions, closest_pdfs, train_quick
from pykaldist.hmm.training.triphones import TriphoneOptions, train_triphones
from pykaldist.hmm.tree.tree_stats import TreeStats, accumulate_tree_stats
from pykaldist.io.lang import LangDir


def quiet(line: str) -> None:
    """No log."""


@pytest.fixture(scope="module")
def monophones(toy_corpus: Corpus, toy_lang: LangDir) -> State:
    options = MonoOptions(num_starts=1, num_iters=12, max_iter_inc=8, totgauss=40, realign_iters="1 2 3 4 5 6 8 10")
    return train_mono(toy_corpus, toy_lang, options, AlignOptions(), log=quiet)


@pytest.fixture(scope="module")
def triphones(toy_corpus: Corpus, toy_lang: LangDir, monophones: State) -> State:
    return train_triphones(toy_corpus, toy_lang, monophones.alignments.tids, monophones.transition_model, 40, 80,
                           TriphoneOptions(num_iters=12, max_iter_inc=8, realign_iters="4 8"), AlignOptions(), log=quiet)


def stats_of(corpus: Corpus, lang: LangDir, system: State) -> TreeStats:
    return accumulate_tree_stats(corpus.feats, system.alignments.tids, corpus.offsets, system.transition_model, lang.silence_phones)


def test_a_tree_is_closest_to_itself_and_its_leaves_to_their_monophones(toy_corpus: Corpus, toy_lang: LangDir, monophones: State,
                                                                        triphones: State) -> None:
    stats = stats_of(toy_corpus, toy_lang, triphones)
    seen = np.unique([triphones.tree.compute(row[:-1], row[-1]) for row in stats.values.tolist()])
    assert (closest_pdfs(stats, triphones.tree, triphones.tree)[seen] == seen).all()
    closest = closest_pdfs(stats, triphones.tree, monophones.tree)
    tids, old = triphones.alignments.tids, monophones.transition_model
    model = triphones.transition_model
    for pdf in seen:  # against a count frame by frame
        mine = tids[(model.tid2pdf[tids] == pdf) & (tids > 0)]
        counts = np.zeros(monophones.tree.num_pdfs)
        for phone, state in zip(model.tid2phone[mine], model.tid2hmm_state[mine], strict=True):
            counts[old.tuples[(old.tuples[:, 0] == phone) & (old.tuples[:, 1] == state)][0, 2]] += 1
        assert counts[closest[pdf]] == counts.max()
    with pytest.raises(UserError, match="--context-width=3 --central-position=1"):
        narrow = accumulate_tree_stats(toy_corpus.feats, tids, toy_corpus.offsets, model, toy_lang.silence_phones, 1, 0)
        closest_pdfs(narrow, monophones.tree, triphones.tree)


def test_it_begins_where_the_earlier_system_ended(toy_corpus: Corpus, toy_lang: LangDir, triphones: State) -> None:
    """The first iteration is about as good as the last of the system before it."""
    lines: list[str] = []
    tids, model = triphones.alignments.tids, triphones.transition_model
    options = QuickOptions(num_iters=8, max_iter_inc=6, realign_iters="4")
    earlier = (toy_corpus, toy_lang, tids, model, triphones.tree, triphones.gmm)
    quick = train_quick(*earlier, 40, 160, options, AlignOptions(), log=lines.append)
    values = [float(line.split("log-likelihood ")[1].split()[0]) for line in lines if line.startswith("iteration")]
    assert f"first mixtures: those of {triphones.gmm.num_pdfs} pdfs" in lines[1] and len(values) == 7
    assert abs(values[0] - triphones.log_likelihood) < 0.3 and values[-1] > values[0] and not quick.alignments.failed
    small = train_quick(*earlier, 20, 20, options, AlignOptions(), log=quiet)
    assert small.gmm.num_gauss <= 30 and small.gmm.num_pdfs <= 20  # mixtures were merged
