"""Training on spliced features through LDA and MLLT, with the schedule of Kaldi's steps/train_lda_mllt.sh.

LDA, on the pdfs of the alignment that training starts from, chooses the directions; in some iterations MLLT turns the space so that
diagonal covariances fit better, and the Gaussians' means with it. The product of all turns is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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

    def _utterances(self, part: Corpus) -> Iterator[np.ndarray]:
        for number in range(len(part)):
            yield splice(part.utterance_feats(number), self.options.left_context, self.options.right_context)

    def lda(self, tids: np.ndarray, pdfs: Callable[[np.ndarray], np.ndarray], num_pdfs: int) -> np.ndarray:
        """Estimate LDA's full matrix (dim, dim) float64.

        `pdfs` gives the pdf of every frame from its transition_id in `tids`, below 0 where the frame does not count.
        """
        stats = LdaStats(self.dim, num_pdfs)
        for part, mine in self.corpus.parts(tids):
            classes = pdfs(mine)
            for number, spliced in enumerate(self._utterances(part)):
                own = classes[part.offsets[number]:part.offsets[number + 1]]
                stats.add(spliced[own >= 0], own[own >= 0])
        return stats.transform(self.dim)[1]

    def through(self, matrix: np.ndarray) -> np.ndarray:
        """Multiply all frames by a matrix (D, dim): (N, D) float32."""
        result = self.corpus.new_rows(len(matrix), np.float32)
        for part, mine in self.corpus.parts(result):
            for number, spliced in enumerate(self._utterances(part)):
                mine[part.offsets[number]:part.offsets[number + 1]] = apply_transform(spliced, matrix, "LDA")
        return result


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
        change, gain = estimate_mllt(*mllt_stats(gmm, self._speech(feats, tids, model), self.engine))
        self.turn = change @ self.turn
        return gmm.with_means_transformed(change), self._turned(), f", MLLT + {gain:.4f} a frame of speech"

    def _speech(self, feats: np.ndarray, tids: np.ndarray, model: TransitionModel) -> Iterator[tuple[np.ndarray, AlignedFrames]]:
        """The features of each block, and its aligned frames without silence."""
        for part, mine in replace(self.spliced.corpus, feats=feats).parts(tids):
            speech = np.where(np.isin(model.tid2phone[mine], self.silence_phones), 0, mine)
            if speech.any():
                yield part.feats, AlignedFrames.group(speech, model)

    def _turned(self) -> np.ndarray:
        result = self.spliced.corpus.new_rows(len(self.turn), np.float32)
        for part, mine in replace(self.spliced.corpus, feats=self.reduced).parts(result):
            np.matmul(part.feats, self.turn.T.astype(np.float32), out=mine)
        return result

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

    def pdfs(mine: np.ndarray) -> np.ndarray:
        return np.where((mine > 0) & ~np.isin(old.tid2phone[mine], lang.silence_phones), old.tid2pdf[mine], -1)

    mllt = Mllt(iterations("mllt-iters", options.mllt_iters), lang.silence_phones, engine, spliced,
                spliced.lda(tids, pdfs, old.num_pdfs), np.eye(options.dim))
    system = train_triphones(replace(corpus, feats=mllt.reduced), lang, tids, old, max_leaves, totgauss, options, align_options, engine,
                             mllt, log, checkpoint)
    return system, mllt.matrix, mllt.full
