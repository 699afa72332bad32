"""The training of subspace models along alignments, with the schedule of Kaldi's steps/train_sgmm2.sh.

A tree in two levels is grown from an alignment; all substates begin as copies of the UBM. Then EM: some iterations align first, some
estimate speakers' vectors; of the projections of phones and of speakers one is estimated an iteration, in turn. Substates are split as
frames allow. At last a twin without speaker projections (the "alignment model"), for speech of speakers who have no vector yet, is made of
the posteriors of the whole model.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pykaldist.errors import UserError
from pykaldist.hmm.alignments.align import Alignments, AlignOptions, align_part
from pykaldist.hmm.alignments.corpus import Corpus, block_task
from pykaldist.hmm.gmm.engine import Engine, Scorer, sum_pieces
from pykaldist.hmm.sgmm.frames import SgmmScorer, Speakers
from pykaldist.hmm.sgmm.full_gmm import PART, FullGmm
from pykaldist.hmm.sgmm.model import AmSgmm2
from pykaldist.hmm.sgmm.posteriors import Items, SgmmStats
from pykaldist.hmm.sgmm.speaker_vectors import SpeakerStats, SpeakerVectors, estimate_vectors
from pykaldist.hmm.sgmm.update import UpdateOptions, update
from pykaldist.hmm.training.accumulate import NOTHING_ALIGNED
from pykaldist.hmm.training.iterations import check_alignments, iterations
from pykaldist.hmm.training.jobs import CLASSES
from pykaldist.hmm.training.triphones import convert, grow_levels, tree_stats
from pykaldist.hmm.tree.transition_model import TransitionModel
from pykaldist.hmm.tree.tree import ContextDependency
from pykaldist.io.lang import LangDir
from pykaldist.io.scratch import slices
from pykaldist.options import option
from pykaldist.progress import Progress

SILENCE_WEIGHT = 0.01  # of frames of silence in speakers' vectors, in training


@dataclass
class SgmmOptions:
    """Options of `train_sgmm`, by the names and defaults of Kaldi's steps/train_sgmm2.sh."""

    num_iters: int = option(25, "iterations of training")
    num_iters_alimdl: int = option(3, "iterations for the model that aligns speech of speakers without a vector")
    max_iter_inc: int = option(15, "iterations in which the number of substates grows")
    realign_iters: str = option("5 10 15", "iterations that align first")
    spkvec_iters: str = option("5 8 12 17", "iterations that estimate speakers' vectors")
    phn_dim: int = option(0, "dimension of the space of vectors (0: that of features + 1, which is the most)")
    spk_dim: int = option(-1, "dimension of the space of speakers (0: no speakers' vectors; below 0: that of features, which is the most)")
    power: float = option(0.25, "exponent of a group's occupancy in its share of the substates")
    self_weight: float = option(0.9, "weight that each pdf of a group gives to a substate of its own at first; 1: one substate a group")
    leaves_per_group: int = option(5, "pdfs of a group, on average")
    update_m_iter: int = option(4, "first iteration that estimates phone projections (M)")
    spk_dep_weights: bool = option(True, "Gaussians' weights depend on the speaker (the symmetric model)")
    context_width: int = option(3, "phones in the tree's window")
    central_position: int = option(1, "place of the modelled phone in it, from 0")
    seed: int = option(0, "seed of all that is drawn")

    def __post_init__(self) -> None:
        for name in ("num_iters", "leaves_per_group"):
            if getattr(self, name) < 1:
                raise UserError(f"--{name.replace('_', '-')} must be at least 1, found {getattr(self, name)}.")
        if not 0 < self.self_weight <= 1:
            raise UserError(f"--self-weight must be above 0 and at most 1, found {self.self_weight:g}.")
        if not 0 <= self.central_position < self.context_width <= 5:
            raise UserError(f"--context-width must be 1 to 5 and --central-position below it, found {self.context_width} and "
                            f"{self.central_position}.")
        for name in ("realign_iters", "spkvec_iters"):
            iterations(name.replace("_", "-"), getattr(self, name))

    def parameters(self, iteration: int, speaker_dim: int) -> str:
        """The parameters that an iteration updates."""
        first_vectors = min(iterations("spkvec-iters", self.spkvec_iters), default=self.num_iters)
        with_vectors = speaker_dim > 0 and iteration >= first_vectors
        if iteration == 0:
            found = "vwcSt"
        elif with_vectors and iteration % 2:
            found = "vNwcSt"
        else:
            found = "vMwcSt" if iteration >= self.update_m_iter else "vwcSt"
        return found + "u" * (with_vectors and self.spk_dep_weights)


@dataclass
class SpokenCorpus:
    """A corpus with what subspace models need of its frames: `selected` (N, G) Gaussians, and `speaker` (N,), the number in `names`.

    `last` is the number of each speaker's last utterance.
    """

    corpus: Corpus
    selected: np.ndarray
    speaker: np.ndarray
    names: list[str]
    last: np.ndarray
    engine: Engine

    @classmethod
    def of(cls, corpus: Corpus, utt2spk: Mapping[str, str], model: AmSgmm2, engine: Engine, num_selected: int = 15) -> SpokenCorpus:
        """Select Gaussians for all frames of a corpus, whose features are those of the model."""
        names = list(dict.fromkeys(utt2spk[utt] for utt in corpus.utts))
        numbers = {name: number for number, name in enumerate(names)}
        selected, speaker = corpus.new_rows(min(num_selected, model.num_gauss), np.int16), corpus.new_rows(None, np.int32)
        with Progress("selecting Gaussians", len(corpus), "utt") as bar:
            for _ in corpus.each(_select, engine, selected, speaker, bar=bar, model=model, num_selected=num_selected,
                                 own=lambda part: {"speakers": [numbers[utt2spk[utt]] for utt in part.utts]}):
                pass
        last = {utt2spk[utt]: number for number, utt in enumerate(corpus.utts)}
        return cls(corpus, selected, speaker, names, np.array([last[name] for name in names]), engine)


@block_task(outputs=2)
def _select(part: Corpus, engine: Engine, selected: np.ndarray, speaker: np.ndarray, speakers: list[int], model: AmSgmm2,
            num_selected: int, bar: Progress | None = None) -> None:
    selector = scorer_of(model).selector(num_selected)
    speaker[:] = np.repeat(speakers, np.diff(part.offsets))

    def one(number: int) -> None:
        rows = slice(part.offsets[number], part.offsets[number + 1])
        selected[rows] = selector.select(part.feats[rows])[0]

    engine.for_each(len(part), one, bar)


@functools.lru_cache(maxsize=2)
def scorer_of(model: AmSgmm2) -> SgmmScorer:
    """The scorer of a model, which a process makes once for the blocks that it works on."""
    return SgmmScorer(model)


def of_speakers(model: AmSgmm2, vectors: np.ndarray | None, speaker: np.ndarray) -> tuple[Speakers, np.ndarray, np.ndarray]:
    """The speakers of some frames with their `vectors` (N, T), which of all they are, and the row of each frame's."""
    present, row = np.unique(speaker, return_inverse=True)
    speakers = Speakers.without_vectors(model, len(present)) if vectors is None else Speakers.of(model, vectors[present])
    return speakers, present, row


def utterance_scorer(model: AmSgmm2, vectors: np.ndarray | None, feats: np.ndarray, selected: np.ndarray, speaker: np.ndarray) -> Scorer:
    """The function that scores the frames of an utterance, of one speaker."""
    scorer = scorer_of(model)

    def score(first: int, end: int, pdfs: np.ndarray) -> np.ndarray:
        rows = slice(first, end)
        speakers, _, row = of_speakers(model, vectors, speaker[rows])
        return scorer.loglikes(scorer.terms(feats[rows], selected[rows], speakers, row), speakers, pdfs)

    return score


def align_spoken(spoken: SpokenCorpus, graphs: Sequence[Any], transition_model: TransitionModel, model: AmSgmm2,
                 vectors: np.ndarray | None, options: AlignOptions, bar: Progress | None = None) -> Alignments:
    """Align every utterance along its graph; `vectors` (N, T) are the speakers', None where they have none."""
    tids = spoken.corpus.new_rows(None, np.int32)
    tries = spoken.corpus.each(_align, spoken.engine, graphs, spoken.selected, spoken.speaker, tids, bar=bar, model=model, vectors=vectors,
                               transition_model=transition_model, options=options)
    return Alignments.of_tries(spoken.corpus, tids, list(tries))


@block_task(outputs=1)
def _align(part: Corpus, engine: Engine, graphs: Sequence[Any], selected: np.ndarray, speaker: np.ndarray, found: np.ndarray,
           model: AmSgmm2, vectors: np.ndarray | None, transition_model: TransitionModel, options: AlignOptions,
           bar: Progress | None = None) -> np.ndarray:
    score = utterance_scorer(model, vectors, part.feats, selected, speaker)
    return align_part(part, graphs, transition_model, score, options, engine, found, bar)


def accumulate_sgmm(spoken: SpokenCorpus, tids: np.ndarray, tid2pdf: np.ndarray, model: AmSgmm2, vectors: np.ndarray | None,
                    target: AmSgmm2 | None = None) -> SgmmStats:
    """Sum up the statistics of all frames that `tids` aligns (0: left out), divided by `model`; for its twin `target`, if given."""
    found = spoken.corpus.total(_statistics, spoken.engine, spoken.selected, spoken.speaker, tids, model=model, vectors=vectors,
                                tid2pdf=tid2pdf, target=target)
    if found is None:
        raise UserError(NOTHING_ALIGNED)
    return found


@block_task()
def _statistics(part: Corpus, engine: Engine, selected: np.ndarray, speaker: np.ndarray, tids: np.ndarray, model: AmSgmm2,
                vectors: np.ndarray | None, tid2pdf: np.ndarray, target: AmSgmm2 | None) -> SgmmStats | None:
    work = functools.partial(_piece_stats, scorer_of(model), vectors, tid2pdf, None if target is None else scorer_of(target))
    found: SgmmStats | None = sum_pieces(work, _aligned_pieces(part.feats, selected, speaker, tids), engine.threads)
    return found


def _aligned_pieces(feats: np.ndarray, selected: np.ndarray, speaker: np.ndarray, tids: np.ndarray) -> Iterator[tuple[np.ndarray, ...]]:
    """The frames of a block, some at a time; those without an aligned frame are left out."""
    for rows in slices(len(tids), PART):
        if tids[rows].any():
            yield feats[rows], selected[rows], speaker[rows], tids[rows]


def _piece_stats(scorer: SgmmScorer, vectors: np.ndarray | None, tid2pdf: np.ndarray, target: SgmmScorer | None, feats: np.ndarray,
                 selected: np.ndarray, speaker: np.ndarray, tids: np.ndarray) -> SgmmStats:
    speakers, _, row = of_speakers(scorer.model, vectors, speaker)
    items = Items.aligned(np.where(tids > 0, tid2pdf[tids], -1))
    terms = scorer.terms(feats, selected, speakers, row)
    if target is None:
        return SgmmStats.of_frames(scorer, feats, terms, speakers, items)
    own = target.terms(feats, selected, Speakers.without_vectors(target.model), np.zeros(len(feats), np.int64))
    return SgmmStats.of_frames(scorer, feats, terms, speakers, items, target, own)


def speakers_of_alignment(spoken: SpokenCorpus, tids: np.ndarray, transition_model: TransitionModel, model: AmSgmm2,
                          vectors: np.ndarray | None, silence_phones: Sequence[int], silence_weight: float,
                          divider: AmSgmm2 | None = None) -> tuple[np.ndarray, float]:
    """New vectors (N, T) of all speakers from an alignment, beginning with `vectors`; and what they gain, a frame of speech.

    Frames are divided by `divider`, a twin without speakers, if given, else by the model. A speaker's vector is estimated behind the block
    of his last utterance.
    """
    weight = np.where(np.isin(transition_model.tid2phone, silence_phones), silence_weight, 1.0).astype(np.float32)
    found = spoken.corpus.each(_speaker_statistics, spoken.engine, spoken.selected, spoken.speaker, tids, model=model,
                               divider=divider or model, vectors=vectors, tid2pdf=transition_model.tid2pdf, tid_weight=weight)
    result = np.zeros((len(spoken.names), model.speaker_dim)) if vectors is None else vectors.copy()
    waiting: SpeakerStats | None = None
    gain, frames, aligned = 0.0, 0.0, False
    for (_, end), stats in zip(spoken.corpus.blocks(), found, strict=True):
        if stats is not None:
            waiting, frames, aligned = stats if waiting is None else waiting + stats, frames + stats.frames, True
        if waiting is not None:
            ended, waiting = waiting.split(spoken.last[waiting.numbers] < end)
            result[ended.numbers], more = estimate_vectors(model, ended, result[ended.numbers])
            gain += more
    if not aligned:
        raise UserError(NOTHING_ALIGNED)
    return result, gain / max(frames, 1.0)


@block_task()
def _speaker_statistics(part: Corpus, engine: Engine, selected: np.ndarray, speaker: np.ndarray, tids: np.ndarray, model: AmSgmm2,
                        divider: AmSgmm2, vectors: np.ndarray | None, tid2pdf: np.ndarray, tid_weight: np.ndarray) -> SpeakerStats | None:
    work = functools.partial(_piece_speakers, scorer_of(divider), scorer_of(model), vectors, tid2pdf, tid_weight)
    found: SpeakerStats | None = sum_pieces(work, _aligned_pieces(part.feats, selected, speaker, tids), engine.threads)
    return found


def _piece_speakers(scorer: SgmmScorer, target: SgmmScorer, vectors: np.ndarray | None, tid2pdf: np.ndarray, tid_weight: np.ndarray,
                    feats: np.ndarray, selected: np.ndarray, speaker: np.ndarray, tids: np.ndarray) -> SpeakerStats:
    speakers, present, row = of_speakers(scorer.model, vectors, speaker)
    items = Items.aligned(np.where(tids > 0, tid2pdf[tids], -1))
    items.weight = tid_weight[tids[items.frame]]
    terms = scorer.terms(feats, selected, speakers, row)
    return SpeakerStats.of_frames(scorer, feats, terms, speakers, items, present, target)


def vectors_for(spoken: SpokenCorpus, tids: np.ndarray, transition_model: TransitionModel, model: AmSgmm2, twin: AmSgmm2,
                silence_phones: Sequence[int]) -> tuple[np.ndarray, float]:
    """The vectors (N, T) of speakers who have none yet, estimated twice from an alignment, silence left out, and what they gain.

    Frames are divided by the twin without speakers first, then by the model with the first vectors.
    """
    vectors, first = speakers_of_alignment(spoken, tids, transition_model, model, None, silence_phones, 0.0, twin)
    vectors, second = speakers_of_alignment(spoken, tids, transition_model, model, vectors, silence_phones, 0.0)
    return vectors, first + second


@dataclass
class SgmmState:
    """A subspace system in training; `vectors` (N, T) are those of the corpus's speakers, None before they are estimated."""

    tree: ContextDependency
    transition_model: TransitionModel
    model: AmSgmm2
    alignments: Alignments
    rng: np.random.Generator
    vectors: np.ndarray | None = None
    occupancy: np.ndarray = field(default_factory=lambda: np.zeros(0))
    log_likelihood: float = 0.0

    def speaker_vectors(self, names: Sequence[str]) -> SpeakerVectors:
        """The vectors by speaker."""
        return {} if self.vectors is None else dict(zip(names, self.vectors, strict=True))


def train_sgmm(corpus: Corpus, utt2spk: Mapping[str, str], lang: LangDir, tids: np.ndarray, old: TransitionModel, ubm: FullGmm,
               num_leaves: int, num_substates: int, options: SgmmOptions, align_options: AlignOptions, update_options: UpdateOptions,
               engine: Engine, log: Callable[[str], None] = print) -> tuple[SgmmState, AmSgmm2, list[str]]:
    """Train a subspace system on `corpus` from the alignment `tids` (transition_ids of the model `old`) and a UBM.

    Returns it, its twin without speaker projections, and the speakers in the order of its vectors. Raises UserError where more than a tenth
    of the utterances cannot be aligned in the end, or for sizes without sense.
    """
    if num_leaves < 1 or num_substates < 1:
        raise UserError(f"expected at least one leaf and one substate, found {num_leaves} and {num_substates}.")
    state = _begin(corpus, lang, tids, old, ubm, num_leaves, options, engine, log)
    spoken = SpokenCorpus.of(corpus, utt2spk, state.model, engine)
    graphs = corpus.graphs(lang, state.tree, state.transition_model)
    target = state.model.num_groups if options.self_weight == 1.0 else state.model.num_pdfs
    step = max(0, num_substates - target) // max(1, options.max_iter_inc)
    realign = iterations("realign-iters", options.realign_iters)
    estimate = iterations("spkvec-iters", options.spkvec_iters) if state.model.speaker_dim else set()
    with Progress("training a subspace model", options.num_iters + options.num_iters_alimdl, "iteration") as bar:
        for iteration in range(options.num_iters):
            note = ""
            if iteration in realign:
                state.alignments = align_spoken(spoken, graphs, state.transition_model, state.model, state.vectors, align_options)
                note += f", aligned ({len(state.alignments.retried)} retried, {len(state.alignments.failed)} failed)"
            if iteration in estimate:
                state.vectors, gain = speakers_of_alignment(spoken, state.alignments.tids, state.transition_model, state.model,
                                                            state.vectors, lang.silence_phones, SILENCE_WEIGHT)
                note += f", speakers' vectors + {gain:.4f} a frame of speech"
            _iterate(state, spoken, options.parameters(iteration, state.model.speaker_dim), update_options, iteration, note, log)
            state.model = state.model.split(state.occupancy, target, options.power, state.rng)
            target += step if iteration < options.max_iter_inc else 0
            bar.update(1, f"log-likelihood {state.log_likelihood:.2f}")
        twin = _twin(state, spoken, options.num_iters_alimdl, update_options, log, bar) if state.model.speaker_dim else state.model
    check_alignments(corpus, state.alignments, graphs)
    return state, twin, spoken.names


def _begin(corpus: Corpus, lang: LangDir, tids: np.ndarray, old: TransitionModel, ubm: FullGmm, num_leaves: int, options: SgmmOptions,
           engine: Engine, log: Callable[[str], None]) -> SgmmState:
    """The system of the first iteration: tree, model, and the alignment for them."""
    stats = corpus.total(tree_stats, engine, tids, model=old, ci_phones=lang.silence_phones, width=options.context_width,
                         central=options.central_position)
    first_leaves = max(1, num_leaves // options.leaves_per_group)
    tree, transition_model, groups = grow_levels(stats, lang, first_leaves, num_leaves, -1.0, options.seed, log)
    phone_dim = options.phn_dim or ubm.dim + 1
    speaker_dim = ubm.dim if options.spk_dim < 0 else options.spk_dim
    model = AmSgmm2.initial(ubm, groups, phone_dim, speaker_dim, options.spk_dep_weights and speaker_dim > 0, options.self_weight)
    log(f"subspace model: {model.num_gauss} Gaussians, {model.num_groups} groups of {model.num_pdfs} pdfs, vectors of {phone_dim} and "
        f"{speaker_dim} dimensions")
    converted = corpus.new_rows(None, np.int32)
    corpus.run(convert, engine, tids, converted, old=old, tree=tree, model=transition_model)
    return SgmmState(tree, transition_model, model, Alignments(converted), np.random.default_rng([options.seed, 1]))


def _iterate(state: SgmmState, spoken: SpokenCorpus, parameters: str, options: UpdateOptions, iteration: int, note: str,
             log: Callable[[str], None]) -> None:
    """One iteration of EM along the alignment."""
    tids = state.alignments.tids
    stats = accumulate_sgmm(spoken, tids, state.transition_model.tid2pdf, state.model, state.vectors)
    state.log_likelihood = stats.log_likelihood / max(stats.frames, 1.0)
    if not np.isfinite(state.log_likelihood):
        raise UserError(f"iteration {iteration}: the log-likelihood is {state.log_likelihood}; look at the features and their transforms, "
                        "and make the UBM again (steps/train_ubm.sh).")
    done = update(state.model, stats, parameters, options)
    log(f"iteration {iteration}: log-likelihood {state.log_likelihood:.4f} a frame, {stats.frames:.0f} frames, "
        f"{state.model.num_substates} substates{note}; {done.line()}")
    counts = np.zeros(state.transition_model.num_transition_ids + 1)
    for _, mine in spoken.corpus.parts(tids, feats=False):
        counts += np.bincount(mine, minlength=len(counts))
    counts[0] = 0.0
    state.transition_model.update(counts)
    state.occupancy, state.model = stats.pdf_occupancy(state.model), done.model


def _twin(state: SgmmState, spoken: SpokenCorpus, num_iters: int, options: UpdateOptions, log: Callable[[str], None],
          bar: Progress) -> AmSgmm2:
    """The model without speaker projections that fits the frames as the whole model divides them."""
    twin = state.model.without_speakers()
    for iteration in range(num_iters):
        stats = accumulate_sgmm(spoken, state.alignments.tids, state.transition_model.tid2pdf, state.model, state.vectors, twin)
        done = update(twin, stats, "vMwcS" if iteration else "MwcS", options)
        log(f"model without speakers, iteration {iteration}: {done.line()}")
        twin = done.model
        bar.update()
    return twin


CLASSES.extend((AmSgmm2, FullGmm, SgmmStats, SpeakerStats))  # what goes to jobs and from them
