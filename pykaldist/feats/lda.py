"""Linear discriminant analysis (LDA): a transform to the directions that separate classes (pdfs) best.

The directions are those in which the classes differ most, compared with how much each varies in itself.

With the scatter T of all frames about their mean, and the scatter B of the classes' means weighted by their frames, the scatter within
classes is W = T - B (all divided by the number of frames). Let W = L L^T; the eigenvectors u of L^-1 B L^-T, by falling eigenvalue, give
the rows u^T L^-1 of the transform, in whose space W is the identity and B is diagonal. Frames are not centred (Kaldi's est-lda with
--remove-offset=false). Source: R. Haeb-Umbach, H. Ney, "Linear discriminant analysis for improved large vocabulary continuous speech
recognition", ICASSP 1992.
"""

from __future__ import annotations

import numpy as np

from pykaldist.errors import UserError


class LdaStats:
    """The statistics of LDA: sums of frames (T, `dim`) by class 0 .. `num_classes` - 1."""

    def __init__(self, dim: int, num_classes: int) -> None:
        self.count, self.sums = np.zeros(num_classes), np.zeros((num_classes, dim))
        self.squares = np.zeros((dim, dim))

    def add(self, x: np.ndarray, classes: np.ndarray) -> None:
        """Add frames x (T, dim) with their classes (T,)."""
        x = x.astype(np.float64)
        order = np.argsort(classes, kind="stable")
        different, first = np.unique(classes[order], return_index=True)
        if len(different):
            self.sums[different] += np.add.reduceat(x[order], first)
            self.count += np.bincount(classes, minlength=len(self.count))
            self.squares += x.T @ x

    def __add__(self, other: LdaStats) -> LdaStats:
        both = LdaStats(len(self.squares), len(self.count))
        both.count, both.sums, both.squares = self.count + other.count, self.sums + other.sums, self.squares + other.squares
        return both

    def transform(self, dim: int) -> tuple[np.ndarray, np.ndarray]:
        """Estimate LDA: the first `dim` rows of the transform, and the whole of it (D, D), float64.

        Raises UserError where the data are too few.
        """
        full, total = self.squares.shape[0], self.count.sum()
        if not 1 <= dim <= full:
            raise UserError(f"LDA from {full} dimensions cannot have {dim}; ask for 1 to {full}.")
        if total <= full + len(self.count):
            raise UserError(f"LDA of {full} dimensions and {len(self.count)} classes has {total:.0f} frames; it needs more data.")
        mean = self.sums.sum(axis=0) / total
        seen = self.count > 0
        means = self.sums[seen] / self.count[seen, None]
        between = (means * self.count[seen, None]).T @ means / total - np.outer(mean, mean)
        within = self.squares / total - np.outer(mean, mean) - between
        try:
            whiten = np.linalg.inv(np.linalg.cholesky(within))
        except np.linalg.LinAlgError as error:
            raise UserError("LDA: some feature does not vary within the classes, or is a sum of others; look at the features.") from error
        values, vectors = np.linalg.eigh(whiten @ between @ whiten.T)
        matrix = vectors[:, np.argsort(-values)].T @ whiten
        return matrix[:dim], matrix
