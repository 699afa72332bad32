"""Discriminative training of GMM systems on lattices: what MMI, MPE and sMBR ask of every frame, and the iterations.

In each iteration lattices take the scores of the present model, and forward-backward (`nnet/forward_backward.py`) gives each transition-id
of a frame a weight, the objective's derivative by its scaled log-likelihood:

    mmi         1 for the reference's less the posterior in the lattice       F = acwt sum of the reference's log-likelihoods - Z
    mpe, smbr   the gain in expected accuracy                                 F = expected accuracy, in frames

Weights above 0 make the numerator's statistics, those below it the denominator's, of which `hmm/gmm/ebw.py` makes the next model. With
`cancel`, a transition-id's two parts of MMI are one weight before they are told apart (Povey et al., "Boosted MMI", 2008, section 3);
`drop_frames` leaves frames out whose reference is not in the lattice; boosting is that of `nnet/frame_accuracy.py`. Where fMMI is trained,
the same weights give the derivative by the features (`hmm/gmm/fmpe.py`). The scripts' behaviour is Kaldi's, and so are the defaults.

The weights of a block of the corpus, and what is summed up with them, are the work of a task (`hmm/alignments/corpus.py`), in this process
or in a job.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from pykaldist.errors import UserError
from pykaldist.frames.lattice_store import LatticeStore
from pykaldist.frames.lattices import Lattices
from pykaldist.hmm.alignments.corpus import Corpus, block_task
from pykaldist.hmm.gmm.aligned_frames import AlignedFrames
from pykaldist.hmm.gmm.ebw import EbwOptions, update
from pykaldist.hmm.gmm.engine import Engine, Scorer
from pykaldist.hmm.gmm.fmpe import Fmpe
from pykaldist.hmm.gmm.gmm import AmDiagGmm, GmmStats
from pykaldist.hmm.gmm.indirect import following, stats_derivative
from pykaldist.hmm.training.accumulate import accumulate
from pykaldist.hmm.training.jobs import CLASSES
from pykaldist.hmm.tree.transition_model import TransitionModel
from pykaldist.nnet.forward_backward import forward_backward
from pykaldist.nnet.frame_accuracy import Phones
from pykaldist.options import option
from pykaldist.progress import Progress

_CHUNK = 100000  # frames whose weights are in memory at a time, about


@dataclass
class IterationOptions:
    """The options of all discriminative trainings of GMMs."""

    num_iters: int = option(4, "iterations")
    acwt: float = option(0.1, "acoustic scale")

    def __post_init__(self) -> None:
        if self.num_iters < 1 or self.acwt <= 0:
            raise UserError(f"--num-iters {self.num_iters} --acwt {self.acwt:g}: expected a number from 1, and a scale above 0.")


@dataclass
class Mmi:
    """MMI."""

    boost: float = option(0.0, "boosted MMI: what a frame with a wrong phone lowers the cost of a path by")
    cancel: bool = option(True, "a frame's numerator and denominator cancel, transition-id by transition-id")
    drop_frames: bool = option(False, "frames whose reference is not in the lattice are left out")

    name = "MMI"

    def __post_init__(self) -> None:
        if self.boost < 0:
            raise UserError(f"--boost {self.boost:g} is negative.")


@dataclass
class Accuracy:
    """MPE and sMBR."""

    one_silence_class: bool = option(False, "sMBR: any silence phone is right where the reference has one")
    smooth_to_model: bool = option(True, "I-smoothing is towards the model before, else towards the reference's statistics")
    criterion: str = option("mpe", "mpe, or smbr", choices=("mpe", "smbr"))

    @property
    def name(self) -> str:
        return {"mpe": "MPE", "smbr": "sMBR"}[self.criterion]


Criterion = Mmi | Accuracy


@dataclass
class Weights:
    """The weights of a run of utterances, whose frames are `rows` of the corpus: row `frame[i]` of these has `tid[i]` with `weight[i]`."""

    rows: slice
    frame: np.ndarray
    tid: np.ndarray
    weight: np.ndarray

    def frames(self, model: TransitionModel, sign: int = 0) -> AlignedFrames:
        """The frames by pdf, with all weights, or with the absolute values of those above 0 (`sign` 1) or below (-1)."""
        chosen = slice(None) if sign == 0 else sign * self.weight > 0
        return AlignedFrames.of_posteriors(self.frame[chosen], self.tid[chosen], abs(self.weight[chosen]) if sign else self.weight[chosen],
                                           model)


@dataclass
class Objective:
    """The objective's value over the frames seen so far, and in how many of them the reference is not in the lattice."""

    value: float = 0.0
    frames: int = 0
    missing: int = 0

    def __add__(self, other: Objective) -> Objective:
        return Objective(self.value + other.value, self.frames + other.frames, self.missing + other.missing)


@functools.lru_cache(maxsize=1)
def _opened(path: str) -> LatticeStore:
    return LatticeStore(path)


@dataclass
class LatticeCriterion:
    """A criterion on the lattices of a store, which gives frames their weights; a job gets it whole, with the path of the store."""

    store: str
    model: TransitionModel
    criterion: Criterion
    acwt: float

    @property
    def opened(self) -> LatticeStore:
        """The store of lattices; a process opens it once."""
        return _opened(self.store)

    @functools.cached_property
    def phones(self) -> Phones:
        """What transition-ids stand for."""
        mpe = isinstance(self.criterion, Accuracy) and self.criterion.criterion == "mpe"  # silence phones are phones like others there
        return Phones.of(self.model.tid2pdf, self.model.tid2phone, () if mpe else self.opened.manifest.silence_phones)

    def numbers(self, corpus: Corpus) -> list[tuple[int, int]]:
        """The utterances of a corpus that have a lattice: their places there, and their numbers in the store."""
        number = self.opened.number
        return [(place, number[utt]) for place, utt in enumerate(corpus.utts) if utt in number]

    def passes(self, corpus: Corpus, engine: Engine, score: Scorer, total: Objective, bar: Progress | None = None) -> Iterator[Weights]:
        """Go over the lattices of a corpus with the scores of a model, and yield the weights; the objective is added to `total`.

        Behind each of them memory lets go of its lattices.
        """
        numbers, offsets, start = self.numbers(corpus), corpus.offsets, 0
        while start < len(numbers):
            first = int(offsets[numbers[start][0]])
            end = start + 1
            while end < len(numbers) and offsets[numbers[end][0] + 1] - first <= _CHUNK:
                end += 1
            mine = numbers[start:end]
            found: list[tuple[np.ndarray, ...]] = [()] * len(mine)
            values = np.zeros((len(mine), 3))

            def one(number: int, mine: list[tuple[int, int]] = mine, found: list[tuple[np.ndarray, ...]] = found,
                    values: np.ndarray = values, first: int = first) -> None:
                place, lattice = mine[number]
                frame, tid, weight, values[number] = self._one(int(offsets[place]), int(offsets[place + 1]), lattice, score)
                found[number] = frame + offsets[place] - first, tid, weight

            engine.for_each(len(mine), one, bar)
            value, frames, missing = values.sum(0)
            total.value, total.frames, total.missing = total.value + value, total.frames + int(frames), total.missing + int(missing)
            frame, tid, weight = (np.concatenate(column) for column in zip(*found, strict=True))
            rows = slice(first, int(offsets[mine[-1][0] + 1]))
            yield Weights(rows, frame, tid, weight)
            places = [number for _, number in mine]
            self.opened.passed(min(places), max(places) + 1)
            start = end

    def _one(self, first: int, end: int, number: int, score: Scorer) -> tuple[np.ndarray, np.ndarray, np.ndarray, tuple[float, int, int]]:
        """Frame, transition-id and weight of an utterance, and its (value, frames, frames without their reference)."""
        lattices, reference = self.opened.lattices([number])
        if len(reference) != end - first:
            raise UserError(f"{self.store}, {self.opened.utts[number]}: the lattice has {len(reference)} frames, the features "
                            f"{end - first}; make lattices of the same features (steps/make_denlats.sh).")
        tid, frame, frames = lattices.transition_id, lattices.frame, np.arange(len(reference))
        pdfs, column = np.unique(self.model.tid2pdf[np.concatenate([tid, reference])], return_inverse=True)
        loglikes = score(first, end, pdfs).astype(np.float64)
        cost = lattices.graph - self.acwt * lattices.entry_sums(loglikes[frame, column[:len(tid)]])
        there = np.zeros(len(reference), bool)
        same = tid == reference[frame]
        there[frame[same]] = True
        missing = len(reference) - int(there.sum())
        if isinstance(self.criterion, Accuracy):
            return frame, tid, *self._accuracy(lattices, reference, cost, missing)
        if self.criterion.boost:
            cost -= self.criterion.boost * lattices.entry_sums(self.phones.error(tid, reference[frame]))
        statistics = forward_backward(lattices, cost)
        posterior = lattices.cell_sums(statistics.posterior)
        value = self.acwt * loglikes[frames, column[len(tid):]].sum() - statistics.loglike[0]
        own = ~there if self.criterion.cancel else np.ones(len(reference), bool)
        frame, tid = np.concatenate([frame, frames[own]]), np.concatenate([tid, reference[own]])
        weight = np.concatenate([(same if self.criterion.cancel else 0.0) - posterior, np.ones(own.sum())])
        if self.criterion.drop_frames:
            frame, tid, weight = frame[there[frame]], tid[there[frame]], weight[there[frame]]
        return frame, tid, weight, (float(value), len(reference), missing)

    def _accuracy(self, lattices: Lattices, reference: np.ndarray, cost: np.ndarray, missing: int) -> tuple[
            np.ndarray, tuple[float, int, int]]:
        assert isinstance(self.criterion, Accuracy)
        right = self.phones.accuracy(self.criterion.criterion, lattices.transition_id, reference[lattices.frame],
                                     self.criterion.one_silence_class)
        statistics = forward_backward(lattices, cost, lattices.entry_sums(right))
        return lattices.cell_sums(statistics.gain), (float(statistics.accuracy[0]), len(reference), missing)


@dataclass
class Statistics:
    """The statistics of the numerator and of the denominator, and the objective."""

    num: GmmStats
    den: GmmStats
    total: Objective

    def __add__(self, other: Statistics) -> Statistics:
        return Statistics(self.num + other.num, self.den + other.den, self.total + other.total)


@dataclass
class Derivative:
    """The two parts of an objective's derivative by an fMPE transform (`Fmpe.derivative`), and the objective."""

    plus: np.ndarray
    minus: np.ndarray
    total: Objective

    def __add__(self, other: Derivative) -> Derivative:
        return Derivative(self.plus + other.plus, self.minus + other.minus, self.total + other.total)


class Objectives:
    """An objective of the lattices of a corpus, and what is summed up over all of its frames.

    `tids` is the reference's alignment of all frames. Utterances without a lattice count for nothing. Raises UserError where the lattices
    are of another model, or of other features.
    """

    def __init__(self, corpus: Corpus, tids: np.ndarray, store: LatticeStore, model: TransitionModel, criterion: Criterion, acwt: float,
                 engine: Engine) -> None:
        if not (np.array_equal(store.tid2pdf, model.tid2pdf) and np.array_equal(store.tid2phone, model.tid2phone)):
            raise UserError(f"{store.path} has lattices of another model than the alignment: their transition-ids differ; align and make "
                            "lattices with one model (steps/align_fmllr.sh, steps/make_denlats.sh).")
        _opened.cache_clear()  # lattices that were there under this name before may have been packed anew
        self.corpus, self.model, self.engine, self.criterion, self.acwt = corpus, model, engine, criterion, acwt
        self.lattices = LatticeCriterion(str(store.path), model, criterion, acwt)
        places = [place for place, _ in self.lattices.numbers(corpus)]
        known = np.zeros(len(corpus), bool)
        known[places] = True
        self.num_utts = len(places)
        self.tids = corpus.new_rows(None, np.int32)
        for part, reference, mine in corpus.parts(tids, self.tids, feats=False):
            mine[:] = np.where(np.repeat(known[part.first:part.first + len(part)], np.diff(part.offsets)), reference, 0)

    def progress(self) -> Progress:
        """The bar of a pass over the lattices."""
        return Progress(f"{self.criterion.name} of lattices", self.num_utts, "utt")

    def statistics(self, gmm: AmDiagGmm, feats: np.ndarray) -> Statistics:
        """The statistics of the numerator and of the denominator, and the objective, of these features of the corpus."""
        with self.progress() as bar:
            return self._of(feats).total(_statistics, self.engine, bar=bar, gmm=gmm, lattices=self.lattices)

    def reference_statistics(self, gmm: AmDiagGmm, feats: np.ndarray) -> GmmStats:
        """The statistics of the frames along the reference."""
        return accumulate(self.engine, gmm, self._of(feats), self.tids, self.model).gmm

    def transformed(self, fmpe: Fmpe) -> np.ndarray:
        """The features of the corpus with the offsets of `fmpe` added."""
        result = self.corpus.new_rows(fmpe.dim, np.float32)
        self.corpus.run(_transform, self.engine, result, fmpe=fmpe)
        return result

    def derivative(self, gmm: AmDiagGmm, fmpe: Fmpe, feats: np.ndarray, target: np.ndarray | None) -> Derivative:
        """The derivative by the transform `fmpe`, which has made `feats`; see `feature_iteration`."""
        with self.progress() as bar:
            return self.corpus.total(_derivative, self.engine, self.tids, feats, bar=bar, gmm=gmm, fmpe=fmpe, target=target,
                                     lattices=self.lattices)

    def _of(self, feats: np.ndarray) -> Corpus:
        """The corpus with these features."""
        return replace(self.corpus, feats=feats)


@block_task()
def _statistics(part: Corpus, engine: Engine, gmm: AmDiagGmm, lattices: LatticeCriterion, bar: Progress | None = None) -> Statistics:
    found = Statistics(gmm.new_stats(), gmm.new_stats(), Objective())
    for weights in lattices.passes(part, engine, engine.scorer(gmm, part.feats), found.total, bar):
        for sums, sign in ((found.num, 1), (found.den, -1)):
            if (sign * weights.weight > 0).any():
                sums.add(engine.accumulate(gmm, part.feats[weights.rows], weights.frames(lattices.model, sign))[0])
    return found


@block_task(outputs=1)
def _transform(part: Corpus, engine: Engine, result: np.ndarray, fmpe: Fmpe) -> None:
    result[:] = fmpe.transformed(part.feats, part.offsets)


@block_task()
def _derivative(part: Corpus, engine: Engine, tids: np.ndarray, feats: np.ndarray, gmm: AmDiagGmm, fmpe: Fmpe, target: np.ndarray | None,
                lattices: LatticeCriterion, bar: Progress | None = None) -> Derivative:
    found = Derivative(np.zeros(fmpe.projection.shape), np.zeros(fmpe.projection.shape), Objective())
    offsets, model = part.offsets, lattices.model
    for weights in lattices.passes(part, engine, engine.scorer(gmm, feats), found.total, bar):
        y, rows = feats[weights.rows], weights.rows
        expected = engine.expected_parameters(gmm, y, weights.frames(model))
        derivative = expected[:, :gmm.dim] - y * expected[:, gmm.dim:]
        if target is not None:
            along = engine.expected_parameters(gmm, y, AlignedFrames.group(tids[rows], model), target)
            derivative += along[:, :gmm.dim] + 2.0 * y * along[:, gmm.dim:]
        bounds = offsets[(offsets >= rows.start) & (offsets <= rows.stop)] - rows.start
        for sums, more in zip((found.plus, found.minus), fmpe.derivative(part.feats[rows], bounds, derivative), strict=True):
            sums += more
    return found


CLASSES.extend((Accuracy, Derivative, Fmpe, LatticeCriterion, Mmi, Objective, Phones, Statistics))  # what goes to jobs and from them


def model_iteration(objectives: Objectives, gmm: AmDiagGmm, feats: np.ndarray, options: EbwOptions) -> tuple[AmDiagGmm, str]:
    """One update of the model; returns it, and a line for the log."""
    found = objectives.statistics(gmm, feats)
    num, den, total = found.num, found.den, found.total
    check(total)
    criterion = objectives.criterion
    to_model = isinstance(criterion, Mmi) or criterion.smooth_to_model
    made = update(gmm, num, den, options, None if to_model else objectives.reference_statistics(gmm, feats))
    gain = objectives.acwt * made.gain / total.frames
    return made.gmm, said(criterion, total, gain) + (f", D raised for {made.raised} Gaussians" if made.raised else "")


def feature_iteration(objectives: Objectives, gmm: AmDiagGmm, fmpe: Fmpe, learning_rate: float,
                      indirect: bool) -> tuple[AmDiagGmm, Fmpe, np.ndarray, str]:
    """One update of the transform, for the features of the corpus; returns model, transform, features, and a line for the log.

    With `indirect` the model follows the features, and the derivative knows it.
    """
    feats, target, old = objectives.transformed(fmpe), None, gmm.new_stats()
    if indirect:
        found = objectives.statistics(gmm, feats)
        old = objectives.reference_statistics(gmm, feats)
        target = np.concatenate(stats_derivative(gmm, found.num, found.den, old), axis=1).astype(np.float32)
    derivative = objectives.derivative(gmm, fmpe, feats, target)
    total = derivative.total
    check(total)
    fmpe, gain = fmpe.updated(derivative.plus, derivative.minus, learning_rate)
    feats = objectives.transformed(fmpe)
    if indirect:
        gmm = following(gmm, old, objectives.reference_statistics(gmm, feats))
    return gmm, fmpe, feats, said(objectives.criterion, total, objectives.acwt * gain / total.frames, "objective, were it linear,")


def check(total: Objective) -> None:
    """Check an objective; raises UserError where it is no number."""
    if not np.isfinite(total.value):
        raise UserError("the objective is no number; the model before is as it was. Raise --tau, or make lattices and alignments again "
                        "(steps/align_fmllr.sh, steps/make_denlats.sh).")


def said(criterion: Criterion, total: Objective, gain: float, what: str = "auxiliary function") -> str:
    """The line of an iteration."""
    missing = f", {total.missing} frames without their reference in the lattice" if total.missing else ""
    value = total.value / total.frames
    return f"{criterion.name} objective {value:.6f} a frame, {total.frames} frames{missing}, {what} {gain:+.6f} a frame"
