"""The M-step of subspace models: vectors and projections that raise the auxiliary function of statistics (posteriors.py).

With H_i = M_i^T Sigma_i^-1 M_i, the auxiliary function of a substate's vector is
    sum_i gamma_jmi log w_jmi(v) + y_jm . v - 1/2 v^T (sum_i gamma_jmi H_i) v,
and the logarithms of softmax weights, here and in w_i, are bounded by quadratic functions around the present value: with the frames
gamma_jm of a substate, slope gamma_jmi - gamma_jm w_jmi and curvature max(gamma_jmi, gamma_jm w_jmi). A step that does not raise the
function is halved. In a symmetric model, log a_jmi is added to the exponents of the weights. With Q_i = sum_jm gamma_jmi v_jm v_jm^T,
    M_i = Y_i Q_i^-1,     N_i = Z_i R_i^-1,     Sigma_i = (S_i - Y_i M_i^T - M_i Y_i^T + M_i Q_i M_i^T) / gamma_i,
of which Sigma_i is floored by a part of their average; u_i moves by U_i^-1 t_i. All problems x . g - 1/2 x^T H x are solved with the small
eigenvalues of H floored, for all substates or Gaussians at once. At last the space of vectors is turned and scaled so that vectors have
unit scatter, and H is diagonal on average.

Source: Povey et al., 2011, section 5 and appendices; the report on symmetric models; Kaldi's sgmm2/estimate-am-sgmm2.cc.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pykaldist.errors import UserError
from pykaldist.hmm.sgmm.model import AmSgmm2, log_softmax, vector_precisions
from pykaldist.hmm.sgmm.posteriors import SgmmStats
from pykaldist.options import option

MAX_CONDITION = 1e5
_BACKTRACKS = 10
_WEIGHT_SWEEPS, _LEAST_STEP = 3, 0.001
_LEAST_U_COUNT = 200.0  # frames of a Gaussian whose u is updated


@dataclass
class UpdateOptions:
    """Options of the M-step, by Kaldi's names."""

    tau_c: float = option(2.0, "frames of each substate that smooth a pdf's weights")
    cov_floor: float = option(0.025, "floor of covariances, as a part of their average")
    cov_diag_ratio: float = option(2.0, "frames a dimension below which a covariance is diagonal")
    max_impr_u: float = option(0.25, "most that u may raise the auxiliary function by, a frame")

    def __post_init__(self) -> None:
        for name in ("tau_c", "cov_floor", "cov_diag_ratio", "max_impr_u"):
            if getattr(self, name) < 0:
                raise UserError(f"--{name.replace('_', '-')} must not be negative, found {getattr(self, name):g}.")


@dataclass
class SgmmUpdate:
    """What an M-step has done: the model, and what each parameter has raised its auxiliary function by, a frame."""

    model: AmSgmm2
    gains: dict[str, float]

    def line(self, digits: int = 4) -> str:
        """The gains as text."""
        return ", ".join(f"{name} {gain:+.{digits}f}" for name, gain in self.gains.items())


def update(model: AmSgmm2, stats: SgmmStats, parameters: str, options: UpdateOptions, renormalize: bool = True) -> SgmmUpdate:
    """Update the parameters that `parameters` names, a part of vMNwcSu (t, transitions, is the caller's).

    Vectors and projections are estimated from statistics of the old ones; weights from those of the new vectors, as in Kaldi.
    """
    log_a, gains, old = _log_a(stats), {}, model
    h = vector_precisions(model)
    frames = max(stats.frames, 1e-20)
    steps: list[tuple[str, Callable[[], tuple[dict[str, np.ndarray], float]]]] = [
        ("v", lambda: updated_vectors(old, stats, h, log_a)),
        ("M", lambda: updated_phone_projections(old, stats)),
        ("w", lambda: updated_weight_projections(model, stats, log_a)),
        ("S", lambda: updated_precisions(old, stats, options)),
        ("c", lambda: updated_substate_weights(old, stats, options.tau_c)),
        ("N", lambda: updated_speaker_projections(old, stats)),
        ("u", lambda: updated_speaker_weight_projections(old, stats, options.max_impr_u))]
    for name, step in steps:
        if name in parameters:
            changed, gain = step()
            model, gains[name] = model.changed(**changed), gain / frames
    if renormalize:
        model = renormalized(model, np.einsum("i,ist->st", stats.gamma_i, h) / max(stats.gamma_i.sum(), 1e-20))
    return SgmmUpdate(model, gains)


def solve(h: np.ndarray, g: np.ndarray, start: np.ndarray, max_condition: float = MAX_CONDITION) -> np.ndarray:
    """The maxima (n, S) of x . g - 1/2 x^T H x for n problems (n, S, S) and (n, S), where that is no lower than at `start`.

    Eigenvalues of H are floored at a part of the largest; where H is 0, `start` stays.
    """
    slope = g - np.einsum("nst,nt->ns", h, start)
    values, vectors = np.linalg.eigh(h)
    values = np.maximum(values, np.maximum(values[:, -1:] / max_condition, 1e-40))
    step = np.einsum("nst,nt->ns", vectors, np.einsum("nst,ns->nt", vectors, slope) / values)
    rises = np.einsum("ns,ns->n", step, slope) - 0.5 * np.einsum("ns,nst,nt->n", step, h, step, optimize=True) >= 0
    rises &= np.abs(h).max(axis=(1, 2), initial=0.0) > 0
    return start + np.where(rises[:, None], step, 0.0)


def solve_projections(q: np.ndarray, y: np.ndarray, precisions: np.ndarray, start: np.ndarray) -> tuple[np.ndarray, float]:
    """The matrices M (I, D, S) that maximise tr(M^T P Y) - 1/2 tr(P M Q M^T) for each Gaussian, and what they raise it by in all.

    `q` is (I, S, S), `y` (I, D, S), the precisions P (I, D, D).
    """
    slope = y - start @ q
    values, vectors = np.linalg.eigh(q)
    values = np.maximum(values, np.maximum(values[:, -1:] / MAX_CONDITION, 1e-40))
    step = (slope @ vectors / values[:, None, :]) @ vectors.transpose(0, 2, 1)
    weighted = precisions @ step
    rise = (weighted * slope).sum(axis=(1, 2)) - 0.5 * ((weighted @ q) * step).sum(axis=(1, 2))
    taken = (rise >= 0) & (np.abs(q).max(axis=(1, 2), initial=0.0) > 0)
    return start + np.where(taken[:, None, None], step, 0.0), float(rise[taken].sum())


def expected_weights(model: AmSgmm2, stats: SgmmStats) -> np.ndarray:
    """The frames of each substate, divided among Gaussians by their weights (in a symmetric model those of its speakers): (K, I)."""
    logits = model.vectors @ model.weight_projections.T + _log_a(stats)
    return stats.gamma.sum(1, keepdims=True) * np.exp(log_softmax(logits))


def _log_a(stats: SgmmStats) -> np.ndarray | float:
    """log a_jmi (K, I), 0 for substates without frames, or 0 where the model is not symmetric."""
    if not stats.a.size:
        return 0.0
    return np.log(np.where(stats.a > 0, stats.a, 1.0))


def updated_vectors(model: AmSgmm2, stats: SgmmStats, h: np.ndarray, log_a: np.ndarray | float) -> tuple[dict[str, np.ndarray], float]:
    """New vectors of substates, and the gain in all."""
    gamma, w, old = stats.gamma, model.weight_projections, model.vectors
    phone_dim = model.phone_dim
    of_substate = gamma.sum(1, keepdims=True)
    means = (gamma @ h.reshape(len(h), -1)).reshape(-1, phone_dim, phone_dim)

    def value(vectors: np.ndarray) -> np.ndarray:
        return ((log_softmax(vectors @ w.T + log_a) * gamma).sum(1) + (vectors * stats.y).sum(1)
                - 0.5 * np.einsum("ks,kst,kt->k", vectors, means, vectors, optimize=True))

    weights = of_substate * np.exp(log_softmax(old @ w.T + log_a))
    curvature = np.maximum(gamma, weights)
    outer = (w[:, :, None] * w[:, None, :]).reshape(len(w), -1)
    g = stats.y + (gamma - weights + curvature * (old @ w.T)) @ w
    vectors = solve(means + (curvature @ outer).reshape(means.shape), g, old)
    before, after = value(old), value(vectors)
    for _ in range(_BACKTRACKS):
        worse = after < before
        if not worse.any():
            break
        vectors = np.where(worse[:, None], 0.5 * (vectors + old), vectors)
        after = value(vectors)
    worse = after < before
    vectors = np.where(worse[:, None], old, vectors)
    return {"vectors": vectors}, float((after - before)[~worse].sum())


def updated_phone_projections(model: AmSgmm2, stats: SgmmStats) -> tuple[dict[str, np.ndarray], float]:
    """New M, of Gaussians with as many frames as dimensions at least, and the gain in all."""
    fed = stats.gamma_i >= model.dim
    q = scatter(model, stats)
    found, gain = solve_projections(q[fed], stats.big_y[fed], model.precisions[fed], model.phone_projections[fed])
    projections = model.phone_projections.copy()
    projections[fed] = found
    return {"phone_projections": projections}, gain


def scatter(model: AmSgmm2, stats: SgmmStats) -> np.ndarray:
    """Q_i (I, S, S)."""
    outer = (model.vectors[:, :, None] * model.vectors[:, None, :]).reshape(model.num_substates, -1)
    return (stats.gamma.T @ outer).reshape(model.num_gauss, model.phone_dim, model.phone_dim)


def updated_weight_projections(model: AmSgmm2, stats: SgmmStats, log_a: np.ndarray | float) -> tuple[dict[str, np.ndarray], float]:
    """New w, and the gain in all; the step of all Gaussians is halved where it does not raise the function."""
    gamma, v = stats.gamma, model.vectors
    of_substate = gamma.sum(1, keepdims=True)
    outer = (v[:, :, None] * v[:, None, :]).reshape(len(v), -1)

    def value(w: np.ndarray) -> float:
        return float((log_softmax(v @ w.T + log_a) * gamma).sum())

    w = model.weight_projections
    start = best = value(w)
    for _ in range(_WEIGHT_SWEEPS):
        weights = of_substate * np.exp(log_softmax(v @ w.T + log_a))
        curvature = (np.maximum(gamma, weights).T @ outer).reshape(-1, model.phone_dim, model.phone_dim)
        step = solve(curvature, (gamma - weights).T @ v, np.zeros_like(w))
        size = 1.0
        while size >= _LEAST_STEP and (found := value(w + size * step)) < best:
            size /= 2
        if size < _LEAST_STEP:
            break
        w, best = w + size * step, found
    return {"weight_projections": w}, best - start


def updated_precisions(model: AmSgmm2, stats: SgmmStats, options: UpdateOptions) -> tuple[dict[str, np.ndarray], float]:
    """New Sigma_i^-1, and the gain in all."""
    gamma, sums = stats.gamma_i, covariance_sums(model, stats)
    covariances = sums / np.maximum(gamma, 1e-20)[:, None, None]
    empty = gamma <= 1e-20
    covariances[empty] = np.linalg.inv(model.precisions[empty])
    floor = limited(options.cov_floor * sums.sum(0) / max(gamma.sum(), 1e-20))
    few = gamma < options.cov_diag_ratio * model.dim
    diagonal = np.eye(model.dim, dtype=bool)
    new = floored(np.where(few[:, None, None] & ~diagonal, 0.0, covariances), floor)
    precisions = np.linalg.inv(new)
    precisions = 0.5 * (precisions + precisions.transpose(0, 2, 1))

    def value(precisions: np.ndarray) -> np.ndarray:
        return 0.5 * gamma * (np.linalg.slogdet(precisions)[1] - np.einsum("ide,ide->i", precisions, covariances))

    gain = value(precisions) - value(model.precisions)
    return {"precisions": precisions}, float(gain[~few].sum())


def covariance_sums(model: AmSgmm2, stats: SgmmStats) -> np.ndarray:
    """The scatter of each Gaussian's frames around their means, sum_tjm g_tjmi (x_ti - M_i v_jm)(x_ti - M_i v_jm)^T: (I, D, D)."""
    m = model.phone_projections
    cross = stats.big_y @ m.transpose(0, 2, 1)
    return stats.big_s - cross - cross.transpose(0, 2, 1) + m @ scatter(model, stats) @ m.transpose(0, 2, 1)


def log_gains(new: np.ndarray, old: np.ndarray) -> np.ndarray:
    """log|P| - log|P_old| of precisions (I, D, D)."""
    return np.linalg.slogdet(new)[1] - np.linalg.slogdet(old)[1]


def limited(matrix: np.ndarray, max_condition: float = MAX_CONDITION) -> np.ndarray:
    """A symmetric matrix with its eigenvalues floored at a part of the largest."""
    values, vectors = np.linalg.eigh(matrix)
    return (vectors * np.maximum(values, max(values[-1] / max_condition, 1e-20))) @ vectors.T


def floored(matrices: np.ndarray, floor: np.ndarray) -> np.ndarray:
    """Symmetric matrices (n, D, D) none of which is smaller than `floor` in any direction."""
    root = np.linalg.cholesky(floor)
    inverse = np.linalg.inv(root)
    values, vectors = np.linalg.eigh(inverse @ matrices @ inverse.T)
    spread = root @ vectors
    return (spread * np.maximum(values, 1.0)[:, None, :]) @ spread.transpose(0, 2, 1)


def updated_substate_weights(model: AmSgmm2, stats: SgmmStats, tau_c: float) -> tuple[dict[str, np.ndarray], float]:
    """New weights of pdfs' substates, and the gain in all."""
    counts, starts = stats.gamma_c + tau_c, model.weight_offsets[:-1]
    totals = np.repeat(np.add.reduceat(counts, starts), np.diff(model.weight_offsets))
    weights = np.where(totals > 0, counts / np.maximum(totals, 1e-300), model.substate_weights)
    with np.errstate(divide="ignore", invalid="ignore"):
        gain = np.where(stats.gamma_c > 0, stats.gamma_c * np.log(weights / np.maximum(model.substate_weights, 1e-10)), 0.0)
    return {"substate_weights": weights}, float(gain.sum())


def updated_speaker_projections(model: AmSgmm2, stats: SgmmStats) -> tuple[dict[str, np.ndarray], float]:
    """New N, of Gaussians with two frames a dimension at least, and the gain in all."""
    fed = stats.gamma_i >= 2 * model.speaker_dim
    found, gain = solve_projections(stats.big_r[fed], stats.big_z[fed], model.precisions[fed], model.speaker_projections[fed])
    projections = model.speaker_projections.copy()
    projections[fed] = found
    return {"speaker_projections": projections}, gain


def updated_speaker_weight_projections(model: AmSgmm2, stats: SgmmStats, most: float) -> tuple[dict[str, np.ndarray], float]:
    """New u, of Gaussians with 200 frames at least, and what the quadratic function rises by in all, a frame by no more than `most`."""
    fed = stats.gamma_i >= _LEAST_U_COUNT
    step = solve(stats.big_u[fed], stats.t[fed], np.zeros((int(fed.sum()), model.speaker_dim)))
    gain = (step * stats.t[fed]).sum(1) - 0.5 * np.einsum("ns,nst,nt->n", step, stats.big_u[fed], step, optimize=True)
    scale = np.minimum(1.0, most / np.maximum(gain / stats.gamma_i[fed], 1e-300))
    projections = model.speaker_weight_projections.copy()
    projections[fed] += scale[:, None] * step
    return {"speaker_weight_projections": projections}, float((scale * gain).sum())


def renormalized(model: AmSgmm2, average: np.ndarray) -> AmSgmm2:
    """The same model in other coordinates of the vectors: of unit scatter, with `average` (S, S), their average precision, diagonal.

    A model whose vectors do not span the space stays as it is.
    """
    spread = model.vectors.T @ model.vectors / model.num_substates
    if np.linalg.eigvalsh(spread)[0] <= 1e-10 * np.trace(spread):
        return model
    root = np.linalg.cholesky(spread)
    _, vectors = np.linalg.eigh(root.T @ average @ root)
    back = root @ vectors[:, ::-1]  # from the new coordinates to the old ones
    return model.changed(vectors=np.linalg.solve(back, model.vectors.T).T, weight_projections=model.weight_projections @ back,
                         phone_projections=model.phone_projections @ back)
