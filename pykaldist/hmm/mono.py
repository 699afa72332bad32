"""Monophone training from a flat start, with the schedules of Kaldi's steps/train_mono.sh.

All pdfs begin as the one Gaussian of all frames, and each utterance is divided evenly among the states of its transcript. Then
come iterations of EM along the current alignment; in some the utterances are aligned anew first. The number of Gaussians grows
by the same amount each iteration up to `max_iter_inc`. The random paths of the even division (where does silence stand?) decide which local
optimum EM ends in; on a small corpus several starts are worth their time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from pykaldist.errors import UserError
from pykaldist.hmm.align import Alignments, AlignOptions, align, equal_alignments
from pykaldist.hmm.corpus import Corpus
from pykaldist.hmm.em import AlignedFrames, accumulate, iterations
from pykaldist.hmm.gmm import AmDiagGmm, split_targets
from pykaldist.hmm.graphs import GraphCompiler
from pykaldist.hmm.topology import read_topology
from pykaldist.hmm.transition_model import TransitionModel
from pykaldist.hmm.tree import ContextDependency, monophone_tree
from pykaldist.io.lang import LangDir
from pykaldist.options import option
from pykaldist.progress import Progress, progress

START_ITERS = 6  # by then a start that took silence for speech is behind by about a nat a frame


@dataclass
class MonoOptions:
    """Options of `train_mono`, over those of the alignment."""

    num_iters: int = option(40, "iterations of training")
    max_iter_inc: int = option(30, "last iteration in which the number of Gaussians grows")
    totgauss: int = option(1000, "Gaussians in all at the end")
    power: float = option(0.25, "exponent of a pdf's occupancy in its share of the Gaussians")
    initial_beam: float = option(6.0, "beam of the first alignment")
    realign_iters: str = option("1 2 3 4 5 6 7 8 9 10 12 14 16 18 20 23 26 29 32 35 38", "iterations that align first")
    shared_phones: bool = option(True, "phones of one line of phones/sets.int share their pdfs; false: every phone has its own")
    num_starts: int = option(1, f"flat starts, of which the likeliest after {START_ITERS} iterations goes on")
    seed: int = option(0, "seed of the flat start's paths and of the splits' directions")


@dataclass
class MonoSystem:
    """What training makes; the alignments are those of the last realignment, as in Kaldi."""

    tree: ContextDependency
    transition_model: TransitionModel
    gmm: AmDiagGmm
    alignments: Alignments
    log_likelihood: float


@dataclass
class _State:
    """A system in the making, from one flat start."""

    transition_model: TransitionModel
    gmm: AmDiagGmm
    alignments: Alignments
    frames: AlignedFrames
    num_gauss: int
    rng: np.random.Generator
    log_likelihood: float = 0.0


def train_mono(corpus: Corpus, lang: LangDir, options: MonoOptions, align_options: AlignOptions, threads: int = 1,
               log: Callable[[str], None] = print) -> MonoSystem:
    """Train a monophone system; `log` gets a line an iteration. The result does not depend on `threads`.

    Raises UserError where more than a tenth of the utterances cannot be aligned in the end, or for options without sense.
    """
    if min(options.num_iters, options.totgauss, options.num_starts) < 1:
        raise UserError(f"--num-iters, --totgauss and --num-starts must be at least 1, found {options.num_iters}, {options.totgauss} and "
                        f"{options.num_starts}.")
    realign_iters = iterations("realign-iters", options.realign_iters)
    topology = read_topology(lang.file("topo"))
    sets = lang.phone_sets if options.shared_phones else [[phone] for phone in sorted(p for one in lang.phone_sets for p in one)]
    tree = monophone_tree(sets, topology.num_pdf_classes)
    transition_model = TransitionModel.from_tree(tree, topology)
    flat = AmDiagGmm.flat_start(transition_model.num_pdfs, corpus.feats.mean(axis=0, dtype=np.float64),
                                np.maximum(corpus.feats.var(axis=0, dtype=np.float64), 1e-3))
    compiler = GraphCompiler(lang, tree, transition_model)
    graphs = [compiler.compile(words) for words in progress(corpus.words, "compiling graphs", unit="utt")]

    def begin(start: int) -> _State:
        rng = np.random.default_rng([options.seed, start] if start else options.seed)
        alignments = equal_alignments(corpus, graphs, transition_model, rng)
        frames = AlignedFrames.group(alignments.tids, transition_model)
        return _State(TransitionModel.from_tree(tree, topology), flat, alignments, frames, flat.num_pdfs, rng)

    step = max(0, options.totgauss - flat.num_pdfs) // max(1, options.max_iter_inc)
    contest = min(START_ITERS, options.num_iters) if options.num_starts > 1 else 0
    with Progress("training monophones", options.num_iters + contest * (options.num_starts - 1), "iteration") as bar:

        def iterate(state: _State, iteration: int) -> None:
            aligned = ""
            if iteration in realign_iters and iteration > 0:
                beam = options.initial_beam if iteration == 1 else align_options.beam
                state.alignments = align(corpus, graphs, state.transition_model, state.gmm, replace(align_options, beam=beam),
                                         [lang.optional_silence], threads)
                state.frames = AlignedFrames.group(state.alignments.tids, state.transition_model)
                aligned = f", aligned ({len(state.alignments.retried)} retried, {len(state.alignments.failed)} failed)"
            stats, state.log_likelihood = accumulate(state.gmm, corpus.feats, state.frames, threads)
            log(f"iteration {iteration}: log-likelihood {state.log_likelihood:.4f} a frame, {state.frames.num_frames} frames, "
                f"{state.gmm.num_gauss} Gaussians{aligned}")
            state.transition_model.update(state.frames.transition_counts)
            targets = split_targets(state.gmm.pdf_occupancy(stats), state.num_gauss, options.power)
            state.gmm = state.gmm.updated(stats, min_gaussian_occupancy=10.0 if iteration else 3.0).split(targets, state.rng)
            if 0 < iteration <= options.max_iter_inc:
                state.num_gauss += step
            bar.update(1, f"log-likelihood {state.log_likelihood:.2f}")

        starts = []
        for start in range(options.num_starts):
            starts.append(begin(start))
            if contest:
                log(f"start {start + 1} of {options.num_starts}")
            for iteration in range(contest):
                iterate(starts[-1], iteration)
        state = max(starts, key=lambda one: one.log_likelihood)
        if contest:
            log(f"start {starts.index(state) + 1} goes on, with the highest log-likelihood")
        for iteration in range(contest, options.num_iters):
            iterate(state, iteration)
    state.alignments.check(corpus, graphs)
    return MonoSystem(tree, state.transition_model, state.gmm, state.alignments, state.log_likelihood)

