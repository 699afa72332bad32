"""fMLLR transforms of speech without transcripts, estimated from the lattices of an earlier decoding.

Every frame counts for each pdf with its posterior in the lattice; within a pdf it is divided among the Gaussians. What silence weighs is
scaled. On the first pass the lattices are those of the model for features that are not adapted, which divides the frames, while the
transforms are made for its twin in the adapted space; on the second pass everything is that twin's (Kaldi's steps/decode_fmllr.sh).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pykaldist.decode.determinize import determinize
from pykaldist.decode.lattice import read_lattices
from pykaldist.decode.posteriors import lattice_posteriors
from pykaldist.decode.rescore import check_lattice, check_utterance
from pykaldist.errors import UserError
from pykaldist.feats.pipeline import FeaturePipeline, check_dim
from pykaldist.hmm.adaptation.fmllr import FmllrOptions, compose, estimate_speakers, identity, speaker_rows
from pykaldist.hmm.gmm.aligned_frames import AlignedFrames
from pykaldist.hmm.gmm.engine import Engine
from pykaldist.hmm.gmm.model_files import read_model
from pykaldist.io.datadir import DataDir
from pykaldist.progress import progress


def transforms_from_lattices(data: DataDir, utts: Sequence[str], model_dir: Path, lattices: str | os.PathLike[str],
                             silence_phones: Sequence[int], acwt: float, options: FmllrOptions, aligner: Path | None = None,
                             transform_dir: Path | None = None, target: Path | None = None, beam: float = 0.0) -> tuple[
                                 dict[str, np.ndarray], str]:
    """Estimate a transform (D, D + 1) for each speaker of `utts`; returns them, and a line that says what came out.

    `lattices` is the archive of these utterances; those without one count for nothing; with a `beam` they are determinised within it first.
    `target` is the model that the transforms are made for (default: final.mdl of `model_dir`), `aligner` the one that divides frames among
    Gaussians (default: the same). With `transform_dir` features are taken through its transforms first, and the transforms returned are new
    and old in one. Raises UserError for a lattice of another length than its features, or of another model.
    """
    pipeline = FeaturePipeline.from_dir(model_dir, transform_dir)
    target = target or model_dir / "final.mdl"
    model, gmm = read_model(target)
    divider = read_model(aligner)[1] if aligner is not None else gmm
    if not np.array_equal(divider.offsets, gmm.offsets):
        raise UserError(f"{aligner} and {target} have different Gaussians; they must be of one training (steps/train_sat.sh).")
    matrices = [pipeline.apply(data, utt) for utt in utts]
    for utt, matrix in zip(utts, matrices, strict=True):
        check_dim(gmm.dim, matrix, f"{data.path}, {utt}", target)
    offsets = np.concatenate([[0], np.cumsum([len(matrix) for matrix in matrices])]).astype(np.int64)
    feats, numbers = np.concatenate(matrices), {utt: number for number, utt in enumerate(utts)}
    found: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    for utt, lattice in progress(read_lattices(lattices), "fMLLR statistics", len(utts), "utt"):
        check_utterance(utt, utts, lattices)
        check_lattice(lattice, len(matrices[numbers[utt]]), model.num_transition_ids, f"{lattices}, {utt}")
        frame, tid, posterior = lattice_posteriors(determinize(lattice, acwt, beam) if beam else lattice, acwt)
        found.append((frame + offsets[numbers[utt]], tid, posterior))
    rows = speaker_rows(utts, offsets, data.utt2spk)
    if not found:
        return {speaker: identity(gmm.dim) for speaker in rows}, f"{len(rows)} speakers, no lattices"
    frame, tid, posterior = (np.concatenate(column) for column in zip(*found, strict=True))
    posterior[np.isin(model.tid2phone[tid], silence_phones)] *= options.silence_weight
    weights = np.bincount(frame, posterior, minlength=len(feats))
    frames = AlignedFrames.of_posteriors(frame, tid, posterior, model)
    expected = Engine().expected_parameters(divider, feats, frames, target=gmm.projection)
    transforms, gain = estimate_speakers(feats, expected, weights, rows, options)
    if transform_dir is not None and pipeline.fmllr is not None:
        transforms = {speaker: compose(transform, pipeline.fmllr[speaker]) for speaker, transform in transforms.items()}
    return transforms, f"{len(transforms)} speakers, {weights.sum():.0f} frames of speech, log-likelihood + {gain:.3f} a frame"
