"""Speaker-adaptive training, with the schedule of Kaldi's steps/train_sat.sh.

Every speaker's features go through an fMLLR transform of his own, estimated again in some iterations, so that the model describes speech
as it is beyond the differences of speakers. To estimate transforms for a new speaker his speech has to be aligned first, without any:
for that a second model (Kaldi's final.alimdl) has the same Gaussians, estimated on the features that are not adapted, while the adapted
ones and the first model say which Gaussian a frame belongs to ("two-pass"). Sources: T. Anastasakos et al., "A compact model for
speaker-adaptive training", ICSLP 1996; Gales, 1998 (fmllr.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pykaldist.hmm.adaptation.fmllr import FmllrOptions, SpeakerFrames, compose, estimate_aligned, transformed
from pykaldist.hmm.alignments.align import AlignOptions
from pykaldist.hmm.alignments.corpus import Corpus
from pykaldist.hmm.gmm.engine import Engine
from pykaldist.hmm.gmm.gmm import AmDiagGmm
from pykaldist.hmm.training.accumulate import accumulate
from pykaldist.hmm.training.iterations import Checkpoint, State, iterations
from pykaldist.hmm.training.triphones import TriphoneOptions, train_triphones
from pykaldist.hmm.tree.transition_model import TransitionModel
from pykaldist.io.lang import LangDir
from pykaldist.options import option

Transforms = dict[str, np.ndarray]  # speaker -> (D, D + 1)


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
    transforms: Transforms
    silence_phones: Sequence[int]
    options: FmllrOptions
    engine: Engine

    def update(self, iteration: int, gmm: AmDiagGmm, feats: np.ndarray, tids: np.ndarray, model: TransitionModel) -> tuple[
            AmDiagGmm, np.ndarray, str]:
        if iteration not in self.iters:
            return gmm, feats, ""
        parts = speaker_frames(replace(self.corpus, feats=feats), tids, self.utt2spk)
        changes, gain = estimate_aligned(gmm, parts, model, self.silence_phones, self.options, self.engine)
        self.transforms = {speaker: compose(change, self.transforms[speaker]) for speaker, change in changes.items()}
        return gmm, adapted(self.corpus, self.utt2spk, self.transforms), f", fMLLR + {gain:.4f} a frame of speech"

    def state(self) -> dict[str, np.ndarray]:
        return {"transforms": np.stack([self.transforms[speaker] for speaker in self._speakers()])}

    def restore(self, state: dict[str, np.ndarray]) -> np.ndarray:
        self.transforms = dict(zip(self._speakers(), state["transforms"], strict=True))
        return adapted(self.corpus, self.utt2spk, self.transforms)

    def _speakers(self) -> list[str]:
        return list(dict.fromkeys(self.utt2spk[utt] for utt in self.corpus.utts))


def speaker_rows(corpus: Corpus, utt2spk: Mapping[str, str]) -> dict[str, np.ndarray]:
    """The rows of `corpus.feats` that each speaker has, in the order of the utterances."""
    parts: dict[str, list[np.ndarray]] = {}
    for number, utt in enumerate(corpus.utts):
        parts.setdefault(utt2spk[utt], []).append(np.arange(corpus.offsets[number], corpus.offsets[number + 1]))
    return {speaker: np.concatenate(mine) for speaker, mine in parts.items()}


def speaker_frames(corpus: Corpus, tids: np.ndarray, utt2spk: Mapping[str, str]) -> Iterator[SpeakerFrames]:
    """The frames of each block of `corpus`, by speakers; `tids` is the alignment of all."""
    last = {utt2spk[utt]: number for number, utt in enumerate(corpus.utts)}
    for (_, end), (part, mine) in zip(corpus.blocks(), corpus.parts(tids), strict=True):
        rows = speaker_rows(part, utt2spk)
        yield SpeakerFrames(part.feats, mine, rows, {speaker for speaker in rows if last[speaker] < end})


def adapted(corpus: Corpus, utt2spk: Mapping[str, str], transforms: Transforms) -> np.ndarray:
    """The features of `corpus`, each frame through the transform of its speaker: (N, D) float32."""
    result = corpus.new_rows(corpus.feats.shape[1], np.float32)
    for part, mine in corpus.parts(result):
        mine[:] = transformed(part.feats, speaker_rows(part, utt2spk), transforms)
    return result


def train_sat(corpus: Corpus, utt2spk: Mapping[str, str], lang: LangDir, tids: np.ndarray, old: TransitionModel, start: Transforms,
              max_leaves: int, totgauss: int, options: SatOptions, align_options: AlignOptions, fmllr_options: FmllrOptions,
              engine: Engine | None = None, log: Callable[[str], None] = print, checkpoint: Checkpoint | None = None) -> tuple[
        State, AmDiagGmm, Transforms]:
    """Train a speaker-adapted system on `corpus`, whose features are not adapted, from an alignment and transforms for it.

    The rest is as in `train_triphones`.

    Returns the system, its twin for features that are not adapted, and the speakers' transforms.
    """
    engine = engine or Engine()
    fmllr = Fmllr(iterations("fmllr-iters", options.fmllr_iters), corpus, utt2spk, start, lang.silence_phones, fmllr_options, engine)
    system = train_triphones(replace(corpus, feats=adapted(corpus, utt2spk, start)), lang, tids, old, max_leaves, totgauss, options,
                             align_options, engine, fmllr, log, checkpoint)
    return system, unadapted_twin(system, corpus, engine), fmllr.transforms


def unadapted_twin(system: State, corpus: Corpus, engine: Engine) -> AmDiagGmm:
    """A model with the same Gaussians for the features of `corpus`, divided among them as the adapted ones of the system are."""
    stats = accumulate(engine, system.gmm, replace(corpus, feats=system.feats), system.alignments.tids, system.transition_model,
                       other=corpus.feats)
    return system.gmm.updated(stats.gmm, remove_low_count=False)
