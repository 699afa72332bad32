"""The preconditioner of the online natural gradient: rows times a smoothed inverse Fisher matrix, kept as low rank plus identity.

Povey, Zhang & Khudanpur (2014), "Parallel training of DNNs with natural gradient and parameter averaging", arXiv:1410.7455, section 3 and
appendix A; where the paper leaves a choice, the behaviour of Kaldi's nnet3.

The rows of X (N x D) have the (uncentred) covariance S = X^T X / N. It is tracked as
    F = R^T diag(d) R + rho I,      R (rank x D) with orthonormal rows,
and smoothed towards a multiple of the identity: G = F + (alpha / D) tr(F) I. Up to a factor,
    G^-1 ~ I - R^T diag(e) R,       e_i = 1 / (beta / d_i + 1),   beta = rho (1 + alpha) + (alpha / D) sum(d).
With W = diag(e)^1/2 R, the preconditioned rows and the scale that keeps their total norm are
    H = X W^T,      Xhat = X - H W,      gamma = sqrt(tr(X X^T) / tr(Xhat Xhat^T)).

Tracking: with eta = 1 - exp(-N / num_samples_history), the wanted T = eta S + (1 - eta) F is brought back to rank R + identity by one
step of subspace iteration from the old basis. Let Y = R T = (eta/N) R X^T X + (1-eta) (D + rho I) R, and Z = Y Y^T = U diag(c) U^T. The
new basis is R' = diag(c)^-1/2 U^T Y, the new eigenvalues sqrt(c), of which rho' is taken off, the mean of T's energy outside of the
basis. With
    M = eta / (N (1-eta)) H^T X + (D + rho I) W,      so that Y = (1-eta) E^-1/2 M,
this is Z = (1-eta)^2 E^-1/2 M M^T E^-1/2 and W' = A M, A = (1-eta) E'^1/2 C^-1/2 U^T E^-1/2: everything of size D is three thin products,
everything else rank x rank, done on the host.

The rank x rank part is `fisher_update`, a pure function. On a GPU its inputs travel to the host, and its result back, while further
minibatches are trained on: see `optim/ngsgd.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pykaldist.kernels import kernel
from pykaldist.nnet.factor import Factor, factor
from pykaldist.nnet.gemm import accumulate, aligned, by_onednn, multiplied, norm, product, row_norms, subtract_product

EPSILON = 1e-10  # floor of rho and d
DELTA = 5e-4  # floor of rho and d, relative to the largest eigenvalue
FIRST_UPDATES = 10  # calls after the first which update in any case
START_PASSES = 3  # updates on the first minibatch, before it is preconditioned
MAX_CONDITION = 1e6  # of c, beyond which the basis is made orthonormal again
MAX_DEVIATION = 1e-3  # of the basis from orthonormality
MAX_INVERSE_CHOLESKY = 100.0
TINY = 1e-30


@kernel(nogil=True)
def roots(d: np.ndarray, rho: float, dim: int, alpha: float) -> np.ndarray:  # pragma: no cover - compiled
    """The square roots e^1/2 (rank,), where e is how much of each basis direction the inverse takes off."""
    beta = rho * (1.0 + alpha) + alpha / dim * d.sum()
    return np.sqrt(d / (beta + d))


@dataclass(eq=False)
class Spectrum:
    """The eigenvalues of a Fisher model of `dim` rows, beside its basis: d (rank,) and rho, float64 on the host; alpha smooths it."""

    d: np.ndarray
    rho: float
    dim: int
    alpha: float

    @cached_property
    def root(self) -> np.ndarray:
        """The square roots e^1/2 (rank,)."""
        return roots(self.d, self.rho, self.dim, self.alpha)


@dataclass
class FisherUpdate:
    """The result of an update: A of W' = A M, and the new spectrum; `orthonormalise` where W' is to be looked at once more."""

    a: np.ndarray
    spectrum: Spectrum
    orthonormalise: bool


def new_share(rows: int, num_samples_history: float) -> float:
    """The share eta of a minibatch of `rows` rows in the next model."""
    return min(0.9, 1.0 - math.exp(-rows / num_samples_history))


def new_weight(rows: int, num_samples_history: float) -> float:
    """The weight eta / (N (1 - eta)) of a minibatch's sums over its N rows in M."""
    eta = new_share(rows, num_samples_history)
    return eta / (rows * (1.0 - eta))


@dataclass(eq=False)
class Frames:
    """The rows of a padded minibatch that are frames: `real` (n, 1) is 1 for these and 0 for padding, whose rows hold zeros.

    `count`: their number; `weight`: the `new_weight` of so many.
    """

    real: Tensor
    count: Factor
    weight: Factor


def fisher_update(gram: np.ndarray, trace: float, rows: int, spectrum: Spectrum, num_samples_history: float) -> FisherUpdate:
    """Update a Fisher model: from M M^T (rank, rank) and tr(X X^T) of a minibatch of `rows` rows to the next model, all in float64.

    What stands around the eigendecomposition is compiled: on arrays this small, numpy's time is that of two dozen calls.
    """
    eta, dim, alpha = new_share(rows, num_samples_history), spectrum.dim, spectrum.alpha
    to_y, z = _y_y(gram, spectrum.root, eta)
    try:
        c, u = torch.linalg.eigh(torch.from_numpy(z))  # reads one triangle: Z is symmetric but for rounding
    except torch.linalg.LinAlgError:
        if np.isfinite(z).all():
            raise
        c, u = torch.full((len(z),), math.nan, dtype=torch.float64), torch.eye(len(z), dtype=torch.float64)  # as the loss is no number
    a, d, rho, root, orthonormalise = _next(c.numpy(), u.numpy().T, to_y, eta, eta / rows * trace, spectrum.d, spectrum.rho, dim, alpha)
    new = Spectrum(d, rho, dim, alpha)
    new.root = root
    return FisherUpdate(a, new, orthonormalise)


@kernel(nogil=True)
def _y_y(gram: np.ndarray, root: np.ndarray, eta: float) -> tuple[np.ndarray, np.ndarray]:  # pragma: no cover - compiled
    """The factors that make Y of M, row by row; and Z."""
    to_y = (1.0 - eta) / root
    return to_y, gram * to_y * to_y.reshape(-1, 1)


@kernel(nogil=True)
def _next(values: np.ndarray, vectors: np.ndarray, to_y: np.ndarray, eta: float, energy: float, d: np.ndarray, rho: float, dim: int,
          alpha: float) -> tuple[np.ndarray, np.ndarray, float, np.ndarray, bool]:  # pragma: no cover - compiled
    """A, the next d, rho and e^1/2, and whether to orthonormalise, from an eigendecomposition.

    The eigenvalues are smallest first, the eigenvectors in rows.
    """
    c, u = values[::-1], vectors[::-1]
    floor = (rho * (1.0 - eta)) ** 2
    orthonormalise = c[0] > MAX_CONDITION * c[-1] or c[-1] < floor
    sigma = np.sqrt(np.maximum(c, floor))
    outside = (energy + (1.0 - eta) * (dim * rho + d.sum()) - sigma.sum()) / (dim - len(d))
    least = max(EPSILON, DELTA * sigma[0])
    new_d, new_rho = np.maximum(sigma - outside, least), max(outside, least)
    root = roots(new_d, new_rho, dim, alpha)
    return u * to_y * (root / sigma).reshape(-1, 1), new_d, new_rho, root, orthonormalise


def orthonormalised(w: np.ndarray, root: np.ndarray) -> np.ndarray:
    """Make the rows of E^-1/2 W orthonormal, in float64: returns W (rank, dim), or w itself where they are; root is e^1/2."""
    inverse_roots = np.multiply.outer(1.0 / root, 1.0 / root)
    gram = (w @ w.T) * inverse_roots
    if np.abs(gram - np.eye(len(root))).max() <= MAX_DEVIATION:
        return w
    w = w.astype(np.float64)
    gram = (w @ w.T) * inverse_roots
    try:
        inverse = np.linalg.inv(np.linalg.cholesky(gram))
        if inverse.max() < MAX_INVERSE_CHOLESKY:
            return (inverse * np.multiply.outer(root, 1.0 / root)) @ w
    except np.linalg.LinAlgError:
        pass  # singular: rows that depend on the others are to be replaced
    q, r = np.linalg.qr(w.T)  # Gram-Schmidt on the rows
    return (q * np.where(r.diagonal() < 0, -1.0, 1.0)).T * root[:, None]


def orthonormalise_in_place(w: Tensor, root: Tensor) -> None:
    """Do the same to W (rank, dim) on a device, with root (rank,), where the host waits for nothing: rows that are orthonormal, too."""
    scale = root.double().unsqueeze(1)
    q, r = torch.linalg.qr((w / scale).t())
    w.copy_(q.t().mul_(scale.copysign(r.diagonal().unsqueeze(1))))


class OnlineNaturalGradient:
    """The online natural gradient of one side of an affine map: it preconditions minibatches of rows of dimension `dim`.

    The rows come with `columns` columns, `dim` where it is not given, or with the next multiple of 8; those beyond `dim` hold zeros and
    stay so. `rank` is limited to the dimension less one; a dimension of one is left as it is.

    For each minibatch, with its `Frames` where it is padded: `precondition`; where `collecting` is true, `finish(update())`, then or some
    minibatches later; `advance`. Nothing but `update` and `finish` waits for the device, and they alone change the model.
    """

    _delivered = False  # while `finish` is told so

    def __init__(self, dim: int, rank: int, update_period: int = 4, num_samples_history: float = 2000.0, alpha: float = 4.0,
                 columns: int | None = None, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32) -> None:
        self.dim, self.rank = dim, min(rank, dim - 1)
        self.update_period, self.num_samples_history, self.alpha = update_period, num_samples_history, alpha
        self.w = torch.zeros(self.rank, aligned(columns or dim), device=device, dtype=dtype)  # the padding stays zero
        self._copy: Tensor | None = None
        self._transposed: Tensor | None = None  # likewise of W^T, of which oneDNN makes products in bfloat16 the faster
        self._a = torch.empty(self.rank, self.rank, device=device, dtype=dtype)
        self._shifted = torch.empty(self.rank, 1, device=device, dtype=dtype)  # d + rho
        self._set_spectrum(self.with_eigenvalues(np.full(self.rank, EPSILON), EPSILON))
        self.calls = 0
        # Of the minibatch collected last: M, and M M^T, tr(X X^T), rows in one small tensor that travels to the host.
        self.m = torch.zeros_like(self.w)
        self.small = torch.zeros(self.rank**2 + 2, device=device, dtype=dtype)
        self._one = factor(torch.ones((), device=device, dtype=dtype))
        # Views, made once: a small network's step is made of many small calls.
        self._w, self._m = self.w[:, : columns or dim], self.m[:, : columns or dim]
        self._gram, self._trace, self._rows = self.small[:-2].view(self.rank, self.rank), self.small[-2], self.small[-1]

    def lie_in(self, taken: Tensor, given: Tensor) -> None:
        """Let what travels to the host (`small`) lie in `taken` (rank^2 + 2,), what comes from it in `given`: A, then d + rho (rank,)."""
        self.small = taken.copy_(self.small)
        self._gram, self._trace, self._rows = self.small[:-2].view(self.rank, self.rank), self.small[-2], self.small[-1]
        given[self.rank**2 :].copy_(self._shifted.view(-1))
        self._a, self._shifted = given[: self.rank**2].view(self.rank, self.rank), given[self.rank**2 :].view(self.rank, 1)

    @property
    def collecting(self) -> bool:
        """True where `precondition` takes the statistics of an update from this minibatch."""
        return self.rank > 0 and (self.calls <= FIRST_UPDATES or (self.calls - FIRST_UPDATES) % self.update_period == 0)

    def advance(self) -> None:
        """Count a minibatch: go on to the next one."""
        self.calls += 1

    def start(self, x: Tensor, frames: Frames | None = None) -> None:
        """Make the first model from the first minibatch; to be called once, before it is preconditioned."""
        if self.rank == 0:
            return
        spectrum = self.with_eigenvalues(np.full(self.rank, EPSILON), EPSILON)
        basis = np.zeros(self.w.shape)
        columns = np.arange(self.dim)
        basis[columns % self.rank, columns] = np.where(columns < self.rank, 1.1, 1.0)
        basis /= np.linalg.norm(basis, axis=1, keepdims=True)
        self.w.copy_(torch.from_numpy(basis * spectrum.root[:, None]))
        self._set_spectrum(spectrum)
        for _ in range(1 if x.shape[0] <= self.rank else START_PASSES):
            self._set_trace(norm(x, self.w.dtype))
            self._collect(x, self._project(x, self._like(x)), frames)
            self.finish(self.update())

    def _like(self, x: Tensor) -> Tensor:
        """W in the type of x and as wide, and without gaps for oneDNN; where that is another, a copy that is kept up to date."""
        w = self._as_wide(self._w, self.w, x)
        if x.dtype == w.dtype and (w.is_contiguous() or not by_onednn(x)):
            return w
        if self._copy is None:
            self._copy = (w if x.is_cpu else self.w).to(x.dtype, copy=True, memory_format=torch.contiguous_format)
        return self._as_wide(self._copy, self._copy, x)

    @staticmethod
    def _as_wide(usual: Tensor, whole: Tensor, x: Tensor) -> Tensor:
        """A matrix of this model (rank, columns) as wide as x: the view that was made once, or one of all that there is."""
        return usual if usual.shape[1] == x.shape[1] else whole[:, : x.shape[1]]

    def _project(self, x: Tensor, w: Tensor) -> Tensor:
        """Compute H = X W^T (n, rank), of the type of x; where MKL multiplies, in float32, H^T = W X^T is the faster way."""
        if x.dtype == torch.bfloat16 and x.is_cuda:
            return torch.mm(x, w.t(), out=x.new_empty(len(x), aligned(self.rank))[:, : self.rank])
        if x.dtype == torch.bfloat16:
            if self._transposed is None:
                self._transposed = w.t().contiguous()
            return torch.mm(x, self._transposed)
        if by_onednn(x):
            return multiplied(x, w.t())
        return product(w, x.t(), torch.empty(self.rank, x.shape[0], device=x.device, dtype=x.dtype)).t()

    def precondition(self, x: Tensor, frames: Frames | None = None) -> tuple[Tensor, Factor]:
        """Precondition a minibatch: x (n, columns) becomes Xhat, which is to be multiplied by gamma.

        Returns (row norms of Xhat (n,), gamma, which is 0 for silence).
        """
        if self.rank == 0:
            return row_norms(x, self.w.dtype), self._one
        w = self._like(x)
        h = self._project(x, w)
        if self.collecting:
            self._collect(x, h, frames)
        norms, before, after = subtract_product(x, h, w, self.w.dtype)
        if self.collecting:
            self._set_trace(before)
        return norms, before / (after + TINY)

    def _set_trace(self, norm: Factor) -> None:
        """Set tr(X X^T) of the statistics to the square of the norm of X."""
        if isinstance(norm, Tensor):
            torch.square(norm, out=self._trace)
        else:
            self._trace.fill_(norm * norm)

    def _collect(self, x: Tensor, h: Tensor, frames: Frames | None) -> None:
        """Take the statistics of a minibatch, beside tr(X X^T)."""
        rows: Factor = x.shape[0] if frames is None else frames.count
        weight = new_weight(x.shape[0], self.num_samples_history) if frames is None else frames.weight
        torch.mul(self.w, self._shifted, out=self.m)
        h, alpha = (h * weight, 1.0) if isinstance(weight, Tensor) else (h, weight)
        accumulate(self._as_wide(self._m, self.m, x), h.t(), x, 1.0, alpha)
        product(self.m, self.m.t(), self._gram)
        self._rows.fill_(rows)

    def update(self, small: Tensor | None = None) -> FisherUpdate:
        """Compute the rank x rank part of an update, on the host, from the statistics taken last (`small`: their copy on the host)."""
        host = (self.small.cpu() if small is None else small).numpy()
        gram, (trace, rows) = host[:-2].reshape(self.rank, self.rank), host[-2:].tolist()
        return fisher_update(gram, trace, int(rows), self.spectrum, self.num_samples_history)

    def finish(self, update: FisherUpdate, delivered: bool = False) -> None:
        """Finish an update: W and the spectrum become the next ones. `delivered`: what it gives lies in the place for it already."""
        self._delivered = delivered
        product(self._taken_over(update.a, self._a), self.m, self.w)
        rows = self.w[:, : self.dim]
        if update.orthonormalise and rows.is_cuda:
            orthonormalise_in_place(rows, self._to_device(update.spectrum.root, rows.new_empty(self.rank)))
        elif update.orthonormalise:
            rows.copy_(torch.from_numpy(orthonormalised(rows.numpy(), update.spectrum.root)))
        self._set_spectrum(update.spectrum)
        self._delivered = False

    def _taken_over(self, values: np.ndarray, out: Tensor) -> Tensor:
        """Copy values made on the host to `out`, unless they are there already; returns `out`."""
        return out if self._delivered else self._to_device(values, out)

    @staticmethod
    def _to_device(values: np.ndarray, out: Tensor) -> Tensor:
        """Copy values made on the host to `out`, without waiting for a device; returns `out`."""
        host = torch.from_numpy(values)
        return out.copy_(host.to(out.dtype).pin_memory(), non_blocking=True) if out.is_cuda else out.copy_(host)

    def with_eigenvalues(self, d: np.ndarray, rho: float) -> Spectrum:
        """Make a spectrum with this model's dimension and alpha."""
        return Spectrum(d, rho, self.dim, self.alpha)

    def _set_spectrum(self, spectrum: Spectrum) -> None:
        """Set the spectrum, which ends every change of W."""
        self.spectrum = spectrum
        self._taken_over((spectrum.d + spectrum.rho)[:, None], self._shifted)
        if self._copy is not None:
            self._copy.copy_(self.w[:, : self._copy.shape[1]])
        if self._copy is not None and self._transposed is not None:
            self._transposed.copy_(self._copy.t())

    def matrix(self) -> Tensor:
        """The Fisher matrix F (dim, dim), float64 on the host."""
        basis = self.w[:, : self.dim].cpu().double() / torch.from_numpy(self.spectrum.root)[:, None]
        low_rank = basis.t() @ (torch.from_numpy(self.spectrum.d)[:, None] * basis)
        return low_rank + self.spectrum.rho * torch.eye(self.dim, dtype=torch.float64)

    def set_matrix(self, matrix: Tensor) -> None:
        """Set F to the nearest that the model can hold of `matrix`: its largest eigenvalues, and the mean of the others."""
        values, vectors = torch.linalg.eigh(matrix)
        top, basis = values[-self.rank :].flip(0).numpy(), vectors[:, -self.rank :].flip(1).t().numpy()
        rho = float(values[: -self.rank].mean())
        least = max(EPSILON, DELTA * float(top[0]))
        spectrum = self.with_eigenvalues(np.maximum(top - rho, least), max(rho, least))
        self.w[:, : self.dim] = torch.from_numpy(basis * spectrum.root[:, None])
        self._set_spectrum(spectrum)

    def state_dict(self) -> dict[str, Any]:
        return {"w": self.w, "d": torch.from_numpy(self.spectrum.d), "rho": self.spectrum.rho, "calls": self.calls}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.w.copy_(state["w"])
        self._set_spectrum(self.with_eigenvalues(state["d"].numpy().copy(), state["rho"]))
        self.calls = state["calls"]
