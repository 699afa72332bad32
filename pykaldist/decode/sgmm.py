"""Subspace models in decoding: log-likelihoods with speakers' vectors, and these vectors, and fMLLR transforms, from lattices.

A speaker is heard first by the model without speakers. The posteriors in these lattices give his first vector for the whole model, which
weighs the same lattices again; the posteriors in these give the second one (Kaldi's steps/decode_sgmm2.sh).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pykaldist.decode.determinize import determinize
from pykaldist.decode.lattice import Lattice, read_lattices
from pykaldist.decode.posteriors import lattice_posteriors
from pykaldist.decode.rescore import check_lattice, check_utterance, rescored_by
from pykaldist.errors import UserError
from pykaldist.feats.pipeline import FeaturePipeline, check_dim
from pykaldist.hmm.adaptation.fmllr import compose, identity
from pykaldist.hmm.sgmm.frames import SgmmScorer, Speakers
from pykaldist.hmm.sgmm.model import read_sgmm
from pykaldist.hmm.sgmm.posteriors import Items
from pykaldist.hmm.sgmm.sgmm_fmllr import SgmmFmllrOptions, SgmmFmllrStats, estimate_sgmm_fmllr
from pykaldist.hmm.sgmm.speaker_vectors import SpeakerStats, SpeakerVectors, estimate_vectors
from pykaldist.io.datadir import DataDir
from pykaldist.progress import progress

GSELECT = 15


class SgmmModel:
    """A subspace system: its model file, and the features that the model directory asks for.

    The file is `model_dir/final.mdl` unless named. Features are adapted by the fMLLR transforms of `transform_dir`; a frame has `gselect`
    Gaussians; `vectors` are the speakers', a speaker who has none there has the vector 0.
    """

    def __init__(self, model_dir: Path, model: Path | None = None, transform_dir: Path | None = None, gselect: int = GSELECT,
                 vectors: Mapping[str, np.ndarray] | None = None) -> None:
        self.path = model or model_dir / "final.mdl"
        self.transition_model, sgmm = read_sgmm(self.path)
        self.tid2pdf = self.transition_model.tid2pdf
        self.scorer = SgmmScorer(sgmm)
        self._selector = self.scorer.selector(gselect)
        self.pipeline = FeaturePipeline.from_dir(model_dir, transform_dir)
        self.vectors: SpeakerVectors = {}
        self.take_vectors(vectors or {})

    def take_vectors(self, vectors: Mapping[str, np.ndarray]) -> None:
        """Take over speakers' vectors; raises UserError where they are of another dimension than the model's."""
        dim = self.scorer.model.speaker_dim
        for speaker, vector in vectors.items():
            if vector.shape != (dim,):
                raise UserError(f"the vector of speaker {speaker} has shape {vector.shape}, {self.path} takes vectors of {dim} dimensions; "
                                "estimate them with this model (steps/decode_sgmm2.sh, steps/align_sgmm2.sh).")
        self.vectors = dict(vectors)

    def features(self, data: DataDir, utt: str) -> np.ndarray:
        feats = self.pipeline.apply(data, utt)
        check_dim(self.scorer.model.dim, feats, f"{data.path}, {utt}", self.path)
        return feats

    def selected(self, feats: np.ndarray) -> np.ndarray:
        """The selected Gaussians (T, G) of frames."""
        return self._selector.select(feats)[0]

    def speakers(self, speaker: str) -> Speakers:
        """What follows from the vector of one speaker."""
        vector = self.vectors.get(speaker)
        return Speakers.without_vectors(self.scorer.model) if vector is None else Speakers.of(self.scorer.model, vector[None])

    def loglikes(self, feats: np.ndarray) -> np.ndarray:
        return self._loglikes(feats, Speakers.without_vectors(self.scorer.model), None)

    def utterance_loglikes(self, data: DataDir, utt: str, feats: np.ndarray, pdfs: np.ndarray | None = None) -> np.ndarray:
        """Log-likelihoods of an utterance's features for all pdfs, or those listed, by the vector of its speaker."""
        return self._loglikes(feats, self.speakers(data.utt2spk[utt]), pdfs)

    def _loglikes(self, feats: np.ndarray, speakers: Speakers, pdfs: np.ndarray | None) -> np.ndarray:
        return self.scorer.loglikes(self.scorer.terms(feats, self.selected(feats), speakers), speakers, pdfs)


@dataclass
class LatticeStatistics:
    """What goes through a job's lattices for statistics: `utts` of `data`, their archive, and how posteriors are made of them.

    Lattices are determinised within `beam` first, at the scale `acwt`; frames of `silence_phones` have `silence_weight`.
    """

    data: DataDir
    utts: Sequence[str]
    lattices: str | os.PathLike[str]
    silence_phones: Sequence[int]
    silence_weight: float
    acwt: float
    beam: float

    def items(self, model: SgmmModel, note: str, rescore: bool = False) -> Iterator[tuple[str, np.ndarray, Items]]:
        """Iterate over the speaker, the features and the posteriors of utterances; `rescore`: by the scores of `model`.

        Raises UserError for a lattice of another length than its features, of another model, or of none of the utterances.
        """
        for utt, lattice in progress(read_lattices(self.lattices), note, len(self.utts), "utt"):
            check_utterance(utt, self.utts, self.lattices)
            feats = model.features(self.data, utt)
            check_lattice(lattice, len(feats), len(model.tid2pdf) - 1, f"{self.lattices}, {utt}")
            if rescore:
                lattice = rescored_by(model, self.data, utt, feats, lattice)
            yield self.data.utt2spk[utt], feats, self._posteriors(model, lattice)

    def _posteriors(self, model: SgmmModel, lattice: Lattice) -> Items:
        frame, tid, posterior = lattice_posteriors(determinize(lattice, self.acwt, self.beam), self.acwt)
        weight = posterior * np.where(np.isin(model.transition_model.tid2phone[tid], self.silence_phones), self.silence_weight, 1.0)
        kept = np.flatnonzero(weight > 0)
        kept = kept[np.argsort(frame[kept], kind="stable")]
        return Items(frame[kept].astype(np.int64), model.tid2pdf[tid[kept]].astype(np.int64), weight[kept].astype(np.float32))


def vectors_from_lattices(source: LatticeStatistics, model: SgmmModel, aligner: SgmmModel) -> tuple[SpeakerVectors, str]:
    """Estimate the vectors of all speakers of the utterances, twice; returns them, and a line that says what came out.

    The lattices are those of `aligner`, which has no speakers; it divides frames for the first vectors, `model` with these for the second.
    """
    if aligner.scorer.offsets.tolist() != model.scorer.offsets.tolist():
        raise UserError(f"{aligner.path} and {model.path} have different substates; they must be of one training (steps/train_sgmm2.sh).")
    model.vectors = {}
    _, first = _estimate(source, aligner, model, "first vectors of speakers")
    _, second = _estimate(source, model, model, "vectors of speakers")
    speakers = dict.fromkeys(source.data.utt2spk[utt] for utt in source.utts)
    zero = np.zeros(model.scorer.model.speaker_dim)
    vectors = {speaker: model.vectors.get(speaker, zero) for speaker in speakers}
    return vectors, f"{len(vectors)} speakers, auxiliary function {first:+.3f} and {second:+.3f} a frame of speech"


def _estimate(source: LatticeStatistics, divider: SgmmModel, model: SgmmModel, note: str) -> tuple[SpeakerVectors, float]:
    """Set new vectors of `model`; returns them, and their gain a frame."""
    sums: dict[str, SpeakerStats] = {}
    for speaker, feats, items in source.items(divider, note, rescore=divider is model):
        speakers = divider.speakers(speaker)
        terms = divider.scorer.terms(feats, divider.selected(feats), speakers)
        stats = SpeakerStats.of_frames(divider.scorer, feats, terms, speakers, items, np.zeros(1, np.int64), model.scorer)
        sums[speaker] = sums[speaker] + stats if speaker in sums else stats
    gain = frames = 0.0
    for speaker, stats in sums.items():
        start = model.vectors.get(speaker, np.zeros(model.scorer.model.speaker_dim))
        found, more = estimate_vectors(model.scorer.model, stats, start[None])
        model.vectors[speaker] = found[0]
        gain, frames = gain + more, frames + stats.frames
    return model.vectors, gain / max(frames, 1.0)


def transforms_from_lattices(source: LatticeStatistics, model: SgmmModel, options: SgmmFmllrOptions) -> tuple[
        dict[str, np.ndarray], str]:
    """Estimate an fMLLR transform of all speakers of the utterances, by the vectors of `model`; returns them, and what came out in a line.

    Where features are transformed already, the transforms are these and the new ones in one.
    """
    sums: dict[str, SgmmFmllrStats] = {}
    for speaker, feats, items in source.items(model, "fMLLR statistics", rescore=True):
        speakers = model.speakers(speaker)
        terms = model.scorer.terms(feats, model.selected(feats), speakers)
        stats = SgmmFmllrStats.of_frames(model.scorer, feats, terms, speakers, items)
        sums[speaker] = sums[speaker] + stats if speaker in sums else stats
    transforms, gain, frames = {}, 0.0, 0.0
    for speaker in dict.fromkeys(source.data.utt2spk[utt] for utt in source.utts):
        transform = identity(model.scorer.model.dim)
        if speaker in sums:
            transform, more = estimate_sgmm_fmllr(model.scorer.model, sums[speaker], options)
            gain, frames = gain + more, frames + sums[speaker].beta
        transforms[speaker] = transform if model.pipeline.fmllr is None else compose(transform, model.pipeline.fmllr[speaker])
    return transforms, f"{len(transforms)} speakers, auxiliary function {gain / max(frames, 1.0):+.3f} a frame of speech"
