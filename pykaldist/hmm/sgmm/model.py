"""The subspace Gaussian mixture model: all states share I Gaussians, and a state is a few vectors that say where these lie in it.

Substate m of the group j of pdfs has a vector v_jm (S), speaker s a vector v_s (T). With x in the place of a frame,

    p(x | pdf p of group j, s) = sum_m c_pm sum_i w_jmi N(x; M_i v_jm + N_i v_s, Sigma_i),
    w_jmi = exp(w_i . v_jm + u_i . v_s) / sum over i' of the same.

M_i (D, S) are the phone projections, N_i (D, T) the speaker projections, w_i (S) the weight projections, and in a symmetric model u_i (T)
the speaker's weight projections. The pdfs of a group, which are leaves below one node of a tree in two levels, share its substates and have
weights c of their own (state-clustered tied mixtures). What does not depend on the frame is kept as normalizers, with the weights of a
speaker whose vector is 0:  n_jmi = log w_jmi - 1/2 (D log 2 pi + log|Sigma_i| + v_jm^T M_i^T Sigma_i^-1 M_i v_jm).

Sources: D. Povey et al., "The subspace Gaussian mixture model - a structured model for speech recognition", Computer Speech and Language
25, 2011; D. Povey, M. Karafiat, A. Ghoshal and P. Schwarz, "A symmetrization of the subspace Gaussian mixture model", ICASSP 2011, and the
technical report to it; the file is that of Kaldi's sgmm2/am-sgmm2.cc.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from pykaldist.errors import UserError
from pykaldist.hmm.gmm.gmm import LOG_2PI, AmDiagGmm, split_targets
from pykaldist.hmm.sgmm.full_gmm import FullGmm, cholesky, symmetric_of_triangle
from pykaldist.hmm.tree.transition_model import TransitionModel
from pykaldist.io.atomic import atomic_open
from pykaldist.io.kaldi import KaldiReader, KaldiWriter

_NONE = np.zeros((0, 0))
_SPLIT_MIN_COUNT, _SPLIT_CONDITION = 40.0, 100.0


@dataclass(eq=False)
class AmSgmm2:
    """A subspace model with I Gaussians of dimension D, J groups of pdfs, K substates in all, and P pdfs; its arrays are float64.

    `precisions` (I, D, D), `phone_projections` M (I, D, S), `speaker_projections` N (I, D, T) with T = 0 where there are no speaker
    vectors, `weight_projections` w (I, S), `speaker_weight_projections` u (I, T), or of size 0; `pdf2group` (P,), `offsets` (J + 1,): group
    j has the substates `offsets[j]:offsets[j + 1]`; `vectors` v (K, S); `substate_weights` c, those of pdf p after one another at
    `weight_offsets[p]:weight_offsets[p + 1]`. `diagonal` is the UBM with diagonal covariances. `stored_normalizers` (K, I) float32 are
    those of a file that was read.
    """

    ubm: FullGmm
    diagonal: AmDiagGmm
    precisions: np.ndarray
    phone_projections: np.ndarray
    speaker_projections: np.ndarray
    weight_projections: np.ndarray
    speaker_weight_projections: np.ndarray
    pdf2group: np.ndarray
    offsets: np.ndarray
    vectors: np.ndarray
    substate_weights: np.ndarray
    stored_normalizers: np.ndarray | None = field(default=None, repr=False)

    @property
    def dim(self) -> int:
        return self.precisions.shape[1]

    @property
    def num_gauss(self) -> int:
        return len(self.precisions)

    @property
    def num_pdfs(self) -> int:
        return len(self.pdf2group)

    @property
    def num_groups(self) -> int:
        return len(self.offsets) - 1

    @property
    def num_substates(self) -> int:
        return len(self.vectors)

    @property
    def phone_dim(self) -> int:
        return self.vectors.shape[1]

    @property
    def speaker_dim(self) -> int:
        return self.speaker_projections.shape[2]

    @property
    def symmetric(self) -> bool:
        """Whether Gaussians' weights depend on the speaker."""
        return self.speaker_weight_projections.size > 0

    @cached_property
    def weight_offsets(self) -> np.ndarray:
        """Where the weights of each pdf begin in `substate_weights`, (P + 1,) int64."""
        return np.concatenate([[0], np.cumsum(np.diff(self.offsets)[self.pdf2group])])

    def substates_of_weights(self) -> np.ndarray:
        """The substate that each of `substate_weights` is of."""
        starts = self.offsets[self.pdf2group]
        sizes = np.diff(self.weight_offsets)
        return np.arange(self.weight_offsets[-1]) + np.repeat(starts - self.weight_offsets[:-1], sizes)

    @cached_property
    def log_weights(self) -> np.ndarray:
        """log w_jmi for a speaker whose vector is 0: (K, I)."""
        return log_softmax(self.vectors @ self.weight_projections.T)

    @cached_property
    def gauss_weights(self) -> np.ndarray:
        """w_jmi for a speaker whose vector is 0: (K, I)."""
        return np.exp(self.log_weights)

    @cached_property
    def normalizers(self) -> np.ndarray:
        """n_jmi (K, I) float32."""
        if self.stored_normalizers is not None:
            return self.stored_normalizers
        roots = cholesky(self.precisions)
        constants = np.log(np.diagonal(roots, axis1=1, axis2=2)).sum(1) - 0.5 * self.dim * LOG_2PI
        result = np.empty((self.num_substates, self.num_gauss), np.float32)
        for i, (root, projection) in enumerate(zip(roots, self.phone_projections, strict=True)):
            means = self.vectors @ (projection.T @ root)
            result[:, i] = self.log_weights[:, i] + constants[i] - 0.5 * np.einsum("kd,kd->k", means, means)
        return result

    def changed(self, **parts: Any) -> AmSgmm2:
        """A copy with other parameters, by their names."""
        return replace(self, stored_normalizers=None, **parts)

    def without_speakers(self) -> AmSgmm2:
        """A copy without speaker projections."""
        return self.changed(speaker_projections=np.zeros((self.num_gauss, self.dim, 0)), speaker_weight_projections=_NONE)

    @classmethod
    def initial(cls, ubm: FullGmm, pdf2group: np.ndarray, phone_dim: int, speaker_dim: int, symmetric: bool, self_weight: float) -> AmSgmm2:
        """The model to begin with: in each substate the Gaussians of the UBM, `speaker_dim` 0 makes no speaker projections.

        A group has a substate for each of its pdfs, whose weight in its own pdf is `self_weight`; with 1.0, one substate for all. Raises
        UserError for dimensions that the features do not have.
        """
        dim = ubm.dim
        if not 1 <= phone_dim <= dim + 1 or not 0 <= speaker_dim <= dim:
            raise UserError(f"--phn-dim must be 1 to {dim + 1} and --spk-dim 0 to {dim} where features have dimension {dim}, found "
                            f"{phone_dim} and {speaker_dim}.")
        transform = normalizing_transform(ubm)
        count = ubm.num_gauss
        phones = np.concatenate([ubm.means[:, :, None], np.tile(transform[:, :phone_dim - 1], (count, 1, 1))], axis=2)
        speakers = np.tile(transform[:, :speaker_dim], (count, 1, 1))
        sizes = np.bincount(pdf2group) if self_weight != 1.0 else np.ones(int(pdf2group.max()) + 1, np.int64)
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        vectors = np.zeros((offsets[-1], phone_dim))
        vectors[:, 0] = 1.0
        model = cls(ubm, ubm.diagonal(), ubm.inv_covars.astype(np.float64), phones, speakers, np.zeros((count, phone_dim)),
                    np.zeros((count, speaker_dim)) if symmetric else _NONE, np.asarray(pdf2group, np.int32), offsets, vectors, _NONE)
        model.substate_weights = model._initial_weights(self_weight)
        return model

    def _initial_weights(self, self_weight: float) -> np.ndarray:
        size = np.repeat(np.diff(self.weight_offsets), np.diff(self.weight_offsets))
        order = np.argsort(self.pdf2group, kind="stable")  # the pdfs of each group after one another
        place = np.empty(self.num_pdfs, np.int64)
        place[order] = np.arange(self.num_pdfs) - np.searchsorted(self.pdf2group[order], self.pdf2group[order])
        weights = np.where(size > 1, (1.0 - self_weight) / np.maximum(size - 1, 1), 1.0)
        own = self.weight_offsets[:-1] + np.minimum(place, np.diff(self.weight_offsets) - 1)
        weights[own] = np.where(size[own] > 1, self_weight, 1.0)
        return weights

    def split(self, occupancy: np.ndarray, target: int, power: float, rng: np.random.Generator, perturb_factor: float = 0.01) -> AmSgmm2:
        """Split substates until there are about `target`, more in groups with more frames; `occupancy` (P,) are the frames of the pdfs.

        A group gets its share by the power of its frames; it is always the substate with the highest sum of weights that is split. The two
        halves are moved apart along the directions in which vectors are least certain.
        """
        group_occupancy = np.bincount(self.pdf2group, occupancy, self.num_groups)
        sizes = np.diff(self.offsets)
        targets = np.maximum(split_targets(group_occupancy, target, power, _SPLIT_MIN_COUNT), sizes)
        if (targets == sizes).all():
            return self
        spread = self._spread(occupancy)
        vectors, weights = [], np.empty(int(targets[self.pdf2group].sum()))
        weight_offsets = np.concatenate([[0], np.cumsum(targets[self.pdf2group])])
        members = np.split(np.argsort(self.pdf2group, kind="stable"), np.cumsum(np.bincount(self.pdf2group))[:-1])
        for group, (size, wanted) in enumerate(zip(sizes.tolist(), targets.tolist(), strict=True)):
            own = np.zeros((wanted, self.phone_dim))
            own[:size] = self.vectors[self.offsets[group]:self.offsets[group + 1]]
            c = np.zeros((len(members[group]), wanted))
            for row, pdf in enumerate(members[group].tolist()):
                c[row, :size] = self.substate_weights[self.weight_offsets[pdf]:self.weight_offsets[pdf + 1]]
            for new in range(size, wanted):
                old = int(c[:, :new].sum(0).argmax())
                c[:, old] /= 2
                c[:, new] = c[:, old]
                shift = perturb_factor * spread @ rng.standard_normal(self.phone_dim)
                own[new] = own[old] + shift
                own[old] -= shift
            vectors.append(own)
            for row, pdf in enumerate(members[group].tolist()):
                weights[weight_offsets[pdf]:weight_offsets[pdf + 1]] = c[row]
        return self.changed(offsets=np.concatenate([[0], np.cumsum(targets)]), vectors=np.concatenate(vectors), substate_weights=weights)

    def _spread(self, occupancy: np.ndarray) -> np.ndarray:
        """The symmetric root (S, S) of the inverse of the vectors' average precision, M_i^T Sigma_i^-1 M_i over all Gaussians."""
        share = np.bincount(self.substates_of_weights(), self.substate_weights * np.repeat(occupancy, np.diff(self.weight_offsets)),
                            self.num_substates)
        of_gaussian = share @ self.gauss_weights
        total = np.einsum("i,ist->st", of_gaussian, vector_precisions(self)) / max(of_gaussian.sum(), 1e-300)
        values, directions = np.linalg.eigh(total)
        values = np.maximum(values, values[-1] / _SPLIT_CONDITION)
        return (directions / np.sqrt(values)) @ directions.T

    @classmethod
    def read(cls, reader: KaldiReader) -> AmSgmm2:
        """Read an `<SGMM>`, binary or text."""
        reader.expect("<SGMM>")
        sizes = {}
        for name in ("<NUMSTATES>", "<DIMENSION>", "<NUMGAUSS>"):
            reader.expect(name)
            sizes[name] = reader.integer()
        num_pdfs, dim, count = sizes.values()
        if min(num_pdfs, dim, count) < 1:
            raise reader.error(f"expected numbers of pdfs, dimensions and Gaussians, found {num_pdfs}, {dim} and {count}")
        parts: dict[str, Any] = {"<N>": np.zeros((count, dim, 0)), "<u>": _NONE}
        ubms: dict[str, Any] = {}
        pdf2group = np.arange(num_pdfs, dtype=np.int32)
        while (token := reader.token()) != "</SGMM>":
            if token == "<PDF2GROUP>":
                pdf2group = reader.int_vector()
                if len(pdf2group) != num_pdfs or not np.array_equal(np.unique(pdf2group), np.arange(pdf2group.max(initial=0) + 1)):
                    raise reader.error(f"expected the groups of {num_pdfs} pdfs, numbered from 0, found {len(pdf2group)}")
            elif token == "<DIAG_UBM>":
                ubms[token] = AmDiagGmm.read_mixture(reader)
            elif token == "<FULL_UBM>":
                ubms[token] = FullGmm.read(reader)
            elif token == "<SigmaInv>":
                parts[token] = np.stack([symmetric_of_triangle(reader.triangle(dim)) for _ in range(count)])
            elif token in ("<M>", "<N>"):
                parts[token] = _stacked(reader, [reader.matrix() for _ in range(count)], dim)
            elif token in ("<w>", "<u>"):
                parts[token] = reader.matrix()
            elif token in ("<v>", "<n>"):
                parts[token] = [reader.matrix() for _ in range(int(pdf2group.max()) + 1)]
            elif token == "<c>":
                parts[token] = [reader.vector() for _ in range(num_pdfs)]
            else:
                raise reader.error(f"expected part of a subspace model, found {token!r}")
        return cls._of_parts(reader, parts, ubms, pdf2group)

    @classmethod
    def _of_parts(cls, reader: KaldiReader, parts: dict[str, Any], ubms: dict[str, Any], pdf2group: np.ndarray) -> AmSgmm2:
        missing = [name for name in ("<SigmaInv>", "<M>", "<w>", "<v>", "<c>") if name not in parts]
        missing += [name for name in ("<DIAG_UBM>", "<FULL_UBM>") if name not in ubms]
        if missing:
            raise reader.error(f"the subspace model has no {missing[0]}; write it whole (sgmm2-copy --write-flags=gsnu)")
        sizes = [len(matrix) for matrix in parts["<v>"]]
        phone_dim, (count, dim) = parts["<w>"].shape[1], parts["<SigmaInv>"].shape[:2]
        fits = (parts["<M>"].shape == (count, dim, phone_dim) and len(parts["<w>"]) == count
                and all(matrix.shape[1] == phone_dim for matrix in parts["<v>"]) and min(sizes) > 0
                and [len(c) for c in parts["<c>"]] == [sizes[group] for group in pdf2group.tolist()]
                and parts["<u>"].shape in ((0, 0), (count, parts["<N>"].shape[2]))
                and all(ubm.num_gauss == count and ubm.dim == dim for ubm in ubms.values()))
        normalizers = parts.get("<n>")
        if not fits or (normalizers is not None and [n.shape for n in normalizers] != [(count, size) for size in sizes]):
            raise reader.error(f"the parts of the subspace model of {count} Gaussians, dimension {dim} and {phone_dim} phone dimensions do "
                               "not fit each other")
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        if normalizers is not None:
            normalizers = np.ascontiguousarray(np.concatenate([n.T for n in normalizers]), np.float32)
        precisions, m, n, w, u = (parts[name].astype(np.float64) for name in ("<SigmaInv>", "<M>", "<N>", "<w>", "<u>"))
        return cls(ubms["<FULL_UBM>"], ubms["<DIAG_UBM>"], precisions, m, n, w, u, pdf2group, offsets,
                   np.concatenate(parts["<v>"]).astype(np.float64), np.concatenate(parts["<c>"]).astype(np.float64), normalizers)

    def write(self, writer: KaldiWriter) -> None:
        """Write it as Kaldi does, whole."""
        writer.token("<SGMM>")
        writer.end_line()
        for name, value in (("<NUMSTATES>", self.num_pdfs), ("<DIMENSION>", self.dim), ("<NUMGAUSS>", self.num_gauss)):
            writer.token(name)
            writer.integer(value)
        writer.end_line()
        writer.token("<DIAG_UBM>")
        self.diagonal.write_mixture(writer)
        writer.token("<FULL_UBM>")
        self.ubm.write(writer)
        writer.token("<SigmaInv>")
        writer.end_line()
        for precision in self.precisions.astype(np.float32):
            writer.triangle(precision)
        for name, projections in (("<M>", self.phone_projections), ("<N>", self.speaker_projections)):
            if projections.shape[2]:
                writer.token(name)
                writer.end_line()
                _write_matrices(writer, projections)
        writer.token("<w>")
        writer.matrix(self.weight_projections.astype(np.float32))
        writer.token("<u>")
        writer.matrix(self.speaker_weight_projections.astype(np.float32))
        writer.token("<PDF2GROUP>")
        writer.int_vector(self.pdf2group)
        writer.token("<v>")
        _write_matrices(writer, np.split(self.vectors, self.offsets[1:-1]))
        writer.token("<c>")
        for weights in np.split(self.substate_weights.astype(np.float32), self.weight_offsets[1:-1]):
            writer.vector(weights)
        writer.token("<n>")
        _write_matrices(writer, [n.T for n in np.split(self.normalizers, self.offsets[1:-1])])
        writer.token("</SGMM>")


def _write_matrices(writer: KaldiWriter, matrices: Sequence[np.ndarray] | np.ndarray) -> None:
    for matrix in matrices:
        writer.matrix(matrix.astype(np.float32))


def _stacked(reader: KaldiReader, matrices: list[np.ndarray], dim: int) -> np.ndarray:
    """The projections of all Gaussians, of `dim` rows each, as one array."""
    shapes = {matrix.shape for matrix in matrices}
    if len(shapes) != 1 or next(iter(shapes))[0] != dim:
        raise reader.error(f"expected projections of {dim} rows and one width, found shapes {sorted(shapes)}")
    return np.stack(matrices)


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """The logarithms of each row's softmax."""
    logits = logits - logits.max(axis=1, keepdims=True)
    logits -= np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return logits


def vector_precisions(model: AmSgmm2) -> np.ndarray:
    """M_i^T Sigma_i^-1 M_i (I, S, S): how much each Gaussian's frames say about a vector."""
    return model.phone_projections.transpose(0, 2, 1) @ model.precisions @ model.phone_projections


def normalizing_transform(ubm: FullGmm) -> np.ndarray:
    """The matrix J (D, D) whose columns are the directions in which the UBM's means differ most, at the length of a covariance.

    J^-1 makes the average covariance the unit matrix and the scatter of the means diagonal, from the largest on.
    """
    weights = ubm.weights.astype(np.float64) / ubm.weights.sum(dtype=np.float64)
    within = np.einsum("i,ide->de", weights, ubm.covariances())
    centred = ubm.means - weights @ ubm.means
    root = np.linalg.cholesky(within)
    whitened = np.linalg.solve(root, centred.T)
    _, directions = np.linalg.eigh((whitened * weights) @ whitened.T)
    return root @ directions[:, ::-1]


def read_sgmm(path: str | os.PathLike[str]) -> tuple[TransitionModel, AmSgmm2]:
    """Read the transition model and the subspace model of a model file, binary or text.

    Raises UserError where the file is damaged, is another kind of model, or its two halves have different numbers of pdfs.
    """
    reader = KaldiReader.open(path)
    transition_model = TransitionModel.read(reader)
    if reader.at_end() or reader.peek_token() != "<SGMM>":
        raise UserError(f"{os.fspath(path)} is no subspace model; name the directory of a system of steps/train_sgmm2.sh.")
    model = AmSgmm2.read(reader)
    if transition_model.num_pdfs != model.num_pdfs:
        raise reader.error(f"the transition model has {transition_model.num_pdfs} pdfs, the subspace model {model.num_pdfs}")
    return transition_model, model


def is_sgmm(path: str | os.PathLike[str]) -> bool:
    """Whether a model file has a subspace model."""
    reader = KaldiReader.open(path)
    TransitionModel.read(reader)
    return not reader.at_end() and reader.peek_token() == "<SGMM>"


def write_sgmm(path: str | os.PathLike[str], transition_model: TransitionModel, model: AmSgmm2, binary: bool = True) -> None:
    """Write a model file."""
    with atomic_open(path, "wb") as stream:
        writer = KaldiWriter(stream, binary)
        transition_model.write(writer)
        model.write(writer)
