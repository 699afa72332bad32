"""Likelihoods and statistics of Gaussians on a GPU: what `Engine` (engine.py) computes, with torch.

The frames of each pdf are cut into tiles of one length, the last one of a pdf padded by frames of weight 0; tiles of pdfs with about as
many Gaussians go through one batched matrix product, their mixtures padded by Gaussians of weight 0. Features stay on the device from one
call to the next while they are the same array. Sums over tiles are float64. The search along the alignment's graphs stays on the CPU.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from pykaldist.errors import UserError
from pykaldist.feats.pipeline import check_dim
from pykaldist.hmm.gmm.aligned_frames import AlignedFrames
from pykaldist.hmm.gmm.engine import Engine, Scorer, symmetric
from pykaldist.hmm.gmm.gmm import AmDiagGmm, GmmStats

_TILE = 128  # frames
_VALUES = 1 << 24  # float32 values of the largest array in a batch
_KEPT = 2  # matrices of features: SAT goes through two


class _Mixtures:
    """The Gaussians of a model on a device.

    Number G, behind the last one, has weight 0 and stands where a pdf has fewer than others.
    """

    def __init__(self, gmm: AmDiagGmm, device: torch.device) -> None:
        sizes = np.diff(gmm.offsets)
        places = np.arange(sizes.max(initial=1))
        slots = np.where(places < sizes[:, None], gmm.offsets[:-1, None] + places, gmm.num_gauss)
        self.sizes = sizes
        self.slots = torch.from_numpy(slots.astype(np.int64)).to(device)
        self.device = device
        self.projection = self.on_device(gmm.projection)
        self.gconsts = torch.from_numpy(np.append(gmm.gconsts, np.float32(-np.inf))).to(device)

    def on_device(self, parameters: np.ndarray) -> Tensor:
        """Parameters of the Gaussians (G, 2 D) on the device, with zeros for number G."""
        return torch.from_numpy(np.concatenate([parameters, np.zeros((1, parameters.shape[1]), np.float32)])).to(self.device)

    def scores(self, x: Tensor, slots: Tensor) -> Tensor:
        """Log-densities times weights (B, T, G) of expanded frames x (B, T, 2 D), or (T, 2 D), under the Gaussians `slots` (B, G)."""
        return x @ self.projection[slots].transpose(1, 2) + self.gconsts[slots][:, None]


class DeviceEngine(Engine):
    """The engine that computes with torch on `device`; alignments are searched in `threads` threads."""

    def __init__(self, device: torch.device, threads: int = 1) -> None:
        super().__init__(threads)
        self.device = device
        self._kept: list[tuple[np.ndarray, Tensor]] = []

    def _features(self, feats: np.ndarray) -> Tensor:
        for array, tensor in self._kept:
            if array is feats:
                return tensor
        self._kept = self._kept[1 - _KEPT:]
        try:
            tensor = torch.from_numpy(np.ascontiguousarray(feats, dtype=np.float32)).to(self.device)
        except torch.cuda.OutOfMemoryError as error:
            raise UserError(f"the features take {feats.size * 4 / 2**30:.1f} GiB on {self.device}, which has less left (SAT takes them "
                            "twice); use --device cpu.") from error
        self._kept.append((feats, tensor))
        return tensor

    def _tiles(self, mixtures: _Mixtures, frames: AlignedFrames, values_of_frame: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """The tiles of frames as (rows (B, T), their weights (B, T), slots (B, G)), those of small mixtures first."""
        counts = np.diff(frames.bounds)
        pdf = np.repeat(np.arange(len(counts)), -(-counts // _TILE))
        number = np.arange(len(pdf)) - np.searchsorted(pdf, pdf)
        by_size = np.argsort(mixtures.sizes[pdf], kind="stable")
        pdf, number = pdf[by_size], number[by_size]
        place = (frames.bounds[pdf] + number * _TILE)[:, None] + np.arange(_TILE)
        inside = place < frames.bounds[pdf + 1][:, None]
        place = np.where(inside, place, 0)
        weights = inside.astype(np.float32) if frames.weights is None else np.where(inside, frames.weights[place], 0).astype(np.float32)
        rows, sizes, start = frames.order[place].astype(np.int64), mixtures.sizes[pdf], 0
        while start < len(pdf):
            most = 2 * int(sizes[start]) + 8  # Gaussians
            end = min(int(np.searchsorted(sizes, most, "right")), start + max(1, _VALUES // (_TILE * max(most, values_of_frame))))
            batch = slice(start, end)
            yield (torch.from_numpy(rows[batch]).to(self.device), torch.from_numpy(weights[batch]).to(self.device),
                   mixtures.slots[torch.from_numpy(pdf[batch]).to(self.device), :int(sizes[end - 1])])
            start = end

    def scorer(self, gmm: AmDiagGmm, feats: np.ndarray) -> Scorer:
        check_dim(gmm.dim, feats)
        mixtures, on_device = _Mixtures(gmm, self.device), self._features(feats)

        def score(first: int, end: int, pdfs: np.ndarray) -> np.ndarray:
            width = int(mixtures.sizes[pdfs].max())
            slots = mixtures.slots[torch.from_numpy(np.asarray(pdfs, dtype=np.int64)).to(self.device), :width]
            scores = mixtures.scores(_expanded(on_device[first:end]), slots)
            return torch.logsumexp(scores, 2).t().contiguous().cpu().numpy()

        return score

    def accumulate(self, gmm: AmDiagGmm, feats: np.ndarray, frames: AlignedFrames, other: np.ndarray | None = None) -> tuple[
            GmmStats, float]:
        check_dim(gmm.dim, feats)
        mixtures, x = _Mixtures(gmm, self.device), self._features(feats)
        summed = x if other is None else self._features(other)
        width = 2 * gmm.dim
        sums = torch.zeros(gmm.num_gauss + 1, 1 + width, dtype=torch.float64, device=self.device)
        log_likelihood = torch.zeros((), dtype=torch.float64, device=self.device)
        for rows, weights, slots in self._tiles(mixtures, frames, width):
            scores = mixtures.scores(_expanded(x[rows]), slots)
            log_likelihood += (torch.logsumexp(scores, 2) * weights).sum(dtype=torch.float64)
            posteriors = torch.softmax(scores, 2) * weights[..., None]
            part = torch.cat([posteriors.sum(1)[..., None], posteriors.transpose(1, 2) @ _expanded(summed[rows])], 2)
            sums.index_add_(0, slots.flatten(), part.flatten(0, 1).double())
        found = sums[:-1].cpu().numpy()
        stats = GmmStats(found[:, 0].copy(), found[:, 1:1 + gmm.dim].copy(), -2.0 * found[:, 1 + gmm.dim:])
        return stats, float(log_likelihood) / frames.total_weight

    def expected_parameters(self, gmm: AmDiagGmm, feats: np.ndarray, frames: AlignedFrames, target: np.ndarray | None = None) -> np.ndarray:
        check_dim(gmm.dim, feats)
        mixtures, x = _Mixtures(gmm, self.device), self._features(feats)
        parameters = mixtures.projection if target is None else mixtures.on_device(target)
        result = torch.zeros(len(feats), 2 * gmm.dim, device=self.device)
        for rows, weights, slots in self._tiles(mixtures, frames, 2 * gmm.dim):
            posteriors = torch.softmax(mixtures.scores(_expanded(x[rows]), slots), 2) * weights[..., None]
            result.index_add_(0, rows.flatten(), (posteriors @ parameters[slots]).flatten(0, 1))
        return result.cpu().numpy()

    def outer_products(self, x: np.ndarray, weights: np.ndarray) -> np.ndarray:
        dim = x.shape[1]
        rows, columns = (torch.from_numpy(part).to(self.device) for part in np.triu_indices(dim))
        sums = torch.zeros(weights.shape[1], len(rows), dtype=torch.float64, device=self.device)
        step = max(1, _VALUES // len(rows))
        for start in range(0, len(x), step):
            block, weight = (torch.from_numpy(np.ascontiguousarray(part[start:start + step], dtype=np.float32)).to(self.device)
                             for part in (x, weights))
            sums += (weight.t() @ (block[:, rows] * block[:, columns])).double()
        return symmetric(sums.cpu().numpy(), dim)


def _expanded(feats: Tensor) -> Tensor:
    """[x, -x^2/2]: frames with the terms of their squares, along the last dimension."""
    return torch.cat([feats, -0.5 * feats * feats], -1)
