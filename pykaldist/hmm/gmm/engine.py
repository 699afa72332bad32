"""Likelihoods of frames for alignment, and the sums that Gaussians and transforms are estimated from, on a CPU.

`Engine` computes with numpy, in threads; the frames are sorted by pdf, so that all frames of one pdf meet its Gaussians in one matrix
product. `DeviceEngine` (device_engine.py) computes the same with torch on a GPU. Results do not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any

import numpy as np

from pykaldist.feats.pipeline import check_dim
from pykaldist.hmm.gmm.aligned_frames import AlignedFrames
from pykaldist.hmm.gmm.gmm import AmDiagGmm, GmmStats
from pykaldist.progress import Progress

#: (first row, end row, pdfs) -> log-likelihoods (rows, pdfs) float32 of these rows of a matrix of features
Scorer = Callable[[int, int, np.ndarray], np.ndarray]

_CHUNK = 16  # pieces of work that a thread takes at a time
_BLOCK = 2048  # frames at a time in outer products: float32 inside a block, float64 between blocks
_PIECE = 1 << 15  # most frames of a pdf that one thread sums up; a UBM has all frames in one


def sum_pieces(work: Callable[..., Any], pieces: Iterable[tuple[Any, ...]], threads: int) -> Any:
    """The sum of `work(*piece)` over all pieces, a kind of value that has `+`, in the pieces' order; None where there is no piece.

    `threads` pieces are worked on at a time; the sum does not depend on how many they are.
    """
    total, rest = None, iter(pieces)
    with ThreadPoolExecutor(threads) as pool:
        while some := list(islice(rest, threads)):
            for found in pool.map(lambda piece: work(*piece), some):
                total = found if total is None else total + found
    return total


class Engine:
    """The engine that computes with numpy, in `threads` threads."""

    def __init__(self, threads: int = 1) -> None:
        self.threads = threads

    def for_each(self, count: int, work: Callable[[int], None], bar: Progress | None = None) -> None:
        """Call `work` with 0 .. count - 1, a chunk at a time, in threads if there are several; the first exception is raised."""
        def chunk(start: int) -> int:
            end = min(start + _CHUNK, count)
            for number in range(start, end):
                work(number)
            return end - start

        pool = ThreadPoolExecutor(self.threads)
        try:
            for done in pool.map(chunk, range(0, count, _CHUNK)):
                if bar is not None:
                    bar.update(done)
        finally:
            pool.shutdown(cancel_futures=True)

    def scorer(self, gmm: AmDiagGmm, feats: np.ndarray) -> Scorer:
        """Make the function that scores rows of `feats` (N, D) against some of the pdfs of `gmm`; several threads may call it."""
        return lambda first, end, pdfs: gmm.loglikes(feats[first:end], pdfs)

    def accumulate(self, gmm: AmDiagGmm, feats: np.ndarray, frames: AlignedFrames, other: np.ndarray | None = None) -> tuple[
            GmmStats, float]:
        """Sum up the statistics of all frames of `feats` (N, D) that are aligned, and their average log-likelihood.

        Each counts with its weight, where `frames` has weights. With `other` (N, D) the statistics are of these features, divided among
        the Gaussians as those of `feats` would be.
        """
        check_dim(gmm.dim, feats)
        stats, log_likelihoods = gmm.new_stats(), np.zeros(gmm.num_pdfs)
        bounds = frames.bounds
        large = np.diff(bounds) > _PIECE

        def summed(stats: GmmStats, pdf: int, start: int, end: int) -> float:
            rows = frames.order[start:end]
            return gmm.accumulate(stats, pdf, feats[rows], None if other is None else other[rows],
                                  None if frames.weights is None else frames.weights[start:end])

        def one(pdf: int) -> None:
            if not large[pdf]:
                log_likelihoods[pdf] = summed(stats, pdf, bounds[pdf], bounds[pdf + 1])

        def piece(of: tuple[int, int]) -> tuple[GmmStats, float]:
            pdf, start = of
            own = gmm.new_stats()
            return own, summed(own, pdf, start, min(start + _PIECE, bounds[pdf + 1]))

        self.for_each(gmm.num_pdfs, one)
        pieces = [(pdf, start) for pdf in np.flatnonzero(large).tolist() for start in range(bounds[pdf], bounds[pdf + 1], _PIECE)]
        with ThreadPoolExecutor(self.threads) as pool:
            for (pdf, _), (own, log_likelihood) in zip(pieces, pool.map(piece, pieces), strict=True):
                stats.add(own)
                log_likelihoods[pdf] += log_likelihood
        return stats, float(log_likelihoods.sum()) / frames.total_weight

    def expected_parameters(self, gmm: AmDiagGmm, feats: np.ndarray, frames: AlignedFrames, target: np.ndarray | None = None) -> np.ndarray:
        """The expected parameters of the Gaussians of each frame, (N, 2 D) float32, 0 where the frame is not aligned.

        They are the sum over Gaussians of posterior times [mu / sigma^2, 1 / sigma^2].

        Posteriors are those of `gmm` within the frame's pdf, times its weight; the parameters are `target` (G, 2 D) float32 if given.
        """
        check_dim(gmm.dim, feats)
        result = np.zeros((len(feats), 2 * gmm.dim), dtype=np.float32)

        def one(pdf: int) -> None:
            part = slice(frames.bounds[pdf], frames.bounds[pdf + 1])
            rows = frames.order[part]
            if len(rows):
                expected = gmm.expected_parameters(pdf, feats[rows], target)
                result[rows] += expected if frames.weights is None else expected * frames.weights[part, None].astype(np.float32)

        # frames with weights may stand under several pdfs, which would be several threads'
        (self if frames.weights is None else Engine()).for_each(gmm.num_pdfs, one)
        return result

    def outer_products(self, x: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Weighted sums of outer products: G[d] = sum_t weights[t, d] x[t] x[t]^T, (D, E, E) float64.

        The frames are (T, E) and the weights (T, D), float32.

        The products x_i x_j of the upper triangle are columns of one matrix, so that all D sums are one matrix product.
        """
        rows, columns = np.triu_indices(x.shape[1])
        sums = np.zeros((weights.shape[1], len(rows)))
        for start in range(0, len(x), _BLOCK):
            block = x[start:start + _BLOCK]
            sums += weights[start:start + _BLOCK].T @ (block[:, rows] * block[:, columns])
        return symmetric(sums, x.shape[1])


def symmetric(upper: np.ndarray, dim: int) -> np.ndarray:
    """Symmetric matrices (D, dim, dim) from their upper triangles, row by row (D, dim (dim + 1) / 2)."""
    rows, columns = np.triu_indices(dim)
    result = np.empty((len(upper), dim, dim))
    result[:, rows, columns] = upper
    result[:, columns, rows] = upper
    return result
