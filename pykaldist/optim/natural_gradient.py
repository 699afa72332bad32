"""The online natural gradient's preconditioner: rows times a smoothed inverse Fisher matrix, kept as low rank plus identity.

Povey, Zhang & Khudanpur (2014), "Parallel training of DNNs with natural gradient and parameter averaging", arXiv:1410.7455, section 3 and
appendix A; where the paper leaves a choice, the behaviour of Kaldi's nnet3.

The rows of X (N x D) have the (uncentred) covariance S = X^T X / N. It is tracked as
    F = R^T diag(d) R + rho I,      R (rank x D) with orthonormal rows,
and smoothed towards a multiple of the identity: G = F + (alpha / D) tr(F) I. Up to a factor,
    G^-1 ~ I - R^T diag(e) R,       e_i = 1 / (beta / d_i + 1),   beta = rho (1 + alpha) + (alpha / D) sum(d).
With W = diag(e)^1/2 R, the preconditioned rows and the scale that keeps their total norm are
    H = X W^T,      Xhat = X - H W,      gamma = sqrt(tr(X X^T) / tr(Xhat Xhat^T)).

Tracking: with eta = 1 - exp(-N / num_samples_history), the wanted T = eta S + (1 - eta) F is brought back to rank R + identity by one step
of subspace iteration from the old basis. Let Y = R T. Its Gram matrix Z = Y Y^T = U diag(c) U^T needs only J = H^T X, K = J J^T, L = H^T H:
    Z = (eta/N)^2 E^-1/2 K E^-1/2 + (eta/N)(1-eta) [E^-1/2 L E^-1/2 (D + rho I) + its transpose] + (1-eta)^2 (D + rho I)^2.
The new basis is R' = diag(c)^-1/2 U^T Y, the new eigenvalues sqrt(c), of which rho' is taken off, the mean of T's energy outside of the
basis. In terms of what was computed, W' = A (J + (1-eta) N / eta (D + rho I) W), A = (eta/N) E'^1/2 C^-1/2 U^T E^-1/2: everything of size D
is two thin products, everything else rank x rank, done in double precision on the host.

The rank x rank part is `fisher_update`, a pure function. On a GPU its inputs travel to the host, and its result back, while further
minibatches are trained on: see `optim/ngsgd.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pykaldist.nnet.gemm import product

EPSILON = 1e-10  # floor of rho and d
DELTA = 5e-4  # floor of rho and d, relative to the largest eigenvalue
FIRST_UPDATES = 10  # calls after the first which update in any case
START_PASSES = 3  # updates on the first minibatch, before it is preconditioned
MAX_CONDITION = 1e6  # of c, beyond which the basis is made orthonormal again
MAX_DEVIATION = 1e-3  # of the basis from orthonormality
MAX_INVERSE_CHOLESKY = 100.0


@dataclass
class Spectrum:
    """d (rank,) float64 on the host, and rho: the eigenvalues of the Fisher model beside its basis."""

    d: Tensor
    rho: float

    def e(self, dim: int, alpha: float) -> Tensor:
        """(rank,): how much of each basis direction the inverse takes off."""
        beta = self.rho * (1.0 + alpha) + alpha / dim * float(self.d.sum())
        return 1.0 / (beta / self.d + 1.0)


@dataclass
class FisherUpdate:
    """W' = from_j J + from_w W, and the new spectrum; `orthonormalise` where W' is to be looked at once more."""

    from_j: Tensor
    from_w: Tensor
    spectrum: Spectrum
    orthonormalise: bool


def fisher_update(jj: Tensor, hh: Tensor, trace: float, rows: int, dim: int, spectrum: Spectrum, alpha: float,
                  num_samples_history: float) -> FisherUpdate:
    """K = J J^T, L = H^T H (rank, rank) and tr(X X^T) of a minibatch of `rows` rows, to the next model. All in float64 on the host."""
    d, rho, rank = spectrum.d, spectrum.rho, len(spectrum.d)
    eta = min(0.9, 1.0 - math.exp(-rows / num_samples_history))
    e = spectrum.e(dim, alpha)
    root = e.rsqrt()
    shifted = d + rho
    jj = 0.5 * (jj + jj.t()) * root[:, None] * root
    hh = 0.5 * (hh + hh.t()) * root[:, None] * root
    z = (eta / rows) ** 2 * jj + (eta / rows) * (1.0 - eta) * (hh * shifted + shifted[:, None] * hh)
    z += torch.diag((1.0 - eta) ** 2 * shifted**2)
    size = max(1.0, float(z.trace()))  # keeps the eigensolver in range
    c, u = torch.linalg.eigh(z / size)
    order = c.abs().argsort(descending=True, stable=True)
    c, u = c[order] * size, u[:, order]
    floor = (rho * (1.0 - eta)) ** 2
    orthonormalise = bool(c[0] > MAX_CONDITION * c[-1]) or bool((c < floor).any())
    c = c.clamp_min(floor)
    sigma = c.sqrt()
    new_rho = (eta / rows * trace + (1.0 - eta) * (dim * rho + float(d.sum())) - float(sigma.sum())) / (dim - rank)
    least = max(EPSILON, DELTA * float(sigma.max()))
    new = Spectrum((sigma - new_rho).clamp_min(least), max(new_rho, least))
    from_j = (eta / rows) * (new.e(dim, alpha).sqrt() / sigma)[:, None] * u.t() * root
    return FisherUpdate(from_j, from_j * ((1.0 - eta) * rows / eta * shifted), new, orthonormalise)


def orthonormalised(w: Tensor, e: Tensor) -> Tensor:
    """W (rank, dim) with the rows of E^-1/2 W made orthonormal; w itself where they are. Float64."""
    root = e.rsqrt()
    gram = (w @ w.t()) * root[:, None] * root
    if float((gram - torch.eye(len(e), dtype=w.dtype)).abs().max()) <= MAX_DEVIATION:
        return w
    cholesky, failed = torch.linalg.cholesky_ex(gram)
    if not failed:
        inverse = torch.linalg.solve_triangular(cholesky, torch.eye(len(e), dtype=w.dtype), upper=False)
        if float(inverse.max()) < MAX_INVERSE_CHOLESKY:
            return (inverse * e.sqrt()[:, None] * root) @ w
    q, r = torch.linalg.qr(w.t())  # Gram-Schmidt on the rows
    return (q * torch.sign(r.diagonal() + 0.0).where(r.diagonal() != 0, torch.ones((), dtype=w.dtype))).t() * e.sqrt()[:, None]


class OnlineNaturalGradient:
    """Preconditions minibatches of rows of dimension `dim`.

    With `ones`, the rows are taken to have one more column, of ones (the inputs of an affine map with a bias), which is never written
    out. `rank` is limited to the dimension less one; a dimension of one is left as it is.

    For each minibatch: `precondition`; where `collecting` is true, `finish(update())`, then or some minibatches later; `advance`. Nothing
    but `update` and `finish` waits for the device, and they alone change the model.
    """

    def __init__(self, dim: int, rank: int, update_period: int = 4, num_samples_history: float = 2000.0, alpha: float = 4.0,
                 ones: bool = False, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32) -> None:
        self.columns, self.dim = dim, dim + ones
        self.rank = min(rank, self.dim - 1)
        self.update_period, self.num_samples_history, self.alpha, self.ones = update_period, num_samples_history, alpha, ones
        width = -(-self.dim // 8) * 8  # rows of W start where a GPU's matrix units can read them; the padding stays zero
        self.w = torch.zeros(self.rank, width, device=device, dtype=dtype)
        self.spectrum = Spectrum(torch.full((self.rank,), EPSILON, dtype=torch.float64), EPSILON)
        self.calls = 0
        # Of the minibatch collected last: J, and K, L, tr(X X^T), rows in one small tensor that travels to the host.
        self.j = torch.zeros_like(self.w)
        self.small = torch.zeros(2 * self.rank**2 + 2, device=device, dtype=dtype)
        self._one = torch.ones((), device=device, dtype=dtype)

    @property
    def collecting(self) -> bool:
        """True where `precondition` takes the statistics of an update from this minibatch."""
        return self.rank > 0 and (self.calls <= FIRST_UPDATES or (self.calls - FIRST_UPDATES) % self.update_period == 0)

    def advance(self) -> None:
        """On to the next minibatch."""
        self.calls += 1

    def start(self, x: Tensor) -> None:
        """Make the first model from the first minibatch; to be called once, before it is preconditioned."""
        if self.rank == 0:
            return
        self.spectrum = Spectrum(torch.full((self.rank,), EPSILON, dtype=torch.float64), EPSILON)
        basis = torch.zeros(self.rank, self.w.shape[1], dtype=torch.float64)
        columns = torch.arange(self.dim)
        basis[columns % self.rank, columns] = torch.where(columns < self.rank, 1.1, 1.0).double()
        basis /= basis.norm(dim=1, keepdim=True)
        # e for d = rho: beta / d = 1 + alpha + alpha rank / dim
        self.w.copy_(basis * math.sqrt(1.0 / (2.0 + (self.dim + self.rank) * self.alpha / self.dim)))
        for _ in range(1 if len(x) <= self.rank else START_PASSES):
            trace = torch.linalg.vector_norm(x, dtype=self.w.dtype).square() + (len(x) if self.ones else 0)
            self._collect(x, self._project(x), trace)
            self.finish(self.update())

    def _project(self, x: Tensor) -> Tensor:
        """H = X W^T (n, rank)."""
        h = torch.empty(len(x), self.rank, device=x.device, dtype=self.w.dtype)
        product(x, self.w[:, : self.columns].t().to(x.dtype), h)
        return h.add_(self.w[:, self.columns]) if self.ones else h

    def precondition(self, x: Tensor, out: Tensor) -> tuple[Tensor, Tensor | None, Tensor, Tensor]:
        """x (n, columns) -> (Xhat, the column of ones preconditioned (n,) or None, row norms of Xhat (n,), gamma ()).

        Xhat is written into `out`, a buffer of n x columns elements or more; it is to be multiplied by gamma.
        """
        squares = torch.linalg.vector_norm(x, dim=1, dtype=self.w.dtype).square_()
        if self.ones:
            squares += 1.0
        if self.rank == 0:
            return x, squares.new_ones(len(x)) if self.ones else None, squares.sqrt_(), self._one
        h = self._project(x)
        trace = squares.sum()
        if self.collecting:
            self._collect(x, h, trace)
        xhat = out.view(-1)[: x.numel()].view(x.shape)
        torch.addmm(x, h.to(x.dtype), self.w[:, : self.columns].to(x.dtype), alpha=-1.0, out=xhat)
        norms = torch.linalg.vector_norm(xhat, dim=1, dtype=self.w.dtype)
        ones = None
        if self.ones:
            ones = 1.0 - torch.mv(h, self.w[:, self.columns])
            norms = torch.hypot(norms, ones)
        after = norms.square().sum()
        return xhat, ones, norms, torch.where((trace > 0) & (after > 0), (trace / after).sqrt(), self._one)

    def _collect(self, x: Tensor, h: Tensor, trace: Tensor) -> None:
        """J, K, L and the trace of a minibatch."""
        rank = self.rank
        product(h.t().to(x.dtype), x, self.j[:, : self.columns])
        if self.ones:
            self.j[:, self.columns].copy_(h.sum(0))
        torch.mm(self.j, self.j.t(), out=self.small[: rank**2].view(rank, rank))
        torch.mm(h.t(), h, out=self.small[rank**2 : 2 * rank**2].view(rank, rank))
        self.small[-2].copy_(trace)
        self.small[-1].fill_(len(x))

    def update(self, small: Tensor | None = None) -> FisherUpdate:
        """The rank x rank part of an update, on the host, from the statistics taken last (`small`: their copy on the host)."""
        rank = self.rank
        host = (self.small.cpu() if small is None else small).double()
        jj, hh, (trace, rows) = host[: rank**2].view(rank, rank), host[rank**2 : -2].view(rank, rank), host[-2:].tolist()
        return fisher_update(jj, hh, trace, int(rows), self.dim, self.spectrum, self.alpha, self.num_samples_history)

    def finish(self, update: FisherUpdate) -> None:
        """W and the spectrum become the next ones."""
        device = {"device": self.w.device, "dtype": self.w.dtype}
        new = torch.mm(update.from_j.to(**device), self.j).addmm_(update.from_w.to(**device), self.w)
        if update.orthonormalise:
            new = orthonormalised(new.double().cpu(), update.spectrum.e(self.dim, self.alpha))
        self.w.copy_(new)
        self.spectrum = update.spectrum

    def state_dict(self) -> dict[str, Any]:
        return {"w": self.w.cpu(), "d": self.spectrum.d, "rho": self.spectrum.rho, "calls": self.calls}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.w.copy_(state["w"])
        self.spectrum = Spectrum(state["d"].clone(), state["rho"])
        self.calls = state["calls"]
