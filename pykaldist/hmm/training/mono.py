"""Monophone training from a flat start, with the schedules of Kaldi's steps/train_mono.sh.

All pdfs begin as the one Gaussian of all frames, and each utterance is divided evenly among the states of its transcript. Then
come iterations of EM along the current alignment; in some the utterances are aligned anew first. The number of Gaussians grows
by the same amount each iteration up to `max_iter_inc`. The random paths of the even division (where does silence stand?) decide which local
optimum EM ends in; on a small corpus several starts are worth their time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pykaldist.errors import UserError
from pykaldist.hmm.alignments.align import AlignOptions, equal_alignments
from pykaldist.hmm.alignments.corpus import Corpus, block_task
from pykaldist.hmm.gmm.engine import Engine
from pykaldist.hmm.gmm.gmm import AmDiagGmm
from pykaldist.hmm.lang.topology import read_topology
from pykaldist.hmm.training.iterations import Checkpoint, State, Training, TrainingOptions
from pykaldist.hmm.tree.transition_model import TransitionModel
from pykaldist.hmm.tree.tree import monophone_tree
from pykaldist.io.lang import LangDir
from pykaldist.options import option
from pykaldist.progress import Progress

_PIECE = 1 << 14  # frames in double precision at a time
START_ITERS = 6  # by then a start that took silence for speech is behind by about a nat a frame
FEW_FRAMES = 60_000  # ten minutes of speech, on which one flat start is a gamble
STARTS = 4  # of which the likeliest goes on there


@dataclass
class MonoOptions(TrainingOptions):
    """Options of `train_mono`, over those of the alignment."""

    num_iters: int = option(40, "iterations of training")
    max_iter_inc: int = option(30, "last iteration in which the number of Gaussians grows")
    realign_iters: str = option("1 2 3 4 5 6 7 8 9 10 12 14 16 18 20 23 26 29 32 35 38", "iterations that align first")
    totgauss: int = option(1000, "Gaussians in all at the end")
    initial_beam: float = option(6.0, "beam of the first alignment")
    shared_phones: bool = option(True, "phones of one line of phones/sets.int share their pdfs; false: every phone has its own")
    num_starts: int | None = option(None, f"flat starts, of which the likeliest after {START_ITERS} iterations goes on ({STARTS} for up "
                                    "to ten minutes of speech, else 1)")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, value in (("--totgauss", self.totgauss), ("--num-starts", self.num_starts)):
            if value is not None and value < 1:
                raise UserError(f"{name} must be at least 1, found {value}.")

    def starts(self, num_frames: int) -> int:
        """The number of flat starts for so many frames of 10 ms."""
        return self.num_starts or (STARTS if num_frames <= FEW_FRAMES else 1)


@dataclass
class Moments:
    """The number of frames, their mean (D,), and the sum of their squared differences to it, float64."""

    count: int
    mean: np.ndarray
    squares: np.ndarray

    def __add__(self, other: Moments) -> Moments:
        count, apart = self.count + other.count, other.mean - self.mean
        share = other.count / count
        return Moments(count, self.mean + share * apart, self.squares + other.squares + self.count * share * apart**2)


def moments(corpus: Corpus, engine: Engine | None = None) -> tuple[np.ndarray, np.ndarray]:
    """The mean and the variance (D,) float64 of all frames; blocks are combined by the formula of Chan, Golub and LeVeque (1979)."""
    found: Moments = corpus.total(_moments, engine or Engine())
    return found.mean, found.squares / found.count


@block_task()
def _moments(part: Corpus, engine: Engine) -> Moments:
    mean = _sum(part.feats, lambda x: x) / len(part.feats)
    return Moments(len(part.feats), mean, _sum(part.feats, lambda x: (x - mean) ** 2))


def _sum(feats: np.ndarray, of: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """The sum of one frame after the other, a few in double precision at a time, as numpy's mean and var make it."""
    total = np.zeros((1, feats.shape[1]))
    for start in range(0, len(feats), _PIECE):
        piece = of(feats[start:start + _PIECE].astype(np.float64))
        total = np.concatenate([total, piece]).sum(axis=0, keepdims=True)
    return total[0]


def train_mono(corpus: Corpus, lang: LangDir, options: MonoOptions, align_options: AlignOptions, engine: Engine | None = None,
               log: Callable[[str], None] = print, checkpoint: Checkpoint | None = None) -> State:
    """Train a monophone system; `log` gets a line an iteration. The alignments are those of the last realignment, as in Kaldi.

    With `checkpoint` the training goes on where that says. Raises UserError where more than a tenth of the utterances cannot be aligned in
    the end.
    """
    engine = engine or Engine()
    topology = read_topology(lang.file("topo"))
    sets = lang.phone_sets if options.shared_phones else [[phone] for phone in sorted(p for one in lang.phone_sets for p in one)]
    tree = monophone_tree(sets, topology.num_pdf_classes)
    transition_model = TransitionModel.from_tree(tree, topology)
    mean, variance = moments(corpus, engine)
    flat = AmDiagGmm.flat_start(transition_model.num_pdfs, mean, np.maximum(variance, 1e-3))
    graphs = corpus.graphs(lang, tree, transition_model)
    training = Training(corpus, graphs, lang.optional_silence, options, align_options, flat.num_pdfs, options.totgauss, engine,
                        initial_beam=options.initial_beam, log=log)

    def begin(start: int) -> State:
        rng = np.random.default_rng([options.seed, start] if start else options.seed)
        return State(tree, TransitionModel.from_tree(tree, topology), flat, equal_alignments(corpus, graphs, transition_model, rng, engine),
                     corpus.feats, rng)

    if checkpoint is not None and checkpoint.stage:
        state, first = checkpoint.load(corpus, topology, None), checkpoint.stage
        with Progress("training monophones", options.num_iters - first, "iteration") as bar:
            training.run(state, range(first, options.num_iters), bar, checkpoint)
    else:
        num_starts = options.starts(len(corpus.feats))
        contest = min(START_ITERS, options.num_iters) if num_starts > 1 else 0
        with Progress("training monophones", options.num_iters + contest * (num_starts - 1), "iteration") as bar:
            starts = []
            for start in range(num_starts):
                starts.append(begin(start))
                if contest:
                    log(f"start {start + 1} of {num_starts}")
                training.run(starts[-1], range(contest), bar)
            state = max(starts, key=lambda one: one.log_likelihood)
            if contest:
                log(f"start {starts.index(state) + 1} goes on, with the highest log-likelihood")
            training.run(state, range(contest, options.num_iters), bar, checkpoint)
    training.check(state)
    return state
