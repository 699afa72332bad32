"""Training of context-dependent systems, with the schedule of Kaldi's steps/train_deltas.sh.

An earlier system's alignment gives the statistics of every state in context. From these come the questions, the tree, and one Gaussian
for each of its leaves; then EM along the alignment, which is converted to the new tree, and made anew with the new model in some
iterations. The number of Gaussians grows from the number of leaves asked for; a system that also learns a transform of the features (MLLT,
fMLLR) begins with one for each leaf.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pykaldist.errors import UserError
from pykaldist.hmm.alignments.align import Alignments, AlignOptions
from pykaldist.hmm.alignments.corpus import Corpus, block_task
from pykaldist.hmm.gmm.engine import Engine
from pykaldist.hmm.gmm.gmm import AmDiagGmm, split_targets
from pykaldist.hmm.lang.topology import read_topology
from pykaldist.hmm.training.iterations import Adaptation, Checkpoint, State, Training, TrainingOptions
from pykaldist.hmm.tree.build_tree import build_tree, read_roots
from pykaldist.hmm.tree.context import convert_alignments
from pykaldist.hmm.tree.questions import all_questions, automatic_questions, kaldi_questions
from pykaldist.hmm.tree.transition_model import TransitionModel
from pykaldist.hmm.tree.tree import ContextDependency
from pykaldist.hmm.tree.tree_stats import TreeStats, accumulate_tree_stats
from pykaldist.io.lang import LangDir
from pykaldist.options import option
from pykaldist.progress import Progress


@dataclass
class TriphoneOptions(TrainingOptions):
    """Options of `train_triphones`, over those of the alignment."""

    cluster_thresh: float = option(-1.0, "merge leaves while that costs less log-likelihood; below 0: than the last split gained; 0: never")
    context_width: int = option(3, "phones in the tree's window")
    central_position: int = option(1, "place of the modelled phone in it, from 0")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.central_position < self.context_width <= 5:
            raise UserError(f"--context-width must be 1 to 5 and --central-position below it, found {self.context_width} and "
                            f"{self.central_position}.")


Initial = Callable[[TreeStats, ContextDependency, np.ndarray, np.random.Generator], AmDiagGmm]


def grow(stats: TreeStats, lang: LangDir, max_leaves: int, cluster_thresh: float, seed: int, log: Callable[[str], None] = print,
         pdf_classes: Sequence[int] = (), as_kaldi: bool = False) -> tuple[ContextDependency, TransitionModel]:
    """Make questions, tree and initial transition model from `stats`, by the topology, roots and extra questions of `lang`.

    The questions are of the statistics of `pdf_classes` (none named: 1, or 0 where that is the only one). `as_kaldi`: questions and tree
    are those that Kaldi makes; `seed` changes nothing then.
    """
    tree, model, _ = grow_levels(stats, lang, 0, max_leaves, cluster_thresh, seed, log, pdf_classes, as_kaldi)
    return tree, model


def grow_levels(stats: TreeStats, lang: LangDir, first_leaves: int, max_leaves: int, cluster_thresh: float = -1.0, seed: int = 0,
                log: Callable[[str], None] = print, pdf_classes: Sequence[int] = (), as_kaldi: bool = False) -> tuple[
                    ContextDependency, TransitionModel, np.ndarray]:
    """Make what `grow` makes, and the group of each pdf: with `first_leaves` the tree has two levels (build_tree.py)."""
    topology = read_topology(lang.file("topo"))
    num_pdf_classes = max(map(topology.num_pdf_classes, topology.phones))
    pdf_classes = pdf_classes or [min(1, num_pdf_classes - 1)]
    found = (kaldi_questions(stats, lang.phone_sets, pdf_classes) if as_kaldi
             else automatic_questions(stats, lang.phone_sets, pdf_classes, np.random.default_rng(seed)))
    phone_questions = list(dict.fromkeys([*found, *map(frozenset, lang.int_lists("phones/extra_questions.int"))]))
    if as_kaldi:
        phone_questions.sort(key=sorted)
    grown = build_tree(stats, read_roots(lang), all_questions(phone_questions, stats.width, num_pdf_classes), topology.num_pdf_classes,
                       max_leaves, thresh=0.0 if first_leaves else 300.0, cluster_thresh=cluster_thresh, as_kaldi=as_kaldi,
                       first_leaves=first_leaves)
    count = stats.sums[:, 0].sum()
    log(f"tree: {len(phone_questions)} questions about phones, {grown.splits} splits, {grown.merged} leaves merged, "
        f"{grown.tree.num_pdfs} pdfs; log-likelihood a frame {grown.root_log_likelihood / count:.4f} at the roots, "
        f"{grown.log_likelihood / count:.4f} at the pdfs")
    return grown.tree, TransitionModel.from_tree(grown.tree, topology), grown.groups


def one_gaussian_each(stats: TreeStats, tree: ContextDependency) -> tuple[AmDiagGmm, np.ndarray]:
    """Make one Gaussian for each pdf from the statistics of its states; returns them, and the pdfs' occupancies.

    A pdf without statistics has the mean of all.
    """
    sums = np.zeros((tree.num_pdfs, stats.sums.shape[1]))
    np.add.at(sums, [tree.compute(values[:-1], values[-1]) for values in stats.values.tolist()], stats.sums)
    return AmDiagGmm.from_sums(np.where(sums[:, :1] > 0, sums, stats.sums.sum(axis=0))), sums[:, 0]


@block_task()
def tree_stats(part: Corpus, engine: Engine, tids: np.ndarray, model: TransitionModel, ci_phones: list[int], width: int,
               central: int) -> TreeStats:
    """The statistics of a block's states in context."""
    return accumulate_tree_stats(part.feats, tids, part.offsets, model, ci_phones, width, central)


@block_task(outputs=1, feats=False)
def convert(part: Corpus, engine: Engine, before: np.ndarray, after: np.ndarray, old: TransitionModel, tree: ContextDependency,
             model: TransitionModel) -> None:
    """Convert a block's alignment from one model's transition_ids to those of another tree."""
    after[:] = convert_alignments(before, part.offsets, old, tree, model)


def train_triphones(corpus: Corpus, lang: LangDir, tids: np.ndarray, old: TransitionModel, max_leaves: int, totgauss: int,
                    options: TriphoneOptions, align_options: AlignOptions, engine: Engine | None = None,
                    adaptation: Adaptation | None = None, log: Callable[[str], None] = print,
                    checkpoint: Checkpoint | None = None, initial: Initial | None = None, first_gauss: int = 0) -> State:
    """Train a system on `corpus`, beginning with the alignment `tids` (transition_ids of the model `old`, 0 where there is none).

    `corpus.feats` are the features that the tree is grown on; `log` gets a line an iteration. The alignments that come out are those of the
    last realignment, as in Kaldi. With `checkpoint` the training goes on where that says. `initial` makes the first mixtures, of about
    `first_gauss` Gaussians, from the tree's statistics, the tree and the pdfs' occupancies; without it there is one Gaussian a pdf, which
    is split until there are `max_leaves`. Raises UserError where more than a tenth of the utterances cannot be aligned in the end, or for
    sizes without sense.
    """
    if max_leaves < 1 or totgauss < max_leaves:
        raise UserError(f"expected at least one leaf, and no fewer Gaussians than leaves; found {max_leaves} and {totgauss}.")
    engine, first = engine or Engine(), 1
    if checkpoint is not None and checkpoint.stage:
        state, first = checkpoint.load(corpus, read_topology(lang.file("topo")), adaptation), checkpoint.stage
    else:
        rng = np.random.default_rng([options.seed, 1])
        stats = corpus.total(tree_stats, engine, tids, model=old, ci_phones=lang.silence_phones, width=options.context_width,
                             central=options.central_position)
        tree, model = grow(stats, lang, max_leaves, options.cluster_thresh, options.seed, log)
        gmm, occupancy = one_gaussian_each(stats, tree)
        if initial is not None:
            gmm = initial(stats, tree, occupancy, rng)
        elif adaptation is None:
            gmm = gmm.split(split_targets(occupancy, max_leaves, options.power), rng)
        converted = corpus.new_rows(None, np.int32)
        corpus.run(convert, engine, tids, converted, old=old, tree=tree, model=model)
        state = State(tree, model, gmm, Alignments(converted), corpus.feats, rng)
    corpus = replace(corpus, feats=np.zeros(0))  # so that those of the beginning go when others are learned
    graphs = corpus.graphs(lang, state.tree, state.transition_model)
    training = Training(corpus, graphs, lang.optional_silence, options, align_options, first_gauss or max_leaves, totgauss, engine,
                        adaptation, log=log)
    with Progress("training triphones", options.num_iters - first, "iteration") as bar:
        training.run(state, range(first, options.num_iters), bar, checkpoint)
    training.check(state)
    return state
