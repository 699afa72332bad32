"""Training of context-dependent systems, with the schedule of Kaldi's steps/train_deltas.sh.

An earlier system's alignment gives the statistics of every state in context. From these come the questions, the tree, and one Gaussian
for each of its leaves; then EM along the alignment, which is converted to the new tree, and made anew with the new model in some
iterations. The number of Gaussians grows by the same amount each iteration up to `max_iter_inc`, from the number of leaves asked for.
Systems that also learn a transform of the features (MLLT, fMLLR) do so in iterations of their own, by `Adaptation`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from pykaldist.errors import UserError
from pykaldist.hmm.align import Alignments, AlignOptions, align
from pykaldist.hmm.build_tree import build_tree, read_roots
from pykaldist.hmm.context import convert_alignments
from pykaldist.hmm.corpus import Corpus
from pykaldist.hmm.em import AlignedFrames, accumulate, iterations
from pykaldist.hmm.gmm import AmDiagGmm, split_targets
from pykaldist.hmm.graphs import GraphCompiler
from pykaldist.hmm.questions import all_questions, automatic_questions
from pykaldist.hmm.topology import read_topology
from pykaldist.hmm.transition_model import TransitionModel
from pykaldist.hmm.tree import ContextDependency
from pykaldist.hmm.tree_stats import TreeStats, accumulate_tree_stats
from pykaldist.io.lang import LangDir
from pykaldist.options import option
from pykaldist.progress import Progress, progress


@dataclass
class TriphoneOptions:
    """Options of `train_triphones`, over those of the alignment."""

    num_iters: int = option(35, "iterations of training")
    max_iter_inc: int = option(25, "last iteration in which the number of Gaussians grows")
    realign_iters: str = option("10 20 30", "iterations that align first")
    power: float = option(0.25, "exponent of a pdf's occupancy in its share of the Gaussians")
    cluster_thresh: float = option(-1.0, "merge leaves while that costs less log-likelihood; below 0: than the last split gained; 0: never")
    context_width: int = option(3, "phones in the tree's window")
    central_position: int = option(1, "place of the modelled phone in it, from 0")
    seed: int = option(0, "seed of the questions' clustering and of the splits' directions")

    def __post_init__(self) -> None:
        if self.num_iters < 1:
            raise UserError(f"--num-iters must be at least 1, found {self.num_iters}.")
        if not 0 <= self.central_position < self.context_width <= 5:
            raise UserError(f"--context-width must be 1 to 5 and --central-position below it, found {self.context_width} and "
                            f"{self.central_position}.")


@dataclass
class TriphoneSystem:
    """What training makes: `feats` are the features in the space of the model. The alignments are those of the last realignment, as in
    Kaldi, and the log-likelihood a frame theirs."""

    tree: ContextDependency
    transition_model: TransitionModel
    gmm: AmDiagGmm
    alignments: Alignments
    log_likelihood: float
    feats: np.ndarray


class Adaptation(Protocol):
    """A transform of the features that is learned along with the Gaussians."""

    def update(self, iteration: int, gmm: AmDiagGmm, feats: np.ndarray, tids: np.ndarray, model: TransitionModel) -> tuple[
            AmDiagGmm, np.ndarray, str]:
        """The model and the features (N, D) that iteration `iteration` goes on with, and what to log about it (may be empty).

        `tids` is the alignment of all frames, 0 where there is none.
        """
        ...


def grow(stats: TreeStats, lang: LangDir, max_leaves: int, options: TriphoneOptions, log: Callable[[str], None] = print) -> tuple[
        ContextDependency, TransitionModel]:
    """Questions, tree and initial transition model from `stats`, by the topology, roots and extra questions of `lang`."""
    topology = read_topology(lang.file("topo"))
    num_pdf_classes = max(map(topology.num_pdf_classes, topology.phones))
    found = automatic_questions(stats, lang.phone_sets, [1] if num_pdf_classes > 1 else [0], np.random.default_rng(options.seed))
    phone_questions = list(dict.fromkeys([*found, *map(frozenset, lang.int_lists("phones/extra_questions.int"))]))
    grown = build_tree(stats, read_roots(lang), all_questions(phone_questions, stats.width, num_pdf_classes), topology.num_pdf_classes,
                       max_leaves, cluster_thresh=options.cluster_thresh)
    count = stats.sums[:, 0].sum()
    log(f"tree: {len(phone_questions)} questions about phones, {grown.splits} splits, {grown.merged} leaves merged, "
        f"{grown.tree.num_pdfs} pdfs; log-likelihood a frame {grown.root_log_likelihood / count:.4f} at the roots, "
        f"{grown.log_likelihood / count:.4f} at the pdfs")
    return grown.tree, TransitionModel.from_tree(grown.tree, topology)


def one_gaussian_each(stats: TreeStats, tree: ContextDependency) -> tuple[AmDiagGmm, np.ndarray]:
    """A Gaussian for each pdf, from the statistics of its states, and the pdfs' occupancies; the mean of all where there are none."""
    sums = np.zeros((tree.num_pdfs, stats.sums.shape[1]))
    np.add.at(sums, [tree.compute(values[:-1], values[-1]) for values in stats.values.tolist()], stats.sums)
    return AmDiagGmm.from_sums(np.where(sums[:, :1] > 0, sums, stats.sums.sum(axis=0))), sums[:, 0]


def train_triphones(corpus: Corpus, lang: LangDir, tids: np.ndarray, old: TransitionModel, max_leaves: int, totgauss: int,
                    options: TriphoneOptions, align_options: AlignOptions, threads: int = 1, adaptation: Adaptation | None = None,
                    log: Callable[[str], None] = print) -> TriphoneSystem:
    """Train a system on `corpus`, beginning with the alignment `tids` (transition_ids of the model `old`, 0 where there is none).

    `corpus.feats` are the features that the tree is grown on; `log` gets a line an iteration. The result does not depend on `threads`.
    Raises UserError where more than a tenth of the utterances cannot be aligned in the end, or for options without sense.
    """
    if max_leaves < 1 or totgauss < max_leaves:
        raise UserError(f"expected at least one leaf, and no fewer Gaussians than leaves; found {max_leaves} and {totgauss}.")
    realign_iters, rng = iterations("realign-iters", options.realign_iters), np.random.default_rng([options.seed, 1])
    stats = accumulate_tree_stats(corpus.feats, tids, corpus.offsets, old, lang.silence_phones, options.context_width,
                                  options.central_position)
    tree, model = grow(stats, lang, max_leaves, options, log)
    gmm, occupancy = one_gaussian_each(stats, tree)
    gmm = gmm.split(split_targets(occupancy, max_leaves, options.power), rng)
    alignments = Alignments(convert_alignments(tids, corpus.offsets, old, tree, model))
    frames = AlignedFrames.group(alignments.tids, model)
    compiler = GraphCompiler(lang, tree, model)
    graphs = [compiler.compile(words) for words in progress(corpus.words, "compiling graphs", unit="utt")]
    num_gauss, log_likelihood = max_leaves, 0.0
    with Progress("training triphones", options.num_iters - 1, "iteration") as bar:
        for iteration in range(1, options.num_iters):
            note = ""
            if iteration in realign_iters:
                alignments = align(corpus, graphs, model, gmm, align_options, [lang.optional_silence], threads)
                frames = AlignedFrames.group(alignments.tids, model)
                note = f", aligned ({len(alignments.retried)} retried, {len(alignments.failed)} failed)"
            if adaptation is not None:
                gmm, feats, adapted = adaptation.update(iteration, gmm, corpus.feats, alignments.tids, model)
                corpus, note = replace(corpus, feats=feats), note + adapted
            stats_of_gaussians, log_likelihood = accumulate(gmm, corpus.feats, frames, threads)
            log(f"iteration {iteration}: log-likelihood {log_likelihood:.4f} a frame, {frames.num_frames} frames, {gmm.num_gauss} "
                f"Gaussians{note}")
            model.update(frames.transition_counts)
            targets = split_targets(gmm.pdf_occupancy(stats_of_gaussians), num_gauss, options.power)
            gmm = gmm.updated(stats_of_gaussians).split(targets, rng)
            if iteration <= options.max_iter_inc:
                num_gauss += (totgauss - max_leaves) // max(1, options.max_iter_inc)
            bar.update(1, f"log-likelihood {log_likelihood:.2f}")
    alignments.failed = [utt for number, utt in enumerate(corpus.utts) if not alignments.tids[corpus.offsets[number]]]
    alignments.check(corpus, graphs)
    return TriphoneSystem(tree, model, gmm, alignments, log_likelihood, corpus.feats)
