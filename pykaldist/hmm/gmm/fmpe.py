"""fMPE: offsets that are added to features, trained by the derivative of a discriminative objective (fMMI where that is MMI).

A mixture of diagonal Gaussians (the UBM) has the posterior gamma_g of Gaussian g in a frame x, of the few likeliest alone. Each frame has
the vector h with D + 1 elements a Gaussian, [gamma_g (x - mu_g) / sigma_g, 5 gamma_g], nearly all of them 0. With the matrix M and the
contexts c, each some frames around the present one and their weights a_c, the offset is

    o(t) = C sum over c of sum over k in c of a_c(k) M_c h(t + k),

C the Cholesky factor of the features' covariance under the mixture, so that the elements of M are alike in scale. M begins as 0. Its
derivative p - n (p the sum over frames of the parts above 0, n of those below) moves each element z by itself:

    z <- (p - n + z (p + n) / rate) / (2 l2 + (p + n) / rate),

which is the maximum of (z' - z)(p - n) - (z' - z)^2 (p + n) / (2 rate) - l2 z'^2. The derivative by the features is that of the model's
log-likelihoods times the numerator's less the denominator's posteriors (`indirect.py` adds how the model follows its features).

Source: D. Povey et al., "fMPE: discriminatively trained features for speech recognition", 2005; D. Povey, "Improvements to fMPE for
discriminative training of features", 2005; Kaldi's transform/fmpe, whose simpler update and whose file this has.
"""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass, field

import numpy as np

from pykaldist.errors import UserError
from pykaldist.feats.pipeline import check_dim
from pykaldist.hmm.gmm.gmm import AmDiagGmm
from pykaldist.io.atomic import atomic_open
from pykaldist.io.kaldi import KaldiReader, KaldiWriter

#: contexts, with colons between them; each a list of frame and weight
CONTEXTS = "0,1.0:-1,1.0:1,1.0:-2,0.5;-3,0.5:2,0.5;3,0.5:-4,0.5;-5,0.5:4,0.5;5,0.5:-6,0.333;-7,0.333;-8,0.333:6,0.333;7,0.333;8,0.333"
POST_SCALE = 5.0
L2_WEIGHT = 100.0
_CHUNK = 20000  # frames at a time, about


@dataclass
class Fmpe:
    """An fMPE transform: the mixture `ubm` (one pdf of G Gaussians), `projection` M^T (G (D + 1), D contexts) and `c` (D, D).

    `ngselect` is how many of the likeliest Gaussians a frame has.
    """

    ubm: AmDiagGmm
    projection: np.ndarray
    c: np.ndarray
    contexts: str = CONTEXTS
    post_scale: float = POST_SCALE
    ngselect: int = 2
    _frames: list[list[tuple[int, float]]] = field(init=False)

    def __post_init__(self) -> None:
        try:
            self._frames = [[(int(frame), float(weight)) for frame, weight in (pair.split(",") for pair in context.split(";"))]
                            for context in self.contexts.split(":")]
        except ValueError as error:
            raise UserError(f"an fMPE transform has the contexts {self.contexts!r}; expected frames and weights such as 0,1.0.") from error
        expected = (self.ubm.num_gauss * (self.dim + 1), self.dim * len(self._frames))
        if self.projection.shape != expected or self.c.shape != (self.dim, self.dim):
            raise UserError(f"an fMPE transform of {self.ubm.num_gauss} Gaussians of dimension {self.dim} needs a matrix of shape "
                            f"{expected}, found {self.projection.shape}; make it again (steps/train_mmi_fmmi.sh).")

    @property
    def dim(self) -> int:
        return self.ubm.dim

    @classmethod
    def initial(cls, ubm: AmDiagGmm, ngselect: int = 2) -> Fmpe:
        """The transform that changes nothing yet."""
        weight = ubm.weights.astype(np.float64) / ubm.weights.sum(dtype=np.float64)
        variance = 1.0 / ubm.inv_vars.astype(np.float64)
        means = ubm.means_invvars * variance
        mean = weight @ means
        covariance = np.diag(weight @ variance) + (means * weight[:, None]).T @ means - np.outer(mean, mean)
        c = np.linalg.cholesky(covariance).astype(np.float32)
        shape = (ubm.num_gauss * (ubm.dim + 1), ubm.dim * len(CONTEXTS.split(":")))
        return cls(ubm, np.zeros(shape, np.float32), c, ngselect=ngselect)

    def transformed(self, feats: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        """Features (N, D) of utterances, u in rows `offsets[u]:offsets[u + 1]`, with their offsets added, float32."""
        check_dim(self.dim, feats)
        result = np.empty(feats.shape, np.float32)
        for rows, bounds in _chunks(offsets):
            x = feats[rows]
            between = np.zeros((len(x), self.projection.shape[1]), np.float32)
            for gauss, frames, h in self._expanded(x):
                between[frames] += h @ self._part(self.projection, gauss)
            result[rows] = x + self._in_context(between, bounds) @ self.c.T
        return result

    def derivative(self, feats: np.ndarray, offsets: np.ndarray, of_features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The parts p and n (both of the shape of `projection`, float64) of an objective's derivative by the matrix.

        `feats` are the features without offsets, `of_features` (N, D) is the derivative by those with them.
        """
        plus, minus = np.zeros(self.projection.shape), np.zeros(self.projection.shape)
        for rows, bounds in _chunks(offsets):
            back = self._out_of_context((of_features[rows] @ self.c).astype(np.float32), bounds)
            for gauss, frames, h in self._expanded(feats[rows]):
                high, low = np.maximum(h, 0).T, np.maximum(-h, 0).T
                up, down = np.maximum(back[frames], 0), np.maximum(-back[frames], 0)
                self._part(plus, gauss)[:] += high @ up + low @ down
                self._part(minus, gauss)[:] += high @ down + low @ up
        return plus, minus

    def updated(self, plus: np.ndarray, minus: np.ndarray, learning_rate: float, l2_weight: float = L2_WEIGHT) -> tuple[Fmpe, float]:
        """The transform after a step, and what the objective would rise by if it were linear."""
        pull = (plus + minus) / learning_rate
        moved = (plus - minus + self.projection * pull) / (2.0 * l2_weight + pull)
        gain = float(((moved - self.projection) * (plus - minus)).sum())
        return Fmpe(self.ubm, moved.astype(np.float32), self.c, self.contexts, self.post_scale, self.ngselect), gain

    def _part(self, matrix: np.ndarray, gauss: int) -> np.ndarray:
        return matrix[gauss * (self.dim + 1):(gauss + 1) * (self.dim + 1)]

    def _expanded(self, x: np.ndarray) -> list[tuple[int, np.ndarray, np.ndarray]]:
        """For each Gaussian that is among the likeliest of a frame: its number, these frames, and what they have for it of h."""
        count = min(self.ngselect, self.ubm.num_gauss)
        scores = self.ubm.scores(x)
        chosen = np.argpartition(scores, -count, axis=1)[:, -count:]
        posteriors = np.take_along_axis(scores, chosen, axis=1)
        posteriors = np.exp(posteriors - posteriors.max(axis=1, keepdims=True))
        posteriors /= posteriors.sum(axis=1, keepdims=True)
        order = np.argsort(chosen, axis=None, kind="stable")
        gausses, frames, weights = chosen.ravel()[order], order // count, posteriors.ravel()[order, None]
        found, first = np.unique(gausses, return_index=True)
        inverse = np.sqrt(self.ubm.inv_vars)
        result = []
        for gauss, start, end in zip(found.tolist(), first.tolist(), [*first[1:].tolist(), len(order)], strict=True):
            weight, mine = weights[start:end], frames[start:end]
            apart = x[mine] * inverse[gauss] - self.ubm.means_invvars[gauss] / inverse[gauss]
            result.append((gauss, mine, np.concatenate([weight * apart, self.post_scale * weight], axis=1)))
        return result

    def _in_context(self, between: np.ndarray, bounds: np.ndarray) -> np.ndarray:
        result = np.zeros((len(between), self.dim), np.float32)
        for number, context in enumerate(self._frames):
            part = between[:, number * self.dim:(number + 1) * self.dim]
            for frame, weight in context:
                here, there = _shifted(bounds, frame)
                result[here] += np.float32(weight) * part[there]
        return result

    def _out_of_context(self, derivative: np.ndarray, bounds: np.ndarray) -> np.ndarray:
        result = np.zeros((len(derivative), self.dim * len(self._frames)), np.float32)
        for number, context in enumerate(self._frames):
            part = result[:, number * self.dim:(number + 1) * self.dim]
            for frame, weight in context:
                here, there = _shifted(bounds, frame)
                part[there] += np.float32(weight) * derivative[here]
        return result

    @classmethod
    def read(cls, path: str | os.PathLike[str], ngselect: int = 2) -> Fmpe:
        """Read Kaldi's form of it, binary or text."""
        reader = KaldiReader.open(path)
        ubm = AmDiagGmm.read_mixture(reader)
        contexts, post_scale, projection = reader.token(), reader.floating(), reader.matrix()
        c = reader.triangle(ubm.dim)
        try:
            return cls(ubm, projection, c, contexts, post_scale, ngselect)
        except UserError as error:
            raise UserError(f"{path}: {error}") from error

    def write(self, path: str | os.PathLike[str], binary: bool = True) -> None:
        """Write it as Kaldi does."""
        with atomic_open(path, "wb") as stream:
            writer = KaldiWriter(stream, binary)
            self.ubm.write_mixture(writer)
            writer.token(self.contexts)
            writer.floating(self.post_scale)
            writer.matrix(self.projection)
            writer.triangle(self.c)


def _chunks(offsets: np.ndarray) -> list[tuple[slice, np.ndarray]]:
    """Runs of utterances of about `_CHUNK` frames: their rows, and their offsets from the first of these."""
    cuts = np.unique(np.searchsorted(offsets, np.arange(0, offsets[-1], _CHUNK)))
    cuts = np.unique([0, *cuts.tolist(), len(offsets) - 1])
    return [(slice(int(offsets[a]), int(offsets[b])), offsets[a:b + 1] - offsets[a]) for a, b in itertools.pairwise(cuts)]


def _shifted(bounds: np.ndarray, by: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows, and the rows `by` frames behind them in the same utterance, where there are such."""
    rows = np.arange(bounds[-1])
    number = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
    there = rows + by
    inside = (there >= bounds[number]) & (there < bounds[number + 1])
    return rows[inside], there[inside]
