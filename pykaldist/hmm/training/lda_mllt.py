"""Training on spliced features through LDA and MLLT, with the schedule of Kaldi's steps/train_lda_mllt.sh.

LDA, on the pdfs of the alignment that training starts from, chooses the directions; in some iterations MLLT turns the space so that
diagonal covariances fit better, and the Gaussians' means with it. The product of all turns is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pykaldist.errors import UserError
from pykaldist.feats.lda import LdaStats
from pykaldist.feats.splice import SpliceOptions, splice
from pykaldist.feats.transforms import apply_transform
from pykaldist.hmm.alignments.align import AlignOptions
from pykaldist.hmm.alignments.corpus import Corpus
from pykaldist.hmm.gmm.aligned_frames import AlignedFrames
from pykaldist.hmm.gmm.engine import Engine
from pykaldist.hmm.gmm.gmm import AmDiagGmm
from pykaldist.hmm.gmm.mllt import estimate_mllt, mllt_stats
from pykaldist.hmm.training.iterations import Checkpoint, State, iterations
from pykaldist.hmm.training.triphones import TriphoneOptions, train_triphones
from pykaldist.hmm.tree.transition_model import TransitionModel
from pykaldist.io.lang import LangDir
from pykaldist.options import option


@dataclass
class LdaMlltOptions(TriphoneOptions):
    """Options of `train_lda_mllt`, over those of the alignment."""

    dim: int = option(40, "dimensions that LDA leaves")
    mllt_iters: str = option("2 4 6 12", "iterations that estimate MLLT")


@dataclass
class Spliced:
    """The spliced features of `corpus`: (N, dim)."""

    corpus: Corpus
    options: SpliceOptions

    @property
    def dim(self) -> int:
        return self.corpus.feats.shape[1] * (self.options.left_context + 1 + self.options.right_context)

    def utterance(self, number: int) -> np.ndarray:
        return splice(self.corpus.utterance_feats(number), self.options.left_context, self.options.right_context)

    def lda(self, pdfs: np.ndarray, num_pdfs: int) -> np.ndarray:
        """Estimate LDA's full matrix (dim, dim) float64 for the pdf of every frame, below 0 where the frame does not count."""
        stats, offsets = LdaStats(self.dim, num_pdfs), self.corpus.offsets
        for number in range(len(self.corpus)):
            mine = pdfs[offsets[number]:offsets[number + 1]]
            stats.add(self.utterance(number)[mine >= 0], mine[mine >= 0])
        return stats.transform(self.dim)[1]

    def through(self, matrix: np.ndarray) -> np.ndarray:
        """Multiply all frames by a matrix (D, dim): (N, D) float32."""
        return np.concatenate([apply_transform(self.utterance(number), matrix, "LDA") for number in range(len(self.corpus))])


@dataclass
class Mllt:
    """The learning of MLLT in the iterations `iters`, on the features `spliced` through the first `dim` rows of LDA's matrix `full`.

    `turn` (dim, dim) is the product of what was estimated.
    """

    iters: set[int]
    silence_phones: Sequence[int]
    engine: Engine
    spliced: Spliced
    full: np.ndarray
    turn: np.ndarray

    def __post_init__(self) -> None:
        self.reduced = self.spliced.through(self.full[:len(self.turn)])

    @property
    def matrix(self) -> np.ndarray:
        """The matrix from spliced features to the space of the model, float64."""
        return self.turn @ self.full[:len(self.turn)]

    def update(self, iteration: int, gmm: AmDiagGmm, feats: np.ndarray, tids: np.ndarray, model: TransitionModel) -> tuple[
            AmDiagGmm, np.ndarray, str]:
        if iteration not in self.iters:
            return gmm, feats, ""
        speech = np.where(np.isin(model.tid2phone[tids], self.silence_phones), 0, tids)
        change, gain = estimate_mllt(*mllt_stats(gmm, feats, AlignedFrames.group(speech, model), self.engine))
        self.turn = change @ self.turn
        return gmm.with_means_transformed(change), self._turned(), f", MLLT + {gain:.4f} a frame of speech"

    def _turned(self) -> np.ndarray:
        return self.reduced @ self.turn.T.astype(np.float32)

    def state(self) -> dict[str, np.ndarray]:
        return {"turn": self.turn}

    def restore(self, state: dict[str, np.ndarray]) -> np.ndarray:
        self.turn = state["turn"]
        return self._turned()


def train_lda_mllt(corpus: Corpus, lang: LangDir, tids: np.ndarray, old: TransitionModel, max_leaves: int, totgauss: int,
                   splicing: SpliceOptions, options: LdaMlltOptions, align_options: AlignOptions, engine: Engine | None = None,
                   log: Callable[[str], None] = print, checkpoint: Checkpoint | None = None) -> tuple[State, np.ndarray, np.ndarray]:
    """Train an LDA+MLLT system on `corpus`, whose features are not spliced yet; the rest is as in `train_triphones`.

    Returns the system, the matrix from spliced features to its space (dim, D), and LDA's full matrix (D, D), both float64.
    """
    engine, spliced = engine or Engine(), Spliced(corpus, splicing)
    if not 1 <= options.dim <= spliced.dim:
        raise UserError(f"--dim must be 1 to {spliced.dim}, the dimensions of the spliced features; found {options.dim}.")
    speech = (tids > 0) & ~np.isin(old.tid2phone[tids], lang.silence_phones)
    mllt = Mllt(iterations("mllt-iters", options.mllt_iters), lang.silence_phones, engine, spliced,
                spliced.lda(np.where(speech, old.tid2pdf[tids], -1), old.num_pdfs), np.eye(options.dim))
    system = train_triphones(replace(corpus, feats=mllt.reduced), lang, tids, old, max_leaves, totgauss, options, align_options, engine,
                             mllt, log, checkpoint)
    return system, mllt.matrix, mllt.full
