"""Updates of nnet3's components, batch normalisation and the orthonormal constraint beside Kaldi's, minibatch by minibatch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from pykaldist.errors import UserError
from pykaldist.io.tables import read_archive
from pykaldist.nnet.nnet3.components import Nnet3Component
from pykaldist.nnet.nnet3.computing.batchnorm import BatchNorm
from pykaldist.nnet.nnet3.computing.orthonormal import constrain_orthonormal
from pykaldist.optim.nnet3 import ComponentUpdates, spliced, unspliced

DEFAULTS = {"NumSamplesHistory": 2000.0, "Alpha": 4.0, "AlphaInOut": [4.0, 4.0], "UpdatePeriod": 4}
COMPONENTS = {"affine": ("NaturalGradientAffineComponent", [0]), "linear": ("LinearComponent", [0]),
              "tdnn": ("TdnnComponent", [-3, 0, 3]), "tdnn_nobias": ("TdnnComponent", [-1, 0])}


@pytest.fixture(scope="module")
def kaldis(golden: Path) -> dict[str, Tensor]:
    return {key: torch.from_numpy(np.array(value)) for key, value in read_archive(golden / "chain/components.ark.gz")}


@pytest.mark.parametrize("name", COMPONENTS)
def test_natural_gradient_updates_are_kaldis(kaldis: dict[str, Tensor], name: str) -> None:
    kind, offsets = COMPONENTS[name]
    linear = kaldis[f"{name}.p0.linear"].numpy().copy()
    bias = kaldis[f"{name}.p0.bias"].numpy().ravel().copy() if f"{name}.p0.bias" in kaldis else np.zeros(0, np.float32)
    out_dim, in_dim = linear.shape
    ranks = [min(20, (in_dim + 1) // 2), min(80, (out_dim + 1) // 2)]
    parameters = {"Params": linear} if kind == "LinearComponent" else {"LinearParams": linear, "BiasParams": bias}
    component = Nnet3Component(name, kind, {**DEFAULTS, **parameters, "TimeOffsets": offsets})
    component.values.update({"RankInOut": ranks} if kind != "NaturalGradientAffineComponent" else
                            {"RankIn": ranks[0], "RankOut": ranks[1]})
    updates = ComponentUpdates(component)
    for i in range(1, 13):
        x, dy = spliced(kaldis[f"{name}.{i}.x"], offsets, 4), kaldis[f"{name}.{i}.dy"]
        y = x @ updates.linear.t() + (0 if updates.bias is None else updates.bias)
        torch.testing.assert_close(y, kaldis[f"{name}.{i}.y"], atol=3e-3 if name == "tdnn_nobias" else 1e-4, rtol=1e-4)
        torch.testing.assert_close(unspliced(dy @ updates.linear, offsets, 4), kaldis[f"{name}.{i}.dx"], atol=2e-3, rtol=1e-3)
        updates.step(x, dy, 0.05)
        torch.testing.assert_close(updates.linear, kaldis[f"{name}.p{i}.linear"], atol=5e-4 if name == "tdnn_nobias" else 1e-4, rtol=1e-4)
        if updates.bias is not None:
            torch.testing.assert_close(updates.bias, kaldis[f"{name}.p{i}.bias"].ravel(), atol=1e-4, rtol=1e-4)
    moved = np.abs(component.linear - kaldis[f"{name}.p0.linear"].numpy()).max()
    assert moved > 0.05  # it is the component's own array that was changed, and not by a trifle


def test_batch_normalisation_is_kaldis(kaldis: dict[str, Tensor]) -> None:
    norm = BatchNorm(6, target_rms=0.7, epsilon=0.001)
    with pytest.raises(UserError, match="no statistics yet"):
        norm.test_scale_offset()
    for i in range(1, 5):
        one = norm.forward(kaldis[f"batchnorm.{i}.x"])
        torch.testing.assert_close(one.y, kaldis[f"batchnorm.{i}.y"], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(norm.backward(one, kaldis[f"batchnorm.{i}.dy"]), kaldis[f"batchnorm.{i}.dx"], atol=1e-5, rtol=1e-5)
        norm.store(one)
        if i == 2:
            norm.scale_statistics(0.8)
    scale, offset = norm.test_scale_offset()
    torch.testing.assert_close(scale, kaldis["batchnorm.test.scale"].ravel(), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(offset, kaldis["batchnorm.test.offset"].ravel(), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(kaldis["batchnorm.test.x"] * scale + offset, kaldis["batchnorm.test.y"], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("name", "constraint"), [("float_random", -1.0), ("float_mid", -1.0), ("float_near", -1.0), ("one", 1.0),
                                                  ("tall_float", -1.0)])
def test_the_orthonormal_constraint_is_kaldis(kaldis: dict[str, Tensor], name: str, constraint: float) -> None:
    matrix = kaldis[f"ortho_{name}.0"].clone()
    for i in range(1, 7):
        constrain_orthonormal(matrix, constraint)
        torch.testing.assert_close(matrix, kaldis[f"ortho_{name}.{i}"], atol=1e-5, rtol=1e-5)


def test_a_matrix_that_has_no_constraint_or_no_length_stays() -> None:
    ones, zeros = torch.ones(2, 3), torch.zeros(2, 3)
    constrain_orthonormal(ones, 0.0)
    constrain_orthonormal(zeros, -1.0)
    assert (ones == 1).all() and (zeros == 0).all()
