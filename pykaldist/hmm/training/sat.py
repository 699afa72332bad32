"""Speaker-adaptive training, with the schedule of Kaldi's steps/train_sat.sh.

Every speaker's features go through an fMLLR transform of his own, estimated again in some iterations, so that the model describes speech
as it is beyond the differences of speakers. To estimate transforms for a new speaker his speech has to be aligned first, without any:
for that a second model (Kaldi's final.alimdl) has the same Gaussians, estimated on the features that are not adapted, while the adapted
ones and the first model say which Gaussian a frame belongs to ("two-pass"). Sources: T. Anastasakos et al., "A compact model for
speaker-adaptive training", ICSLP 1996; Gales, 1998 (fmllr.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pykaldist.errors import UserError
from pykaldist.feats.transforms import SpeakerTransforms
from pykaldist.hmm.adaptation.basis_fmllr import GradientScatter
from pykaldist.hmm.adaptation.fmllr import (
    NO_SPEECH,
    FmllrOptions,
    SpeakerSums,
    compose,
    estimate_parts,
    expected_aligned,
    speaker_rows,
    speech_weights,
    transformed,
)
from pykaldist.hmm.alignments.align import AlignOptions
from pykaldist.hmm.alignments.corpus import Corpus, block_task
from pykaldist.hmm.alignments.piped import PipedFeatures
from pykaldist.hmm.gmm.engine import Engine
from pykaldist.hmm.gmm.gmm import AmDiagGmm
from pykaldist.hmm.training.accumulate import accumulate
from pykaldist.hmm.training.iterations import Checkpoint, State, iterations
from pykaldist.hmm.training.triphones import TriphoneOptions, train_triphones
from pykaldist.hmm.tree.transition_model import TransitionModel
from pykaldist.io.lang import LangDir
from pykaldist.io.scratch import release, scratch_array
from pykaldist.options import option
from pykaldist.progress import Progress

_MANY = 1000  # speakers whose transforms are kept in memory while a checkpoint is written


@dataclass
class SatOptions(TriphoneOptions):
    """Options of `train_sat`, over those of the alignment and of fMLLR."""

    power: float = option(0.2, "exponent of a pdf's occupancy in its share of the Gaussians")
    fmllr_iters: str = option("2 4 6 12", "iterations that estimate fMLLR")


@dataclass
class Fmllr:
    """The learning of fMLLR in the iterations `iters`, from the features of `corpus`, which are not adapted.

    `transforms` are what was estimated last.
    """

    iters: set[int]
    corpus: Corpus
    utt2spk: Mapping[str, str]
    transforms: Mapping[str, np.ndarray]
    silence_phones: Sequence[int]
    options: FmllrOptions
    engine: Engine

    def update(self, iteration: int, gmm: AmDiagGmm, feats: np.ndarray, tids: np.ndarray, model: TransitionModel) -> tuple[
            AmDiagGmm, np.ndarray, str]:
        changes, gain = estimate_aligned(replace(self.corpus, feats=feats), self.utt2spk, tids, gmm, model, self.silence_phones,
                                         self.options, self.engine)
        self.transforms = SpeakerTransforms(((speaker, compose(change, self.transforms[speaker])) for speaker, change in changes.items()),
                                            self.corpus.scratch)
        return gmm, adapted(self.corpus, self.utt2spk, self.transforms, self.engine), f", fMLLR + {gain:.4f} a frame of speech"

    def state(self) -> dict[str, np.ndarray]:
        speakers = self._speakers()
        shape = self.transforms[speakers[0]].shape
        found = scratch_array((len(speakers), *shape), np.float64, _MANY, self.corpus.scratch)
        for number, speaker in enumerate(speakers):
            found[number] = self.transforms[speaker]
            if number % _MANY == 0:
                release(found[:number])
        return {"transforms": found}

    def restore(self, state: dict[str, np.ndarray]) -> np.ndarray:
        self.transforms = SpeakerTransforms(zip(self._speakers(), state["transforms"], strict=True), self.corpus.scratch)
        return adapted(self.corpus, self.utt2spk, self.transforms, self.engine)

    def _speakers(self) -> list[str]:
        return list(dict.fromkeys(self.utt2spk[utt] for utt in self.corpus.utts))


def estimate_aligned(corpus: Corpus, utt2spk: Mapping[str, str], tids: np.ndarray, gmm: AmDiagGmm, model: TransitionModel,
                     silence_phones: Sequence[int], options: FmllrOptions, engine: Engine | None = None,
                     target: AmDiagGmm | None = None) -> tuple[SpeakerTransforms, float]:
    """Estimate a transform for each speaker from the alignment `tids` of all frames (0: left out), silence having its own weight.

    The frames are divided among the Gaussians by `gmm`; the transforms are made for `target`, its twin in the adapted space, if given.
    Returns them, and what they raise the log-likelihood by, a frame (of weight 1). Raises UserError where no frame has a weight.
    """
    first, last = _first_and_last(corpus, utt2spk)

    def speakers(part: Corpus) -> dict[str, Any]:
        mine = {utt: utt2spk[utt] for utt in part.utts}
        return {"utt2spk": mine, "begun": {speaker for speaker in mine.values() if first[speaker] >= part.first},
                "ended": {speaker for speaker in mine.values() if last[speaker] < part.first + len(part)}}

    return estimate_parts(corpus.each(_speaker_sums, engine or Engine(), tids, own=speakers, gmm=gmm, model=model,
                                      silence_phones=list(silence_phones), options=options, target=target), options, corpus.scratch)


def _first_and_last(corpus: Corpus, utt2spk: Mapping[str, str]) -> tuple[dict[str, int], dict[str, int]]:
    """The numbers of each speaker's first utterance, and of his last."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for number, utt in enumerate(corpus.utts):
        first.setdefault(utt2spk[utt], number)
        last[utt2spk[utt]] = number
    return first, last


@block_task()
def _speaker_sums(part: Corpus, engine: Engine, tids: np.ndarray, gmm: AmDiagGmm, model: TransitionModel, silence_phones: list[int],
                  options: FmllrOptions, target: AmDiagGmm | None, utt2spk: dict[str, str], begun: set[str],
                  ended: set[str]) -> SpeakerSums:
    weights = speech_weights(tids, model, silence_phones, options.silence_weight)
    expected = expected_aligned(gmm, part.feats, tids, weights, model, engine, target)
    rows = speaker_rows(part.utts, part.offsets, utt2spk)
    return SpeakerSums.of_frames(part.feats, expected, weights, rows, begun, ended, options, engine)


def adapted(corpus: Corpus, utt2spk: Mapping[str, str], transforms: Mapping[str, np.ndarray], engine: Engine | None = None) -> Any:
    """The features of `corpus`, each frame through the transform of its speaker: (N, D) float32.

    Features that are read anew in each pass are adapted anew in each.
    """
    if isinstance(corpus.feats, PipedFeatures):
        return corpus.feats.adapted(transforms)

    def speakers(part: Corpus) -> dict[str, Any]:
        mine = {utt: utt2spk[utt] for utt in part.utts}
        return {"utt2spk": mine, "transforms": {speaker: transforms[speaker] for speaker in dict.fromkeys(mine.values())}}

    result = corpus.new_rows(corpus.feats.shape[1], np.float32)
    corpus.run(_adapt, engine or Engine(), result, own=speakers)
    return result


@block_task(outputs=1)
def _adapt(part: Corpus, engine: Engine, result: np.ndarray, utt2spk: dict[str, str], transforms: dict[str, np.ndarray]) -> None:
    result[:] = transformed(part.feats, speaker_rows(part.utts, part.offsets, utt2spk), transforms)


def gradient_scatter(corpus: Corpus, utt2spk: Mapping[str, str], tids: np.ndarray, gmm: AmDiagGmm, model: TransitionModel,
                     silence_phones: Sequence[int], silence_weight: float, per_utt: bool, transforms: Mapping[str, np.ndarray] | None,
                     engine: Engine) -> GradientScatter:
    """The scatter of the gradients of utterances (`per_utt`), or of speakers, of a corpus that `tids` aligns (0: left out).

    `transforms` are those by whose features the frames are divided among the Gaussians. Raises UserError where no frame has a weight.
    """
    first, last = _first_and_last(corpus, utt2spk)

    def speakers(part: Corpus) -> dict[str, Any]:
        mine = {utt: utt2spk[utt] for utt in part.utts}
        present, end = dict.fromkeys(mine.values()), part.first + len(part)
        return {"utt2spk": mine, "whole": {name for name in present if first[name] >= part.first and last[name] < end},
                "transforms": None if transforms is None else {name: transforms[name] for name in present}}

    with Progress("gradients", len(corpus), "utt") as bar:
        found = corpus.total(_gradients, engine, tids, own=speakers, bar=bar, gmm=gmm, model=model, silence_phones=list(silence_phones),
                             silence_weight=silence_weight, per_utt=per_utt).closed()
    if not found.total:
        raise UserError(NO_SPEECH)
    return found


@block_task()
def _gradients(part: Corpus, engine: Engine, tids: np.ndarray, gmm: AmDiagGmm, model: TransitionModel, silence_phones: list[int],
               silence_weight: float, per_utt: bool, utt2spk: dict[str, str], whole: set[str],
               transforms: dict[str, np.ndarray] | None, bar: Progress | None = None) -> GradientScatter:
    weights, rows = speech_weights(tids, model, silence_phones, silence_weight), speaker_rows(part.utts, part.offsets, utt2spk)
    feats = part.feats if transforms is None else transformed(part.feats, rows, transforms)
    expected = expected_aligned(gmm, feats, tids, weights, model, engine)
    if per_utt:
        rows, whole = speaker_rows(part.utts, part.offsets, {utt: utt for utt in part.utts}), set(part.utts)
    if bar is not None:
        bar.update(len(part))
    return GradientScatter.of_frames(part.feats, expected, weights, rows, whole)


def train_sat(corpus: Corpus, utt2spk: Mapping[str, str], lang: LangDir, tids: np.ndarray, old: TransitionModel,
              start: Mapping[str, np.ndarray], max_leaves: int, totgauss: int, options: SatOptions, align_options: AlignOptions,
              fmllr_options: FmllrOptions, engine: Engine | None = None, log: Callable[[str], None] = print,
              checkpoint: Checkpoint | None = None) -> tuple[State, AmDiagGmm, Mapping[str, np.ndarray]]:
    """Train a speaker-adapted system on `corpus`, whose features are not adapted, from an alignment and transforms for it.

    The rest is as in `train_triphones`.

    Returns the system, its twin for features that are not adapted, and the speakers' transforms.
    """
    engine = engine or Engine()
    fmllr = Fmllr(iterations("fmllr-iters", options.fmllr_iters), corpus, utt2spk, start, lang.silence_phones, fmllr_options, engine)
    goes_on = checkpoint is not None and checkpoint.stage  # with transforms of its own
    system = train_triphones(corpus if goes_on else replace(corpus, feats=adapted(corpus, utt2spk, start, engine)), lang, tids, old,
                             max_leaves, totgauss, options, align_options, engine, fmllr, log, checkpoint)
    return system, unadapted_twin(system, corpus, engine), fmllr.transforms


def unadapted_twin(system: State, corpus: Corpus, engine: Engine) -> AmDiagGmm:
    """A model with the same Gaussians for the features of `corpus`, divided among them as the adapted ones of the system are."""
    stats = accumulate(engine, system.gmm, replace(corpus, feats=system.feats), system.alignments.tids, system.transition_model,
                       other=corpus.feats)
    return system.gmm.updated(stats.gmm, remove_low_count=False)
