"""Training on spliced features through LDA and MLLT, with the schedule of Kaldi's steps/train_lda_mllt.sh.

LDA, on the pdfs of the alignment that training starts from, chooses the directions; in some iterations MLLT turns the space so that
diagonal covariances fit better, and the Gaussians' means with it. Features are turned in place; the product of all matrices is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pykaldist.errors import UserError
from pykaldist.feats.lda import LdaStats
from pykaldist.feats.splice import SpliceOptions, splice
from pykaldist.feats.transforms import apply_transform
from pykaldist.hmm.align import AlignOptions
from pykaldist.hmm.corpus import Corpus
from pykaldist.hmm.em import AlignedFrames, iterations
from pykaldist.hmm.gmm import AmDiagGmm
from pykaldist.hmm.mllt import estimate_mllt, mllt_stats
from pykaldist.hmm.transition_model import TransitionModel
from pykaldist.hmm.triphones import TriphoneOptions, TriphoneSystem, train_triphones
from pykaldist.io.lang import LangDir
from pykaldist.options import option


@dataclass
class LdaMlltOptions(TriphoneOptions):
    """Options of `train_lda_mllt`, over those of the alignment."""

    dim: int = option(40, "dimensions that LDA leaves")
    mllt_iters: str = option("2 4 6 12", "iterations that estimate MLLT")


@dataclass
class Mllt:
    """MLLT in the iterations `iters`; `matrix` (D, D) is the product of what was estimated."""

    iters: set[int]
    silence_phones: Sequence[int]
    threads: int
    matrix: np.ndarray

    def update(self, iteration: int, gmm: AmDiagGmm, feats: np.ndarray, tids: np.ndarray, model: TransitionModel) -> tuple[
            AmDiagGmm, np.ndarray, str]:
        if iteration not in self.iters:
            return gmm, feats, ""
        speech = np.where(np.isin(model.tid2phone[tids], self.silence_phones), 0, tids)
        change, gain = estimate_mllt(*mllt_stats(gmm, feats, AlignedFrames.group(speech, model), self.threads))
        self.matrix = change @ self.matrix
        return gmm.with_means_transformed(change), feats @ change.T.astype(np.float32), f", MLLT + {gain:.4f} a frame of speech"


def train_lda_mllt(corpus: Corpus, lang: LangDir, tids: np.ndarray, old: TransitionModel, max_leaves: int, totgauss: int,
                   splicing: SpliceOptions, options: LdaMlltOptions, align_options: AlignOptions, threads: int = 1,
                   log: Callable[[str], None] = print) -> tuple[TriphoneSystem, np.ndarray, np.ndarray]:
    """Train on `corpus`, whose features are not spliced yet; the rest as `train_triphones`.

    Returns the system, the matrix from spliced features to its space (dim, D), and LDA's full matrix (D, D), both float64.
    """
    bounds = list(zip(corpus.offsets[:-1].tolist(), corpus.offsets[1:].tolist(), strict=True))
    full_dim = corpus.feats.shape[1] * (splicing.left_context + 1 + splicing.right_context)
    if not 1 <= options.dim <= full_dim:
        raise UserError(f"--dim must be 1 to {full_dim}, the dimensions of the spliced features; found {options.dim}.")

    def spliced(first: int, end: int) -> np.ndarray:
        return splice(corpus.feats[first:end], splicing.left_context, splicing.right_context)

    lda_stats = LdaStats(full_dim, old.num_pdfs)
    used = ~np.isin(old.tid2phone[tids], lang.silence_phones) & (tids > 0)
    for first, end in bounds:
        lda_stats.add(spliced(first, end)[used[first:end]], old.tid2pdf[tids[first:end][used[first:end]]])
    lda, full = lda_stats.transform(options.dim)
    reduced = np.concatenate([apply_transform(spliced(first, end), lda, "LDA") for first, end in bounds])
    mllt = Mllt(iterations("mllt-iters", options.mllt_iters), lang.silence_phones, threads, np.eye(options.dim))
    system = train_triphones(Corpus(corpus.utts, reduced, corpus.offsets, corpus.words, corpus.unknown), lang, tids, old, max_leaves,
                             totgauss, options, align_options, threads, mllt, log)
    return system, mllt.matrix @ lda, full
