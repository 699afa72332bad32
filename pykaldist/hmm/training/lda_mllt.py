"""Training on spliced features through LDA and MLLT, with the schedule of Kaldi's steps/train_lda_mllt.sh.

LDA, on the pdfs of the alignment that training starts from, chooses the directions; in some iterations MLLT turns the space so that
diagonal covariances fit better, and the Gaussians' means with it. The product of all turns is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pykaldist.errors import UserError
from pykaldist.feats.lda import LdaStats
from pykaldist.feats.splice import SpliceOptions, splice
from pykaldist.hmm.alignments.align import AlignOptions
from pykaldist.hmm.alignments.corpus import Corpus, block_task
from pykaldist.hmm.alignments.piped import PipedFeatures, Projection
from pykaldist.hmm.gmm.aligned_frames import AlignedFrames
from pykaldist.hmm.gmm.engine import Engine
from pykaldist.hmm.gmm.gmm import AmDiagGmm
from pykaldist.hmm.gmm.mllt import MlltSums, estimate_mllt, mllt_stats
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
    engine: Engine

    @property
    def dim(self) -> int:
        return self.corpus.feats.shape[1] * (self.options.left_context + 1 + self.options.right_context)

    def lda(self, tids: np.ndarray, pdfs: np.ndarray, num_pdfs: int) -> np.ndarray:
        """Estimate LDA's full matrix (dim, dim) float64.

        `pdfs` has the pdf of each transition_id, below 0 where its frames do not count.
        """
        stats = self.corpus.total(_lda_stats, self.engine, tids, options=self.options, pdfs=pdfs, num_pdfs=num_pdfs)
        return stats.transform(self.dim)[1]

    def through(self, matrix: np.ndarray) -> Any:
        """Multiply all frames by a matrix (D, dim): (N, D) float32; in each pass anew where features are read anew in each."""
        if isinstance(self.corpus.feats, PipedFeatures):
            return self.corpus.feats.projected(Projection(self.options, matrix))
        result = self.corpus.new_rows(len(matrix), np.float32)
        self.corpus.run(_splice_through, self.engine, result, options=self.options, matrix=matrix)
        return result


def _spliced(part: Corpus, options: SpliceOptions) -> Iterator[tuple[slice, np.ndarray]]:
    """The rows of each utterance of a block, and its spliced features."""
    for number in range(len(part)):
        yield (slice(int(part.offsets[number]), int(part.offsets[number + 1])),
               splice(part.utterance_feats(number), options.left_context, options.right_context))


@block_task()
def _lda_stats(part: Corpus, engine: Engine, tids: np.ndarray, options: SpliceOptions, pdfs: np.ndarray, num_pdfs: int) -> LdaStats:
    stats = LdaStats(part.feats.shape[1] * (options.left_context + 1 + options.right_context), num_pdfs)
    classes = pdfs[tids]
    for rows, spliced in _spliced(part, options):
        own = classes[rows]
        stats.add(spliced[own >= 0], own[own >= 0])
    return stats


@block_task(outputs=1)
def _splice_through(part: Corpus, engine: Engine, result: np.ndarray, options: SpliceOptions, matrix: np.ndarray) -> None:
    Projection(options, matrix).into(result, part.feats, part.offsets)


@block_task()
def _mllt_sums(part: Corpus, engine: Engine, tids: np.ndarray, gmm: AmDiagGmm, model: TransitionModel,
               silence_phones: list[int]) -> MlltSums | None:
    """The sums over the frames of a block that are aligned with speech."""
    speech = np.where(np.isin(model.tid2phone[tids], silence_phones), 0, tids)
    return MlltSums.of_frames(gmm, part.feats, AlignedFrames.group(speech, model), engine) if speech.any() else None


@block_task(outputs=1)
def _turn(part: Corpus, engine: Engine, result: np.ndarray, turn: np.ndarray) -> None:
    np.matmul(part.feats, turn.T.astype(np.float32), out=result)


@dataclass
class Mllt:
    """The learning of MLLT in the iterations `iters`, on the features `spliced` through the first `dim` rows of LDA's matrix `full`.

    `turn` (dim, dim) is the product of what was estimated.
    """

    iters: set[int]
    silence_phones: Sequence[int]
    spliced: Spliced
    full: np.ndarray
    turn: np.ndarray

    def __post_init__(self) -> None:
        self.reduced = self.spliced.through(self.full[:len(self.turn)])

    @property
    def matrix(self) -> np.ndarray:
        """The matrix from spliced features to the space of the model, float64."""
        return self.turn @ self.full[:len(self.turn)]

    def update(self, iteration: int, gmm: AmDiagGmm, feats: Any, tids: np.ndarray, model: TransitionModel) -> tuple[AmDiagGmm, Any, str]:
        sums = replace(self.spliced.corpus, feats=feats).total(_mllt_sums, self.spliced.engine, tids, gmm=gmm, model=model,
                                                               silence_phones=list(self.silence_phones))
        change, gain = estimate_mllt(*mllt_stats(gmm, sums))
        self.turn = change @ self.turn
        return gmm.with_means_transformed(change), self._turned(), f", MLLT + {gain:.4f} a frame of speech"

    def _turned(self) -> Any:
        if isinstance(self.reduced, PipedFeatures) and self.reduced.projection is not None:
            return self.reduced.projected(replace(self.reduced.projection, turn=self.turn))
        result = self.spliced.corpus.new_rows(len(self.turn), np.float32)
        reduced = replace(self.spliced.corpus, feats=self.reduced)
        reduced.run(_turn, self.spliced.engine, result, turn=self.turn)
        return result

    def state(self) -> dict[str, np.ndarray]:
        return {"turn": self.turn}

    def restore(self, state: dict[str, np.ndarray]) -> Any:
        self.turn = state["turn"]
        return self._turned()


def train_lda_mllt(corpus: Corpus, lang: LangDir, tids: np.ndarray, old: TransitionModel, max_leaves: int, totgauss: int,
                   splicing: SpliceOptions, options: LdaMlltOptions, align_options: AlignOptions, engine: Engine | None = None,
                   log: Callable[[str], None] = print, checkpoint: Checkpoint | None = None) -> tuple[State, np.ndarray, np.ndarray]:
    """Train an LDA+MLLT system on `corpus`, whose features are not spliced yet; the rest is as in `train_triphones`.

    Returns the system, the matrix from spliced features to its space (dim, D), and LDA's full matrix (D, D), both float64.
    """
    engine = engine or Engine()
    spliced = Spliced(corpus, splicing, engine)
    if not 1 <= options.dim <= spliced.dim:
        raise UserError(f"--dim must be 1 to {spliced.dim}, the dimensions of the spliced features; found {options.dim}.")
    pdfs = np.where(np.isin(old.tid2phone, lang.silence_phones), -1, old.tid2pdf)
    pdfs[0] = -1
    mllt = Mllt(iterations("mllt-iters", options.mllt_iters), lang.silence_phones, spliced, spliced.lda(tids, pdfs, old.num_pdfs),
                np.eye(options.dim))
    system = train_triphones(replace(corpus, feats=mllt.reduced), lang, tids, old, max_leaves, totgauss, options, align_options, engine,
                             mllt, log, checkpoint)
    return system, mllt.matrix, mllt.full
