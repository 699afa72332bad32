"""Training that begins with the mixtures of an earlier system, with the schedule of Kaldi's steps/train_quick.sh.

The tree is grown anew. Each of its pdfs takes the mixture of that pdf of the earlier system with which it shares most frames; Gaussians are
merged and split until there are half of those asked for. So twenty iterations with two realignments do, and no transforms are estimated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pykaldist.errors import UserError
from pykaldist.hmm.alignments.align import AlignOptions
from pykaldist.hmm.alignments.corpus import Corpus
from pykaldist.hmm.gmm.engine import Engine
from pykaldist.hmm.gmm.gmm import AmDiagGmm, split_targets
from pykaldist.hmm.training.iterations import Checkpoint, State
from pykaldist.hmm.training.triphones import TriphoneOptions, train_triphones
from pykaldist.hmm.tree.transition_model import TransitionModel
from pykaldist.hmm.tree.tree import ContextDependency
from pykaldist.hmm.tree.tree_stats import TreeStats
from pykaldist.io.lang import LangDir
from pykaldist.options import option


@dataclass
class QuickOptions(TriphoneOptions):
    """Options of `train_quick`, over those of the alignment."""

    num_iters: int = option(20, "iterations of training")
    max_iter_inc: int = option(15, "last iteration in which the number of Gaussians grows")
    realign_iters: str = option("10 15", "iterations that align first")
    power: float = option(0.2, "exponent of a pdf's occupancy in its share of the Gaussians")


def closest_pdfs(stats: TreeStats, tree: ContextDependency, old_tree: ContextDependency) -> np.ndarray:
    """For each pdf of `tree`, the pdf of `old_tree` with which it shares most frames of `stats` (int64); without frames, pdf 0.

    Raises UserError where the old tree's window reaches beyond that of the statistics.
    """
    first = stats.central - old_tree.central
    if first < 0 or first + old_tree.width > stats.width:
        raise UserError(f"the tree of the alignment looks at {old_tree.width} phones, of which number {old_tree.central} is modelled; give "
                        f"--context-opts \"--context-width={old_tree.width} --central-position={old_tree.central}\".")
    shared = np.zeros((tree.num_pdfs, old_tree.num_pdfs))
    values = stats.values.tolist()
    new = [tree.compute(row[:-1], row[-1]) for row in values]
    old = [old_tree.compute(row[first:first + old_tree.width], row[-1]) for row in values]
    np.add.at(shared, (new, old), stats.sums[:, 0])
    return shared.argmax(axis=1)


def train_quick(corpus: Corpus, lang: LangDir, tids: np.ndarray, old: TransitionModel, old_tree: ContextDependency, old_gmm: AmDiagGmm,
                max_leaves: int, totgauss: int, options: QuickOptions, align_options: AlignOptions, engine: Engine | None = None,
                log: Callable[[str], None] = print, checkpoint: Checkpoint | None = None) -> State:
    """Train a system on `corpus` from an alignment, and from the tree and mixtures of the system that made it; see `train_triphones`."""
    first_gauss = max(totgauss // 2, max_leaves)

    def initial(stats: TreeStats, tree: ContextDependency, occupancy: np.ndarray, rng: np.random.Generator) -> AmDiagGmm:
        gmm = old_gmm.taken(closest_pdfs(stats, tree, old_tree))
        targets = split_targets(occupancy, first_gauss, options.power)
        made = gmm.merged(targets).split(targets, rng)
        log(f"first mixtures: those of {old_gmm.num_pdfs} pdfs of the earlier system, {gmm.num_gauss} Gaussians, made {made.num_gauss}")
        return made

    return train_triphones(corpus, lang, tids, old, max_leaves, totgauss, options, align_options, engine, None, log, checkpoint, initial,
                           first_gauss)
