"""Forward passes with 8-bit integers: the products are those of the rounded numbers, and networks come near to float32."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

from pykaldist.errors import UserError
from pykaldist.nnet import arithmetic
from pykaldist.nnet.cnn import CnnOptions
from pykaldist.nnet.dnn import DnnOptions
from pykaldist.nnet.int8 import QuantisedMap, QuantisedModel, quantised
from pykaldist.nnet.kinds import init_nnet, make_nnet


@pytest.fixture(autouse=True)
def vnni(tmp_path, monkeypatch):
    """A CPU that says that it has VNNI. The products of few and small numbers are right without."""
    (tmp_path / "cpuinfo").write_text("model name : Abacus 9\nflags : avx512_vnni\n")
    monkeypatch.setattr(arithmetic, "CPUINFO", tmp_path / "cpuinfo")


def randn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def test_rows_are_quantised_by_their_largest_value():
    x = torch.tensor([[1.27, -0.005, 0.0149], [0.0, 0.0, 0.0], [-254.0, 2.9, 127.0]])
    values, scales = quantised(x)
    assert values.dtype == torch.int8 and values[2].tolist() == [-127, 1, 64]
    assert scales.shape == (3, 1) and scales[2].item() == pytest.approx(2.0)
    assert values[0].tolist() == [127, 0, 1] and values[1].tolist() == [0, 0, 0]
    assert ((values * scales - x).abs() <= scales / 2 * 1.0001).all()


@pytest.mark.parametrize("rows", [1, 2, 17, 40])
def test_a_map_is_the_product_of_the_rounded_numbers(rows):
    x, weight, bias = randn(rows, 23), randn(9, 23), randn(9)
    (qx, rx), (qw, rw) = quantised(x), quantised(weight)
    exact = qx.numpy().astype(np.int64) @ qw.numpy().astype(np.int64).T
    expected = exact * rx.numpy().astype(np.float64) * rw.numpy().astype(np.float64).T
    assert QuantisedMap(weight, bias)(x).numpy() == pytest.approx(expected + bias.numpy(), rel=1e-5, abs=1e-5)
    assert QuantisedMap(weight, None)(x).numpy() == pytest.approx(expected, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("options", [DnnOptions(3, 64, "sigmoid"), DnnOptions(2, 64, "relu", dropout=0.3),
                                     DnnOptions(2, 64, "tanh", bottleneck_dim=16)])
def test_a_network_comes_near_whatever_frames_are_beside(options):
    model = make_nnet(options, 40, 30, 1)
    init_nnet(model, options, torch.Generator().manual_seed(0))
    inputs = randn(600, 40)
    kept = inputs.clone()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # what PyTorch is about to remove
        found = QuantisedModel(model).forward(inputs)
    expected = model.forward(inputs)
    assert 0.0 < (found - expected).norm() / expected.norm() < 0.02
    assert torch.equal(inputs, kept)
    assert torch.allclose(QuantisedModel(model).forward(inputs[550:]), found[550:], atol=1e-5)


def test_what_cannot_be_quantised_is_refused(tmp_path):
    for nnet, dim in ((CnnOptions(conv="1x2x3", hid_layers=0), 8),):
        with pytest.raises(UserError, match="--dtype int8 is for networks whose maps are all affine layers"):
            QuantisedModel(make_nnet(nnet, dim, 4, 1))
    (tmp_path / "cpuinfo").write_text("model name : Abacus 9\nflags : avx2 avx512f\n")
    with pytest.raises(UserError, match=r"--dtype int8 needs a CPU with AMX, AVX512-VNNI, AVX-VNNI, and this one \(Abacus 9\) has none"):
        QuantisedModel(make_nnet(DnnOptions(1, 8), 8, 4, 1))
